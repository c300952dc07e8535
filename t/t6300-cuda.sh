#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs on the cuda device, simulated on the host: a host that touches device memory gets SIGSEGV.  If this broke, the
# engine would read device addresses itself, copy too late, or pass device memory to a movement that expects host
# memory.  A checkpoint might contain values that were not fetched.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

[ -r "${HD_TEST_CUDA_SO:-$build/heddle-cuda-sim.so}" ] || skip_all "no C++ compiler was there, so there is no simulated cuda device"
sim=${HD_TEST_CUDA_SO:-$build/heddle-cuda-sim.so}	# t/gpu/run-all gives the real one, on a GPU
export HD_TEST_SHARE_GPU=1
small="--set model.embed=16 --set model.layers=2 --set train.seq=8 --set train.steps=2 --set train.optimizer=sgd
	--set train.threads=1 --set train.eval_batches=1 --set train.precision=fp32"

# Losses and norms of two metrics files agree up to rounding.  The bound for fp32 has u = 2^-24 and the lengths of all
# sums in two steps.  They are those of two layers (embed 16, mlp 64, seq 8, head 4), of 256 tokens and of a batch of
# 64.  The file t/lib/layout_run.h derives the formula.
fp32=$(awk 'BEGIN { print sqrt((2 * (16 * 16 + 2 * 64 + 6 * 8 + 2 * 4 + 30 * 2) + 2 * 256 + 64) / 3 * (1 + 4 * 2)) / 2 ^ 24 }')
near=$fp32 near_norm=			# near_norm is the bound for norms; if it is empty, near is
alike() {
	paste -d ' ' "$1" "$2" | awk -v loss=$near -v norm=${near_norm:-$near} '
		function value(s, key) { return match(s, "\"" key "\": [-0-9.e+]+") ? substr(s, RSTART + length(key) + 4, RLENGTH - length(key) - 4) : "" }
		{
			n = split($0, half, "} {")
			split("loss grad_norm valid_loss", keys, " ")
			for (k in keys) {
				a = value(half[1], keys[k]); b = value(half[2], keys[k])
				if (a == "" && b == "")
					continue
				d = a - b; d = d < 0 ? -d : d
				if (n != 2 || d > (keys[k] == "grad_norm" ? norm : loss) * (a < 0 ? -a : a) || a == "" || b == "")
					bad = bad " " keys[k] " " a " and " b
				seen++
			}
		}
		END { if (bad || seen < 4) print seen + 0, "compared;" bad }'
}

ini=tiny.ini cpus=1
on_cpu() {
	if [ $cpus = 1 ]; then heddle train $ini $small --set train.device=cpu "$@" >cpu.out 2>&1
	else heddle_mpi $cpus train $ini $small --set train.device=cpu "$@" >cpu.out 2>&1; fi || cat cpu.out
}
on_cuda() {
	n=$1; shift
	export HD_TEST_CUDA_MODULE="$sim"
	if [ "$n" = 1 ]; then heddle train $ini $small --set train.device=cuda --set train.comm=mpi "$@" >cuda.out 2>&1
	else heddle_mpi "$n" train $ini $small --set train.device=cuda --set train.comm=mpi "$@" >cuda.out 2>&1; fi || cat cuda.out
	grep '^simulation: ' cuda.out		# calls that a capture refuses although the run continues
	unset HD_TEST_CUDA_MODULE
}

# Layouts that only a full sweep runs resemble those of every tier, with different kernels of t/cuda or a different
# transport.
sweep() { ! whole_sweep || layout "$@"; }
layout() {		# WHAT RANKS ARGS...
	what=$1 ranks=$2; shift 2
	rm -f cpu.json cuda.json
	on_cpu --set log.metrics=cpu.json "$@" >why
	on_cuda "$ranks" --set log.metrics=cuda.json "$@" >>why
	alike cpu.json cuda.json >>why
	is "$what: the losses and norms are those of the CPU" "$(cat why)" ""
}

layout "one rank, dropout" 1 --set model.dropout=0.1 --set log.sample=4
sweep "llama" 1 --set model.family=llama
# u = 2^-8, 20 tensors that are rounded in each of 3 blocks, in both runs.  The loss is a mean over 64 tokens, as in
# t/t1250-bf16-layouts.c.
near=$(awk 'BEGIN { print sqrt(2 * 20 * 3 / 64) / 256 }') near_norm=$(awk 'BEGIN { print sqrt(2 * 20 * 3) / 256 }')
sweep "one rank, bf16" 1 --set train.precision=bf16 --set model.dropout=0.1 --set log.sample=4
layout "llama, bf16, adamw" 1 --set train.precision=bf16 --set model.family=llama --set model.kv_heads=2 --set train.optimizer=adamw
layout "two replicas, bf16" 2 --set train.precision=bf16
near=$fp32 near_norm=
layout "two replicas" 2
# With several buckets, updated weights take the memory of gradients that earlier updates have read.  So not all updates
# can be one launch.  AdamW divides by the root of a small number, so its bound is wider.
near=1e-4
layout "two replicas, sharded states in several buckets, adamw" 2 --set train.optimizer=adamw --set dp.zero=1 --set dp.bucket=1000
layout "two replicas, sums by servers in several buckets, adamw" 2 --set train.optimizer=adamw --set dp.sync=server --set dp.bucket=1000
near=$fp32
export HD_TEST_COMM=private
sweep "two replicas as on two hosts" 2
unset HD_TEST_COMM
sed 's/^\[strategy dp\]/[strategy pp]/; s/^plugin = dp/plugin = pp\nsize = 2/' tiny.ini >stages.ini
sed 's/^\[strategy dp\]/[strategy tp]/; s/^plugin = dp/plugin = tp\nsize = 2/' tiny.ini >cut.ini
cpus=2 ini=stages.ini
layout "two stages" 2
ini=cut.ini
layout "layers sharded over two ranks" 2
cpus=1 ini=tiny.ini

