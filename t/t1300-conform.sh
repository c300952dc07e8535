#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle conform judges plugins: what comes with Heddle passes, a right plugin passes, and each wrong one fails with the first
# tensor that differs and who made it, or with the slot that ends the process.  If it passed a wrong one, its author would
# believe that models are trained which are not.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

conform() { heddle conform "$@" >out 2>err; }
says() { # NAME PATTERN STATUS PLUGIN...
	name=$1 pattern=$2 status=$3
	shift 3
	conform "$@"
	[ $? -eq "$status" ] && grep -Eq -e "$pattern" out
	tap_result $? "$name" || { grep -A5 '^not ok' out; tail -2 out; cat err; } | head -40 | tap_comment
}

# Each on its own: what the others' tests do not do with all of conform.
for plugin in dp tp pp ep; do
	says "$plugin passes" "^# $plugin .* [1-9][0-9]* passed, 0 failed" 0 $plugin --layouts 1 --no-runs
done
says "a checkpoint is resumed in another layout" '^ok 1 - resumes: a checkpoint of gpt2: dp 2, read into gpt2: dp 4$' 0 dp --only resumes
like "... in a smaller one, and beside another plugin" "$(tr '\n' ' ' <out)" \
	'ok 2 - resumes: a checkpoint of gpt2: dp 4, read into gpt2: dp 2 .*ok 3 - resumes: a checkpoint of gpt2: dp 2, read into gpt2: dp 2, '

wrong() { # -D...: replicas.so with this fault
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -include stdlib.h -I"$src/include" "$@" -o replicas.so \
		"$src/t/plugins/replicas.c"
}
two='equals one rank, gpt2: replicas 2, replicas 2'
first='first tensor that differs: grad:wte.weight \(vocab,embed\)'

# Members whose gradients are their own: with the options that make it exact, weights are those of one rank behind an update.
diloco() { # sed command: diloco.so with this change
	sed "$1" "$src/examples/diloco/diloco.c" >diloco.c
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" -o diloco.so diloco.c
}
diloco 's/^//'
says "diloco passes" '^# diloco .* [1-9][0-9]* passed, 0 failed' 0 ./diloco.so --layouts 1 --no-runs
says "... and is resumed" '^ok 1 - resumes: a checkpoint of gpt2: diloco 2, read into gpt2: diloco 4$' 0 ./diloco.so --only 'larger layout'
diloco 's|"a - b / %lld"|"a - b / (%lld + 1)"|'
says "... a wrong mean of members" 'behind an update .* differs from one rank' 1 ./diloco.so --only 'equals one rank, gpt2: diloco 2'
diloco 's|s->g->initial(p, mine, HD_INITIAL_PARAMETER, 0);||'
says "... weights that begin as others than the parameter" '^#   loss behind|differs from one rank' 1 ./diloco.so --only 'equals one rank, gpt2: diloco 2'

wrong -DRIGHT
says "a right plugin passes" ' 0 failed' 0 ./replicas.so --layouts 1 --no-runs
says "... and what was refused is listed with its reason" '# SKIP refused: .*not a multiple' 0 ./replicas.so --only 'gpt2: replicas 3'
says "a check alone" '^1\.\.1$' 0 ./replicas.so --only "$two"
says "as JSON" '"passed": 1, "failed": 0, "skipped": 0' 0 ./replicas.so --only "$two" --json

wrong -DW_VJP
says "a wrong factor in a vjp: slopes" 'gradient of h\.1\.mlp\.fc\.bias is .*; the finite difference of the loss is' 1 ./replicas.so --only 'slopes of the loss, gpt2'
says "... and who made what is wrong" 'made by map a \* 1.001 \(backward, layer 3\), made by \[strategy x\]' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_MISSING
says "a sum that is missing" "$first" 1 ./replicas.so --only "$two"
says "... whose movement it is" 'from shift on x .*made by \[strategy x\]' 1 ./replicas.so --only "$two"
wrong -DW_TWICE
says "a sum made twice" "$first" 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_MAX
says "a maximum for a sum" 'from all-max on x ' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_GROUP
says "a sum over the wrong group is right alone" ' 0 failed' 0 ./replicas.so --only 'gpt2: replicas 4'
says "... and wrong beside another" 'from all-reduce on x\+dp .*made by \[strategy x\]' 1 ./replicas.so --only 'gpt2: replicas 2, dp 2'
wrong -DW_NEIGHBOUR
says "the node of a neighbour is lowered" "$first" 1 ./replicas.so --only "$two"
wrong -DW_MICRO
says "one micro-batch is read in sync: the engine refuses it" 'refused: .* is made once a micro-batch, and is read where' 0 ./replicas.so --only 'gpt2: replicas 4'

wrong -DW_CRASH
says "a crash is told of its slot" 'a crash: .* in slot rules of \[strategy x\]' 1 ./replicas.so --only 'plans or refuses, gpt2'
says "... and the checks behind it are made" '^ok .* gpt2: replicas 8$' 1 ./replicas.so --only 'plans or refuses, gpt2'
wrong '-DW_EXIT=exit(0)'
says "so is an exit" 'exit\(\) in slot rules of \[strategy x\]' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong '-DW_EXIT=abort()'
says "so is an abort" 'abort\(\) in slot rules of \[strategy x\]' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_LOOP
says "so is a loop without end" 'does not return in slot rules of \[strategy x\]' 1 ./replicas.so --only 'plans or refuses, gpt2: replicas 4' --limit 1

wrong -DW_REFUSE
says "a plugin that is always refused has shown nothing" '^not ok .* is accepted somewhere' 1 ./replicas.so --layouts 0 --no-runs
fails "a plugin that is none" heddle conform ./absent.so
like "... is an error" "$(cat "$tmp/.ok")" 'heddle: no plugin file'
printf '[strategy d]\nplugin = dp\nsync = server\n' >keys.ini
says "keys of an INI" 'dp 2' 0 dp keys.ini --only 'gpt2: dp 2'
fails "an INI without the plugin is refused" heddle conform tp keys.ini
done_testing
