#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The plans of all layouts in conf/, and of others, are those that were kept: each node of the first and last rank, what
# check says, the order of units, and the hash of the whole plan.  If this broke, a change that was to move code has changed what runs.
# t/golden/make.sh writes them anew.
. "${0%/*}/lib/tap.sh"
[ -x "$build/heddle" ] || skip_all 'heddle is not built'
command -v xz >/dev/null || skip_all 'there is no xz'
. "$src/t/lib/golden.sh"

golden_cases >"$tmp/cases"
while read -r name args; do
	golden_want "$name" >"$tmp/want"
	# shellcheck disable=SC2086
	golden_text $args | golden_hash >"$tmp/got"
	cmp -s "$tmp/want" "$tmp/got" && [ -s "$tmp/got" ]
	tap_result $? "$name" || diff "$tmp/want" "$tmp/got" | cut -c 1-400 | head -n 6 | tap_comment
done <"$tmp/cases"
for f in "$src"/conf/*.ini; do
	name=${f##*/}
	grep -q "^[^ ]* ${name%.ini} " "$tmp/cases" || missing="$missing $name"
done
is "each layout in conf/ has one" "$missing" ""
is "nothing is refused" "$(for f in "$golden"/*.xz; do xz -dc "$f" | grep -a -e '^heddle: ' | sed "s|^|$f: |"; done)" ""
done_testing
