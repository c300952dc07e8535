#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A global batch that grows is the same in every layout and after a resume.  If this broke, a run would read different
# data than one rank, or use a different scale or learning rate.  It might also stop in the middle because a size does
# not divide.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

{
	sed -e '/^\[strategy/,$d' -e 's/^layers = .*/layers = 4/' -e 's/^global_batch = .*/global_batch = 16\nglobal_batch_ramp = 4,4,1500/' \
		-e 's/^steps = .*/steps = 14\noptimizer = sgd\nclip = 0\nwarmup = 500\nschedule_unit = tokens/' \
		-e 's/^micro_batch = .*/micro_batch = 1/' tiny.ini
} >one.ini
{ cat one.ini; printf '[strategy tp]\nplugin = tp\nsize = 2\n[strategy dp]\nplugin = dp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 2\n'; } >many.ini
column() { sed -n "s/.*\"$2\": *\([0-9.e+-]*\).*/\1/p" "$1"; }

ok "one rank trains" heddle train one.ini --set log.metrics=one.jsonl --set checkpoint.dir=a --set checkpoint.every=5 --set checkpoint.keep=9
# 1500 tokens in three shares of 500: 4 sequences of 32 tokens are used 4 times, then 8 twice, then 12, then 16
is "the batch grows by tokens" "$(column one.jsonl tokens | tr '\n' ' ')" "128 128 128 128 256 256 384 384 512 512 512 512 512 512 "
ok "tensor 2 x data 2 x pipeline 2 trains" heddle_mpi 8 train many.ini --set log.metrics=many.jsonl
is "... in the same batches" "$(column many.jsonl tokens)" "$(column one.jsonl tokens)"
is "... with the same learning rates" "$(column many.jsonl lr)" "$(column one.jsonl lr)"
column one.jsonl loss >one
column many.jsonl loss >many
ok "... and the same losses" \
	awk 'NR == FNR { want[NR] = $1; n++; next } { d = $1 / want[FNR] - 1; if (d < 0) d = -d; if (!(d < 1e-5)) exit 1; k++ }
	END { exit !(n == 14 && k == n) }' one many
is "data --step 7 lists the 12 samples of that batch" "$(heddle data one.ini --step 7 | wc -l)" 12
# 1/49 x 49 is below 1 in floating point
is "a size ends exactly where its share of the tokens does" \
	"$(heddle data one.ini --step 2 --set train.global_batch=50 --set train.global_batch_ramp=1,1,1568 | wc -l)" 2

# A run that resumes within the ramp has the same bits.
mkdir b && cp -r a/step-00000005 b/ && printf 'step-00000005\n' >b/latest
ok "a run resumes within the ramp" \
	heddle train one.ini --set log.metrics=rest.jsonl --set checkpoint.dir=b --set checkpoint.resume=auto
is "... with the same losses, digit by digit" "$(column rest.jsonl loss)" "$(tail -n 9 one)"
ok "... and the same weights, bit by bit" cmp a/step-00000014/model.safetensors b/step-00000014/model.safetensors

# With shorter sequences, the tokens used so far count. 768 of 1500 are used; then come 8 sequences of 16 tokens twice,
# then 12, then 16.
ok "a run resumes with shorter sequences" \
	heddle train one.ini --set train.seq=16 --set model.max_seq=32 --set log.metrics=short.jsonl \
	--set checkpoint.resume=a/step-00000005
is "... and the batch grows by the tokens of all steps" \
	"$(column short.jsonl tokens | tr '\n' ' ')" "128 128 192 192 192 256 256 256 256 "

# A trace has the steps of one batch size, and is written when they are done.
ok "a run traces steps of two batch sizes" \
	heddle_mpi 8 train many.ini --set log.trace=ramp.json --set log.trace_steps=2-9 --set log.machine=dgx-a100 --set log.metrics=traced.jsonl
like "... says where the trace ends" "$(cat "$tmp/.ok")" 'log\.trace ends with step [0-9]+: the next one has another batch size'
ends=$(sed -n 's/.*log\.trace ends with step \([0-9]*\).*/\1/p' "$tmp/.ok")
is "... which is its last step" "$(grep -o '"step":[0-9]*' ramp.json | sed 's/.*://' | sort -n | sed -n '1p;$p' | tr '\n' ' ')" "2 $ends "
is "... and compares that step with the prediction" "$(sed -n 's/.*"step": *\([0-9]*\), *"foresight".*/\1/p' traced.jsonl)" "$ends"
said=$(heddle check many.ini --ranks 24 --set dp.size=6 --set train.global_batch=24 --set train.global_batch_ramp=12,4,1K 2>&1)
is "a batch size that the replicas do not divide is refused" $? 1
like "... and the message names the step of the ramp" \
	"$said" 'global_batch_ramp: step 2 of the ramp, 16 sequences, is not a multiple of micro_batch 1 x 6 replicas'
said=$(heddle check many.ini --ranks 8 --set pp.schedule=interleaved --set train.global_batch_ramp=4,2,1K 2>&1)
is "a batch size that the schedule cannot run is refused" $? 1
like "... and the message names the step of the ramp and the reason" \
	"$said" 'step 2 of the ramp, 6 sequences: .*schedule: interleaved: the 3 micro-batches .* not a multiple of the 2 stages'
said=$(heddle check many.ini --ranks 8 --set train.global_batch_ramp=4,5,1K 2>&1)
like "a ramp that does not reach global_batch is refused" \
	"$said" 'from 4 in steps of 5 the ramp does not reach global_batch = 16'
said=$(heddle check many.ini --ranks 8 --set train.global_batch_ramp=4,4 2>&1)
like "a ramp of two numbers is refused" "$said" 'must be START,STEP,TOKENS'
done_testing
