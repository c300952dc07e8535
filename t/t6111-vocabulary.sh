#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A sharded vocabulary.  Logits are the largest tensor of a small model: if they were gathered once, sharding the
# vocabulary would save nothing.  A vocabulary that does not divide is padded, but neither weights, nor loss, nor
# checkpoint may show it.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy tp]\nplugin = tp\n'
} >cut.ini
within() { awk -v g="$2" -v lo="$3" -v hi="$4" 'BEGIN { exit !(g >= lo && g <= hi) }'; tap_result $? "$1" || echo "# $2 is not in $3..$4"; }

# -- memory: logits of 8 x 128 tokens of a vocabulary of 40000, in fp32 ----------------------------------------------
keys='--set model.layers=1 --set train.seq=128 --set train.micro_batch=8 --set train.loss_parts=1'
whole=$((8 * 128 * 40000 * 4))
for t in 2 4; do
	ran=$(heddle_mpi $t bench cut.ini $keys --set model.vocab=40000 --json --steps 1 2>/dev/null)
	small=$(heddle_mpi $t bench cut.ini $keys --set model.vocab=64 --json --steps 1 2>/dev/null)
	planned=$(json "$ran" planned_peak_bytes)
	measured=$(($(json "$ran" measured_peak_bytes) - $(json "$small" measured_peak_bytes)))
	more=$((planned - $(json "$small" planned_peak_bytes)))
	table=$((40000 * 32 * 4 * 4 / t))		# parameter, gradient and two moments
	note "$t ranks: logits $((whole / 1000000)) MB; planned $((planned / 1000000)) MB, measured $((measured / 1000000)) MB more than with a small vocabulary"
	within "$t ranks: the plan has a rank's own logits and its rows of the table" \
		$more $((whole / t)) $((whole / t + table + 4000000))
done
# Includes the products' scratch, which grows with a rank's own logits too.  Complete logits never existed.
within "4 ranks: the measured memory is less than complete logits" $measured $((whole / 4 / 2)) $((whole - 1))

# -- padding ----------------------------------------------------------------------------------------------------------
run() {			# NAME RANKS args: prints the hash of the initial weights; the losses are in NAME.jsonl
	name=$1 n=$2
	shift 2
	heddle_mpi "$n" train cut.ini --set model.vocab=259 --set data.tokenizer=byte --set train.optimizer=sgd --set train.clip=0 "$@" \
		--set checkpoint.dir="$name" --set log.metrics="$name.jsonl" 2>&1 | sed -n 's/.*\(initial weights [0-9a-f]*\).*/\1/p'
}
for tie in yes $(whole_sweep && echo no); do
	one=$(run one-$tie 1 --set model.tie_embeddings=$tie)
	like "tied $tie, one rank: the hash of the initial weights is printed" "$one" '^initial weights [0-9a-f]{16}$'
	run first-$tie 1 --set model.tie_embeddings=$tie --set train.steps=0 >/dev/null
	for t in 2 4; do
		is "tied $tie, $t ranks: the same initial weights" "$(run many-$tie-$t $t --set model.tie_embeddings=$tie)" "$one"
		run first-$tie-$t $t --set model.tie_embeddings=$tie --set train.steps=0 >/dev/null
		ok "tied $tie, $t ranks: the same file of them, byte for byte" \
			cmp first-$tie/step-00000000/model.safetensors first-$tie-$t/step-00000000/model.safetensors
		# three steps of fp32 sums of 259 terms in another order: 2^-24 sqrt(259) each
		ok "tied $tie, $t ranks: the same losses" awk -F'[:,]' 'NR == FNR { want[$2] = $4; next }
			{ d = $4 / want[$2] - 1; if (d < 0) d = -d; n++; if (!(d < 3e-6)) exit 1 } END { exit n < 3 }' \
			one-$tie.jsonl many-$tie-$t.jsonl
		is "tied $tie, $t ranks: a checkpoint of the same size" "$(wc -c <many-$tie-$t/step-00000003/model.safetensors)" \
			"$(wc -c <one-$tie/step-00000003/model.safetensors)"
		near "tied $tie, $t ranks: one rank reads it with the same loss" \
			"$(heddle eval many-$tie-$t --data text.txt | sed -n 's/^loss \([^ ]*\).*/\1/p')" \
			"$(heddle eval one-$tie --data text.txt | sed -n 's/^loss \([^ ]*\).*/\1/p')" 1e-4
	done
done
done_testing
