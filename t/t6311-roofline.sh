#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# explain --work counts the work of a step's kernels, and the page of rooflines has these counts.  If this broke, people
# would tune kernels against wrong bounds.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

heddle explain tiny.ini --work --set train.precision=fp32 >work 2>&1
of() { awk -v unit="$1" -v kernel="$2" '$1 == unit && $2 == kernel { print $3, $5, $7 }' work; }
# 2 layers, 32 wide, 4 heads of 8; 8 samples of 32 tokens in 4 micro-batches: 256 tokens a step.
# attention forward: q k^T and p v, 2 FLOPs each, half of the pairs: 2 * 2 * 256 * 32 * 32 / 2 a layer;
# operands of a micro-batch: q, k, v, o of 64 x 32 floats, and 64 x 4 sums of exponentials
is "the work of attention in forward" "$(of forward attention)" "8 $(awk 'BEGIN {
	printf "%.3f %.3f", 2 * 2 * 2 * 256 * 32 * 32 / 2 / 1e9, 8 * (4 * 64 * 32 + 64 * 4) * 4 / 1e6 }')"
# for each layer q, k, v and proj of 32 x 32, fc and mlp.proj of 32 x 128, with or without a fused gelu; then the logits
total=$(awk '$1 == "forward" && $2 ~ /^einsum/ { n += $5 } END { printf "%.3f", n }' work)
vocab=$(heddle explain tiny.ini --nodes | sed -n 's/.*wte.weight(vocab,embed).*/256/p' | head -1)
is "the work of products in forward" "$total" "$(awk -v vocab="$vocab" 'BEGIN {
	printf "%.3f", 2 * 256 * (2 * (4 * 32 * 32 + 2 * 32 * 128) + 32 * vocab) / 1e9 }')"
json=$(heddle explain tiny.ini --work --json --set train.precision=fp32)
is "JSON has as many kernels as the text" "$(echo "$json" | tr '{' '\n' | grep -c '"kernel"')" "$(grep -c GFLOP work)"

sed -n '/^### /,/^## /p' "$src/doc/gpu-roofline.md" | grep -v '^## ' >page
sh "$src/t/perf/roofline.sh" "$build/heddle" >made
is "doc/gpu-roofline.md has the numbers of t/perf/roofline.sh" "$(diff page made)" ""
done_testing
