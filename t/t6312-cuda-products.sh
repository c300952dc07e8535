#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Products on a simulated GPU.  Implementations are timed once, and the fastest is used and stored.  Products that share
# an operand (queries, keys and values) are one launch, and so are the sums of their biases' gradients.  Products of one
# sum are one launch where that is faster.  If this broke, a GPU would be slower without any message.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

[ -r "$build/heddle-cuda-sim.so" ] || skip_all "no C++ compiler was there, so there is no simulated cuda device"
export HD_TEST_CUDA_MODULE="$build/heddle-cuda-sim.so" XDG_CACHE_HOME="$tmp/cache" HEDDLE_WGMMA=0
run() {
	rm -rf ck
	heddle train tiny.ini --set train.device=cuda --set model.embed=16 --set model.layers=2 --set train.seq=8 --set train.steps=2 \
		--set train.eval_batches=1 --set train.precision=bf16 --set checkpoint.dir=ck --set log.metrics=m.json "$@" >out 2>&1 || cat out
	tr ',"' '\n\n' <m.json | grep -A1 '^loss' >"${metrics:-losses}"
}
state() { cat ck/step-*/heddle/state.json | tr '"\\' '\n\n' | sed 's/^n//'; }
picks() { sed -n 's/^gemm1:.* //p' "$@" | sort | uniq -c | sed 's/^ *//' | tr '\n' ' '; }
cache() { cat "$tmp"/cache/heddle/*; }

# -- one launch -----------------------------------------------------------------------------------------------------------
# In each of 2 layers: 4 micro-batches and the evaluation in forward, and 4 weight gradients.  The first micro-batch
# writes its gradients, and the others add theirs.
run
is "q, k and v are one launch in forward and in the weight gradients" \
	"$(state | sed -n 's/^einsum.grouped //p')" "$((2 * 3 * (4 + 1 + 4)))"
# In each of 2 steps, of 2 layers, of 4 micro-batches: one launch for these three, and one for the MLP.
HD_TEST_SIM_COUNTS='(sum_columns<V, A>)' run
is "the gradients of their biases are one launch" "$(sed -n 's/^simulation: \([0-9]*\) times .*/\1/p' out)" "$((2 * 2 * 4 * (1 + 1)))"
run --set model.family=llama --set model.kv_heads=2
is "with fewer heads k and v are one launch, and so are the two products of the MLP in forward" \
	"$(state | sed -n 's/^einsum.grouped //p')" \
	"$((2 * (2 * (4 + 1 + 4) + 2 * (4 + 1))))"
heddle explain tiny.ini --nodes --set train.device=cpu --set train.precision=bf16 >nodes
is "on a CPU, where a product is not a launch, the order is different" \
	"$(grep -c '^weight-gradient.*einsum .out=embed,heads' nodes)" 6

# In each layer 4 launches in forward, 6 in backward and 4 for weight gradients, plus those of the logits.  The command
# bench --products times the same ones.
small="--set train.device=cuda --set model.embed=16 --set model.layers=2 --set train.seq=8 --set train.precision=bf16 --steps 1"
calls() { HD_TEST_SIM_COUNTS=cublasLtMatmul heddle bench tiny.ini $small "$@" 2>&1 | sed -n 's/^simulation: \([0-9]*\) times .*/\1/p'; }
is "bench --products times the launches of a step" "$(($(calls --products) - $(calls)))" "$((4 * (2 * (4 + 6 + 4) + 3)))"

# -- timed ----------------------------------------------------------------------------------------------------------------
is "if the library offers one implementation, nothing is timed" "$(picks "$tmp"/cache/heddle/* 2>/dev/null)" ""
metrics=one run
rm -r "$tmp/cache"
export HD_TEST_LT_MS=5,4.9,2,0,9 HD_TEST_CHAIN_MS=5.9
metrics=many run
n=$(cache | grep -c '^gemm1:simulated:0:')
is "the fastest of five is used; one does not run, and one is a little faster than the first" \
	"$(picks "$tmp"/cache/heddle/*)" "$n 2/5 "
is "... for more than 10 products" "$((n > 10))" 1
is "a sum of three products stays three launches, which are as fast as one of 5.9 ms" \
	"$(sed -n 's/^chain1:.* //p' "$tmp"/cache/heddle/*)" "0/2"
is "no other line is stored" "$(cache | grep -vc '^gemm1:\|^chain1:')" 0
is "the checkpoint has these choices too" "$(state | picks)" "$n 2/5 "
is "the losses are the same" "$(cat many)" "$(cat one)"
sed -i '0,/ 2\/5$/s|| 1/5|' "$tmp"/cache/heddle/*
HD_TEST_LT_MS=1,9,9,9,9 run
is "a stored choice is not timed again" "$(state | picks)" "1 1/5 $((n - 1)) 2/5 "
rm -r "$tmp/cache"
HD_TEST_LT_MS=5,4.9 run
is "the first implementation is used if others are as fast" "$(picks "$tmp"/cache/heddle/* | sed 's/^[0-9]* //')" "0/2 "
rm -r "$tmp/cache"
# The gradient of the input of queries, keys and values, in 2 layers, of 4 micro-batches.
HD_TEST_CHAIN_MS=5.8 run
is "a sum of three products is one launch if that takes 5.8 ms instead of three times 2 ms" \
	"$(state | sed -n 's/^einsum.summed //p')" "$((2 * 3 * 4))"
like "... and the loss is the same" "$(cat losses)" "$(sed -n '2s/\(...\).*/\1/p' one)"
HD_TEST_CHAIN_MS=3.8 run --set model.family=llama --set model.kv_heads=2
is "... also for products of unequal depths, and for the two of the MLP" \
	"$(state | sed -n 's/^einsum.summed //p')" "$((2 * (3 + 2) * 4))"
rm -r "$tmp/cache"
# In the simulation, Heddle's own kernels take no time.
HEDDLE_WGMMA=1 metrics=own run
is "Heddle's own kernel, tried after the library's five, is used where it is the fastest" \
	"$(sed -n 's/^gemm1w1:.* //p' "$tmp"/cache/heddle/* | sort -u)" "5/6"
is "Heddle's own kernel fuses gelus; in training it keeps their inputs" \
	"$(cache | sed -n 's/^gemm1w1:[^ ]*:3,\([0-9]\),.*/\1/p' | sort | tr -d '\n')" 12
like "... and the loss is the same" "$(cat own)" "$(sed -n '2s/\(...\).*/\1/p' one)"
rm -r "$tmp/cache"
HEDDLE_WGMMA=1 run --set train.deterministic=1
is "train.deterministic: the library's first implementation is used, not Heddle's own" \
	"$(state | sed -n '/^gemm1w1:/p')$(ls "$tmp/cache" 2>/dev/null)" ""
run --set train.deterministic=1
is "train.deterministic: nothing is timed" "$(state | picks)$(ls "$tmp/cache" 2>/dev/null)" ""
done_testing
