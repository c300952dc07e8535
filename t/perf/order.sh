#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Whether plan puts layouts in the order in which this machine runs them: ten layouts of one model on up to 8 ranks, each planned
# with a machine file and measured by bench, and Kendall's rank correlation of the two (1: the same order).
#	t/perf/order.sh build/heddle MACHINE.ini [STEPS]
# MACHINE.ini: what `mpirun -np CORES heddle machine --out MACHINE.ini` has written here: more ranks than cores would measure what
# they wait for each other.  Of a layout the fastest step counts, without what else the machine did.  Each rank takes the threads
# that its share of the cores has, as plan expects.
unset OMP_NUM_THREADS
heddle=$1 machine=$2 steps=${3:-7}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/heddle-order.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT

printf '[model]\nlayers = 8\nembed = 256\nheads = 8\nvocab = 512\n[data]\ntrain = none\n' >"$tmp/x.ini"
printf '[train]\nseq = 128\nglobal_batch = 16\nsteps = 1\n' >>"$tmp/x.ini"

layout() {	# RANKS "NAME=SIZE[,key=value]..." [--set ...]
	ranks=$1 sets=
	for s in $2; do
		name=${s%%=*}
		sets="$sets --set $name.plugin=$name"
		for kv in $(echo "size=${s#*=}" | tr , ' '); do
			sets="$sets --set $name.$kv"
		done
	done
	shift 2
	planned=$("$heddle" plan "$tmp/x.ini" --ranks "$ranks" --machine "$machine" --json $sets "$@" |
		sed -n 's/.*"step_seconds": *\([0-9.e+-]*\).*/\1/p')
	measured=$(mpirun --allow-run-as-root --oversubscribe --bind-to none -np "$ranks" "$heddle" bench "$tmp/x.ini" --steps "$steps" \
		--json $sets "$@" 2>"$tmp/why" | sed -n 's/.*"fastest_step_seconds": *\([0-9.e+-]*\).*/\1/p')
	[ -n "$planned" ] && [ -n "$measured" ] || { cat "$tmp/why"; exit 1; }
	printf '%10.4f %10.4f  %s ranks: %s %s\n' "$planned" "$measured" "$ranks" "${sets# }" "$*" | tee -a "$tmp/both"
}

echo '   planned   measured'
layout 1 '' --set train.micro_batch=8
layout 1 '' --set train.micro_batch=1
layout 1 '' --set train.micro_batch=8 --set train.recompute=full
layout 2 'dp=2' --set train.micro_batch=8
layout 2 'tp=2' --set train.micro_batch=2
layout 2 'pp=2,schedule=gpipe' --set train.micro_batch=4
layout 4 'tp=2 pp=2' --set train.micro_batch=2
layout 4 'dp=4,zero=3' --set train.micro_batch=1
layout 8 'tp=4 dp=2' --set train.micro_batch=1
layout 8 'tp=2 dp=2 pp=2' --set train.micro_batch=1
awk '{ p[NR] = $1; m[NR] = $2 }
END {
	for (i = 1; i <= NR; i++)
		for (j = 1; j < i; j++) {
			x = (p[i] - p[j]) * (m[i] - m[j])
			s += x > 0 ? 1 : x < 0 ? -1 : 0
		}
	printf "Kendall: %.3f of %d layouts\n", s / (NR * (NR - 1) / 2), NR
}' "$tmp/both"
