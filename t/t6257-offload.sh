#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Optimizer states in host memory (dp.offload = states) on a simulated device with its own memory.  In every form of dp,
# the losses are those of a run without offload, and the device needs less memory, as planned.  Transfers and their
# costs are as explained, and runs with and without offload read each other's checkpoints.  If this broke, a model that
# needs offload would not fit, or would train differently.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sim=$build/heddle-cuda-sim.so
[ -r "$sim" ] || skip_all "no C++ compiler was there, so there is no simulated cuda device"
export HD_TEST_SHARE_GPU=1
tiny="--set model.embed=16 --set train.seq=8 --set train.threads=1 --set train.schedule=constant --set train.comm=mpi
	--set data.valid_fraction=0"
host="--set dp.offload=states"

trained() {	# RANKS NAME SETS...
	ranks=$1 name=$2
	shift 2
	rm -f "$name.jsonl"
	HD_TEST_CUDA_MODULE=$sim heddle_mpi "$ranks" train "${ini:-tiny.ini}" $tiny --set train.device=cuda --set log.metrics="$name.jsonl" \
		"$@" >"$name.out" 2>&1 || tap_comment <"$name.out"
}
# The kernels of the two devices round similarly but not identically.  Each loss is a mean over 64 tokens of numbers
# below 6 that were rounded to 2^-24 in some 100 places, at random.  So the bound is 6 x 2^-24 x sqrt(100 / 64), twice.
# Weights differ by as much.
alike() {	# WHAT FILE FILE: checks that losses and norms are equal up to rounding
	paste "$2" "$3" | awk -F'\t' '
		function value(s, key) { return match(s, "\"" key "\": [-0-9.e+]+") ? substr(s, RSTART + length(key) + 4, RLENGTH - length(key) - 4) : "" }
		{
			for (k = 1; k <= 2; k++) {
				key = k == 1 ? "loss" : "grad_norm"
				a = value($1, key); b = value($2, key)
				if (a == "" || b == "" || (a - b) ^ 2 > (2e-6 * a) ^ 2)
					print "line " NR ": " key " " a " and " b
			}
		}
		END { if (NR < 3) print NR + 0, "steps" }' >differs
	is "$1" "$(cat differs)" ""
}

# -- the same training, in every form ---------------------------------------------------------------------------------------
fp32="--set train.precision=fp32"
trained 1 plain $fp32
trained 1 off $fp32 $host
alike "offload on one rank trains as without" plain.jsonl off.jsonl
trained 1 plain16 --set train.precision=bf16
trained 1 off16 --set train.precision=bf16 $host
cmp -s plain16.jsonl off16.jsonl || alike "offload in bf16 with masters trains as without" plain16.jsonl off16.jsonl
for zero in 1 3; do
	trained 2 zero $fp32 --set dp.zero=$zero $host
	alike "offload with zero $zero trains as without" plain.jsonl zero.jsonl
done
trained 4 group $fp32 --set dp.zero=2 --set dp.zero_size=2 --set train.micro_batch=1 $host
alike "offload with zero 2 in groups of two trains as without" plain.jsonl group.jsonl
trained 3 served $fp32 --set dp.sync=server --set dp.servers=1 --set dp.size=2 $host
alike "offload to the host memory of a server trains as without" plain.jsonl served.jsonl
{ cat tiny.ini; printf '[strategy pp]\nplugin = pp\nsize = 2\n'; } >pp.ini
ini=pp.ini trained 2 stages $fp32 --set train.clip=0.5 $host
trained 1 clipped $fp32 --set train.clip=0.5
alike "offload with two stages and clipping trains as without" clipped.jsonl stages.jsonl

# Each size of a batch that grows has its own program, with its own buckets and copies, on the same states.
whole_sweep && more="1 2,dp.bucket=1K"
for way in 2,dp.zero=1 $more; do
	ramp="--set train.global_batch_ramp=4,4,96 --set train.steps=5"
	[ -s ramp.jsonl ] || trained 1 ramp $fp32 $ramp --set train.micro_batch=1
	trained ${way%%,*} ramp-off $fp32 $ramp --set train.micro_batch=1 $(echo "$way" | sed -n "s/^[0-9]*,/--set /p") $host
	alike "offload with a batch that grows trains as without ($way)" ramp.jsonl ramp-off.jsonl
done
is "... and the batch grew" "$(sed -n 's/.*"tokens": \([0-9]*\),.*/\1/p' ramp-off.jsonl | sort -n | uniq | wc -l)" 2

# Deterministic runs have the same bits with any number of threads.
for threads in 1 2; do
	trained 2 same$threads $fp32 $host --set train.deterministic=yes --set dp.zero=1 --set checkpoint.dir=same$threads --set train.threads=$threads
done
is "deterministic: 1 and 2 threads give the same losses" \
	"$(sed 's/.*"loss": \([^,]*\).*"grad_norm": \([^,]*\).*/\1 \2/' same2.jsonl)" \
	"$(sed 's/.*"loss": \([^,]*\).*"grad_norm": \([^,]*\).*/\1 \2/' same1.jsonl)"
for f in model.safetensors heddle/optimizer.safetensors; do
	ok "deterministic: 1 and 2 threads give the same $f" cmp same1/step-00000003/$f same2/step-00000003/$f
done

