#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: t0006-abi.sh [--print]
# The plugins' interface as the compiler sees it: a change of the public headers needs a new minor, an entry in
# doc/abi-changes.md and a line in t/abi.txt; --print prints that line.  If this broke, plugins built with two different
# headers would take each other's structs for their own.  Comments and layout may change freely.
. "${0%/*}/lib/tap.sh"

headers=${HD_ABI_HEADERS:-$src/include}	# --print is of these
include=$headers/heddle
# What these headers say, and define, without what they include and without blanks: a public header is all that plugins include.
plain() {
	printf '#include <heddle/strategy.h>\n' | ${CC:-cc} -E -dD -I"$1" -x c - | awk '
		/^# [0-9]+ "/ { split($0, part, "\""); ours = index(part[2], "/heddle/") > 0 && part[2] !~ /version\.h$/; next }
		ours && !/^#undef/ { gsub(/[ \t]+/, ""); printf "%s", $0 (/^#/ ? "\n" : "") }
		END { print "" }'
}
number() { sed -n "s/^#define HD_ABI_$1 \([0-9]*\)$/\1/p" "$include/version.h"; }
version=$(number MAJOR).$(number MINOR)
hash=$(plain "$headers" | cksum | tr ' ' -)
if [ "$1" = --print ]; then
	echo "$version $hash"
	tap_planned=yes
	exit 0
fi

[ "$(plain "$src/include" | wc -c)" -gt 10000 ] || skip_all "no preprocessor"
cd "$tmp" || exit 1
mkdir -p copy/heddle
cp "$include"/*.h copy/heddle
for h in copy/heddle/*.h; do
	sed 's|^/\* SPDX.*|/* another comment|; s/^\t/        /' "$h" >copy/.h && mv copy/.h "$h"
done
is "comments and blanks do not count" "$(plain copy | cksum | tr ' ' -)" "$hash"
sed 's/uint32_t ndim, dtype, what;/uint32_t ndim, what, dtype;/' "$include/graph.h" >copy/heddle/graph.h
[ "$(plain copy | cksum | tr ' ' -)" != "$hash" ]
tap_result $? "two fields in another order do"
sed 's/^#define HD_MAX_INS 16/#define HD_MAX_INS 17/' "$include/host.h" >copy/heddle/host.h
cp "$include/graph.h" copy/heddle
[ "$(plain copy | cksum | tr ' ' -)" != "$hash" ]
tap_result $? "so does a number"
for h in "$include"/*.h; do
	n=$(printf '#include <heddle/strategy.h>\n' | ${CC:-cc} -E -I"$src/include" -x c - | grep -c "/${h##*/}\"")
	ok "${h##*/} is part of it" [ "$n" -gt 0 ]
done

last=$(grep -v '^#' "$src/t/abi.txt" | tail -1)
is "the headers are those of $version; else raise HD_ABI_MINOR, say what changed in doc/abi-changes.md, and add to t/abi.txt what --print prints" \
	"$last" "$version $hash"
is "each version is there once, in order" "$(grep -v '^#' "$src/t/abi.txt" | cut -d' ' -f1)" \
	"$(grep -v '^#' "$src/t/abi.txt" | cut -d' ' -f1 | sort -t. -k1,1n -k2,2n -u)"
for v in $(grep -v '^#' "$src/t/abi.txt" | cut -d' ' -f1); do
	ok "doc/abi-changes.md says what $v brought" sh -c "sed -n '/^## $v\$/,/^## /p' '$src/doc/abi-changes.md' | grep -q '^- '"
done
# A line that was once written is history: another hash is another version.
if git -C "$src" rev-parse HEAD >/dev/null 2>&1; then
	is "no line of t/abi.txt was ever changed" "$(git -C "$src" log --format= -p -- t/abi.txt | grep '^-[0-9]')" ""
	is "nor is now" "$(git -C "$src" diff HEAD -- t/abi.txt | grep '^-[0-9]')" ""
else
	note "no git history to compare with"
fi
done_testing
