#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The simulation of the cuda device notices what a GPU would not forgive: each wrong kernel or launch of t/sim/wrong.cu ends
# with the message that names it, and the same without the mistake runs without a word.
. "${0%/*}/lib/tap.sh"

sim=$build/sim-wrong
[ -x "$sim" ] || skip_all "no C++ compiler was there, so there is no simulated cuda device"
"$sim" --list >list
is "there are cases" "$(($(wc -l <list) > 20))" 1
while read -r name says; do
	is "$name, right" "$("$sim" right "$name" 2>&1)" ""
	like "$name, wrong" "$("$sim" wrong "$name" 2>&1)" "$says"
done <list
done_testing
