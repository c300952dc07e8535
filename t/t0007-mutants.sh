#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the list of deliberate mistakes (t/mutants): each old text still occurs once in its function, its tests exist,
# and every folder has some.  If code moved and the list did not follow, make check-mutants would try fewer mistakes
# than it claims.
. "${0%/*}/lib/tap.sh"
out=$(perl "$src/t/lib/mutants.pl" --check "$src" 2>&1)
is "each mistake of the list can be made" "$(printf "%s\n" "$out" | sed "\$d")" ""
n=$(printf '%s\n' "$out" | sed -n 's/^\([0-9]*\) mutants of .*/\1/p')
ok "the list has at least 150 mistakes: $n" [ "${n:-0}" -ge 150 ]

# A small tree with one mistake.
cd "$tmp" || exit 1
mkdir -p tree/t/mutants tree/engine/a tree/plugins tree/kernels
printf 'int f(int a)\n{\n\treturn a\n\t\t+ 1;\n}\nint g(int a)\n{\n\treturn a + 1;\n}\n' >tree/engine/a/a.c
touch tree/t/t1000-x.c
judge() { printf 'engine/a/a.c\t%s\t%s\t%s\t%s\n' "$@" >tree/t/mutants/x.txt; perl "$src/t/lib/mutants.pl" --check tree 2>&1; }
like "an old text may extend over several lines" "$(judge f 'a + 1' 'a' t1000)" '^1 mutants of 1 folders'
like "an old text that is no longer there is reported" \
	"$(judge f 'a + 2' 'a' t1000)" "x.txt:1: f: 'a \\+ 2' is there 0 times"
like "an old text that occurs twice is reported" "$(judge '*' 'a + 1' 'a' t1000)" "is there 2 times"
like "a mistake that changes nothing is reported" "$(judge g 'a + 1' 'a + 1' t1000)" 'nothing changes'
like "a function that no longer exists is reported" "$(judge h 'a + 1' 'a' t1000)" 'has no function h'
like "a test that does not exist is reported" "$(judge g 'a + 1' 'a' t2000)" 'there is no test t2000'
touch tree/plugins/b.c && printf 'int b(void)\n{\n\treturn 0;\n}\n' >tree/plugins/b.c
like "a folder without mistakes is reported" "$(judge g 'a + 1' 'a' t1000)" '^plugins has no mutant'
like "a number of mistakes that is not a number is refused" \
	"$(perl "$src/t/lib/mutants.pl" tree 1e3 1 2>&1)" "^mutants.pl: '1e3' is not a number\$"
like "... and so is a seed" "$(perl "$src/t/lib/mutants.pl" tree 0 x 2>&1)" "^mutants.pl: 'x' is not a number\$"
given() { make -s -C "$build" check-mutants PERL=echo SEED=1 "$@" 2>&1 | tail -1 | sed 's/.* \([^ ]* [^ ]*\)$/\1/'; }
is "make check-mutants tries 20 mistakes" "$(given)" "20 1"
is "... or N, also if that is the N of check-layouts" "$(given N=500) $(given N=0)" "500 1 0 1"
if [ -x "$build/t/t1240-hybrids.t" ]; then
	is "check-layouts with a number that is not one does not pass as a sweep of none" \
		"$(for n in 1e3 0 x; do HD_BUILD="$build" "$build/t/t1240-hybrids.t" $n 1; echo $?; done | tr '\n' ' ')" \
		"$(for n in 1e3 0 x; do echo "Bail out! '$n' is not a number from 1 to 1000000000 1"; done | tr '\n' ' ')"
else
	skip "t1240-hybrids.t is not built"
fi

# Interrupts it while a mistake is being compiled, in a copy that has a file which the tree no longer has.
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
like "a mistake that is being compiled is in the copy of the tree" \
	"$(cat run/mutants/source/engine/a/a.c run.out)" 'int g.int b'
kill -TERM $pid
wait $pid
is "after an interrupt, the copy has the tree's text again" \
	"$(cmp run/mutants/source/engine/a/a.c tree/engine/a/a.c && echo same)" same
is "... and no file that the tree does not have" "$(find run/mutants/source -name gone.c)" ""
done_testing
