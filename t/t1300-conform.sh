#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle conform tests plugins.  Heddle's own and a correct plugin pass.  Each faulty one fails with the first tensor
# that differs and the node that computed it, or with the slot that ends the process.  If a faulty one passed, its
# author would believe that models are trained correctly when they are not.
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

# Each plugin on its own; no other test runs all of conform on them.
for plugin in dp tp pp ep cp; do
	# Of tp and cp, which have many forms, only a sweep of all checks has more than one family of models.
	only=
	case $plugin in tp | cp) whole_sweep || only=gpt2 ;; esac
	says "$plugin passes" "^# $plugin .* [1-9][0-9]* passed, 0 failed" 0 $plugin --layouts 1 --no-runs ${only:+--only $only}
done
says "cp passes where a rank holds two pieces of a sequence" '^ok 1 - .*form = ring' 0 cp --layouts 1 \
	--only 'drawn 0, mixtral'
says "a checkpoint is resumed in another layout" '^ok 1 - resumes: a checkpoint of gpt2: dp 2, read into gpt2: dp 4$' 0 dp --only resumes
like "... in a smaller one, and with another plugin" "$(tr '\n' ' ' <out)" \
	'ok 2 - resumes: a checkpoint of gpt2: dp 4, read into gpt2: dp 2 .*ok 3 - resumes: a checkpoint of gpt2: dp 2, read into gpt2: dp 2, '
fails "an --only text that no check's name contains is refused" heddle conform dp --only gpt3
like "... and the message quotes the text" "$(cat "$tmp/.ok")" \
	"^heddle: conform: --only 'gpt3': no check has this in its name\$"

# Experts without a capacity limit work along one axis.  Along two they are compared with one, or a warning says that
# none was compared.
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
like "... and the summary counts them" "$(tail -2 out | head -1)" \
	'^# compared with one rank: mixtral \([1-9][0-9]* of [0-9]+ layouts\)'
says "... also where the layout is random" '^ok 1 - equals one rank, drawn 0, mixtral \(capacity_factor = 2\): ' 0 \
	./both.so --layouts 1 --only 'drawn 0, mixtral'
both 1
says "a family that is never compared causes a warning" ' passed, 0 failed, [0-9]* skipped, 1 warning$' 0 ./both.so \
	--layouts 0 --no-runs
like "... which counts its layouts" "$(tail -4 out | tr '\n' ' ')" \
	'warning: none of the [0-9]+ layouts of mixtral was compared with one rank.*never compared: mixtral \(0 of [0-9]+ layouts\); beside ep '

# Tables: conform refuses tables that the loader accepts but an INI cannot name or a user cannot read.  Options of all
# types are drawn and set.
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
says "a correct table passes" ' 2 passed, 0 failed' 0 ./table.so --only options
says "... with keys of an INI, in many layouts too" 'passed, 0 failed' 0 ./table.so table.ini --only 'options have' \
	--layouts 60
printf '[plugin x]\nfile = /elsewhere/other.so\n' >table.ini
fails "... an INI that does not name the plugin is refused" heddle conform ./table.so table.ini --only 'options have'
like "... and the message says so" "$(cat "$tmp/.ok")" 'table\.ini: no section names the plugin table'
table table "" wide 2 '"h"'
says "an empty version is refused" '^#   the version is empty' 1 ./table.so --only 'name and'
table ta+ble 1 wide 2 '"h"'
says "a name that an INI cannot contain is refused" '^#   name "ta\+ble": an INI takes only letters, digits, _ and -' \
	1 ./ta+ble.so --only 'name and'
table table 1 Wide 2 '"h"'
says "a key with capital letters is refused" '^#   option Wide: keys have small letters' 1 ./table.so \
	--only 'options have'
table table 1 wide 2 '""'
says "an empty help text is refused" '^#   option wide: its help is missing' 1 ./table.so --only 'options have'
table table 1 wide 2 NULL
says "a missing help text is refused" '^#   option wide: its help is missing' 1 ./table.so --only 'options have'
table table 1 wide 9 '"h"'
says "a default outside its range is refused" '^#   option wide: its default is refused: .*9' 1 ./table.so \
	--only 'defaults of'

wrong() { # -D...: replicas.so with this fault
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -include stdlib.h -I"$src/include" "$@" -o replicas.so \
		"$src/t/plugins/replicas.c"
}
two='equals one rank, gpt2: replicas 2, replicas 2'
first='first tensor that differs: grad:wte.weight \(vocab,embed\)'

