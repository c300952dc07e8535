#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures the cost of experts: the time per token of a model with experts in every layer, compared with a dense model
# of the same active size.  They run alternately because machines drift: compare the ratio, not the numbers.  There are
# 8 experts of width 1024, two per token, without a limit, against a feed-forward layer of width 2048; 2 ranks of one
# thread, with experts on both.
#
#   t/perf/experts.sh [HEDDLE]        HEDDLE: the program (default build/heddle)
#
#   ROUNDS=5, STEPS=4, RANKS=2; SHAPE="layers embed mlp batch seq" (4 256 1024 8 256)
#
# The ratio should be at most 1.35.  The time of the all-to-alls is that of a separate step under --profile.
#
#   LEARN=TEXT t/perf/experts.sh      compares losses instead: conf/quickstart.ini on TEXT, dense, with experts of
#   LEARN_STEPS=300 LEARN_LR=2e-3     the same active size, and with experts but without the soft limit (aux_loss = 0)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
heddle=${1:-$here/../../build/heddle}
rounds=${ROUNDS:-5} steps=${STEPS:-4} ranks=${RANKS:-2} shape=${SHAPE:-4 256 1024 8 256}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p"; }
median() { sort -g | awk '{ x[NR] = $1 } END { if (NR) print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

learn() {	# NAME args...
	name=$1
	shift
	"$heddle" train "$here/../../conf/quickstart.ini" --set dp.size=1 --set data.train="$LEARN" --set train.steps="${LEARN_STEPS:-300}" --set train.lr="${LEARN_LR:-2e-3}" \
		--set log.sample=0 --set log.metrics="$work/m.jsonl" "$@" >/dev/null 2>"$work/why" || { cat "$work/why" >&2; exit 1; }
	awk -v name="$name" '
		/"valid_loss"/ { v = $0; sub(/.*"valid_loss": */, "", v); valid = v + 0 }
		/"load"/ { l = $0; sub(/.*"load": *\[/, "", l); sub(/\].*/, "", l); n = split(l, x, /, */); s = 0; for (i in x) s += x[i]; load = s / n
			d = $0; sub(/.*"dropped": *\[/, "", d); sub(/\].*/, "", d); n = split(d, x, /, */); s = 0; for (i in x) s += x[i]; drop = s / n }
		END { printf "%-34s valid_loss %.4f%s\n", name, valid, load ? sprintf("  load %.2f  dropped %.3f", load, drop) : "" }' "$work/m.jsonl"
	rm -f "$work/m.jsonl"
}
if [ -n "${LEARN:-}" ]; then
	mlp=$(sed -n 's/^embed *= *\([0-9]*\).*/\1/p' "$here/../../conf/quickstart.ini")
	experts="--set model.experts=8 --set model.moe_every=1 --set model.mlp=$((2 * mlp))"
	learn "dense" --set model.mlp=$((4 * mlp))
	# shellcheck disable=SC2086
	learn "experts, gshard" $experts
	# shellcheck disable=SC2086
	learn "experts, gshard, no soft limit" $experts --set model.aux_loss=0
	# shellcheck disable=SC2086
	learn "experts, top 2, no limit" $experts --set model.router=topk
	exit
fi

# shellcheck disable=SC2086
set -- $shape
dense() { printf '[model]\nlayers = %s\nembed = %s\nheads = 4\nvocab = 256\nmlp = %s\n' "$1" "$2" "$3"; }
rest() { printf '[data]\ntrain = none\n[train]\nglobal_batch = %s\nseq = %s\nsteps = 1\nthreads = 1\n[strategy x]\nplugin = %s\n' "$@"; }
{ dense "$1" "$2" $((2 * $3)); rest "$4" "$5" dp; } >"$work/dense.ini"
{ dense "$1" "$2" "$3"; printf 'experts = 8\nmoe_every = 1\nrouter = topk\nexperts_per_token = 2\ncapacity_factor = 0\n'; rest "$4" "$5" ep; } >"$work/experts.ini"
run() {		# NAME args
	mpirun -np "$ranks" --oversubscribe --bind-to none "$heddle" bench "$work/$1.ini" --steps "$steps" "$2" 2>"$work/why" >"$work/out" ||
		{ cat "$work/why" >&2; exit 1; }
}
for r in $(seq "$rounds"); do
	for name in dense experts; do
		run $name --json
		field step_seconds <"$work/out" >>"$work/$name.seconds"
	done
	run experts --profile
	awk '$1 == "all-to-all" { print $2 / 1000 }' "$work/out" >>"$work/moved"
done
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), shape $shape, $ranks ranks, fp32, load $(cut -d' ' -f1 /proc/loadavg)"
awk -v a="$(median <"$work/dense.seconds")" -v b="$(median <"$work/experts.seconds")" -v m="$(median <"$work/moved")" 'BEGIN {
	printf "dense    %.4f s a step\nexperts  %.4f s a step, %.2f of dense; all-to-all %.4f s of it\n", a, b, b / a, m }'
