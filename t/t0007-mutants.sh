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

# Interrupted while a mistake is compiled, in a copy that has a file which the tree has no more.
rm tree/plugins/b.c
mkdir -p tree/bin
printf 'engine/a/a.c\t*\tint g(int a)\tint g(int b)\tt1000\n' >tree/t/mutants/x.txt
printf '#!/bin/sh\ncd "${0%%/*}/.." && find bin engine t -type f\n' >tree/bin/sources
printf '#!/bin/sh\ntouch config.status\n' >tree/configure
printf '#!/bin/sh\ntouch "%s/started"\nsleep 60\n' "$tmp" >slow
chmod +x tree/bin/sources tree/configure slow
mkdir -p run/mutants/source/engine/old
touch run/mutants/source/engine/old/gone.c
(cd run && MAKE="$tmp/slow" exec perl "$src/t/lib/mutants.pl" ../tree 0 1) >run.out 2>&1 &
pid=$!
for i in $(seq 300); do
	[ ! -f started ] || break
	sleep 0.1
done
like "a mistake that is being compiled is in the copy" "$(cat run/mutants/source/engine/a/a.c run.out)" 'int g.int b'
kill -TERM $pid
wait $pid
is "interrupted: the copy is as the tree" "$(cmp run/mutants/source/engine/a/a.c tree/engine/a/a.c && echo same)" same
is "and has nothing else" "$(find run/mutants/source -name gone.c)" ""
done_testing
