#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layouts of thousands of ranks are planned on one machine.  If this broke, nobody could ask about a large job before it
# runs, or the answer would have the wrong bubble or memory.
. "${0%/*}/lib/tap.sh"
[ -x "$build/heddle" ] || skip_all 'heddle is not built'

large() {	# CONF RANKS SETS: sets $said to the output of check, which may use 1 GB
	name=$1 ranks=$2
	shift 2
	began=$(date +%s)
	said=$( (ulimit -d 1000000; exec "$build/heddle" check --all "$src/conf/$name.ini" --ranks "$ranks" "$@") 2>&1)
	is "$name: check accepts $ranks ranks, in less than 1 GB" $? 0
	note "$(($(date +%s) - began)) s"
	printf '%s\n' "$said" | sed -n '1,3p;$p' | tap_comment
}
memory() { printf '%s\n' "$said" | sed -n 's/.*memory \([0-9]*\)[.0-9]* MB.*/\1/p' | sort -n | tail -n 1; }

large ptd-p-1t 3072
like "the mesh is tensor 8 x data 6 x pipeline 64" "$said" '3072 ranks = tp 8 .* x dp 6 .* x pp 64 '
like "the bubble is 63 / (2 x 512)" "$said" 'bubble 0\.062'
is "check prints parameters and memory of each of the 64 stages" \
	"$(printf '%s\n' "$said" | grep -c '^rank .*parameters, memory')" 64
# 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)) of Narayanan et al. 2021, plus 2 h for the last norm
formula() { awk -v l="$1" -v h="$2" 'BEGIN { printf "%.0f", 12 * l * h * h + 13 * l * h + (51200 + 2048) * h + 2 * h }'; }
is "ptd-p-1t: the model has the parameters of the formula" \
	"$(printf '%s\n' "$said" | sed -n 's/^\([0-9]*\) parameters$/\1/p')" "$(formula 128 25600)"
is "... and so have all stages together" \
	"$(printf '%s\n' "$said" | sed -n 's/.*; \([0-9]*\) parameters):.*/\1/p' | awk '{ n += $1 } END { printf "%.0f", n }')" \
	"$(formula 128 25600)"
like "check prints the bytes on each axis" "$said" 'sent in a step, .*tp [0-9]+\.[0-9] MB'
# 512 micro-batches, 2 chunks, both directions, b s h / t of 2 bytes; 2 (d - 1) / d of the first stage's gradients
like "a stage sends an eighth of each activation" "$said" "pp $(awk 'BEGIN { printf "%.1f", 512 * 2 * 2 * 2048 * 25600 * 2 / 8 / 1e6 }') MB"
like "a replica sends its gradients once around the ring" \
	"$said" "dp $(awk 'BEGIN { printf "%.1f", 2 * 5 / 6 * 4 * 2182700800 / 1e6 }') MB"
ok "$name: a rank fits into 80 GB" test "$(memory)" -lt 80000
large mt-nlg-530b 2240
like "the bubble on 2,240 ranks is the published one" "$said" 'bubble 0\.142'
ok "$name: a rank fits into 80 GB" test "$(memory)" -lt 80000
is "mt-nlg-530b: the model has the parameters of the formula" \
	"$(printf '%s\n' "$said" | sed -n 's/^\([0-9]*\) parameters$/\1/p')" "$(formula 105 20480)"
is "... in 35 stages" "$(printf '%s\n' "$said" | grep -c '^rank .*parameters, memory')" 35
large mt-nlg-530b 3360 --set train.global_batch_ramp=48,48,12G
like "the bubble on 3,360 ranks is the published one" "$said" 'bubble 0\.212'
said=$("$build/heddle" check "$src/conf/mt-nlg-530b.ini" --ranks 3360 2>&1)
is "a ramp with a batch that the replicas do not divide is refused" $? 1
like "... and the message names the step of the ramp" \
	"$said" 'step 1 of the ramp, 32 sequences, is not a multiple of micro_batch 1 x 12 replicas'

# A context of a million tokens: 4,096 parts of the loss, whose gradients are added up.
printf '[model]\nfamily = llama\nlayers = 1\nembed = 32\nheads = 2\nvocab = 128256\n[data]\ntrain = none\n[train]\n' >"$tmp/long.ini"
printf 'seq = 1048576\nglobal_batch = 1\nsteps = 1\ndevice = cpu\n' >>"$tmp/long.ini"
ok "check plans thousands of parts of the loss in less than 30 s of processor time" \
	sh -c 'ulimit -t 30; exec "$0" check "$1"' "$build/heddle" "$tmp/long.ini"
done_testing