# Each member keeps its own gradients.  With the options that make it exact, weights after an update are those of one
# rank.
diloco() { # sed command: diloco.so with this change
	sed "$1" "$src/examples/diloco/diloco.c" >diloco.c
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" -o diloco.so diloco.c
}
diloco 's/^//'
! whole_sweep || says "diloco passes" '^# diloco .* [1-9][0-9]* passed, 0 failed' 0 ./diloco.so --layouts 1 --no-runs
says "... and its checkpoint is resumed" '^ok 1 - resumes: a checkpoint of gpt2: diloco 2, read into gpt2: diloco 4$' \
	0 ./diloco.so --only 'larger layout'
diloco 's|"a - b / %lld"|"a - b / (%lld + 1)"|'
says "... a wrong mean of members is found" 'after an update .* differs from one rank' 1 ./diloco.so \
	--only 'equals one rank, gpt2: diloco 2'
diloco 's|s->g->initial(p, mine, HD_INITIAL_PARAMETER, 0);||'
says "... weights that start unlike the parameter are found" '^#   loss after|differs from one rank' 1 ./diloco.so \
	--only 'equals one rank, gpt2: diloco 2'

# Approximate strategies are also compared with their serial definition, which finds mistakes that the exact setting
# hides.
changed() { # FOLDER NAME sed-command: NAME.so with this change, which must have an effect
	sed "$3" "$src/examples/$1/$2.c" >"$2.c"
	[ "$3" = 's/^//' ] || ! cmp -s "$2.c" "$src/examples/$1/$2.c" || echo "# nothing is changed by $3"
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" -o "$2.so" "$2.c" -lm
}
serial() { # NAME FOLDER PLUGIN sed-command PATTERN [LAYOUT [SIZE]]
	changed "$2" "$3" "$4"
	says "$1: passes with the exact setting" ' 1 passed, 0 failed' 0 "./$3.so" \
		--only "equals one rank, gpt2: ${6:-$3 4}"
	says "$1: fails against its serial definition" "$5" 1 "./$3.so" --only "serial definition, gpt2: $3${7- 2}"
}
apart='^#   parameter .* after step [0-9] differs from that of the serial definition by '
for each in powersgd/powersgd diloco/diloco sparse-sums/sparse_sums int8-boundary/int8_boundary; do
	changed "${each%/*}" "${each#*/}" 's/^//'
	only='serial definition, gpt2'
	! whole_sweep || only='serial definition'
	says "${each#*/} trains as its serial definition does" ' [1-9] passed, 0 failed, 0 skipped' 0 \
		"./${each#*/}.so" --only "$only"
