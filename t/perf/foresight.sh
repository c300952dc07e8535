#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: [STEPS=K] t/perf/foresight.sh MACHINE.ini [NAME...]
# Compares predictions of `heddle plan`, by a file of `heddle machine`, with runs on this machine: the time of a step,
# the peak of memory, and the bytes sent.  Memory is the largest rank's high-water mark without pages of other ranks, so
# pages of neighbours' arenas that a rank reads are counted once.
# The time is that of the fastest of seven steps: others include the machine's other work, which no prediction can know.
# NAME: a row, such as dp2.bf16; without one, all rows.  Rows of 4 ranks share two cores.
set -e
src=$(cd "${0%/*}/../.." && pwd)
heddle=${HEDDLE:-$src/build/heddle}
machine=$(realpath "$1")
shift
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/l.ini" <<'E'
[model]
layers = 6
embed = 384
heads = 6
vocab = 256
[data]
train = none
[train]
seq = 256
global_batch = 8
micro_batch = 8
steps = 1
[strategy tp]
plugin = tp
size = 1
[strategy dp]
plugin = dp
size = 1
[strategy pp]
plugin = pp
size = 1
E
sed '/strategy tp/,$d' "$tmp/l.ini" >"$tmp/experts.ini"
printf '[strategy ep]\nplugin = ep\nsize = 1\n' >>"$tmp/experts.ini"

number() { sed 's/"stages".*//' "$2" | sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" | head -n 1; }
sum() { sed 's/.*"bytes": *{\([^}]*\)}.*/\1/' "$1" | grep -o ': *[0-9]*' | awk '{ s += $2 } END { print s + 0 }'; }
asked=" $* "
row() { # NAME RANKS INI SETS...
	name=$1 n=$2 ini=$tmp/$3
	shift 3
	[ "$asked" = "  " ] || case $asked in *" $name "*) ;; *) return 0 ;; esac
	"$heddle" plan "$ini" --ranks "$n" --machine "$machine" --json "$@" >"$tmp/plan"
	if [ "$n" = 1 ]; then
		"$heddle" bench "$ini" --steps "${STEPS:-7}" --json "$@" >"$tmp/run" 2>/dev/null
	else
		mpirun --oversubscribe --bind-to none -np "$n" "$heddle" bench "$ini" --steps "${STEPS:-7}" --json "$@" >"$tmp/run" 2>/dev/null
	fi
	awk -v name="$name" -v p="$(number step_seconds "$tmp/plan")" -v m="$(number fastest_step_seconds "$tmp/run")" \
		-v pm="$(number planned_peak_bytes "$tmp/plan")" -v mm="$(number measured_own_peak_bytes "$tmp/run")" \
		-v pb="$(sum "$tmp/plan")" -v mb="$(number bytes_counted "$tmp/run")" 'BEGIN {
		printf "| %s | %.1f | %.1f | %+.1f %% | %.1f | %.1f | %+.1f %% | %d | %d |\n", name, 1e3 * p, 1e3 * m,
			100 * (p / m - 1), pm / 1e6, mm / 1e6, 100 * (pm / mm - 1), pb, mb }'
}

echo '| layout | predicted ms | measured ms | error | predicted MB | measured MB | error | predicted bytes sent | measured |'
echo '|---|---|---|---|---|---|---|---|---|'
for precision in fp32 bf16; do
	is="--set train.precision=$precision"
	row one.$precision 1 l.ini $is
	row dp2.$precision 2 l.ini $is --set dp.size=2 --set train.micro_batch=4
	row tp2.$precision 2 l.ini $is --set tp.size=2
	row pp2.$precision 2 l.ini $is --set pp.size=2 --set train.micro_batch=2
	row zero3.$precision 2 l.ini $is --set dp.size=2 --set dp.zero=3 --set train.micro_batch=4
	row ep2.$precision 2 experts.ini $is --set model.experts=4 --set ep.size=2 --set train.micro_batch=4
	row tp2pp2.$precision 4 l.ini $is --set tp.size=2 --set pp.size=2 --set train.micro_batch=2
	row dp2tp2.$precision 4 l.ini $is --set dp.size=2 --set tp.size=2 --set train.micro_batch=4
	row long.$precision 1 l.ini $is --set train.seq=2048 --set train.global_batch=1 --set train.micro_batch=1
	row 124M.$precision 1 l.ini $is --set model.layers=12 --set model.embed=768 --set model.heads=12 \
		--set model.vocab=50304 --set train.global_batch=4 --set train.micro_batch=4
done
