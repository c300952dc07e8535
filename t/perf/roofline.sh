#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# t/perf/roofline.sh HEDDLE - prints the tables of doc/gpu-roofline.md: the work of the kernels of a step, as `heddle
# explain --work` counts it for the models of t/gpu/run-all, and the minimum time for it on an H200 and an H100.  Needs
# no GPU.
src=${0%/*}/../..
heddle=$1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
. "$src/t/gpu/models.sh"
write_models "$tmp" 0

table() {		# TITLE TOKENS: reads lines of explain --work: UNIT KERNEL n nodes x GFLOP y MB
	awk -v title="$1" -v tokens="$2" '
	function bound(flops, bytes, rate) { return (flops / 989e12 > bytes / rate ? flops / 989e12 : bytes / rate) * 1e6 }
	/ GFLOP / && $2 != "nll" {		# left out: it reads only three numbers per token of its operands
		flops = $5 * 1e9; bytes = $7 * 1e6
		us = bound(flops, bytes, 4.8e12); h100 = bound(flops, bytes, 3.35e12)
		row[++n] = sprintf("| %s | %s | %d | %.1f | %.1f | %.1f | %.1f | %s |", $1, $2, $3, flops / 1e9, bytes / 1e6, us, h100,
			flops / 989e12 > bytes / 4.8e12 ? "products" : "memory")
		all += us; all100 += h100; sum += flops; moved += bytes; nodes += $3
		if (flops / 989e12 <= bytes / 4.8e12) memory += us
	}
	END {
		printf "### %s\n\n", title
		print "| unit | kernel | nodes | GFLOP | MB | H200, us | H100, us | bound by |"
		print "|---|---|---|---|---|---|---|---|"
		for (i = 1; i <= n; i++)
			print row[i]
		printf "| together | | %d | %.1f | %.1f | %.1f | %.1f | |\n\n", nodes, sum / 1e9, moved / 1e6, all, all100
		printf "Every kernel at its bound would make %.0f thousand tokens a second on an H200, %.0f %% of the peak of products (H100: %.0f %%). Memory bounds %.0f %% of that time.\n\n",
			tokens / all * 1e3, 100 * sum / 989e12 / all * 1e6, 100 * sum / 989e12 / all100 * 1e6, 100 * memory / all
	}'
}

work() { "$heddle" explain "$tmp/gpt2-$1.ini" --work --set train.device=cuda --set train.precision=bf16 --set train.lr=1e-4; }
work 124M | table "GPT-2 124M: 16 x 1024 tokens" 16384
work 1.3B | table "GPT-2 1.3B: 4 x 2048 tokens" 8192