# Experts with counted rows, whose numbers only the device knows; and experts with places.
experts="--set model.family=llama --set model.experts=4 --set model.experts_per_token=2 --set model.aux_loss=0.02"
layout "experts, rows counted" 1 $experts
near=$(awk 'BEGIN { print sqrt(2 * 20 * 3 / 64) / 256 }') near_norm=$(awk 'BEGIN { print sqrt(2 * 20 * 3) / 256 }')
layout "experts, rows counted, bf16" 1 $experts --set model.router=topk --set model.experts_per_token=4 --set train.precision=bf16
near=$fp32 near_norm=
layout "experts, places" 1 --set model.experts=4 --set model.experts_per_token=2 --set model.capacity_factor=1 \
	--set model.group_tokens=8 --set model.aux_loss=0.02
sed 's/^\[strategy dp\]/[strategy ep]/; s/^plugin = dp/plugin = ep\nsize = 2/' tiny.ini >experts.ini
ini=experts.ini cpus=2
layout "experts on two ranks" 2 $experts
export HD_TEST_COMM=private
sweep "experts on two ranks as on two hosts" 2 $experts
unset HD_TEST_COMM
ini=tiny.ini cpus=1

# Updates in one launch against updates one by one, since a traced step runs and times its kernels one by one.  The runs
# are deterministic, because products are otherwise chosen by time, and a different choice rounds differently.
for low in fp32 bf16; do
	adam="--set train.optimizer=adamw --set train.steps=4 --set train.precision=$low --set train.deterministic=yes"
	on_cuda 1 $adam --set log.metrics=cpu.json --set log.trace=trace.json --set log.trace_steps=1-4 >why
	on_cuda 1 $adam --set log.metrics=cuda.json >>why
	alike cpu.json cuda.json >>why
	is "an update of all parameters in one launch equals updates one by one ($low)" "$(cat why)" ""
done

# bf16: gelu is fused into its product here and not on the CPU, so results differ by roundings.  A token has some ten of
# them on its way, each of 2^-9 of its values.
heddle explain tiny.ini $small --nodes --set train.device=cuda --set train.precision=bf16 >out
is "gelus are fused into products" "$(grep -c 'einsum_gelu \[' out) $(grep -c 'einsum_gelu_d \[' out)" "2 2"
near=0.02
sweep "bf16" 1 --set train.precision=bf16
sweep "experts in bf16" 1 $experts --set train.precision=bf16
near=$fp32

# Checkpoints saved on cuda and resumed on the CPU, and vice versa.
on_cpu --set log.metrics=whole.json >why
on_cuda 1 --set checkpoint.dir=a --set train.steps=1 --set train.decay=2 >>why
on_cpu --set checkpoint.dir=a --set checkpoint.resume=auto --set log.metrics=a.json >>why
on_cpu --set checkpoint.dir=b --set train.steps=1 --set train.decay=2 >>why
on_cuda 1 --set checkpoint.dir=b --set checkpoint.resume=auto --set log.metrics=b.json >>why
for from in a b; do
	grep '"step": 1,' whole.json >both.json
	cat $from.json >>both.json
	alike whole.json both.json >>why
done
is "a run saved on cuda resumes on the CPU, and vice versa" "$(cat why)" ""

# Values that are not finite are found in copies, and the tensor is named.
export HD_TEST_CUDA_MODULE="$sim"
heddle train tiny.ini $small --set train.device=cuda --set train.lr=1e30 --set train.clip=0 --set train.steps=4 >out 2>&1
like "a value that is not finite is found and named" \
	"$(cat out)" "first on rank 0 .*: .* computed a value of .* not finite"
heddle train tiny.ini $small $experts --set train.device=cuda --set train.lr=1e30 --set train.clip=0 --set train.steps=4 >out 2>&1
like "... also among counted rows" "$(cat out)" "first on rank 0 .*: .* computed a value of .* not finite"
unset HD_TEST_CUDA_MODULE

# Messages name what is missing.
HD_TEST_CUDA_MODULE=$tmp/none.so heddle train tiny.ini $small --set train.device=cuda >out 2>&1
like "a missing module is reported" \
	"$(cat out)" "there is no .*/none.so: this installation was built without the CUDA toolkit"
HD_TEST_CUDA_MODULE=$build/plugins/dp/.libs/dp.so heddle train tiny.ini $small --set train.device=cuda >out 2>&1
like "a shared object that is not a device is refused" "$(cat out)" "dp.so is not a heddle device"
heddle train tiny.ini $small --set train.device=cpu --set train.comm=nccl >out 2>&1
like "nccl without cuda is refused" "$(cat out)" "nccl needs GPUs, and the device is cpu"
ok "check accepts a layout for cuda on any machine" heddle check tiny.ini --set train.device=cuda --set train.comm=nccl
ok "... and explain prints its plan" heddle explain tiny.ini --ranks 2 --set train.device=cuda --set train.comm=nccl

done_testing
