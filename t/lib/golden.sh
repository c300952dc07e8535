# SPDX-License-Identifier: Apache-2.0
# t/lib/golden.sh - prints the plans of t/golden/cases as text.  Needs $src, $build and $tmp.

golden=$src/t/golden
export OMP_NUM_THREADS=1 COLUMNS=200

# golden_cases: prints NAME CONF RANKS [KEY=VALUE ...], one case per line.
golden_cases() { sed -e 's/#.*//' -e '/^ *$/d' "$golden/cases"; }

# golden_text CONF RANKS [KEY=VALUE ...]: prints the output of check for the layout, the order of units, and all nodes
# of the first and the last rank.
golden_text() {
	golden_conf=$src/conf/$1.ini golden_ranks=$2
	shift 2
	for golden_set; do
		set -- "$@" --set "$golden_set"
		shift
	done
	grep -q '^;*train = corpus\.txt' "$golden_conf" && set -- "$@" --set "data.train=$tmp/text"
	grep -q '^load = model' "$golden_conf" && set -- "$@" --set "model.load=$src/t/data/families/llama3" \
		--set "data.train=$src/t/data/families/ids-llmc.bin"
	[ -f "$tmp/text" ] || awk 'BEGIN { for (i = 0; i < 200; i++) printf "In the beginning %d was %d.\n", i % 7, i % 11 }' >"$tmp/text"
	"$build/heddle" check --all "$golden_conf" --ranks "$golden_ranks" "$@" 2>&1 |
		sed "s|$src/||g; /^note: this processor/d; / does nothing with/d" | golden_anywhere
	"$build/heddle" explain "$golden_conf" --ranks "$golden_ranks" "$@" --nodes --schedule 2>&1 | grep -v '^units: '
	[ "$golden_ranks" -eq 1 ] ||
		"$build/heddle" explain "$golden_conf" --ranks "$golden_ranks" --rank $((golden_ranks - 1)) "$@" --nodes 2>&1
}

# Words that have changed since, as sed commands, one per line.  While there are some, hashes differ too and are not
# compared.
golden_renames() { sed -e 's/^#.*//' -e '/^ *$/d' "$golden/renames"; }
golden_hash() { if [ -n "$(golden_renames)" ]; then sed 's/^plan [0-9a-f]*$/plan/'; else cat; fi; }

# Removes the scratch memory of kernels, and sums that include it, because they depend on the processor.
golden_anywhere() { sed -E 's/(: [^:]*), memory [0-9.]+ [KMG]?B \(/\1, memory (/; s/, scratch of kernels [0-9.]+( [KMG]?B)?//'; }

# golden_want NAME: prints the kept text, in today's words.
golden_want() { xz -dc "$golden/$1.xz" | sed "$(golden_renames)" | golden_anywhere | golden_hash; }
