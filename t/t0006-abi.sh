#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: t0006-abi.sh [--print]
# Checks the plugin interface as the compiler sees it: a change of the public headers needs a new minor version, an
# entry in doc/abi-changes.md and a line in t/abi.txt; --print prints that line.  If this broke, a plugin and an engine
# built with different headers would misread each other's structs.  Comments and layout may change freely.
. "${0%/*}/lib/tap.sh"

headers=${HD_ABI_HEADERS:-$src/include}	# --print hashes these
include=$headers/heddle
# Prints the declarations and macros of the public headers, without those of the headers they include and without
# blanks. Plugins include nothing but public headers.
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
is "changed comments and blanks leave the hash as it is" "$(plain copy | cksum | tr ' ' -)" "$hash"
sed 's/uint32_t ndim, dtype, what;/uint32_t ndim, what, dtype;/' "$include/graph.h" >copy/heddle/graph.h
[ "$(plain copy | cksum | tr ' ' -)" != "$hash" ]
tap_result $? "two fields in a different order change the hash"
sed 's/^#define HD_MAX_INS 16/#define HD_MAX_INS 17/' "$include/host.h" >copy/heddle/host.h
cp "$include/graph.h" copy/heddle
[ "$(plain copy | cksum | tr ' ' -)" != "$hash" ]
tap_result $? "a changed number changes the hash"
for h in "$include"/*.h; do
	n=$(printf '#include <heddle/strategy.h>\n' | ${CC:-cc} -E -I"$src/include" -x c - | grep -c "/${h##*/}\"")
	ok "${h##*/} is included in the hash" [ "$n" -gt 0 ]
done

last=$(grep -v '^#' "$src/t/abi.txt" | tail -1)
is "the headers are those of $version; if not, raise HD_ABI_MINOR, describe the change in doc/abi-changes.md, and add the line of --print to t/abi.txt" \
	"$last" "$version $hash"
is "t/abi.txt lists each version once, in order" "$(grep -v '^#' "$src/t/abi.txt" | cut -d' ' -f1)" \
	"$(grep -v '^#' "$src/t/abi.txt" | cut -d' ' -f1 | sort -t. -k1,1n -k2,2n -u)"
for v in $(grep -v '^#' "$src/t/abi.txt" | cut -d' ' -f1); do
	ok "doc/abi-changes.md describes the changes of $v" \
		sh -c "sed -n '/^## $v\$/,/^## /p' '$src/doc/abi-changes.md' | grep -q '^- '"
done
# A line that was once committed is history: a different hash is a different version.
if git -C "$src" rev-parse HEAD >/dev/null 2>&1; then
	is "no commit has changed a line of t/abi.txt" \
		"$(git -C "$src" log --format= -p -- t/abi.txt | grep '^-[0-9]')" ""
	is "... and neither does the working tree" "$(git -C "$src" diff HEAD -- t/abi.txt | grep '^-[0-9]')" ""
else
	note "no git history to compare with"
fi
done_testing