# -- checkpoints do not depend on where states were --------------------------------------------------------------------
trained 1 first $fp32 $host --set train.steps=2 --set checkpoint.dir=a --set train.decay=3
trained 1 second $fp32 --set train.steps=3 --set checkpoint.dir=a --set checkpoint.resume=auto --set train.decay=3
cat first.jsonl second.jsonl >both.jsonl
alike "saved with offload, resumed without" plain.jsonl both.jsonl
trained 1 first $fp32 --set train.steps=2 --set checkpoint.dir=b --set train.decay=3
trained 2 second $fp32 $host --set dp.zero=1 --set train.steps=3 --set checkpoint.dir=b --set checkpoint.resume=auto --set train.decay=3
cat first.jsonl second.jsonl >both.jsonl
alike "saved without offload, resumed with it on two ranks" plain.jsonl both.jsonl

# -- memory: only parameters stay on the device ------------------------------------------------------------------------
of() { json "$(heddle check tiny.ini --set train.device=cuda "$@" --json)" "$key"; }
key=parameters params=$(of $fp32)
key=persistent_bytes
whole=$(of $fp32) less=$(of $fp32 $host)
is "fp32: only the two moments leave the device" "$((whole - less))" "$((2 * whole / 3))"
key=host_bytes
between=$(($(of $fp32 $host) - 16 * params))	# master, moments, gradient; each of 30 tensors is padded to 64 bytes
tap_result $((between < 0 || between > 4 * 40 * 64)) "the host has the moments, a master and the gradient"
key=persistent_bytes
whole=$(of --set train.precision=bf16) less=$(of --set train.precision=bf16 $host)
tap_result $((less * 7 < whole || less * 6 > whole)) "bf16: 2 of 14 bytes a parameter stay on the device, and norms in fp32"
like "a run prints the planned memory of both" \
	"$(cat off.out)" "planned memory of this rank: .*, and [0-9.]* MB of the host's"

# -- transfers ---------------------------------------------------------------------------------------------------------
heddle explain tiny.ini --set train.device=cuda $fp32 $host --json | tr '{' '\n' >lines
sum_of() { awk -v kind="\"$1\"" 'index($0, "\"axis\": \"host\"") && index($0, kind) { b = $0; sub(/.*"bytes": /, "", b); s += b } END { print s + 0 }' lines; }
is "gradients and the clipping factor are copied to the host" "$(sum_of to_host)" "$((4 * params + 4))"
is "parameters are copied to the device" "$(sum_of to_device)" "$((4 * params))"
like "explain names copies after parameters" "$(grep to_device lines | head -1)" '"tensor": "[a-z]'
trained 1 traced $fp32 $host --set log.trace=trace.json
like "a trace contains the copies" "$(cat trace.json)" 'to_device of [a-z]'
unlike "without offload nothing is copied to the host" \
	"$(heddle explain tiny.ini --set train.device=cuda $fp32)" 'to_host'

# New values that come from host memory are gathered in the same buckets as without offload.
gathers() { heddle explain tiny.ini --ranks 4 --set train.device=cuda --set train.comm=mpi --set dp.zero=1 $fp32 "$@" | grep -c all-gather; }
is "offload does not change the number of all-gathers" "$(gathers $host)" "$(gathers)"

# A machine on which only the link to the host costs time.  Each direction is a queue, and nothing is copied to the
# device before everything has been copied to the host.
cat >machine.ini <<END
[machine]
flops_fp32 = 1e30
memory_bandwidth = 1e30
node_bandwidth = 1e30
host_link_bandwidth = 1000
host_memory_bandwidth = 1e30
END
step() { heddle plan tiny.ini --ranks 1 --machine machine.ini $fp32 --json "$@" | sed 's/.*"step_seconds": \([-+.e0-9]*\).*/\1/'; }
is "plan: a step takes the time of the copies in both directions" \
	"$(step $host | awk -v b=$((8 * params + 4)) '{ d = $1 * 1000 / b - 1; print (d < 1e-6 && d > -1e-6) }')" 1
sed -i 's/^host_link.*/host_link_bandwidth = 1e30/; s/^host_memory.*/host_memory_bandwidth = 1000/' machine.ini
is "plan: the update moves 28 bytes a parameter at the rate of the host's memory" \
	"$(step $host | awk -v b=$((28 * params)) '{ d = $1 * 1000 / b - 1; print (d < 0.01 && d > -1e-6) }')" 1
like "plan prints the host memory and the bytes copied each way" \
	"$(heddle plan tiny.ini --ranks 1 --machine machine.ini $fp32 $host)" 'in host memory of a rank: .* are copied there and .* back'

# -- where offload does nothing ----------------------------------------------------------------------------------------
heddle train tiny.ini $tiny --set train.device=cpu --set train.hash_every=1 --set log.metrics=c1.jsonl $fp32 >c1.out 2>&1
heddle train tiny.ini $tiny --set train.device=cpu --set train.hash_every=1 --set log.metrics=c2.jsonl $fp32 $host >c2.out 2>&1
bits() { sed 's/.*"loss": \([^,]*\).*"grad_norm": \([^,]*\).*/\1 \2/' "$1"; }
is "on a CPU offload changes no bit" "$(bits c2.jsonl)" "$(bits c1.jsonl)"
is "... and one note says so" "$(grep -c 'states stay where they are' c2.out)" 1
like "check says that sgd in fp32 has no states to offload" \
	"$(heddle check tiny.ini --set train.device=cuda --set train.optimizer=sgd $fp32 $host 2>&1)" \
	'offload = states does nothing: sgd in fp32 keeps no states'
ok "a layout with offload can be compared with one rank" \
	heddle check tiny.ini --ranks 2 --set train.device=cpu $fp32 $host --against-one-rank
done_testing
