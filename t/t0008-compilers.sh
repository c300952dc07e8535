#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tree compiles with whatever flags and compiler a packager chooses: without the warnings of --enable-developer, and
# the kernels, whose vector code depends on the compiler, also at -O0 and with clang.  Hardly any code is generated, so
# this takes seconds for the kernels; the complete tree is compiled only when the test is run by name.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1
[ -f "$build/Makefile" ] || skip_all "nothing is configured"

of_make() { sed -n "s/^$1 = //p" "$build/Makefile"; }
developer=$(sed -n 's/.*DEVELOPER_CFLAGS="\($DEVELOPER_CFLAGS \)\{0,1\}\(-[^"]*\)".*/\2/p' configure.ac | tr '\n' ' ')
libraries=$(for name in MPI DNNL LTDL INIH JANSSON PCRE2 ZLIB ZSTD; do of_make ${name}_CFLAGS; done | tr '\n' ' ')
cc=$(of_make CC)

compiles() {			# COMPILER FLAGS... < FILES
	xargs -P2 -n 20 "$@" -fsyntax-only -std=gnu11 -fopenmp -I"$build" -I. -Iinclude 2>&1
}
like "the warning flags are found in configure.ac" "$developer" '-Wmissing-prototypes.*-Werror'
if whole_sweep; then
	# shellcheck disable=SC2086
	is "no file causes a warning with --enable-developer" \
		"$(bin/sources --files | grep -E '^(engine|kernels/(cpu|ref)|plugins)/.*\.c$' |
		compiles $cc $libraries $developer | grep -E ' (error|warning): ')" ""
fi

# At -O0 an instruction with an immediate operand compiles only if that operand is a constant expression of C.
is "the kernels compile without optimisation" "$(grep -l '_mm[0-9]*_' kernels/cpu/*/*.c | while read -r file; do
	# shellcheck disable=SC2086
	$cc -O0 -w -std=gnu11 -fopenmp -I"$build" -I. -Iinclude $libraries -S -o /dev/null "$file" 2>&1
done | grep ' error: ')" ""

clang=
for name in clang-14 clang; do
	command -v $name >/dev/null && echo 'int main(void) { return 0; }' >"$tmp/x.c" &&
		$name -fopenmp -fsyntax-only "$tmp/x.c" 2>/dev/null && clang=$name && break
done
if [ -n "$clang" ]; then
	# shellcheck disable=SC2086
	is "the kernels compile with clang" \
		"$(bin/sources --files | grep '^kernels/cpu/.*\.c$' | compiles "$clang" -w $libraries | grep ' error: ')" ""
else
	skip "no clang"
fi
done_testing
