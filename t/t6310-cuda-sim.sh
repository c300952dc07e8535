#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The simulation of the cuda device detects mistakes that a GPU punishes.  Each wrong kernel or launch of t/sim/wrong.cu
# ends with a message that names the mistake; without the mistake it runs silently.
. "${0%/*}/lib/tap.sh"

sim=$build/sim-wrong
[ -x "$sim" ] || skip_all "no C++ compiler was there, so there is no simulated cuda device"
"$sim" --list >list
is "t/sim/wrong.cu has more than 20 cases" "$(($(wc -l <list) > 20))" 1
while read -r name says; do
	is "$name, without the mistake: no message" "$("$sim" right "$name" 2>&1)" ""
	like "$name, with the mistake: a message names it" "$("$sim" wrong "$name" 2>&1)" "$says"
done <list
done_testing
