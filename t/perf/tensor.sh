#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures tensor parallelism on the cores of one machine: N ranks of one thread compared with one rank of N threads,
# and both with PyTorch.  They run alternately because machines drift: compare the ratios, not the numbers.
#
#   t/perf/tensor.sh [HEDDLE]         HEDDLE: the program (default build/heddle)
#
#   ROUNDS=3, STEPS=4, RANKS=2; SHAPE="layers embed heads vocab micro-batch seq micro-batches" (6 384 6 256 8 256 4)
#
# Prints a line per case: tokens/s, the median of the rounds, and the exposed communication of a step if there is any.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
heddle=${1:-$here/../../build/heddle}
rounds=${ROUNDS:-3} steps=${STEPS:-4} ranks=${RANKS:-2} shape=${SHAPE:-6 384 6 256 8 256 4}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# shellcheck disable=SC2086
set -- $shape
printf '[model]\nlayers = %s\nembed = %s\nheads = %s\nvocab = %s\n[data]\ntrain = none\n[train]\nglobal_batch = %s\nmicro_batch = %s\nseq = %s\nsteps = 1\n[strategy tp]\nplugin = tp\n' \
	"$1" "$2" "$3" "$4" $(($5 * $7)) "$5" "$6" >"$work/x.ini"

field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p"; }
median() { sort -g | awk '{ x[NR] = $1 } END { if (NR) print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
ours() {	# NAME RANKS args
	name=$1 n=$2
	shift 2
	mpirun -np "$n" --oversubscribe --bind-to none "$heddle" bench "$work/x.ini" --steps "$steps" --json "$@" 2>"$work/why" >"$work/json" ||
		{ cat "$work/why" >&2; exit 1; }
	field tokens_per_second <"$work/json" >>"$work/$name"
	field comm_exposed_seconds <"$work/json" >>"$work/$name.exposed"
}
theirs() {	# NAME PROCESSES THREADS args
	name=$1 n=$2 threads=$3
	shift 3
	python3 -c 'import torch' 2>/dev/null || return 0
	python3 -m torch.distributed.run --standalone --nproc_per_node "$n" "$here/torch_tensor.py" $shape "$steps" "$threads" "$@" \
		>>"$work/$name" 2>"$work/why" || { tail -5 "$work/why" >&2; exit 1; }
}
say() {		# NAME text
	got=$(cat "$work/$1" 2>/dev/null | median || :)
	exposed=$(cat "$work/$1.exposed" 2>/dev/null | median || :)
	awk -v text="$2" -v got="$got" -v one="$3" -v exposed="$exposed" 'BEGIN {
		if (got == "") { printf "%-44s not installed\n", text; exit }
		printf "%-44s %8.0f tokens/s, %.2f of one rank of ours%s\n", text, got, got / one,
			(exposed > 0 ? sprintf("; %.3f s of a step exposed", exposed) : "") }'
}

for r in $(seq "$rounds"); do
	ours one 1 --set train.threads="$ranks"
	ours cut "$ranks" --set train.threads=1
	ours sequence "$ranks" --set train.threads=1 --set tp.sequence_parallel=yes
	theirs torch_one 1 "$ranks"
	theirs torch_cut "$ranks" 1
	theirs torch_api "$ranks" 1 api
done
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), shape $shape, fp32, load $(cut -d' ' -f1 /proc/loadavg)"
one=$(median <"$work/one")
say one "heddle, one rank x $ranks threads" "$one"
say cut "heddle, $ranks ranks x 1 thread, tp" "$one"
say sequence "heddle, $ranks ranks x 1 thread, tp, sequence sharded" "$one"
say torch_one "PyTorch, one process x $ranks threads" "$one"
say torch_cut "PyTorch, $ranks x 1, gloo, written out" "$one"
say torch_api "PyTorch, $ranks x 1, gloo, parallelize_module" "$one"
