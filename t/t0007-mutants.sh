#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The list of deliberate mistakes (t/mutants): each text is still found once in its function, its tests are there, and every
# folder has some.  What moved is to be moved there too: make check-mutants would try less than it says.
. "${0%/*}/lib/tap.sh"
out=$(perl "$src/t/lib/mutants.pl" --check "$src" 2>&1)
is "each mistake can be made" "$(printf "%s\n" "$out" | sed "\$d")" ""
n=$(printf '%s\n' "$out" | sed -n 's/^\([0-9]*\) mutants of .*/\1/p')
ok "there are 150 or more: $n" [ "${n:-0}" -ge 150 ]

# A small tree with one.
cd "$tmp" || exit 1
mkdir -p tree/t/mutants tree/engine/a tree/plugins tree/kernels
printf 'int f(int a)\n{\n\treturn a\n\t\t+ 1;\n}\nint g(int a)\n{\n\treturn a + 1;\n}\n' >tree/engine/a/a.c
touch tree/t/t1000-x.c
judge() { printf 'engine/a/a.c\t%s\t%s\t%s\t%s\n' "$@" >tree/t/mutants/x.txt; perl "$src/t/lib/mutants.pl" --check tree 2>&1; }
like "broken lines are one text" "$(judge f 'a + 1' 'a' t1000)" '^1 mutants of 1 folders'
like "a text that is gone" "$(judge f 'a + 2' 'a' t1000)" "x.txt:1: f: 'a \\+ 2' is there 0 times"
like "one that is there twice" "$(judge '*' 'a + 1' 'a' t1000)" "is there 2 times"
like "one that stays" "$(judge g 'a + 1' 'a + 1' t1000)" 'nothing changes'
like "a function that is gone" "$(judge h 'a + 1' 'a' t1000)" 'has no function h'
like "a test that is gone" "$(judge g 'a + 1' 'a' t2000)" 'there is no test t2000'
touch tree/plugins/b.c && printf 'int b(void)\n{\n\treturn 0;\n}\n' >tree/plugins/b.c
like "a folder without" "$(judge g 'a + 1' 'a' t1000)" '^plugins has no mutant'
done_testing
