#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_tests.pl runs tests in parallel, except those that must run alone, within a time budget, and reports the right
# count and status.  If it lost a failure, every other test would be in vain.
. "${0%/*}/lib/tap.sh"

command -v perl >/dev/null || skip_all "no perl"
cd "$tmp" || exit 1
made() {			# NAME: writes a test from the lines that follow
	{ echo '#!/bin/sh'; cat; } >"$1"
	chmod +x "$1"
}
run() { perl "$src/t/lib/run_tests.pl" "$@" >out 2>&1; }

made t1000-first.sh <<'END'
touch first; for i in $(seq 300); do [ -f second ] && break; sleep 0.1; done
[ -f second ] && echo "ok 1 - alongside the second" || echo "not ok 1 - alongside the second"; echo 1..1
END
made t1001-second.sh <<'END'
touch second; for i in $(seq 300); do [ -f first ] && break; sleep 0.1; done
[ -f first ] && echo "ok 1 - alongside the first" || echo "not ok 1 - alongside the first"
echo "ok 2 - # SKIP nothing"; echo 1..2
END
unset HD_TEST_UNTIL
HD_TEST_JOBS=2
export HD_TEST_JOBS
ok "two tests run at the same time" run ./t1000-first.sh ./t1001-second.sh
is "the last lines count skipped, passed and failed checks" "$(tail -2 out)" "$(printf '1 skipped\n2 passed, 0 failed')"

made t6120-alone.sh <<'END'
touch alone; sleep 0.3; [ -f other ] && echo "not ok 1 - alone" || echo "ok 1 - alone"; rm alone; echo 1..1
END
made t1002-other.sh <<'END'
touch other; [ -f alone ] && echo "not ok 1 - apart" || echo "ok 1 - apart"; echo 1..1
END
ok "a test that must be alone runs alone" run ./t1002-other.sh ./t6120-alone.sh
is "each entry of order.txt has a known kind and names a test" \
	"$(sed -n '/^[a-z]*	/p' "$src/t/lib/order.txt" | while read -r kind t why; do
	case $kind in alone | quiet | waits | long) ;; *) echo "$kind" ;; esac
	case $t in t[0-9]*) ls "$src"/t/"$t"[-.]* >/dev/null 2>&1 || echo "$t $why" ;; esac; done)" ""

made t1003-fails.sh <<'END'
echo "not ok 1 - no"; echo "ok 2 - yes"; echo 1..2
END
made t1004-dies.sh <<'END'
echo "ok 1 - yes"; kill -9 $$
END
made t1005-short.sh <<'END'
echo "ok 1 - yes"; echo 1..2
END
made t1006-status.sh <<'END'
echo "ok 1 - yes"; echo 1..1; exit 3
END
for t in t1003-fails t1004-dies t1005-short t1006-status; do
	fails "$t: the run fails" run "./$t.sh" ./t1002-other.sh
	like "$t: the failure is counted" "$(tail -1 out)" '^[0-9]+ passed, 1 failed$'
done

for i in 1 2 3 4 5 6; do
	made t101$i-one.sh <<-END
	[ $i -ne 4 ] || while [ "\$(date +%s)" -le "\$HD_TEST_UNTIL" ]; do sleep 0.2; done; echo "ok 1 - yes"; echo 1..1
	END
done
fails "tests that would begin too late are left out, and the run fails if all were" \
	env HD_TEST_UNTIL=1 perl "$src/t/lib/run_tests.pl" ./t1011-one.sh ./t1012-one.sh
like "... and the message names them" \
	"$(cat "$tmp/.ok")" '^2 of 2 tests had not begun in time, and are left out: (t101[12]-one.sh ?){2}$'
ok "the run passes if a quarter of the tests is left out" \
	env HD_TEST_JOBS=1 HD_TEST_UNTIL=$(($(date +%s) + 7)) perl "$src/t/lib/run_tests.pl" ./t101[2-5]-one.sh
like "... and the message names that test" \
	"$(cat "$tmp/.ok")" '^1 of 4 tests had not begun in time, and are left out: t1015-one.sh$'
