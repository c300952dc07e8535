#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What version 0.1 has written is somebody's work of weeks.  Every later version must read its checkpoints, INI files
# and data.  A resumed run must have the losses that 0.1 itself had (t/data/0.1, which is never regenerated).
#
# What may differ is rounding.  The relative error of one token's loss is u sqrt(2 SUMS LAYERS TERMS STEPS)
# (t/lib/layout_run.h says why).  Here u = 2^-24, with 20 sums a layer, 3 layers, 61 terms (the vocabulary; 256 of text,
# with 2 layers) and 4 steps.  So it is 1.7e-5 at most.  The loss is a mean over 78 tokens, 60 of text, whose errors are
# independent.  The norm is one of thousands of gradients: 1.7e-5 / sqrt(60).
within=2.2e-6
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
cp -R "$src/t/data/0.1" old && chmod -R u+w old && cd old || exit 1

off() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) print a / b - 1; else print "none" }'; }
of_step() { sed -n "/\"step\": $2,/s/.*\"$3\": \([^,}]*\).*/\1/p" "$1"; }
# same NAME FILE OLD STEP KEY: the number is the one that 0.1 wrote, except for rounding
same() { near "$1: $5 of step $4, relative error" "$(off "$(of_step "$2" "$4" "$5")" "$(of_step "$3" "$4" "$5")")" 0 $within; }
goes_on() {		# NAME OF RANKS INI ARGS...
	name=$1 of=$2 ranks=$3 ini=$4
	shift 4
	rm -rf next new.jsonl
	ok "$name: resumes what 0.1 saved" heddle_mpi "$ranks" train "$ini" --set checkpoint.resume="$of" --set checkpoint.dir=next \
		--set log.metrics=new.jsonl "$@"
	for step in 6 7 8 9; do
		same "$name" new.jsonl "$of.jsonl" "$step" loss
		same "$name" new.jsonl "$of.jsonl" "$step" grad_norm
	done
	is "$name: the learning rate of step 9" "$(of_step new.jsonl 9 lr)" "$(of_step "$of.jsonl" 9 lr)"
	same "$name" new.jsonl "$of.jsonl" 9 valid_loss
}
other() { sed '/^\[strategy/,$d' "$1.ini" && printf '[strategy %s]\nplugin = %s\n%s\n' "$2" "$2" "$3"; }

goes_on "gpt2, in its own layout" gpt2 6 gpt2.ini
sed '/^\[strategy/,$d' gpt2.ini >one.ini
goes_on "gpt2, on one rank" gpt2 1 one.ini
other gpt2 dp 'zero = 3' >zero.ini
goes_on "gpt2, replicas" gpt2 3 zero.ini
goes_on "mixtral, in its own layout" mixtral 3 mixtral.ini
same "mixtral" new.jsonl mixtral.jsonl 9 aux_loss
other mixtral ep >ep.ini
goes_on "mixtral, an expert a rank" mixtral 3 ep.ini

loss() { heddle eval "$1" --data "$2" | sed -n 's/^loss \([^ ]*\).*/\1/p'; }
for data in ids.idx ids-llmc.bin; do
	near "gpt2 on $data: the loss, relative error" "$(off "$(loss gpt2 $data)" 4.09523529)" 0 $within
	near "mixtral on $data: the loss, relative error" "$(off "$(loss mixtral $data)" 3.80763331)" 0 $within
done

ok "text.ini: trains from the beginning" heddle train text.ini --set log.metrics=new.jsonl
like "... with the initial weights of 0.1" "$(cat "$tmp/.ok")" 'initial weights b6b50cc61facd483'
for step in 1 2 3 4; do
	same "text.ini" new.jsonl text.jsonl $step loss
done
same "text.ini" new.jsonl text.jsonl 4 valid_loss
done_testing
