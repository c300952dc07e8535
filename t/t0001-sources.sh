#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# If this failed, a file that nobody compiles could go stale unnoticed, and a test that cannot be started would never
# fail.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

# every FILES COMMAND...: succeeds if the command succeeds for each file, and prints the files for which it fails.
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

ok "sources.am names all files, as bin/sources --check finds" bin/sources --check
is "the names of tests begin with tNNNN-" \
	"$(echo "$all" | grep '^t/[^/]*\.\(c\|sh\)$' | grep -v '^t/t[0-9]\{4\}-[a-z0-9-]*\.')" ""
ok "shell tests are executable" every "$tests" test -x
ok "shell tests begin with a line that names their shell" every "$tests" begins
ok "the shell can parse every script" every "$scripts" parses
ok "every source file and script has an SPDX line" \
	every "$scripts $(echo "$all" | grep '\.\(c\|h\|cu\)$')" licensed

# Files must be readable at one sitting; sources.am is exempt, since bin/sources writes it and nobody reads it.
long=$(echo "$all" | grep -e '\.\(c\|h\|cc\|cu\|sh\|pl\|am\|ac\|in\|awk\|py\)$' -e '^bin/' | grep -v '^sources\.am$' | while read -r f; do
	lines=$(wc -l <"$f")
	[ "$lines" -le 600 ] || echo "$f: $lines lines, more than 600"
done)
is "no source file has more than 600 lines" "$long" ""
done_testing