like "... and it is not counted" "$(tail -1 "$tmp/.ok")" '^3 passed, 0 failed$'
fails "the run fails if two thirds of the tests are left out" \
	env HD_TEST_JOBS=1 HD_TEST_UNTIL=$(($(date +%s) + 5)) perl "$src/t/lib/run_tests.pl" ./t101[4-6]-one.sh
like "... although no test has failed" "$(tail -1 "$tmp/.ok")" '^1 passed, 1 failed$'

# A stub of git, so that the order is that of a known commit.
mkdir stub
order_at() { # COMMIT: prints the tests in the order in which a tier began them
	printf '#!/bin/sh\necho %s\n' "$1" >stub/git
	chmod +x stub/git
	rm -f test-times
	env PATH="$PWD/stub:$PATH" HD_TEST_JOBS=1 HD_TEST_UNTIL=$(($(date +%s) + 60)) \
		perl "$src/t/lib/run_tests.pl" --tier ci ./t101[1-356]-one.sh 2>&1 | sed -n 's/^\.\/t101\([0-9]\).*/\1/p' | tr -d '\n'
}
first=$(order_at 1234567)
like "a tier that may leave tests out runs all of them" "$first" '^[12356]{5}$'
is "... in the same order again at the same commit" "$(order_at 1234567)" "$first"
unlike "... and in another at another commit, so that no test is always left out" "$(order_at 89abcde)" "$first"

made t1007-works.sh <<'END'
awk 'BEGIN { for (i = 0; i < 20000000; i++) x += i }'; (awk 'BEGIN { for (i = 0; i < 20000000; i++) x += i }'); echo "ok 1 - yes"; echo 1..1
END
made t1040-sleeps.sh <<'END'
sleep 1.5; echo "ok 1 - yes"; echo 1..1
END
made t1000-smoke.sh <<'END'
echo "ok 1 - yes"; echo 1..1
END
ok "a tier within its budget passes" run --tier check ./t1007-works.sh ./t1040-sleeps.sh
is "... and the budget counts as a check" "$(tail -1 out)" "3 passed, 0 failed"
took() { sed -n "s/^\([0-9.]*\) \([0-9.]*\) $1$/\1 \2/p" test-times; }
ok "the processor time of a test includes all its processes" \
	awk -v t="$(took t1007-works.sh)" -v n="$(took t1040-sleeps.sh)" \
	'BEGIN { split(t, a, " "); split(n, b, " "); print t, n; exit !(a[1] > 0.2 && b[1] < 0.1 && b[2] >= 1.5) }'
# On a processor half as fast as the budgets' reference, or slower, twice the budget is allowed, and no more.
fails "a tier over its budget fails" run --tier check --built 2040 ./t1007-works.sh
like "... with a message that gives both numbers" \
	"$(cat out)" '^not ok - budget of tier check: 204[0-9] of [12][0-9]{3} s of the processor'
is "... and counts as a failed check" "$(tail -1 out)" "1 passed, 1 failed"
ok "the tier smoke passes" run --tier smoke ./t1007-works.sh ./t1000-smoke.sh
is "... and runs only its own few tests" "$(tail -1 out)" "2 passed, 0 failed"
fails "an unknown tier is refused" run --tier most ./t1000-smoke.sh

# check-long runs each part once per commit.
command -v git >/dev/null || { skip "no git"; done_testing; exit; }
mkdir tree && (cd tree && git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one)
printf '.PHONY: good bad\ngood:\n\techo x >>good\nbad:\n\techo x >>bad; test -f fixed\n' >Makefile
long() { sh "$src/t/lib/check_long.sh" tree "$@" >out 2>&1; }
fails "check-long: the status tells that one part failed" long bad good
like "check-long: the commit and the part are recorded" "$(cat check-long.log)" "^$(git -C tree rev-parse HEAD) bad failed after [0-9]+ s, 20"
touch fixed
ok "check-long: passes after the fix" long bad good
is "check-long: only the part that had not passed was run again" "$(wc -l <bad) $(wc -l <good)" "2 1"
(cd tree && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m two)
ok "check-long: passes for another commit" long bad good
is "check-long: all parts were run again for that commit" "$(wc -l <bad) $(wc -l <good)" "3 2"
done_testing
