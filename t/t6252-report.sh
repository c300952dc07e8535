#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The page of a run.  A curve that leaves out what went wrong, or a page that a browser refuses, is worse than none.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

said() { heddle "$@" 2>&1 | messages; }
# every element is closed and every attribute quoted
wellformed() { ! command -v python3 >/dev/null || python3 -c 'import sys, xml.dom.minidom
xml.dom.minidom.parseString(open(sys.argv[1]).read().replace("<!DOCTYPE html>", ""))' "$1"; }

heddle train tiny.ini --set train.steps=6 --set train.eval_every=2 --set log.metrics=a.jsonl >/dev/null 2>&1
heddle train tiny.ini --set train.steps=6 --set train.lr=1e-2 --set log.metrics=b.jsonl --set model.experts=4 >/dev/null 2>&1
ok "a page of one run" heddle report a.jsonl --out a.html
ok "is well-formed" wellformed a.html
is "with a dot for each evaluation" "$(grep -c '<circle' a.html)" 3
like "the last of which has its step and its value" "$(grep '<circle' a.html | tail -1)" \
	"step 6: $(sed -n 's/.*"valid_loss": \([0-9.]\{5\}\).*/\1/p' a.jsonl | tail -1)"
for what in Loss Gradient Learning Tokens Share; do
	ok "a drawing: $what" grep -q "<h2>$what" a.html
done
ok "none of experts where there are none" eval '! grep -q "<h2>Load" a.html'
ok "a page of two" heddle report a.jsonl,b.jsonl --out two.html
ok "is well-formed" wellformed two.html
is "has a row for each" "$(grep -c '^<tr><td' two.html)" 2
ok "and the experts of the one that has some" grep -q '<h2>Load' two.html

# 30,000 steps, one of them a spike, one not finite.
awk 'BEGIN { for (i = 1; i <= 30000; i++) printf "{\"step\": %d, \"loss\": %s, \"lr\": 1e-3}\n", i, i == 99 ? "null" : i == 77 ? 1e6 : 3 }' >long.jsonl
ok "a long run" heddle report long.jsonl --out long.html
ok "is a page of less than 100 KB" test "$(wc -c <long.html)" -lt 100000
ok "whose axis a spike does not stretch" eval '! grep -q ">2e+05<" long.html'

mv a.jsonl '<b>&.jsonl' && heddle report '<b>&.jsonl' --out odd.html
ok "names are escaped" wellformed odd.html
like "no such file" "$(said report nothing.jsonl)" '^heddle: nothing.jsonl: '
printf '{"step": 1, "loss": 2}\n{"loss": 2}\n' >bad.jsonl
like "no line of metrics" "$(said report bad.jsonl)" 'bad.jsonl:2: .*no step'
: >empty.jsonl
like "an empty file" "$(said report empty.jsonl)" 'empty.jsonl: has no numbers'
done_testing
