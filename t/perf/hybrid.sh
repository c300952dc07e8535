#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures tensor x pipeline parallelism on the cores of one machine: 4 ranks of one thread, tp 2 x pp 2, compared with
# one rank of two threads and with the same layout in PyTorch (DTensor and pipelining over gloo).  They run alternately
# because machines drift: compare the ratios.
#
#   t/perf/hybrid.sh [HEDDLE]         HEDDLE: the program (default build/heddle)
#   ROUNDS=3 STEPS=3; SHAPE="layers embed heads vocab micro-batch micro-batches seq" (6 384 6 256 4 8 256)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
heddle=${1:-$here/../../build/heddle}
rounds=${ROUNDS:-3} steps=${STEPS:-3} shape=${SHAPE:-6 384 6 256 4 8 256}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
median() { sort -g | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
ours() {	# NAME command...
	name=$1
	shift
	"$@" --steps "$steps" --json >"$work/json" 2>"$work/why" || { cat "$work/why" >&2; exit 1; }
	sed -n 's/.*"tokens_per_second": *\([0-9.e+-]*\).*/\1/p' "$work/json" >>"$work/$name"
}

# shellcheck disable=SC2086
set -- $shape
printf '[model]\nlayers = %s\nembed = %s\nheads = %s\nvocab = %s\ntie_embeddings = no\n[data]\ntrain = none\n[train]\nmicro_batch = %s\nglobal_batch = %s\nseq = %s\nsteps = 1\n' \
	"$1" "$2" "$3" "$4" "$5" $(($5 * $6)) "$7" >"$work/one.ini"
{ cat "$work/one.ini"; printf '[strategy tp]\nplugin = tp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 2\nschedule = 1f1b\n'; } >"$work/four.ini"
for _ in $(seq "$rounds"); do
	ours one "$heddle" bench "$work/one.ini" --set train.threads=2
	ours four mpirun -np 4 --oversubscribe --bind-to none "$heddle" bench "$work/four.ini" --set train.threads=1
	python3 -c 'import torch' 2>/dev/null || continue
	# shellcheck disable=SC2086
	python3 -m torch.distributed.run --standalone --nproc_per_node 4 "$here/torch_pipeline.py" $shape "$steps" 1f1b 2 \
		>>"$work/torch" 2>"$work/why" || { tail -5 "$work/why" >&2; exit 1; }
done
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), shape $shape, fp32, load $(cut -d' ' -f1 /proc/loadavg)"
one=$(median <"$work/one") four=$(median <"$work/four")
awk -v one="$one" -v four="$four" 'BEGIN { printf "one rank x 2 threads: %.0f tokens/s\ntp 2 x pp 2, 4 ranks: %.0f tokens/s, %.2f of one rank\n", one, four, four / one }'
[ ! -s "$work/torch" ] || median <"$work/torch" | awk -v four="$four" '{ printf "PyTorch, tp 2 x pp 2 over gloo: %.0f tokens/s, ratio %.2f\n", $1, four / $1 }'
