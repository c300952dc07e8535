#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# explain --work counts what a step's kernels have to do, and the page of rooflines is that count.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

heddle explain tiny.ini --work --set train.precision=fp32 >work 2>&1
of() { awk -v unit="$1" -v kernel="$2" '$1 == unit && $2 == kernel { print $3, $5, $7 }' work; }
# 2 layers, 32 wide, 4 heads of 8; 8 samples of 32 tokens in 4 micro-batches: 256 tokens a step.
# attention forward: q k^T and p v, 2 FLOPs each, half of the pairs: 2 * 2 * 256 * 32 * 32 / 2 a layer;
# operands a micro-batch: q, k, v, o of 64 x 32 floats, 64 x 4 of the sums of exponentials
is "attention, forward" "$(of forward attention)" "8 $(awk 'BEGIN {
	printf "%.3f %.3f", 2 * 2 * 2 * 256 * 32 * 32 / 2 / 1e9, 8 * (4 * 64 * 32 + 64 * 4) * 4 / 1e6 }')"
# a layer: q, k, v and proj of 32 x 32, fc and mlp.proj of 32 x 128; and the logits: 6 products a layer, those with a gelu apart or not
total=$(awk '$1 == "forward" && $2 ~ /^einsum/ { n += $5 } END { printf "%.3f", n }' work)
vocab=$(heddle explain tiny.ini --nodes | sed -n 's/.*wte.weight(vocab,embed).*/256/p' | head -1)
is "products, forward" "$total" "$(awk -v vocab="$vocab" 'BEGIN {
	printf "%.3f", 2 * 256 * (2 * (4 * 32 * 32 + 2 * 32 * 128) + 32 * vocab) / 1e9 }')"
json=$(heddle explain tiny.ini --work --json --set train.precision=fp32)
is "as JSON" "$(echo "$json" | tr '{' '\n' | grep -c '"kernel"')" "$(grep -c GFLOP work)"

sed -n '/^### /,/^## /p' "$src/doc/gpu-roofline.md" | grep -v '^## ' >page
sh "$src/t/perf/roofline.sh" "$build/heddle" >made
is "doc/gpu-roofline.md has the numbers of t/perf/roofline.sh" "$(diff page made)" ""
done_testing
