#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All sources are formatted as .clang-format says; without that, changes drown in differences of layout.  Other versions
# of clang-format break some lines differently, so the comparison needs version 14, that of Debian 12.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

tool=
for name in clang-format-14 clang-format; do
	command -v $name >/dev/null && $name --version | grep -q 'version 14\.' && tool=$name && break
done
[ -n "$tool" ] || skip_all "no clang-format 14"
files=$(bin/sources --files | grep -E '\.(c|h|cc|cu|cuh)$')
ok "the source files are found" [ "$(echo "$files" | wc -l)" -gt 300 ]
wrong=$(echo "$files" | xargs "$tool" --dry-run -Werror 2>&1 | sed -n 's/^\([^ :]*\):[0-9].*/\1/p' | sort -u)
is "$tool -i would change no file" "$wrong" ""
done_testing
