#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle conform judges an optimizer by what all of them obey: the learning rate, clipping, the same parameters in each layout, a
# state that a checkpoint has.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

wrong() { # -D...: descent.so with this fault
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" "$@" -o descent.so "$src/t/plugins/descent.c"
}
says() { # NAME PATTERN STATUS args...
	name=$1 pattern=$2 status=$3
	shift 3
	heddle conform ./descent.so "$@" >out 2>err
	[ $? -eq "$status" ] && grep -Eq -e "$pattern" out
	tap_result $? "$name" || { grep -A3 '^not ok' out; tail -2 out; cat err; } | head -20 | tap_comment
}
fault() { # NAME PATTERN -D...
	name=$1 pattern=$2
	shift 2
	wrong "$@"
	says "$name" "^#   $pattern" 1 --only 'its optimizer'
}

wrong -DRIGHT
says "a right one passes" ' [1-9][0-9]* passed, 0 failed' 0 --layouts 0 --no-runs
says "... also where its states are sharded" '^ok [0-9]* - its optimizer makes the same of a model, gpt2: descent, dp 2 \(zero = 3\)$' 0 --only 'its optimizer'
fault "the learning rate is ignored" 'with a learning rate of 0, .* changes by ' '-DW_VALUE="a - 0.01 * e"'
fault "it goes up" 'a step with a learning rate of 1e-4 takes the loss of its own samples from ' '-DW_VALUE="a + d * e"'
fault "nothing is updated" 'the new value of .* does not read the factor of clipping' '-DW_SKIP=""'
fault "... or one parameter is not" 'the new value of ln_f.* does not read the factor of clipping' '-DW_SKIP="ln_f"'
fault "a rate of its own for nothing" 'with a learning rate of 1e-4, .* does not change' '-DW_VALUE="a - 0 * d * e"'
fault "gradients that are not clipped" 'the new value of .* does not read the factor of clipping' -DW_UNCLIPPED
fault "a value that is not finite" 'with a learning rate of 0, .* changes by inf' '-DW_VALUE="a - d * e / (b - b)"'
fault "no value" '.*update of .*: the new value is missing \(slot update of plugin descent\)' -DW_NULL
done_testing
