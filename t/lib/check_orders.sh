#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: check_orders.sh TEST...	(from the build folder)
# Runs tests of kernels with every launch in all orders of all blocks, in four parts each.  check-orders.log tells which
# part of which test passed or failed, and how long it took.  A part that passed with this test and this simulation is
# not run again, so an interrupted check resumes.
log=check-orders.log parts=4 failed=0 all=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
trap 'exit 1' INT TERM
touch "$log"
for part in $(seq 0 $((parts - 1))); do
	for t; do
		all=$((all + 1))
		key="$(cat "$t" heddle-cuda-sim.so | cksum | tr ' ' -) $t $part/$parts"
		! grep -q "^$key passed" "$log" || continue
		from=$(date +%s)
		if HD_TEST_WHOLE_ORDERS=$part/$parts "$t" >"$out" 2>&1 && ! grep -q '^not ok\|^Bail out' "$out"; then
			how=passed
		else
			how=failed failed=$((failed + 1))
			grep -v '^ok' "$out"
		fi
		echo "$key $how, $(grep -c '^ok' "$out") checks, $(($(date +%s) - from)) s" | tee -a "$log"
	done
done
echo "$((all - failed)) of $all parts passed"
[ $failed = 0 ]
