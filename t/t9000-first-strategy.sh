#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A newcomer types what doc/first-strategy.md shows.  If the page and the example drifted apart, or the headers alone no
# longer sufficed, the first hour with Heddle would end in compiler errors.
. "${0%/*}/lib/tap.sh"

doc=$src/doc/first-strategy.md
example=$src/examples/sign-compression
cc=${CC:-cc}

block() { awk -v fence='```'"$1" '$0 == "```" { on = 0 } on { print } $0 == fence { on = 1 }' "$doc"; }

block c >"$tmp/strategy.c"
block ini >"$tmp/sign.ini"
ok "the plugin of the page is that of the example" cmp "$tmp/strategy.c" "$example/strategy.c"
ok "the INI of the page is that of the example" cmp "$tmp/sign.ini" "$example/sign.ini"

# Runs the page's own command with the headers of this tree instead of the installed ones.
mkdir "$tmp/bin"
printf '#!/bin/sh\necho "-I%s/include"\n' "$src" >"$tmp/bin/pkg-config"
chmod +x "$tmp/bin/pkg-config"
block sh | sed -n '/^cc /,/[^\\]$/p' >"$tmp/build.sh"
ok "the command of the page builds the plugin" sh -c 'cd "$1" && PATH=$1/bin:$PATH sh -e ./build.sh' sh "$tmp"
is "the plugin exports only its entry" \
	"$(nm -D --defined-only "$tmp/heddle_sign_compression.so" | awk '{ print $3 }')" heddle_plugin_v1
is "... and needs no other symbol" \
	"$(nm -D --undefined-only "$tmp/heddle_sign_compression.so" | awk '$1 == "U" { print $2 }')" ""

strict="-Wall -Wextra -Wpedantic -Wundef -Wshadow -Werror"
ok "the plugin compiles as C11 without warnings" $cc -std=c11 $strict -fsyntax-only -I "$src/include" "$tmp/strategy.c"
echo '#include <heddle/strategy.h>' >"$tmp/header.cpp"
if ${CXX:-c++} --version >/dev/null 2>&1; then
	ok "the headers compile as C++17 without warnings" \
		${CXX:-c++} -std=c++17 $strict -fsyntax-only -I "$src/include" "$tmp/header.cpp"
else
	skip "no C++ compiler"
fi

if [ -x "$build/heddle" ]; then
	like "heddle plugins accepts the plugin and lists its key" \
		"$("$build/heddle" plugins "$tmp/heddle_sign_compression.so" 2>&1)" '^smallest +int +4096'
else
	skip "heddle is not built"
fi
done_testing
