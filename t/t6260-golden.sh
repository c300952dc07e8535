#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The plans of all layouts in conf/, and of others, equal the stored ones.  Compared are each node of the first and
# last rank, the output of check, the order of units, and the hash of the complete plan. If this fails, a change that
# was meant to move code has changed what runs.  t/golden/make.sh stores new plans.
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
is "each layout in conf/ has a stored plan" "$missing" ""
is "no stored plan contains a message" \
	"$(for f in "$golden"/*.xz; do xz -dc "$f" | grep -a -e '^heddle: ' | sed "s|^|$f: |"; done)" ""

# Storing one plan again keeps the renamed words of the others; after storing all plans, none are needed.
first=$(head -n 1 "$tmp/cases" | cut -d ' ' -f 1)
mkdir -p "$tmp/tree/t/golden" "$tmp/tree/t/lib"
cp "$golden/make.sh" "$tmp/tree/t/golden/" && cp "$src/t/lib/golden.sh" "$tmp/tree/t/lib/" && ln -s "$src/conf" "$tmp/tree/"
ln -s "$src/t/data" "$tmp/tree/t/data"
head -n 1 "$tmp/cases" >"$tmp/tree/t/golden/cases"
printf '# words\ns/old/new/\n' >"$tmp/tree/t/golden/renames"
ok "make.sh stores one plan again" env HD_BUILD="$build" sh "$tmp/tree/t/golden/make.sh" "$first"
is "... and leaves the renames" \
	"$(grep -c '^s/old/new/' "$tmp/tree/t/golden/renames") $(ls "$tmp/tree/t/golden" | grep -c "^$first.xz")" "1 1"
fails "make.sh refuses an unknown name" env HD_BUILD="$build" sh "$tmp/tree/t/golden/make.sh" nothing
ok "make.sh stores all plans again" env HD_BUILD="$build" sh "$tmp/tree/t/golden/make.sh"
is "... and empties the renames" "$(cat "$tmp/tree/t/golden/renames")" "# words"
done_testing
