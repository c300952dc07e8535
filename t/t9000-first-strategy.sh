#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A newcomer types in what doc/first-strategy.md prints.  If the page and the example drift apart, or the headers alone
# no longer suffice, the first hour with Heddle ends in compiler errors.
. "${0%/*}/lib/tap.sh"

doc=$src/doc/first-strategy.md
example=$src/examples/sign-compression
cc=${CC:-cc}

block() { awk -v fence='```'"$1" '$0 == "```" { on = 0 } on { print } $0 == fence { on = 1 }' "$doc"; }

block c >"$tmp/strategy.c"
block ini >"$tmp/sign.ini"
ok "the page's plugin is the example" cmp "$tmp/strategy.c" "$example/strategy.c"
ok "the page's INI is the example's" cmp "$tmp/sign.ini" "$example/sign.ini"

# The page's own command, with the headers of this tree in place of the installed ones.
mkdir "$tmp/bin"
printf '#!/bin/sh\necho "-I%s/include"\n' "$src" >"$tmp/bin/pkg-config"
chmod +x "$tmp/bin/pkg-config"
block sh | sed -n '/^cc /,/[^\\]$/p' >"$tmp/build.sh"
ok "the page's command builds it" sh -c 'cd "$1" && PATH=$1/bin:$PATH sh -e ./build.sh' sh "$tmp"
is "it exports its entry alone" \
	"$(nm -D --defined-only "$tmp/heddle_sign_compression.so" | awk '{ print $3 }')" heddle_plugin_v1
is "and needs nothing" \
	"$(nm -D --undefined-only "$tmp/heddle_sign_compression.so" | awk '$1 == "U" { print $2 }')" ""

strict="-Wall -Wextra -Wpedantic -Wundef -Wshadow -Werror"
ok "no warnings in C11" $cc -std=c11 $strict -fsyntax-only -I "$src/include" "$tmp/strategy.c"
echo '#include <heddle/strategy.h>' >"$tmp/header.cpp"
if ${CXX:-c++} --version >/dev/null 2>&1; then
	ok "the headers are clean in C++17" \
		${CXX:-c++} -std=c++17 $strict -fsyntax-only -I "$src/include" "$tmp/header.cpp"
else
	skip "no C++ compiler"
fi

if [ -x "$build/heddle" ]; then
	like "it is accepted" "$("$build/heddle" plugins "$tmp/heddle_sign_compression.so" 2>&1)" '^smallest +int +4096'
else
	skip "heddle is not built"
fi
done_testing