done
${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" -o gossip.so "$src/t/plugins/gossip.c"
says "a strategy that is exact with 2 members alone counts as approximate" ' 2 passed, 0 failed' 0 ./gossip.so \
	--only 'serial definition, gpt2'
sed 's/^plugin = dp/plugin = .\/gossip.so/' tiny.ini >gossip.ini
heddle_mpi 2 train gossip.ini --set checkpoint.dir=c --set dp.size=2 --set train.steps=1 >/dev/null 2>&1
like "a run reports states that start over with a different number of members" \
	"$(heddle_mpi 4 train gossip.ini --set checkpoint.dir=c --set checkpoint.resume=auto --set dp.size=4 2>&1)" \
	"[0-9]+ states that each member keeps for itself start over: .* was saved by 2 members, this run has 4"
serial "powersgd without error feedback" powersgd powersgd '/g->assign(p, late,/d' "$apart"
serial "powersgd whose factor starts over" powersgd powersgd '/g->assign(p, q,/d' "$apart"
serial "top-k without error feedback" sparse-sums sparse_sums '/g->assign(p, late,/d' "$apart"
serial "top-k without magnitudes" sparse-sums sparse_sums 's/topk(p, owed, row, few, 1,/topk(p, owed, row, few, 0,/' "$apart"
serial "diloco without outer momentum" diloco diloco 's/if (s->momentum != 0)/if (0)/' "$apart"
serial "diloco with momentum that is not Nesterov's" diloco diloco '0,/d\[0\] = s->g->map(p, d, 2, "a + b \* %.17g", s->momentum);/s//d[0] = b[0];/' \
	"$apart"
serial "8 bits scaled by a different step" int8-boundary int8_boundary '0,/"a \* b \/ 127"/s//"a * b \/ 126"/' \
	"$apart" 'pp 2, int8_boundary' ''
changed powersgd powersgd 's/^//'
says "powersgd with replicas: each replica has its own factors" ' 1 passed, 0 failed' 0 ./powersgd.so \
	--only 'equals one rank, mixtral: powersgd 2, dp 2'
changed powersgd powersgd '/own_factor(s, p, q, x);/d'
says "... and factors that are copies are refused" \
	'^#   element 0 of x.*experts.w1.weight\. is .* after an update, but both are copies of one value' 1 \
	./powersgd.so \
	--only 'equals one rank, mixtral: powersgd 2, dp 2'
changed powersgd powersgd 's/.update = serial_update }/.update = serial_update, .beside = "pp size=2" }/'
says "a function that defines a layout with a second section is called" ' 1 passed, 0 failed' 0 ./powersgd.so --no-runs \
	--only 'serial definition, gpt2: powersgd 2'
changed powersgd powersgd '/^static int serial_update/,/^}/s/return HD_OK;/return *(volatile int *)8;/'
says "... and is named if it crashes" 'a crash: .*SIGSEGV\) in slot serial.update of \[strategy x\]' 1 ./powersgd.so --no-runs \
	--only 'serial definition, gpt2: powersgd 2'
changed diloco diloco 's/"every=2 outer_lr=0.7 momentum=0.9"/"every=1 outer_lr=1 momentum=0"/; s/\(EVERY\|OUTER_LR\) [0-9.]*$/\1 1/; s/\(MOMENTUM\) 0.9$/\1 0/'
says "a serial definition of the exact setting alone is refused" \
	'trains like one rank without the plugin .*defines nothing approximate' 1 ./diloco.so \
	--only 'serial definition, gpt2: diloco 2'
changed powersgd powersgd '0,/return HD_OK;/s//return s->rank == 4 ? HD_EINVAL : HD_OK;/'
says "the exact setting hides that the defaults are refused" ' 1 passed, 0 failed' 0 ./powersgd.so \
	--only 'equals one rank, gpt2: powersgd 4'
says "... the check of the plugin as it comes reveals it" '^#   the layout is refused: ' 1 ./powersgd.so \
	--only 'as it comes, gpt2'
changed powersgd powersgd 's/, .serial = &serial//'
says "without a serial definition the check is skipped" '# SKIP it is approximate, and has no table serial' 0 \
	./powersgd.so --only 'serial definition'
for wrong in '.one = "rank=2"|both of one and update' '.update = NULL|neither of one and update' '.keys = "width=2"|no option width'; do
	changed powersgd powersgd "s/.update = serial_update }/.update = serial_update, ${wrong%|*} }/"
	like "a serial table with ${wrong%|*} is refused" "$(heddle plugins ./powersgd.so 2>&1)" "serial.*${wrong#*|}"
done

changed powersgd powersgd 's/\(\.approximate = "[a-z_]*=\)[^"]*"/\1-7"/'
says "an exact setting outside its range is refused" '^#   approximate is refused: .*-7' 1 ./powersgd.so \
	--only 'make it exact'

wrong -DRIGHT
says "a correct plugin passes" ' 0 failed' 0 ./replicas.so --layouts 1 --no-runs
says "... and a refused layout is listed with its reason" '# SKIP refused: .*no experts' 0 ./replicas.so \
	--only 'gpt2: replicas 2, ep 2'
is "... once" "$(grep -c 'no experts' out)" 1
says "--only runs a single check" '^1\.\.1$' 0 ./replicas.so --only "$two"
says "--json prints the counts" '"passed": 1, "failed": 0, "skipped": 0' 0 ./replicas.so --only "$two" --json

wrong '-DW_VJP="1.0000006"'
says "slopes: a factor in a vjp that is off by half of the bound passes" ' 1 passed, 0 failed' 0 ./replicas.so \
	--only 'slopes of the loss, gpt2'
wrong '-DW_VJP="1.000004"'
says "... and one that is off by more is found" 'gradient of .* is .*; the finite difference of the loss is' 1 \
	./replicas.so --only 'slopes of the loss, gpt2'
wrong '-DW_VJP="1.001"'
says "slopes: a wrong factor in a vjp is found" \
	'gradient of h\.1\.mlp\.fc\.bias is .*; the finite difference of the loss is' 1 ./replicas.so \
	--only 'slopes of the loss, gpt2'
says "... and the message names the node that computed it" \
	'made by map a \* 1.001 \(backward, layer 3\), made by \[strategy x\]' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_NO_VJP
says "slopes: a vjp without a gradient is found" 'gradient of .* is .*; the finite difference of the loss is' 1 \
	./replicas.so \
	--only 'slopes of the loss, gpt2'
says "... and its gradient differs from one rank's" "gradient of h\.3\.mlp\.fc\.bias differs from one rank's by inf;" \
	1 ./replicas.so --only "$two"
wrong -DW_MISSING
says "a missing sum is found" "$first" 1 ./replicas.so --only "$two"
says "... and the movement is named" 'from shift on x .*made by \[strategy x\]' 1 ./replicas.so --only "$two"
wrong -DW_TWICE
says "a sum that is computed twice is found" "$first" 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_MAX
says "a maximum in place of a sum is found" 'from all-max on x ' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_GROUP
says "a sum over the wrong group passes alone" ' 0 failed' 0 ./replicas.so --only 'gpt2: replicas 4'
says "... and fails with a second strategy" 'from all-reduce on x\+dp .*made by \[strategy x\]' 1 ./replicas.so \
	--only 'gpt2: replicas 2, dp 2'
wrong -DW_ORDER
says "sums in a different order on each member: two members agree" '^ok 1 - ' 0 ./replicas.so \
	--only 'equals one rank, gpt2: replicas 2'
for n in 3 4; do
	says "... $n members do not" \
		'^#   element [0-9]* of wte.weight is .* on rank 0 and .* on rank 1 after an update, .*in different orders' 1 ./replicas.so \
		--only "equals one rank, gpt2: replicas $n"
done
wrong -DW_NEIGHBOUR
says "lowering a neighbour's node is found" "$first" 1 ./replicas.so --only "$two"
wrong -DW_MICRO
says "a read of one micro-batch in sync is an error, not a refusal" \
	'^#   .* is computed once a micro-batch, but is read where' 1 ./replicas.so --only 'gpt2: replicas 4'
wrong -DW_THIRD
says "a factor that is wrong with 3 members alone is found" "$first" 1 ./replicas.so \
	--only 'equals one rank, gpt2: replicas 3'
wrong '-DW_DIM="bacth"'
says "a rule for a dim that no model has is found" '^#   nothing is sharded along its axis in any family' 1 \
	./replicas.so --only 'shards something'
wrong -DW_FLAGS=40
says "contradictory flags of a rule are found" '^#   .*rule: flags 0x28 of the rule for batch contradict each other' 1 \
	./replicas.so --only 'plans or refuses, gpt2: replicas 2'
wrong -DW_OWN
says "a state with different values on members that share it is found" \
	"^#   .*assign: the value of state x.mine.* differs between the members along x" 1 ./replicas.so \
	--only 'plans or refuses, gpt2: replicas 2'
wrong '-DW_LATE=""'
says "a state that is never assigned" '^#   state x\.late\..* is read but never assigned, so it is always 0; there are others' 1 ./replicas.so \
	--only 'plans or refuses, gpt2: replicas 2'
wrong '-DW_KIND="atention"'
says "a warning is printed as a comment" \
	'^#   warning: \[strategy x\] rule: no op is of kind atention, so the rule for batch shards nothing' 0 \
	./replicas.so \
	--only 'plans or refuses, gpt2: replicas'
is "... once" "$(grep -c warning: out)" 1
says "... and in JSON" '"warnings": \["\[strategy x\] rule: no op is of kind atention' 0 ./replicas.so --only "$two" --json
wrong '-DW_LATE="late"'
says "a state that is wrong from the second step on is found" \
	"^#   gradient of ln_f\.bias differs from one rank's by .* in step 2, after updates with a learning rate of 0" \
	1 ./replicas.so --only "$two"
wrong -DW_AFTER
says "a node that would wait for itself is found" '^#   .*after: comm of .* would wait for itself' 1 ./replicas.so \
	--only 'plans or refuses, gpt2: replicas 2'
wrong '-DW_REFUSE="one\ntwo"'
says "a refusal of two lines is joined into one" '# SKIP refused: .*one.two$' 0 ./replicas.so \
	--only 'equals one rank, gpt2: replicas 2'
stages() { # -D...: stages.so with this fault
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" "$@" -o stages.so "$src/t/plugins/stages.c"
}
stages -DRIGHT
says "a correct schedule passes" '^ok 1 - equals one rank, gpt2: stages 3$' 0 ./stages.so \
	--only 'equals one rank, gpt2: stages 3'
stages -DW_DEADLOCK
says "a schedule that is wrong with 3 stages alone passes with 2" '^ok 1 - ' 0 ./stages.so \
	--only 'equals one rank, gpt2: stages 2'
says "... and fails with 3" '^#   .*schedule: stage 0 runs B0 before B1, but stage 1' 1 ./stages.so \
	--only 'equals one rank, gpt2: stages 3'
stages -DW_DROP
says "a missing micro-batch is found" '^#   .*schedule: stage 0 has no F' 1 ./stages.so \
	--only 'equals one rank, gpt2: stages 2'

wrong '-DW_RULES=printf("here\n")' -include stdio.h
says "output of a slot is found" '^#   a slot prints to the standard output, which is the program.s: here' 1 \
	./replicas.so --only 'plans or refuses, gpt2: replicas 2'
wrong -DW_CRASH
says "a crash is reported with its slot" 'a crash: .* in slot rules of \[strategy x\]' 1 ./replicas.so \
	--only 'plans or refuses, gpt2'
says "... and later checks still run" '^ok .* gpt2: replicas 8$' 1 ./replicas.so --only 'plans or refuses, gpt2'
wrong '-DW_EXIT=exit(0)'
says "an exit is reported with its slot" 'exit\(\) in slot rules of \[strategy x\]' 1 ./replicas.so \
	--only 'gpt2: replicas 4'
wrong '-DW_EXIT=abort()'
says "an abort is reported with its slot" 'abort\(\) in slot rules of \[strategy x\]' 1 ./replicas.so \
	--only 'gpt2: replicas 4'
wrong -DW_LOOP
says "an endless loop is reported with its slot" 'does not return in slot rules of \[strategy x\]' 1 ./replicas.so \
	--only 'plans or refuses, gpt2: replicas 4' --limit 1
wrong '-DW_RULES=for (;;) pause()' -include unistd.h
says "an endless sleep is reported with its slot" 'does not return in slot rules of \[strategy x\]' 1 ./replicas.so \
	--only 'plans or refuses, gpt2: replicas 4' --limit 1
wrong '-DW_RULES=if (getenv("PMI_RANK")) for (;;) continue'
says "an endless loop in another process alone is reported" 'does not return in slot rules of \[strategy x\]' 1 \
	./replicas.so --only 'plans or refuses, gpt2: replicas 4' --limit 1
is "... by a single check" "$(grep -c '^not ok' out)" 1
wrong '-DW_RULES=if (getenv("OMPI_COMM_WORLD_RANK") && atoi(getenv("OMPI_COMM_WORLD_RANK"))) hd_rule(s->h, p, "mlp", s->axis, NULL, 0)'
says "a plan that depends on the rank is found" '^#   when planned twice for training, the plan differs' 1 \
	./replicas.so --only 'plans or refuses, gpt2: replicas 4'
wrong '-DW_RULES=static int again; if (again++) return HD_OK'
says "rules that differ from call to call are found" \
	'^#   .*the rules of a strategy depend on the batch, or differ from one call to the next' 1 ./replicas.so \
	--only 'plans or refuses, gpt2: replicas 4'

# The first layout drawn for this number is refused; a later one is accepted, and the check's line is about that one.
wrong '-DW_REFUSE_SIZE=4'
says "a refused random layout is replaced by another" '^ok 1 - equals one rank, drawn 0, gpt2: .*replicas [28][^#]*$' \
	0 ./replicas.so --layouts 1 --only 'drawn 0, gpt2'
wrong '-DW_REFUSE="no size is good"'
says "... and each refused one is named" \
	"^ok 1 - .* # SKIP refused: .*no size is good .*\(drawn before, and refused too: gpt2: .*; gpt2: " 0 \
	./replicas.so \
	--layouts 1 --only 'drawn 0, gpt2'
says "a plugin whose layouts are all refused fails" '^not ok .* is accepted somewhere' 1 ./replicas.so --layouts 0 \
	--no-runs
like "... and the message says why, and what to pass instead" "$(tr '\n' ' ' <out)" \
	'every layout was refused, so nothing was tested. The most frequent reason, [0-9]* times: .*no size is good .* heddle conform PLUGIN CONF'
fails "a missing plugin file is refused" heddle conform ./absent.so
like "... with an error message" "$(cat "$tmp/.ok")" 'heddle: no plugin file'
printf '[strategy d]\nplugin = dp\nsync = server\n' >keys.ini
says "keys of an INI are used" 'dp 2' 0 dp keys.ini --only 'gpt2: dp 2'
printf '[strategy e]\nplugin = ./dp_two.so\nsync = none\n[strategy d]\nplugin = ./heddle_dp.so\nsync = server\n' >two.ini
says "... those of the section that names this plugin, with any prefix" '^ok 1 - [^#]*gpt2: dp 2, tp 2$' 0 dp two.ini --only 'one rank, gpt2: dp 2, tp 2'
fails "an INI without the plugin is refused" heddle conform tp keys.ini
done_testing
