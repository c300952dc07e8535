#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layouts of thousands of ranks, planned on one machine.  If this broke, nobody could ask about a large job before it runs,
# or would be told another bubble or memory than it has.
. "${0%/*}/lib/tap.sh"
[ -x "$build/heddle" ] || skip_all 'heddle is not built'

large() {	# CONF RANKS SETS: check's output, in at most 1 GB
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
like "tensor, data, pipeline" "$said" '3072 ranks = tp 8 .* x dp 6 .* x pp 64 '
like "bubble: 63 / (2 x 512)" "$said" 'bubble 0\.062'
is "parameters and memory of each stage" "$(printf '%s\n' "$said" | grep -c '^rank .*parameters, memory')" 64
# 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)) of Narayanan et al. 2021, and the last norm's 2 h
formula() { awk -v l="$1" -v h="$2" 'BEGIN { printf "%.0f", 12 * l * h * h + 13 * l * h + (51200 + 2048) * h + 2 * h }'; }
is "parameters of the model" "$(printf '%s\n' "$said" | sed -n 's/^\([0-9]*\) parameters$/\1/p')" "$(formula 128 25600)"
is "and of all stages" "$(printf '%s\n' "$said" | sed -n 's/.*; \([0-9]*\) parameters):.*/\1/p' | awk '{ n += $1 } END { printf "%.0f", n }')" \
	"$(formula 128 25600)"
like "bytes on each axis" "$said" 'sent in a step, .*tp [0-9]+\.[0-9] MB'
# 512 micro-batches, 2 chunks, both ways, b s h / t of 2 bytes; 2 (d - 1) / d of the first stage's gradients
like "a stage sends an eighth of each activation" "$said" "pp $(awk 'BEGIN { printf "%.1f", 512 * 2 * 2 * 2048 * 25600 * 2 / 8 / 1e6 }') MB"
like "a replica sends its gradients once around" "$said" "dp $(awk 'BEGIN { printf "%.1f", 2 * 5 / 6 * 4 * 2182700800 / 1e6 }') MB"
ok "a rank fits into 80 GB" test "$(memory)" -lt 80000
large mt-nlg-530b 2240
like "the published bubble at 2,240" "$said" 'bubble 0\.142'
ok "a rank fits into 80 GB" test "$(memory)" -lt 80000
is "parameters of the model" "$(printf '%s\n' "$said" | sed -n 's/^\([0-9]*\) parameters$/\1/p')" "$(formula 105 20480)"
is "stages" "$(printf '%s\n' "$said" | grep -c '^rank .*parameters, memory')" 35
large mt-nlg-530b 3360 --set train.global_batch_ramp=48,48,12G
like "the published bubble at 3,360" "$said" 'bubble 0\.212'
said=$("$build/heddle" check "$src/conf/mt-nlg-530b.ini" --ranks 3360 2>&1)
is "a ramp that does not divide is refused" $? 1
like "with its step" "$said" 'step 1 of the ramp, 32 sequences, is not a multiple of micro_batch 1 x 12 replicas'
done_testing
