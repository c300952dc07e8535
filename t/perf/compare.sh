#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares heddle bench with PyTorch, which run alternately because machines drift: compare the ratios, not the numbers.
#
#   t/perf/compare.sh [HEDDLE]        HEDDLE: the program (default build/heddle); ROUNDS=3, STEPS=4, THREADS=all cores,
#					  PRECISION=fp32 or bf16 (PyTorch's autocast)
#
# Prints a line per shape: tokens/s of both, their ratio, and the share of a step that its matrix products alone would
# take.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
heddle=${1:-$here/../../build/heddle}
rounds=${ROUNDS:-3} steps=${STEPS:-4} threads=${THREADS:-$(nproc)} precision=${PRECISION:-fp32}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p"; }
median() { sort -g | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

shape() {	# name layers embed heads vocab batch seq
	name=$1
	shift
	printf '[model]\nlayers = %s\nembed = %s\nheads = %s\nvocab = %s\n[data]\ntrain = none\n[train]\nglobal_batch = %s\nmicro_batch = %s\nseq = %s\nsteps = 1\nthreads = %s\nprecision = %s\n' \
		"$1" "$2" "$3" "$4" "$5" "$5" "$6" "$threads" "$precision" > "$work/x.ini"
	: > "$work/ours"; : > "$work/share"; : > "$work/theirs"; : > "$work/peak"
	for r in $(seq "$rounds"); do
		"$heddle" bench "$work/x.ini" --steps "$steps" --products --json > "$work/json"
		field tokens_per_second < "$work/json" >> "$work/ours"
		field products_share < "$work/json" >> "$work/share"
		field measured_peak_bytes < "$work/json" >> "$work/peak"
		if python3 -c 'import torch' 2> "$work/why"; then
			python3 "$here/torch_gpt2.py" "$1" "$2" "$3" "$4" "$5" "$6" "$steps" "$threads" "$precision" | cut -d" " -f1 >> "$work/theirs"
		fi
	done
	ours=$(median < "$work/ours") share=$(median < "$work/share") peak=$(median < "$work/peak")
	if [ -s "$work/theirs" ]; then
		theirs=$(median < "$work/theirs")
		ratio=$(awk "BEGIN { printf \"%.2f\", $ours / $theirs }")
	else
		theirs='not installed' ratio='-'
	fi
	echo "$name: heddle $ours tokens/s, PyTorch $theirs, ratio $ratio; products alone $(awk "BEGIN { printf \"%.0f\", 100 * $share }") % of a step; peak $(awk "BEGIN { printf \"%.2f\", $peak / 1e9 }") GB"
}

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $threads threads, $precision, load $(cut -d' ' -f1 /proc/loadavg)"
shape 'GPT-2 124M, 4 x 256' 12 768 12 50304 4 256
shape '6 x 384, vocab 256, 8 x 256' 6 384 6 256 8 256
