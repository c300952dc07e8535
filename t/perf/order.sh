#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests whether plan ranks layouts in the order of their speed on this machine.  Ten layouts of one model on up to 8
# ranks are planned with a machine file and measured by bench; it prints Kendall's rank correlation of the two (1: the
# same order).
#	t/perf/order.sh build/heddle MACHINE.ini [STEPS [ROUNDS]]
# MACHINE.ini: written here by `mpirun -np CORES --bind-to none heddle machine --out MACHINE.ini`.  With more ranks than
# cores it would measure how long they wait for each other.  Layouts run alternately for some rounds because machines
# drift, and the median over rounds of a layout's fastest step counts.  Some hosts move the cores of a virtual machine
# nearer to each other or apart.  A step measured while their distance differs from the file's (`exchange`) is measured
# again in a later round. Each rank uses the threads of its share of the cores, as plan expects.
unset OMP_NUM_THREADS
heddle=$1 machine=$2 steps=${3:-7} rounds=${4:-3}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/heddle-order.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT

printf '[model]\nlayers = 8\nembed = 256\nheads = 8\nvocab = 512\n[data]\ntrain = none\n' >"$tmp/x.ini"
printf '[train]\nseq = 128\nglobal_batch = 16\nsteps = 1\n' >>"$tmp/x.ini"

layouts() {	# COMMAND: runs it for each layout with RANKS "NAME=SIZE[,key=value]..." [--set ...]
	"$@" 1 '' --set train.micro_batch=8
	"$@" 1 '' --set train.micro_batch=1
	"$@" 1 '' --set train.micro_batch=8 --set train.recompute=full
	"$@" 2 'dp=2' --set train.micro_batch=8
	"$@" 2 'tp=2' --set train.micro_batch=2
	"$@" 2 'pp=2,schedule=gpipe' --set train.micro_batch=4
	"$@" 4 'tp=2 pp=2' --set train.micro_batch=2
	"$@" 4 'dp=4,zero=3' --set train.micro_batch=1
	"$@" 8 'tp=4 dp=2' --set train.micro_batch=1
	"$@" 8 'tp=2 dp=2 pp=2' --set train.micro_batch=1
}
sets_of() {	# "NAME=SIZE[,key=value]..."
	for s in $1; do
		name=${s%%=*}
		printf '%s' " --set $name.plugin=$name"
		for kv in $(echo "size=${s#*=}" | tr , ' '); do
			printf '%s' " --set $name.$kv"
		done
	done
}
seconds() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p"; }
plan() {
	ranks=$1 sets=$(sets_of "$2")
	shift 2
	# One word per setting.
	# shellcheck disable=SC2086
	"$heddle" plan "$tmp/x.ini" --ranks "$ranks" --machine "$machine" --json $sets "$@" | seconds step_seconds >"$tmp/planned.$n"
	echo "$ranks ranks:$sets $*" >"$tmp/name.$n"
	n=$((n + 1))
}
measure() {	# again, unless the layout has been measured in ROUNDS rounds
	ranks=$1 sets=$(sets_of "$2")
	shift 2
	[ "$(cat "$tmp/measured.$n" 2>/dev/null | wc -l)" -lt "$rounds" ] || { n=$((n + 1)) && return; }
	# shellcheck disable=SC2086
	mpirun --allow-run-as-root --oversubscribe --bind-to none -np "$ranks" "$heddle" bench "$tmp/x.ini" --steps "$steps" \
		--json $sets "$@" 2>"$tmp/why" >"$tmp/line"
	seconds fastest_step_seconds <"$tmp/line" >"$tmp/step"
	[ -s "$tmp/step" ] || { cat "$tmp/why"; exit 1; }
	if as_in_the_file "$(seconds exchange_seconds <"$tmp/line")"; then
		cat "$tmp/step" >>"$tmp/measured.$n"
	else
		echo . >>"$tmp/moved"
	fi
	n=$((n + 1))
}
as_in_the_file() { # SECONDS: the time in which one core passes a line to another, "" with one core
	[ -z "$1" ] || [ -z "$exchange" ] || awk -v a="$1" -v b="$exchange" 'BEGIN { exit !(a < 1.6 * b && b < 1.6 * a) }'
}
measured_less() { # ROUNDS: succeeds if a layout has been measured less often
	for i in $(seq 0 $((n - 1))); do
		[ "$(cat "$tmp/measured.$i" 2>/dev/null | wc -l)" -ge "$1" ] || return 0
	done
	return 1
}
exchange=$(sed -n 's/^exchange = \([0-9.e+-]*\).*/\1/p' "$machine")

n=0
layouts plan
: >"$tmp/moved"
for round in $(seq $((4 * rounds))); do
	measured_less "$rounds" || break
	n=0
	layouts measure
done
measured_less 1 && { echo "the cores are at another distance than in $machine (exchange = $exchange): measure it again"; exit 1; }
echo '   planned    fastest     median    slowest round'
for i in $(seq 0 $((n - 1))); do
	sort -g "$tmp/measured.$i" >"$tmp/sorted"
	median=$(sed -n "$((($(wc -l <"$tmp/sorted") + 1) / 2))p" "$tmp/sorted")
	printf '%10.4f %10.4f %10.4f %10.4f  %s\n' "$(cat "$tmp/planned.$i")" "$(head -1 "$tmp/sorted")" "$median" "$(tail -1 "$tmp/sorted")" \
		"$(cat "$tmp/name.$i")" | tee -a "$tmp/both"
done
awk '{ p[NR] = $1; m[NR] = $3 }
END {
	for (i = 1; i <= NR; i++)
		for (j = 1; j < i; j++) {
			x = (p[i] - p[j]) * (m[i] - m[j])
			s += x > 0 ? 1 : x < 0 ? -1 : 0
			if (m[i] > 1.05 * m[j] || m[j] > 1.05 * m[i]) {
				apart++
				same += x > 0
			}
		}
	printf "Kendall: %.3f for %d layouts; of %d pairs more than 5 %% apart, %d are in order\n", s / (NR * (NR - 1) / 2), NR, apart, same
}' "$tmp/both"
[ ! -s "$tmp/moved" ] || echo "$(wc -l <"$tmp/moved") steps, in $round rounds, were measured at a different distance of the cores, and do not count"
