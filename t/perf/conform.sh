#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs heddle conform on every plugin of Heddle and every example, or those in NAMES, for the table of
# doc/measurements.md.
#	[NAMES="tp muon"] t/perf/conform.sh build/heddle [conform's options...]
# Prints for each the checks that passed, failed and were skipped, processor and elapsed seconds, and reasons of skips.
src=$(cd "${0%/*}/../.." && pwd)
heddle=$(realpath "${1:-build/heddle}")
[ $# -eq 0 ] || shift
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1

# Prints the processor time of this shell's descendants in seconds.
used() {
	times >used
	awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); n += part[1] * 60 + part[2] } } END { printf "%.0f\n", n }' used
}
wanted() { case " ${NAMES:-$1} " in *" $1 "*) true ;; *) false ;; esac; }
judge() { # NAME PLUGIN conform's options...
	name=$1 from=$(date +%s)
	used >before
	shift
	"$heddle" conform "$@" >out 2>err || bad=1
	last=$(tail -n 1 out)
	[ "$last" ] || last="# $name 0: $(cat err)"
	used >after
	printf '| %s | %s | %d | %d |' "$name" "${last#*: }" $(($(cat after) - $(cat before))) $(($(date +%s) - from))
	# Reasons are counted without their places, sizes and numbers.
	sed -n 's/^ok .* # SKIP //p' out | sed 's/refused: layout:[0-9]*: //; s/\[[a-z]* [a-z0-9_]*\] *//; s/[0-9][0-9.]*/N/g' | sort | uniq -c | sort -rn |
		sed 's/^ *\([0-9]*\) \(.*\)/ \1 x \2;/' | head -n 4 | tr -d '\n'
	echo ' |'
	grep '^not ok' out
}
bad=
for plugin in dp tp pp ep cp; do
	wanted $plugin && judge $plugin $plugin "$@"
done
for makefile in "$src"/examples/*/Makefile; do
	folder=$(basename "$(dirname "$makefile")") name=$(basename "$src/examples/$(basename "$(dirname "$makefile")")" | tr - _)
	wanted "$folder" && ${CC:-cc} -std=gnu11 -O2 -fopenmp -fPIC -shared -fvisibility=hidden -Wl,-z,defs -I"$src/include" -o "$name.so" "$src/examples/$folder/$name.c" -lm &&
		judge "$folder" "./$name.so" "$@"
done
wanted sign-compression && ${CC:-cc} -std=gnu11 -O2 -fPIC -shared -fvisibility=hidden -Wl,-z,defs -I"$src/include" -o heddle_sign_compression.so \
	"$src/examples/sign-compression/strategy.c" -lm && judge sign-compression ./heddle_sign_compression.so "$@"
[ -z "$bad" ]
