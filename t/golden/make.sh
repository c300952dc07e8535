#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the plans that t6260-golden.sh compares with, from the heddle that is built: t/golden/make.sh [NAME...].
# To be run when a change means to change plans, and the commit says which and why; or after renaming (then the test
# passes with t/golden/renames, which this empties where it writes all of them).
src=$(cd "${0%/*}/../.." && pwd)
build=$(cd "${HD_BUILD:-$src/build}" && pwd) || exit 1
tmp=$(mktemp -d "${TMPDIR:-/tmp}/heddle-golden.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
. "$src/t/lib/golden.sh"

golden_cases >"$tmp/cases"
for name; do
	grep -q "^$name " "$tmp/cases" || { echo "t/golden/cases has no $name" >&2; exit 1; }
done
while read -r name args; do
	case " ${*:-$name} " in
	*" $name "*) ;;
	*) continue ;;
	esac
	# shellcheck disable=SC2086
	golden_text $args | xz -9e >"$golden/$name.xz"
done <"$tmp/cases"
[ $# -eq 0 ] || exit 0
sed '/^[^#]/d' "$golden/renames" >"$tmp/renames" && cat "$tmp/renames" >"$golden/renames"
for f in "$golden"/*.xz; do
	name=${f##*/}
	grep -q "^${name%.xz} " "$tmp/cases" || rm "$f"
done
