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
for plugin in dp tp pp ep cp; do
	says "$plugin passes" "^# $plugin .* [1-9][0-9]* passed, 0 failed" 0 $plugin --layouts 1 --no-runs
done
says "cp passes where a rank has two pieces of a sequence" '^ok 1 - .*form = ring' 0 cp --layouts 1 --only 'drawn 0, mixtral'
says "a checkpoint is resumed in another layout" '^ok 1 - resumes: a checkpoint of gpt2: dp 2, read into gpt2: dp 4$' 0 dp --only resumes
like "... in a smaller one, and beside another plugin" "$(tr '\n' ' ' <out)" \
	'ok 2 - resumes: a checkpoint of gpt2: dp 4, read into gpt2: dp 2 .*ok 3 - resumes: a checkpoint of gpt2: dp 2, read into gpt2: dp 2, '
fails "a text that is in no check's name is refused" heddle conform dp --only gpt3
like "... with the text" "$(cat "$tmp/.ok")" "^heddle: conform: --only 'gpt3': no check has this in its name\$"

# Experts without a limit work along one axis.  Along two they are compared with a limit, or it is said that none were.
cat >both.c <<'E'
#include <heddle/strategy.h>
struct hd_strategy { const struct hd_host *h; const struct hd_axis *a[2]; };
static int open_(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **s)
{ if (!(*s = h->alloc(p, sizeof(**s)))) return HD_ENOMEM; (*s)->h = h; return HD_OK; }
static int mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{ s->a[0] = hd_axis_new(s->h, p, "inner", size ? size : left); s->a[1] = hd_axis_new(s->h, p, "outer", 1); return s->h->status(p); }
static int rules(struct hd_strategy *s, struct hd_plan *p)
{
	if (NO_EXPERTS && s->h->dim(p, "expert")) return s->h->fail(p, HD_ENOTSUP, "no experts, please");
	for (int i = 1; i >= 0; i--) hd_rule(s->h, p, "expert", s->a[i], NULL, 0), hd_rule(s->h, p, "batch", s->a[i], NULL, 0);
	return s->h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .open = open_, .mesh = mesh, .rules = rules };
