#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file that nobody compiles rots in silence; a test that cannot be started never fails.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

# every FILES... command {}: the command succeeds for each file; names those for which it does not.
every() {
	files=$1
	shift
	bad=0
	for f in $files; do
		"$@" "$f" || { echo "$f"; bad=1; }
	done
	return $bad
}

begins() { head -n 1 "$1" | grep -q '^#!/bin/\(sh\|bash\)$'; }
parses() { sh -n "$1"; }
licensed() { head -n 3 "$1" | grep -q 'SPDX-License-Identifier: Apache-2.0'; }

all=$(bin/sources --files)
tests=$(echo "$all" | grep '^t/t[^/]*\.sh$')
scripts=$(echo "$all" | grep -e '^bin/' -e '\.sh$')

ok "bin/sources --check: sources.am names all files" bin/sources --check
is "tests are named tNNNN-" "$(echo "$all" | grep '^t/[^/]*\.\(c\|sh\)$' | grep -v '^t/t[0-9]\{4\}-[a-z0-9-]*\.')" ""
ok "tests in sh can be started" every "$tests" test -x
ok "tests in sh name their shell" every "$tests" begins
ok "scripts parse" every "$scripts" parses
ok "files of code and scripts have an SPDX line" \
	every "$scripts $(echo "$all" | grep '\.\(c\|h\|cu\)$')" licensed

# Readable at one sitting; but for sources.am, which bin/sources writes and nobody reads.
long=$(echo "$all" | grep -e '\.\(c\|h\|cc\|cu\|sh\|pl\|am\|ac\|in\|awk\|py\)$' -e '^bin/' | grep -v '^sources\.am$' | while read -r f; do
	lines=$(wc -l <"$f")
	[ "$lines" -le 600 ] || echo "$f: $lines lines, more than 600"
done)
is "no source file has more than 600 lines" "$long" ""
done_testing
