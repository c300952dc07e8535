#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle conform over every plugin that comes with Heddle and every example: the table of doc/measurements.md.
#	t/perf/conform.sh build/heddle [conform's options...]
# -> for each: checks that passed, failed and were skipped, seconds, and what was skipped.
src=$(cd "${0%/*}/../.." && pwd)
heddle=$(realpath "${1:-build/heddle}")
[ $# -eq 0 ] || shift
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1

judge() { # NAME PLUGIN conform's options...
	name=$1 from=$(date +%s)
	shift
	"$heddle" conform "$@" >out 2>err || bad=1
	last=$(tail -n 1 out)
	[ "$last" ] || last="# $name 0: $(cat err)"
	printf '| %s | %s | %d |' "$name" "${last#*: }" $(($(date +%s) - from))
	# A reason without its place, its sizes and its numbers.
	sed -n 's/^ok .* # SKIP //p' out | sed 's/refused: layout:[0-9]*: //; s/\[[a-z]* [a-z0-9_]*\] *//; s/[0-9][0-9.]*/N/g' | sort | uniq -c | sort -rn |
		sed 's/^ *\([0-9]*\) \(.*\)/ \1 x \2;/' | head -n 4 | tr -d '\n'
	echo ' |'
	grep '^not ok' out
}
bad=
for plugin in dp tp pp ep cp; do
	judge $plugin $plugin "$@"
done
for makefile in "$src"/examples/*/Makefile; do
	folder=$(basename "$(dirname "$makefile")") name=$(basename "$src/examples/$(basename "$(dirname "$makefile")")" | tr - _)
	${CC:-cc} -std=gnu11 -O2 -fopenmp -fPIC -shared -fvisibility=hidden -Wl,-z,defs -I"$src/include" -o "$name.so" "$src/examples/$folder/$name.c" -lm &&
		judge "$folder" "./$name.so" "$@"
done
${CC:-cc} -std=gnu11 -O2 -fPIC -shared -fvisibility=hidden -Wl,-z,defs -I"$src/include" -o heddle_sign_compression.so \
	"$src/examples/sign-compression/strategy.c" -lm && judge sign-compression ./heddle_sign_compression.so "$@"
[ -z "$bad" ]
