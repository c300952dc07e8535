#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures a pipeline of two ranks with one thread each, compared with one rank of two threads and with PyTorch's
# pipelining over gloo.  They run alternately because machines drift: compare the ratios, not the numbers.  Then
# compares the ideal times of zb and 1f1b: the times of units of a traced run, in each schedule's order (heddle explain
# --schedule --times).
#
#   t/perf/pipeline.sh [HEDDLE]       HEDDLE: the program (default build/heddle)
#   ROUNDS=3 STEPS=4 LAYERS=6 EMBED=384 SEQ=256 MICRO_BATCH=4 MICROS=8
set -eu
here=$(cd "$(dirname "$0")" && pwd)
heddle=${1:-$here/../../build/heddle}
rounds=${ROUNDS:-3} steps=${STEPS:-4} layers=${LAYERS:-6} embed=${EMBED:-384} seq=${SEQ:-256} micro=${MICRO_BATCH:-4} micros=${MICROS:-8}
heads=$((embed / 64))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p"; }
median() { sort -g | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

printf '[model]\nlayers = %s\nembed = %s\nheads = %s\nvocab = 256\ntie_embeddings = no\n[data]\ntrain = %s/text\nvalid_fraction = 0\n[train]\nglobal_batch = %s\nmicro_batch = %s\nseq = %s\nsteps = 6\n' \
	"$layers" "$embed" "$heads" "$work" "$((micro * micros))" "$micro" "$seq" > "$work/one.ini"
{ cat "$work/one.ini"; printf '[strategy pp]\nplugin = pp\nsize = 2\n'; } > "$work/two.ini"
awk 'BEGIN { for (i = 0; i < 20000; i++) printf "In the beginning %d was the word %d.\n", i % 7, i % 11 }' > "$work/text"
bench() {	# NAME command...
	name=$1
	shift
	"$@" --steps "$steps" --json > "$work/json" 2> "$work/why" || { cat "$work/why" >&2; exit 1; }
	field tokens_per_second < "$work/json" >> "$work/$name"
}
two() { mpirun -np 2 --bind-to none "$heddle" "$@"; }

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), fp32, $layers x $embed, seq $seq, $micros micro-batches of $micro, load $(cut -d' ' -f1 /proc/loadavg)"
orders='gpipe 1f1b interleaved zb'
[ $((micros % 2)) -eq 0 ] && [ $((layers + 2)) -ge 4 ] || orders='gpipe 1f1b zb'
for r in $(seq "$rounds"); do
	bench one "$heddle" bench "$work/one.ini" --set train.threads=2
	for order in $orders; do
		bench "$order" two bench "$work/two.ini" --set train.threads=1 --set pp.schedule="$order"
		[ "$order" != zb ] && [ $((layers % 4)) -eq 0 -o "$order" != interleaved ] || continue
		python3 -c 'import torch.distributed.pipelining' 2> "$work/why" || continue
		OMP_NUM_THREADS=1 torchrun --nproc_per_node 2 "$here/torch_pipeline.py" "$layers" "$embed" "$heads" 256 "$micro" \
			"$micros" "$seq" "$steps" "$order" 2> "$work/why" | tail -1 >> "$work/torch-$order"
	done
done
one=$(median < "$work/one")
echo "one rank, two threads: $one tokens/s"
for order in $orders; do
	ours=$(median < "$work/$order")
	line="$order, two ranks, one thread each: $ours tokens/s, $(awk "BEGIN { printf \"%.2f\", $ours / $one }") of one rank"
	if [ -s "$work/torch-$order" ]; then
		theirs=$(median < "$work/torch-$order")
		line="$line; PyTorch $theirs, ratio $(awk "BEGIN { printf \"%.2f\", $ours / $theirs }")"
	fi
	echo "$line"
done

two train "$work/two.ini" --set train.threads=1 --set pp.schedule=zb --set log.trace="$work/zb.json" --set log.trace_steps=3-6 > "$work/out" 2>&1
for order in 1f1b zb; do
	echo "$order $("$heddle" explain "$work/two.ini" --ranks 2 --schedule --times "$work/zb.json" --set pp.schedule=$order | tail -1)"
done
