#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures context parallelism: tokens per second of four ranks, in each form, and of one rank on the same two cores;
# and one step with a sequence of LONG tokens (131072).  For that step it prints the planned memory, the largest rank's
# memory without pages of other ranks, and the high-water mark, which counts shared pages for each rank.  At 64 tokens
# it shows the program's own memory.
#	t/perf/context.sh build/heddle [LONG]
heddle=$1 long=${2:-131072}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/heddle-context.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
awk 'BEGIN { for (i = 0; i < 30000; i++) printf "In the beginning %d was %d.\n", i % 7, i % 11 }' >"$tmp/text"

ini() {		# SEQ LAYERS EMBED
	printf '[model]\nfamily = llama\nlayers = %s\nembed = %s\nheads = 4\n[data]\ntrain = %s\nvalid_fraction = 0\n' \
		"$2" "$3" "$tmp/text"
	printf '[train]\nseq = %s\nglobal_batch = 1\nsteps = 1\n[strategy cp]\nplugin = cp\nsize = auto\n' "$1"
}

run() { n=$1; shift; mpirun --allow-run-as-root --oversubscribe -np "$n" "$heddle" "$@"; }

ini 8192 4 256 >"$tmp/speed.ini"
"$heddle" bench "$tmp/speed.ini" --steps 3 --json --set train.threads=2
for form in ulysses ring; do
	run 4 bench "$tmp/speed.ini" --steps 3 --json --set cp.form=$form --set train.threads=1
done
for seq in 64 "$long"; do
	ini "$seq" 2 128 >"$tmp/long.ini"
	for form in ulysses ring; do
		echo "$form, $seq tokens"
		run 4 train "$tmp/long.ini" --set cp.form=$form --set train.threads=1
	done
done
