#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tree has one formatting, that of .clang-format.  Other versions of clang-format break some lines elsewhere, so the
# comparison needs version 14 (Debian 12's).
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

tool=
for name in clang-format-14 clang-format; do
	command -v $name >/dev/null && $name --version | grep -q 'version 14\.' && tool=$name && break
done
[ -n "$tool" ] || skip_all "no clang-format 14"
files=$(bin/sources --files | grep -E '\.(c|h|cc|cu|cuh)$')
ok "the files are found" [ "$(echo "$files" | wc -l)" -gt 300 ]
wrong=$(echo "$files" | xargs "$tool" --dry-run -Werror 2>&1 | sed -n 's/^\([^ :]*\):[0-9].*/\1/p' | sort -u)
is "every file is as $tool -i leaves it" "$wrong" ""
done_testing
