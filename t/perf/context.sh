#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Context parallelism: tokens a second of four ranks beside one rank's on the same two cores, in each form, and one step of a
# sequence of LONG tokens (131072).  Of that step, its planned memory, the processes' high-water mark, which counts pages that
# ranks share for each of them, and the most that each rank had with shared pages divided among those that have them (Pss).
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
# Of the ranks that the shell of this number starts mpirun for, until it ends.
watch() {
	while kill -0 "$1" 2>/dev/null; do
		for p in $(for m in $(pgrep -P "$1"); do pgrep -P "$m"; done); do
			awk -v p="$p" '/^Pss:/ { print p, $2 }' "/proc/$p/smaps_rollup" 2>/dev/null
		done
		sleep 1
	done | awk '$2 > most[$1] { most[$1] = $2 } END { for (p in most) printf "Pss of a rank: %.1f MB\n", most[p] * 1024 / 1e6 }'
}
ini "$long" 2 128 >"$tmp/long.ini"
for form in ulysses ring; do
	run 4 train "$tmp/long.ini" --set cp.form=$form --set train.threads=1 &
	watch $!
	wait $!
done
