#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle run: a lost rank must cost the steps since the last checkpoint and one rank, but not the run.  The commands of
# doc/cluster.md run 4 -> 3 -> 4 ranks, and the losses must be those of one undisturbed rank.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

block() { awk -v name="<!-- test: $1 -->" '$0 == name { on = 1; next } on && /^```/ { if (++fence == 2) exit; next } on' "$src/doc/cluster.md"; }
export PATH="$build:$PATH"
# The optimizer is SGD, since AdamW divides a gradient that is only rounding by its size.
sed 's/^global_batch.*/global_batch = 12/; s/^steps.*/steps = 4000\nschedule = constant\noptimizer = sgd\nweight_decay = 0/; /^micro_batch/d' tiny.ini >layout.ini
printf '[log]\nmetrics = m.jsonl\nevery = 100\n' >>layout.ini
block run.line >run.sh
block more.line >more.sh
is "the page has both commands" "$(grep -c '^heddle run' run.sh) $(grep -c '^kill -USR2' more.sh)" "1 1"
sed -i 's/ checkpoint.every=500/ checkpoint.every=20/; s/^heddle/exec heddle/' run.sh

step() { tail -1 m.jsonl 2>/dev/null | sed 's/.*"step": \([0-9]*\),.*/\1/'; }
wait_for() {			# TEXT N: waits until out has N lines with the text
	for i in $(seq $((100 * $(patience)))); do
		[ "$(grep -c -e "$1" out)" -lt "$2" ] || return 0
		kill -0 $job 2>/dev/null || break
		sleep 0.2
	done
	tail -20 out
	return 1
}
wait_for_steps() {		# N: waits for N more steps
	goal=$(($(step) + $1))
	for i in $(seq $((200 * $(patience)))); do
		[ "$(step)" -lt $goal ] || return 0
		kill -0 $job 2>/dev/null || break
		sleep 0.1
	done
	tail -20 out
	return 1
}
ranks_below() { ps -eo pid=,ppid=,comm= | awk -v top=$job '{ pid[NR] = $1; of[$1] = $2; name[$1] = $3 }
	END { for (i = 1; i <= NR; i++) if (name[pid[i]] == "heddle" && of[of[pid[i]]] == top) print pid[i] }'; }

touch m.jsonl
sh run.sh </dev/null >out 2>&1 &
job=$!
wait_for '^step 100/' 1
tap_result $? "four ranks train"
like "... as the layout says" "$(cat out)" '^4 |: dp 4'
kill -KILL "$(ranks_below | sed -n 2p)"
wait_for ': dp 3$' 1
tap_result $? "a rank is lost: three ranks continue"
like "... a message says so" "$(cat out)" '^heddle: run: some of 4 ranks are lost; 3 are left'
is "... from a checkpoint" "$(grep -c '^heddle: resumed from out-run/step-' out)" 1
wait_for_steps 60
tap_result $? "... and take steps"
pid=$job sh more.sh
wait_for ': dp 4$' 2
tap_result $? "a fourth rank returns: four ranks continue"
wait_for_steps 60
tap_result $? "... and take steps"
kill -TERM $job
wait $job
is "asked to end: the run saves and ends with status 0" $? 0
like "... with a message" "$(tail -2 out)" 'asked to end after step [0-9]+; saved in out-run'
is "no rank is left" "$(ranks_below)" ""

# The last line of each step is compared with one rank.  A loss is a mean of 384 tokens.  Its relative rounding error is
# some 2^-24 for each of about a thousand terms in a row of sums.  That of the weights grows with each step.  The bound
# is 1e-5 as between any two layouts (t6231); one more 2^-24 * lr per step is below that.
last=$(step)
sed '/^\[strategy/,/^plugin/d; s/^metrics.*/metrics = one.jsonl/' layout.ini >one.ini
ok "one rank trains undisturbed" heddle train one.ini --set train.steps="$last"
numbers() { sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([^,]*\), *"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1"; }
numbers m.jsonl | awk '{ line[$1] = $0; if ($1 > n) n = $1 } END { for (i = 1; i <= n; i++) print line[i] }' >elastic.txt
numbers one.jsonl >one.txt
is "no step is missing" "$(awk '{ print $1 }' elastic.txt | sort -un | wc -l)" "$last"
ok "the losses are those of one rank" \
	sh -c 'paste one.txt elastic.txt | awk "{ d = (\$2 - \$5) / \$2; d = d < 0 ? -d : d; if (!(d <= most)) most = d }
	END { print \"largest relative difference\", most, \"of\", NR; exit !NR || !(most <= 1e-5) }"'
note "$(cat .ok) steps; 4 -> 3 -> 4 ranks"

# What ends heddle run.
status() {			# NAME STATUS PATTERN args...
	what=$1 want=$2 pattern=$3
	shift 3
	HD_TEST_SECONDS=60 heddle run layout.ini "$@" >out 2>&1
	is "$what: the status is $want" $? "$want"
	like "$what: the message" "$(messages <out)" "$pattern"
}
status "without a directory" 1 'layout\.ini.*\[checkpoint\] dir: is not given' --ranks 1:2
status "a range of ranks that is not MIN:MAX" 1 "run: --ranks: '2-4' is not MIN:MAX" --ranks 2-4 --set checkpoint.dir=d
status "no layout that fits" \
	1 'run: no number of ranks from 5 to 5 fits; with 5: .*12' --ranks 5:5 --set checkpoint.dir=d
status "all steps are done" 0 'run: 2 ranks' --ranks 1:2 --set checkpoint.dir=d --set train.steps=3
status "an error that is not a lost rank" 1 'no room|cannot|Not a directory' --ranks 1:2 --set checkpoint.dir=text.txt/d
is "... which is not tried again" "$(grep -c '^heddle: run: [12] rank' out)" "$(grep -c '^heddle: run: 2 ranks' out)"
TMPDIR="$tmp/nowhere" status "no folder of temporary files" 0 'run: 2 ranks' --ranks 1:2 --set checkpoint.dir=nowhere-d --set train.steps=3

# Ranks whose mpirun was killed may still save.  The next run waits for them, and continues from what they have saved.
if command -v flock >/dev/null; then
	mkdir -p path
	cat >path/mpirun <<-EOF
		#!/bin/sh
		[ ! -e killed ] || exec $(command -v mpirun) "\$@"
		touch killed
		mkdir -p late
		flock late/.lock sh -c 'touch locked; sleep 3; cp -r d/step-* d/latest late' >/dev/null 2>&1 &
		until [ -e locked ]; do sleep 0.1; done
		kill -KILL \$\$
	EOF
	chmod +x path/mpirun
	for from in '' '--set checkpoint.resume=d'; do
		rm -rf killed locked late
		PATH="$tmp/path:$PATH" status "mpirun is killed while ranks save $from" 0 'run: signal 9 ended mpirun' --ranks 1:2 \
			--set checkpoint.dir=late --set train.steps=5 $from
		like "... the run continues from their checkpoint" "$(cat out)" '^heddle: resumed from late/step-00000003'
	done
else
	skip "there is no flock: ranks that save after their mpirun was killed"
fi

# Hosts.  One that does not answer is left out with its slots.  Names become part of commands, so they are checked.
printf '#!/bin/sh\n[ "$1" = localhost ]\n' >probe
chmod +x probe
printf 'localhost slots=2\t# here\n\nnowhere slots=2\n' >hostfile
mkdir -p 'a b'
TMPDIR="$tmp/a b" status "a folder of temporary files with a blank" 0 'run: host nowhere does not answer' --ranks 1:4 --hostfile hostfile \
	--probe ./probe --set checkpoint.dir=blank --set train.steps=2
status "a host that does not answer" 0 'run: host nowhere does not answer' --ranks 1:4 --hostfile hostfile --probe ./probe \
	--set checkpoint.dir=h --set train.steps=2
like "... its slots are left out" "$(cat out)" '^heddle: run: 2 ranks'
# A host that was away from the start is no reason for what happens later.
status "... an error is not taken for its loss" 1 'step 2: .* not finite' --ranks 1:4 --hostfile hostfile --probe ./probe \
	--set checkpoint.dir=k --set train.lr=1e30
is "... and is not tried again" "$(grep -c '^heddle: run: 2 ranks' out)" 1
"$build/heddle" run layout.ini --ranks 1:4 --hostfile hostfile --probe ./probe --set checkpoint.dir=l \
	--set checkpoint.every=20 </dev/null >out 2>&1 &
job=$!
wait_for '^step 100/' 1
tap_result $? "two ranks train on the other host"
kill -KILL "$(ranks_below | sed -n 2p)"
wait_for '^heddle: run: 1 rank,' 1
tap_result $? "... one is lost: the other continues"
like "... a message says so" "$(cat out)" '^heddle: run: some of 2 ranks are lost; 1 is left'
wait_for '^heddle: resumed from l/step-' 1
tap_result $? "... from a checkpoint"
kill -TERM $job
wait $job
printf '#!/bin/sh\n[ "$1" = localhost ] || { trap "" TERM; sleep 60; }\n' >waits
chmod +x waits
began=$(date +%s)
status "a probe that ignores SIGTERM" 0 'run: host nowhere does not answer' --ranks 1:4 --hostfile hostfile --probe ./waits \
	--set checkpoint.dir=n --set train.steps=2
took=$(($(date +%s) - began))
ok "... ends after ten seconds (the run took $took)" [ $took -lt 50 ]
printf 'localhost max_slots=4 slots = 3 username=me // there\n' >hostfile
status "max_slots is not slots, and blanks may stand around =" 1 'run: 3 ranks are left, but --ranks asks for at least 4' --ranks 4:4 \
	--hostfile hostfile --probe ./probe --set checkpoint.dir=i
mkdir -p ours
printf '#!/bin/sh\ncase " $* " in *" -p 2222 -l me localhost true ") ;; *) false ;; esac\n' >ours/ssh
chmod +x ours/ssh
printf 'localhost slots=3 username=me port = 2222\n' >hostfile
PATH=$tmp/ours:$PATH status "ssh gets the user and the port of a host" 1 'run: 3 ranks are left, but --ranks asks for at least 4' --ranks 4:4 \
	--hostfile hostfile --set checkpoint.dir=i
host_line() {			# LINE PATTERN
	printf '\n%s\n' "$1" >hostfile
	status "$1" 1 "$2" --ranks 1:4 --hostfile hostfile --probe ./probe --set checkpoint.dir=i
}
host_line 'local!host slots=2' "hostfile:2: 'local!host' is not the name of a host"
host_line 'localhost slot=2' "hostfile:2: 'slot' is not a key; keys are slots, max_slots, username and port"
host_line 'localhost slots' "hostfile:2: 'slots' is not KEY = VALUE"
host_line 'localhost slots=2x' 'hostfile:2: slots = 2x is not a number from 0 to 999999'
host_line 'localhost username=a;b' 'hostfile:2: username = a;b is not the name of a user'
host_line 'localhost port=x' 'hostfile:2: port = x is not a number from 0 to 999999'
host_line 'localhost slots=2 count=2' 'hostfile:2: count is given twice'
host_line 'localhost slots=3 max-slots=2' 'hostfile:2: max_slots = 2 is less than slots = 3'
printf 'localhost slots=2\nnowhere slots=2\n' >hostfile
said=$(ulimit -f 0; heddle run layout.ini --ranks 1:4 --hostfile hostfile --probe true --set checkpoint.dir=i 2>&1)
like "a list of hosts that the disk cuts off is not used" "$?: $said" '^1: heddle: .*/heddle-hosts\.[^ ]*: cannot be written: File too large'
status "too few hosts" 1 'run: 2 ranks are left, but --ranks asks for at least 3' --ranks 3:4 --hostfile hostfile --probe ./probe \
	--set checkpoint.dir=i
status "no hostfile" 1 'nohosts: ' --ranks 1:4 --hostfile nohosts --set checkpoint.dir=i
echo '-oProxyCommand=x' >hostfile
status "a host whose name would be an option" \
	1 "hostfile:1: '-oProxyCommand=x' is not the name of a host" --ranks 1:4 --hostfile hostfile \
	--probe ./probe --set checkpoint.dir=i

# A rank that dies each time, before anything is saved.
if whole_sweep; then
cat >dies.c <<'END'
#include <stdlib.h>
#include <sys/time.h>
static void __attribute__((constructor)) dies(void)	/* after a tenth of a second of processor time */
{
	const char *rank = getenv("OMPI_COMM_WORLD_RANK");
	struct itimerval t = { .it_value = { .tv_usec = 100000 } };
	if (rank && *rank == '0')
		setitimer(ITIMER_VIRTUAL, &t, NULL);
}
END
ok "a library that ends rank 0 is built" ${CC:-cc} -shared -fPIC -o dies.so dies.c
status "ranks that die each time" 1 'run: no checkpoint was made in 1 restart' --ranks 2:4 --restarts 1 \
	--mpirun "-x LD_PRELOAD=$tmp/dies.so" --set checkpoint.dir=e
like "... with fewer ranks each time" "$(cat out)" 'some of 3 ranks are lost|run: 3 ranks'
fi
done_testing
