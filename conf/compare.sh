#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: conf/compare.sh TEXT [STEPS]
# Trains one model in six layouts and compares initial weights (their hash) and losses, which are equal up to rounding.
# HEDDLE: the program, if it is neither in build/ nor on the PATH.  The exit status is 0 only if they are equal.
set -e
unset CDPATH
case $1 in
-h | --help)
	sed -n '3,5s/^# //p' "$0"
	exit 0
	;;
'')
	sed -n '3,5s/^# //p' "$0" >&2
	exit 1
	;;
esac
text=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
steps=${2:-50}
conf=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
heddle=${HEDDLE:-$conf/../build/heddle}
[ -x "$heddle" ] || heddle=heddle
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

run() {	# NAME RANKS CONF [--set ...]
	name=$1 ranks=$2 file=$conf/$3
	shift 3
	printf '%s ' "$name" >&2
	if ! mpirun -np "$ranks" --oversubscribe --bind-to none "$heddle" train "$file" --set data.train="$text" \
		--set train.steps="$steps" --set log.sample=0 --set log.metrics="$tmp/$name.jsonl" "$@" >"$tmp/$name.out" 2>&1; then
		echo >&2
		grep '^heddle: .*:' "$tmp/$name.out" >&2 || cat "$tmp/$name.out" >&2
		exit 1
	fi
	names="$names $name"
}

tp='--set tp.plugin=tp --set tp.size=2'
run 1-rank 1 quickstart.ini
run dp2 2 quickstart.ini
run dp4 4 quickstart.ini
run tp2-dp2 4 quickstart.ini $tp
run tp2-pp2 4 quickstart-hybrid.ini
run pp4 4 quickstart-hybrid.ini --set tp.size=1 --set pp.size=4
echo >&2

row() {	# LABEL COMMAND: prints a row with the command's output for each layout
	printf '%-16s' "$1"
	shift
	for n in $names; do
		printf ' %17s' "$("$@" "$tmp/$n")"
	done
	echo
}
name_of() { basename "$1"; }
hash_of() { sed -n 's/.*initial weights //p' "$1.out"; }
loss_at() { sed -n "s/.*\"step\": *$at, \"loss\": *\([0-9.]*\).*/\1/p" "$1.jsonl" | cut -c1-9; }
valid_of() { sed -n 's/.*"valid_loss": *\([0-9.]*\).*/\1/p' "$1.jsonl" | cut -c1-9; }

row '' name_of
row 'initial weights' hash_of
for at in 1 2 5 10 20 50 100 200 500 1000 2000 "$steps"; do
	[ "$at" -gt "$steps" ] || { [ "$at" -eq "$steps" ] && [ "$last" = "$at" ]; } || row "loss, step $at" loss_at
	last=$at
done | awk '!seen[$0]++'
row 'valid loss' valid_of

# Equal means equal hashes, and first losses within rounding (later ones drift apart, since training amplifies
# rounding).
at=1
for n in $names; do
	echo "$(hash_of "$tmp/$n") $(loss_at "$tmp/$n")"
done | awk 'NR == 1 { h = $1; l = $2 } { d = $2 / l - 1; if ($1 != h || !(d < 1e-5 && d > -1e-5)) bad = 1 } END { exit bad }'