HD_PLUGIN("both", "1", &ops)
E
both() { ${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" "-DNO_EXPERTS=$1" -o both.so both.c; }
both 0
says "experts along two axes are compared with a limit" '^ok [0-9]* - equals one rank, mixtral \(capacity_factor = 2\): both 2$' 0 ./both.so \
	--only 'mixtral: both 2'
like "... which is counted" "$(tail -2 out | head -1)" '^# compared with one rank: mixtral \([1-9][0-9]* of [0-9]+ layouts\)'
says "... also where the layout is drawn" '^ok 1 - equals one rank, drawn 0, mixtral \(capacity_factor = 2\): ' 0 ./both.so --layouts 1 --only 'drawn 0, mixtral'
both 1
says "experts that are never compared are a warning" ' passed, 0 failed, [0-9]* skipped, 1 warning$' 0 ./both.so --layouts 0 --no-runs
like "... with how many layouts" "$(tail -4 out | tr '\n' ' ')" \
	'warning: none of the [0-9]+ layouts of mixtral was compared with one rank.*never compared: mixtral \(0 of [0-9]+ layouts\); beside ep '

# Tables: what the loader takes, and an INI could not name or a user not read.  Options of all types are drawn, and given.
cat >table.c <<'E'
#include <heddle/strategy.h>
static const struct hd_option options[] = { { KEY, HD_OPT_INT, 0, DEFAULT, "1..3", HELP },
	{ "many", HD_OPT_INT, 0, "4", "1..1000", "h" }, { "free", HD_OPT_INT, 0, "4", NULL, "h" }, { "flag", HD_OPT_BOOL, 0, "no", NULL, "h" },
	{ "num", HD_OPT_NUM, 0, "0.5", NULL, "h" }, { "kind", HD_OPT_CHOICE, 0, "near", "near|far|FILE", "h" },
	{ "text", HD_OPT_STR, 0, "", NULL, "h" }, { "room", HD_OPT_BYTES, 0, NULL, NULL, "h" } };
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .options = options, .noptions = 8, .option_size = sizeof(options[0]) };
HD_PLUGIN(NAME, VERSION, &ops)
E
table() { # NAME VERSION KEY DEFAULT HELP
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" "-DNAME=\"$1\"" "-DVERSION=\"$2\"" "-DKEY=\"$3\"" \
		"-DDEFAULT=\"$4\"" "-DHELP=$5" -o "$1.so" table.c
}
table table 1 wide 2 '"h"'
printf '[plugin x]\nfile = /elsewhere/other.so\n[plugin t]\nfile = ./table.so\nwide = 3\nflag = yes\n' >table.ini
says "a table that is right" ' 2 passed, 0 failed' 0 ./table.so --only options
says "... with keys of an INI, in many layouts" 'passed, 0 failed' 0 ./table.so table.ini --only 'options have' --layouts 60
printf '[plugin x]\nfile = /elsewhere/other.so\n' >table.ini
fails "... of an INI that does not name it" heddle conform ./table.so table.ini --only 'options have'
like "... is said" "$(cat "$tmp/.ok")" 'table\.ini: no section names the plugin table'
table table "" wide 2 '"h"'
says "an empty version" '^#   the version is empty' 1 ./table.so --only 'name and'
table ta+ble 1 wide 2 '"h"'
says "a name that an INI does not take" '^#   name "ta\+ble": an INI takes only letters, digits, _ and -' 1 ./ta+ble.so --only 'name and'
table table 1 Wide 2 '"h"'
says "a key in capitals" '^#   option Wide: keys have small letters' 1 ./table.so --only 'options have'
table table 1 wide 2 '""'
says "an empty help" '^#   option wide: its help is missing' 1 ./table.so --only 'options have'
table table 1 wide 2 NULL
says "no help" '^#   option wide: its help is missing' 1 ./table.so --only 'options have'
table table 1 wide 9 '"h"'
says "a default out of its range" '^#   option wide: its default is refused: .*9' 1 ./table.so --only 'defaults of'

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
! whole_sweep || says "diloco passes" '^# diloco .* [1-9][0-9]* passed, 0 failed' 0 ./diloco.so --layouts 1 --no-runs
says "... and is resumed" '^ok 1 - resumes: a checkpoint of gpt2: diloco 2, read into gpt2: diloco 4$' 0 ./diloco.so --only 'larger layout'
diloco 's|"a - b / %lld"|"a - b / (%lld + 1)"|'
says "... a wrong mean of members" 'after an update .* differs from one rank' 1 ./diloco.so --only 'equals one rank, gpt2: diloco 2'
diloco 's|s->g->initial(p, mine, HD_INITIAL_PARAMETER, 0);||'
says "... weights that begin as others than the parameter" '^#   loss after|differs from one rank' 1 ./diloco.so --only 'equals one rank, gpt2: diloco 2'

# What is approximate is compared with its serial definition too: the mistakes that the exact setting does not see.
changed() { # FOLDER NAME sed-command: NAME.so with this change, which there must be
	sed "$3" "$src/examples/$1/$2.c" >"$2.c"
	[ "$3" = 's/^//' ] || ! cmp -s "$2.c" "$src/examples/$1/$2.c" || echo "# nothing is changed by $3"
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" -o "$2.so" "$2.c" -lm
}
serial() { # NAME FOLDER PLUGIN sed-command PATTERN [LAYOUT [SIZE]]
	changed "$2" "$3" "$4"
	says "$1: is right when it is exact" ' 1 passed, 0 failed' 0 "./$3.so" --only "equals one rank, gpt2: ${6:-$3 4}"
	says "$1: and is not what it says" "$5" 1 "./$3.so" --only "serial definition, gpt2: $3${7- 2}"
}
apart='^#   parameter .* after step [0-9] differs from that of the serial definition by '
for each in powersgd/powersgd diloco/diloco sparse-sums/sparse_sums int8-boundary/int8_boundary; do
	changed "${each%/*}" "${each#*/}" 's/^//'
	says "${each#*/} trains what its serial definition says" ' [1-9] passed, 0 failed, 0 skipped' 0 "./${each#*/}.so" --only 'serial definition'
done
${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" -o gossip.so "$src/t/plugins/gossip.c"
says "what is exact with 2 members alone is approximate" ' 2 passed, 0 failed' 0 ./gossip.so --only 'serial definition, gpt2'
sed 's/^plugin = dp/plugin = .\/gossip.so/' tiny.ini >gossip.ini
heddle_mpi 2 train gossip.ini --set checkpoint.dir=c --set dp.size=2 --set train.steps=1 >/dev/null 2>&1
like "a state that begins anew with other members is told of" "$(heddle_mpi 4 train gossip.ini --set checkpoint.dir=c --set checkpoint.resume=auto --set dp.size=4 2>&1)" \
	"[0-9]+ states that each member keeps for itself start over: .* was saved by 2 members, this run has 4"
serial "powersgd without error feedback" powersgd powersgd '/g->assign(p, late,/d' "$apart"
serial "powersgd whose factor begins anew" powersgd powersgd '/g->assign(p, q,/d' "$apart"
serial "top-k without error feedback" sparse-sums sparse_sums '/g->assign(p, late,/d' "$apart"
serial "top-k without magnitudes" sparse-sums sparse_sums 's/topk(p, owed, row, few, 1,/topk(p, owed, row, few, 0,/' "$apart"
serial "diloco without outer momentum" diloco diloco 's/if (s->momentum != 0)/if (0)/' "$apart"
serial "diloco with momentum that is not Nesterov's" diloco diloco '0,/d\[0\] = s->g->map(p, d, 2, "a + b \* %.17g", s->momentum);/s//d[0] = b[0];/' \
	"$apart"
serial "8 bits that arrive by another step" int8-boundary int8_boundary '0,/"a \* b \/ 127"/s//"a * b \/ 126"/' "$apart" 'pp 2, int8_boundary' ''
changed powersgd powersgd 's/^//'
says "powersgd beside replicas: the factors of each are its own" ' 1 passed, 0 failed' 0 ./powersgd.so --only 'equals one rank, mixtral: powersgd 2, dp 2'
changed powersgd powersgd '/own_factor(s, p, q, x);/d'
says "... and no copies" '^#   element 0 of x.*experts.w1.weight\. is .* after an update, but both are copies of one value' 1 ./powersgd.so \
	--only 'equals one rank, mixtral: powersgd 2, dp 2'
changed diloco diloco 's/"every=2 outer_lr=0.7 momentum=0.9"/"every=1 outer_lr=1 momentum=0"/; s/\(EVERY\|OUTER_LR\) [0-9.]*$/\1 1/; s/\(MOMENTUM\) 0.9$/\1 0/'
says "a definition of the exact setting alone is refused" 'trains like one rank without the plugin .*defines nothing approximate' 1 ./diloco.so \
	--only 'serial definition, gpt2: diloco 2'
changed powersgd powersgd '0,/return HD_OK;/s//return s->rank == 4 ? HD_EINVAL : HD_OK;/'
says "what makes it exact does not show that its defaults are refused" ' 1 passed, 0 failed' 0 ./powersgd.so --only 'equals one rank, gpt2: powersgd 4'
says "... its layout as it comes does" '^#   the layout is refused: ' 1 ./powersgd.so --only 'as it comes, gpt2'
changed powersgd powersgd 's/, .serial = &serial//'
says "without a definition the check is skipped" '# SKIP it is approximate, and has no table serial' 0 ./powersgd.so --only 'serial definition'
for wrong in '.one = "rank=2"|both of one and update' '.update = NULL|neither of one and update' '.keys = "width=2"|no option width'; do
	changed powersgd powersgd "s/.update = serial_update }/.update = serial_update, ${wrong%|*} }/"
	like "a table with ${wrong%|*} is refused" "$(heddle plugins ./powersgd.so 2>&1)" "serial.*${wrong#*|}"
done

changed powersgd powersgd 's/\(\.approximate = "[a-z_]*=\)[^"]*"/\1-7"/'
says "a value that makes it exact and is out of its range" '^#   approximate is refused: .*-7' 1 ./powersgd.so --only 'make it exact'

wrong -DRIGHT
says "a right plugin passes" ' 0 failed' 0 ./replicas.so --layouts 1 --no-runs
says "... and what was refused is listed with its reason" '# SKIP refused: .*no experts' 0 ./replicas.so --only 'gpt2: replicas 2, ep 2'
is "... once" "$(grep -c 'no experts' out)" 1
says "a check alone" '^1\.\.1$' 0 ./replicas.so --only "$two"
says "as JSON" '"passed": 1, "failed": 0, "skipped": 0' 0 ./replicas.so --only "$two" --json

wrong '-DW_VJP="1.0000006"'
says "a factor that is off by half of the bound, which is of the loss: slopes" ' 1 passed, 0 failed' 0 ./replicas.so --only 'slopes of the loss, gpt2'
wrong '-DW_VJP="1.000004"'
says "... and by more than it" 'gradient of .* is .*; the finite difference of the loss is' 1 ./replicas.so --only 'slopes of the loss, gpt2'
wrong '-DW_VJP="1.001"'
says "a wrong factor in a vjp: slopes" 'gradient of h\.1\.mlp\.fc\.bias is .*; the finite difference of the loss is' 1 ./replicas.so --only 'slopes of the loss, gpt2'
says "... and who made what is wrong" 'made by map a \* 1.001 \(backward, layer 3\), made by \[strategy x\]' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_NO_VJP
says "a vjp that gives no gradient: slopes" 'gradient of .* is .*; the finite difference of the loss is' 1 ./replicas.so \
	--only 'slopes of the loss, gpt2'
says "... which is not equal to one rank's" "gradient of h\.3\.mlp\.fc\.bias differs from one rank's by inf;" 1 ./replicas.so --only "$two"
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
wrong -DW_ORDER
says "sums in another order on each member: of two it is the same" '^ok 1 - ' 0 ./replicas.so --only 'equals one rank, gpt2: replicas 2'
for n in 3 4; do
	says "... of $n it is not" \
		'^#   element [0-9]* of wte.weight is .* on rank 0 and .* on rank 1 after an update, .*in different orders' 1 ./replicas.so \
		--only "equals one rank, gpt2: replicas $n"
done
wrong -DW_NEIGHBOUR
says "the node of a neighbour is lowered" "$first" 1 ./replicas.so --only "$two"
wrong -DW_MICRO
says "one micro-batch is read in sync: no layout makes it right" '^#   .* is computed once a micro-batch, but is read where' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_THIRD
says "a factor that is wrong with 3 members alone" "$first" 1 ./replicas.so --only 'equals one rank, gpt2: replicas 3'
wrong '-DW_DIM="bacth"'
says "a dim that no model has" '^#   nothing is sharded along its axis in any family' 1 ./replicas.so --only 'shards something'
wrong -DW_FLAGS=40
says "flags of a rule that contradict each other" '^#   .*rule: flags 0x28 of the rule for batch contradict each other' 1 ./replicas.so --only 'plans or refuses, gpt2: replicas 2'
wrong -DW_OWN
says "a state of members' own that is no one's" "^#   .*assign: the value of state x.mine.* differs between the members along x" 1 ./replicas.so \
	--only 'plans or refuses, gpt2: replicas 2'
wrong '-DW_LATE=""'
says "a state that is never assigned" '^#   state x\.late\..* is read but never assigned, so it is always 0; there are others' 1 ./replicas.so \
	--only 'plans or refuses, gpt2: replicas 2'
wrong '-DW_KIND="atention"'
says "a warning is a comment" '^#   warning: \[strategy x\] rule: no op is of kind atention, so the rule for batch shards nothing' 0 ./replicas.so \
	--only 'plans or refuses, gpt2: replicas'
is "... once" "$(grep -c warning: out)" 1
says "... and in JSON" '"warnings": \["\[strategy x\] rule: no op is of kind atention' 0 ./replicas.so --only "$two" --json
wrong '-DW_LATE="late"'
says "a state that is wrong from the second step on" "^#   gradient of ln_f\.bias differs from one rank's by .* in step 2, after updates with a learning rate of 0" \
	1 ./replicas.so --only "$two"
wrong -DW_AFTER
says "what would wait for itself" '^#   .*after: comm of .* would wait for itself' 1 ./replicas.so --only 'plans or refuses, gpt2: replicas 2'
wrong '-DW_REFUSE="one\ntwo"'
says "a refusal in two lines is made one" '# SKIP refused: .*one.two$' 0 ./replicas.so --only 'equals one rank, gpt2: replicas 2'
stages() { # -D...: stages.so with this fault
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" "$@" -o stages.so "$src/t/plugins/stages.c"
}
stages -DRIGHT
says "a right schedule passes" '^ok 1 - equals one rank, gpt2: stages 3$' 0 ./stages.so --only 'equals one rank, gpt2: stages 3'
stages -DW_DEADLOCK
says "a schedule that is wrong with 3 stages alone: right with 2" '^ok 1 - ' 0 ./stages.so --only 'equals one rank, gpt2: stages 2'
says "... and with 3" '^#   .*schedule: stage 0 runs B0 before B1, but stage 1' 1 ./stages.so --only 'equals one rank, gpt2: stages 3'
stages -DW_DROP
says "a micro-batch that is left out" '^#   .*schedule: stage 0 has no F' 1 ./stages.so --only 'equals one rank, gpt2: stages 2'

wrong '-DW_RULES=printf("here\n")' -include stdio.h
says "what a slot prints" '^#   a slot prints to the standard output, which is the program.s: here' 1 ./replicas.so --only 'plans or refuses, gpt2: replicas 2'
wrong -DW_CRASH
says "a crash is told of its slot" 'a crash: .* in slot rules of \[strategy x\]' 1 ./replicas.so --only 'plans or refuses, gpt2'
says "... and the checks behind it are made" '^ok .* gpt2: replicas 8$' 1 ./replicas.so --only 'plans or refuses, gpt2'
wrong '-DW_EXIT=exit(0)'
says "so is an exit" 'exit\(\) in slot rules of \[strategy x\]' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong '-DW_EXIT=abort()'
says "so is an abort" 'abort\(\) in slot rules of \[strategy x\]' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_LOOP
says "so is a loop without end" 'does not return in slot rules of \[strategy x\]' 1 ./replicas.so --only 'plans or refuses, gpt2: replicas 4' --limit 1
wrong '-DW_RULES=for (;;) pause()' -include unistd.h
says "so is a sleep without end" 'does not return in slot rules of \[strategy x\]' 1 ./replicas.so --only 'plans or refuses, gpt2: replicas 4' --limit 1
wrong '-DW_RULES=if (getenv("PMI_RANK")) for (;;) continue'
says "... and a loop in another process alone" 'does not return in slot rules of \[strategy x\]' 1 ./replicas.so --only 'plans or refuses, gpt2: replicas 4' --limit 1
is "... told once" "$(grep -c '^not ok' out)" 1
wrong '-DW_RULES=if (getenv("OMPI_COMM_WORLD_RANK") && atoi(getenv("OMPI_COMM_WORLD_RANK"))) hd_rule(s->h, p, "mlp", s->axis, NULL, 0)'
says "a plan that depends on the rank" '^#   when planned twice for training, the plan differs' 1 ./replicas.so --only 'plans or refuses, gpt2: replicas 4'
wrong '-DW_RULES=static int again; if (again++) return HD_OK'
says "rules that differ from call to call" '^#   .*the rules of a strategy depend on the batch, or differ from one call to the next' 1 ./replicas.so \
	--only 'plans or refuses, gpt2: replicas 4'

# The first draw of this number is refused; a later one is not, and is what the line is about.
wrong '-DW_REFUSE_SIZE=4'
says "a layout that is refused is drawn again" '^ok 1 - equals one rank, drawn 0, gpt2: .*replicas [28][^#]*$' 0 ./replicas.so --layouts 1 --only 'drawn 0, gpt2'
wrong '-DW_REFUSE="no size is good"'
says "... and each that was is named" "^ok 1 - .* # SKIP refused: .*no size is good .*\(drawn before, and refused too: gpt2: .*; gpt2: " 0 ./replicas.so \
	--layouts 1 --only 'drawn 0, gpt2'
says "a plugin that is always refused has shown nothing" '^not ok .* is accepted somewhere' 1 ./replicas.so --layouts 0 --no-runs
like "... and says why, and what can be given" "$(tr '\n' ' ' <out)" \
	'every layout was refused, so nothing was tested. The most frequent reason, [0-9]* times: .*no size is good .* heddle conform PLUGIN CONF'
fails "a plugin that is none" heddle conform ./absent.so
like "... is an error" "$(cat "$tmp/.ok")" 'heddle: no plugin file'
printf '[strategy d]\nplugin = dp\nsync = server\n' >keys.ini
says "keys of an INI" 'dp 2' 0 dp keys.ini --only 'gpt2: dp 2'
fails "an INI without the plugin is refused" heddle conform tp keys.ini
done_testing
