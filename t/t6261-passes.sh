#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The graph after each pass of the planner.  If this broke, nobody could see which pass causes a property of a plan.
. "${0%/*}/lib/tap.sh"
[ -x "$build/heddle" ] || skip_all 'heddle is not built'

after() { "$build/heddle" explain "$src/conf/ptd-p.ini" --ranks 8 --after "$1" 2>&1; }
ops() { after "$1" | awk 'NR > 1 { print ($2 == "layer" ? $4 : $1 ~ /^(forward|backward|weight-gradient)$/ && $2 ~ /^(embed|head)$/ ? $3 : $2) }'; }

passes=$(after list)
is "--after list prints the passes in order" \
	"$(echo "$passes" | tr '\n' ' ')" "model precision cache slot-open slot-mesh slot-rewrite autodiff \
slot-rules decompose batch schedule loss-gradient recompute place-leaves slot-storage offload pulls place check-placed drop-dead slot-lower toposort lower fuse \
loss-once loss-parts overlap check "
for pass in $passes; do
	after "$pass" >"$tmp/$pass"
	[ "$(wc -l <"$tmp/$pass")" -gt 50 ] && ! grep -q '^heddle: ' "$tmp/$pass"
	tap_result $? "$pass: explain prints the graph after it"
done
ok "autodiff creates backward" \
	test "$(grep -c '^backward' "$tmp/slot-rewrite")" -eq 0 -a "$(grep -c '^backward' "$tmp/autodiff")" -gt 50
ok "place creates reshards" \
	test "$(ops check-placed | grep -c '^reshard$')" -gt 10 -a "$(ops slot-storage | grep -c '^reshard$')" -eq 0
ok "lower leaves no reshard" \
	test "$(ops lower | grep -c '^reshard$')" -eq 0 -a "$(ops toposort | grep -c '^reshard$')" -gt 0
is "the graph after the last pass is the plan that runs" "$(head -n 1 "$tmp/check")" \
	"$("$build/heddle" explain "$src/conf/ptd-p.ini" --ranks 8 --nodes | grep '^plan ')"
fails "an unknown pass is refused" "$build/heddle" explain "$src/conf/ptd-p.ini" --ranks 8 --after fusion
like "... and named" "$(after fusion)" 'after fusion: there is no such pass \(--after list'
done_testing
