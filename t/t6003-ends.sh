#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How a run ends early.  A signal must let it finish the step and save, or a batch system's time limit costs hours.
# A rank that is killed must end the others within seconds, or they hold their machines until somebody looks.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# A busy machine may need more than mpirun's default of one second to save; mpirun waits this long twice.
mpirun_flags="--mca odls_base_sigkill_timeout $((6 * $(patience)))"
long="--set train.steps=1000000 --set train.eval_batches=1"

# begin N args...: starts a run in the background and waits for its tenth step; $run and $ranks are its processes.
begin() {
	n=$1
	shift
	rm -f m.jsonl
	slow=$(patience)
	if [ "$n" = 1 ]; then
		timeout -k 5 $((50 * slow)) "$build/heddle" train tiny.ini $long --set log.metrics=m.jsonl "$@" </dev/null >out 2>&1 &
	else
		timeout -k 5 $((50 * slow)) mpirun -np "$n" --oversubscribe --bind-to none $mpirun_flags \
			"$build/heddle" train tiny.ini $long --set log.metrics=m.jsonl "$@" </dev/null >out 2>&1 &
	fi
	shell=$!
	for i in $(seq $((200 * slow))); do
		[ -f m.jsonl ] && [ "$(wc -l <m.jsonl)" -ge 10 ] && break
		sleep 0.1
	done
	run=$(ps -o pid= --ppid $shell | tr -d ' ')
	ranks=$(ps -o pid= --ppid "${run:-$$}" | tr -d ' ')
	if ! [ -s m.jsonl ]; then
		tap_result 1 "np $n: the run begins"
		tap_comment <out
	fi
}

# end: waits for the run; sets $rc, $seconds and $said.
end() {
	from=$(date +%s)
	wait $shell
	rc=$?
	seconds=$(($(date +%s) - from))
	said=$(tr '\r' '\n' <out | messages)
}
last() { tail -1 m.jsonl | sed 's/.*"step": \([0-9]*\),.*/\1/'; }
lines() { printf '%s\n' "$said" | grep -c .; }

for sig in TERM INT; do
	for n in 1 2; do
		rm -rf c
		begin $n --set checkpoint.dir=c
		kill -$sig "$run"
		end
		# A run that saved has not failed, but mpirun returns 1 when a signal ended it.
		is "$sig, np $n: the exit status" $rc $((n - 1))
		if [ $n = 2 ] && open_mpi 5; then	# Open MPI 5 has no such flag, and kills half a second later
			like "$sig, np $n: the message says which signal has no such limit" \
				"$said" '^heddle: asked to end; .* kill -USR1 of mpirun has no such limit$'
			continue
		fi
		is "$sig, np $n: one message" "$(lines)" 1
		like "$sig, np $n: the message names the step and where it is saved" \
			"$said" " after step $(last); saved in c"
		is "$sig, np $n: that step is the latest" "$(cat c/latest)" "$(printf 'step-%08d' "$(last)")"
		[ -f "c/$(cat c/latest)/heddle/state.json" ]
		tap_result $? "$sig, np $n: its checkpoint is complete"
	done
done

# A closed terminal sends HUP, unless nohup has it ignored.
can_hang_up() { python3 -c 'import signal, sys; sys.exit(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)'; }
rm -rf c
if can_hang_up; then
	begin 1 --set checkpoint.dir=c
	kill -HUP "$run"
	end
	is "HUP: the run saves and ends with status 0" "$rc $(cat c/latest)" "0 $(printf 'step-%08d' "$(last)")"
else
	skip "this shell ignores HUP, and its processes do too"
fi
rm -rf c m.jsonl
timeout -k 5 60 nohup "$build/heddle" train tiny.ini $long --set log.metrics=m.jsonl --set train.steps=100000 </dev/null >out 2>&1 &
shell=$!
until [ -f m.jsonl ] && [ "$(wc -l <m.jsonl)" -ge 5 ]; do sleep 0.1; done
run=$(ps -o pid= --ppid $shell | tr -d ' ')
kill -HUP "$run"
before=$(wc -l <m.jsonl)
sleep 0.5
[ "$(wc -l <m.jsonl)" -gt "$before" ]
tap_result $? "HUP with nohup: the run goes on"
kill -KILL "$run"
wait $shell

# Without mpirun's flag.  USR1 has no time limit; after TERM, a message says how to get more time.
mpirun_flags=
rm -rf c
begin 2 --set checkpoint.dir=c
kill -USR1 "$run"
end
is "USR1 of mpirun: the run saves and ends with status 0" $rc 0
is "USR1 of mpirun: one message" "$(lines)" 1
like "USR1: the message says that it is saved, and mentions no limit" "$said" " after step $(last); saved in c\$"
rm -rf c
begin 2 --set checkpoint.dir=c
kill -TERM "$(printf '%s\n' $ranks | head -1)"
end
like "TERM: the last message says that it is saved" "$said" " after step $(last); saved in c\$"
like "TERM: an earlier message says how to get more time" "$(printf '%s\n' "$said" | head -n $(($(lines) - 1)))" \
	'^heddle: asked to end; if mpirun was, .* kill -USR1 of mpirun has no such limit'
# A launcher that ends a job because a rank has died asks for nothing.
for flags in '' '--mca odls_base_sigkill_timeout 5'; do
	mpirun_flags=$flags
	rm -rf c
	begin 3 --set checkpoint.dir=c --set train.global_batch=12
	kill -KILL "$(printf '%s\n' $ranks | tail -1)"
	end
	unlike "a rank dies: no message says that the run was asked to end" "$said" 'asked to end'
done
mpirun_flags=

# The launcher sends the signal, and no longer reads what its ranks print.  The message goes to its own stderr, within
# the step.  (The launcher is the parent process here, and kills nobody.)
rm -rf c
# shellcheck disable=SC2016
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 timeout -k 5 60 sh -c '
	rm -f m.jsonl
	"$1" train tiny.ini --set train.steps=1000000 --set log.metrics=m.jsonl --set checkpoint.dir=c </dev/null >ranks 2>&1 &
	while kill -0 $! && ! [ -s m.jsonl ]; do sleep 0.05; done
	kill -TERM $!
	wait $!' sh "$build/heddle" 2>launcher
is "asked to end by the launcher: the run saves and ends with status 0" $? 0
like "... the launcher's stderr says how to get more time" \
	"$(head -1 launcher)" '^heddle: asked to end; if mpirun was, .*kill -USR1'
is "... and contains one more line" "$(wc -l <launcher)" 2
like "... which says that the step is saved" \
	"$(tail -1 launcher)" '^heddle: asked to end after step [0-9]+; saved in c$'
# The launcher of Open MPI 5 has no such setting, and ignores it in the environment.
rm -rf c
# shellcheck disable=SC2016
PRTE_LAUNCHED=1 OMPI_MCA_odls_base_sigkill_timeout=30 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 timeout -k 5 60 sh -c '
	rm -f m.jsonl
	"$1" train tiny.ini --set train.steps=1000000 --set log.metrics=m.jsonl --set checkpoint.dir=c </dev/null >ranks 2>&1 &
	while kill -0 $! && ! [ -s m.jsonl ]; do sleep 0.05; done
	kill -TERM $!
	wait $!' sh "$build/heddle" 2>launcher
like "asked to end by the launcher of Open MPI 5: its stderr says how to get more time despite the setting" \
	"$(head -1 launcher)" '^heddle: asked to end; if mpirun was, .*kill -USR1'

begin 1
kill -TERM "$run"
end
like "without checkpoint.dir, the message says that nothing is saved" \
	"$said" 'nothing is saved \(checkpoint\.dir is not given\)'
is "... and the status is 1" $rc 1

# A signal before the first step, at several moments after the program begins to wait for it.  Each run saves, and the
# next resumes.  The program cannot wait for signals while its libraries are loaded, which takes longer on a busy
# machine.  One of them may block all signals for a moment.
waits_for_signals() {	# PID: it blocks only SIGINT, SIGUSR1, SIGTERM and, without nohup, SIGHUP, for the thread that receives them
	awk '/^Name:/ { name = $2 } /^SigBlk:/ { blocked = $2 } END { exit name != "heddle" || blocked !~ /^0*420[23]$/ }' "/proc/$1/status"
}
rm -rf c
for ms in 000 010 020 030 050 080 130; do
	timeout -k 5 60 "$build/heddle" train tiny.ini $long --set checkpoint.dir=c --set checkpoint.resume=auto </dev/null >out 2>&1 &
	shell=$!
	while kill -0 $shell; do
		run=$(ps -o pid= --ppid $shell | tr -d ' ')
		[ -z "$run" ] || ! waits_for_signals "$run" || break
	done
	sleep 0.$ms
	kill -TERM "$run"
	end
	[ $rc = 0 ] && [ -f "c/$(cat c/latest)/heddle/state.json" ]
	tap_result $? "asked to end after 0.$ms s: the run saves and ends with status 0" ||
		{ note "status $rc"; tap_comment <out; }
done

# A signal during an evaluation or a sample that would take hours: the run abandons it, saves and ends.  The resumed run
# evaluates first.
truncate -s 1G hours.bin
until_said() { # TEXT: waits until the run has printed it
	for i in $(seq $((200 * slow))); do
		grep -qs "$1" out && return
		sleep 0.05
	done
}
hours() { # N args...: starts a run, sends USR1 after the line of step 2 and waits for the end
	n=$1
	shift
	rm -rf c m.jsonl out
	slow=$(patience)
	HD_TEST_SECONDS=$((30 * slow)) && export HD_TEST_SECONDS
	# shellcheck disable=SC2086
	if [ "$n" = 1 ]; then
		timeout -k 5 $((30 * slow)) "$build/heddle" train "$@" </dev/null >out 2>&1 &
	else
		timeout -k 5 $((30 * slow)) mpirun -np "$n" --oversubscribe --bind-to none "$build/heddle" train "$@" </dev/null >out 2>&1 &
	fi
	shell=$!
	until_said '^step 2/'
	sleep 0.2
	run=$(ps -o pid= --ppid $shell | tr -d ' ')
	kill -USR1 "$run"
	end
}
all="--set train.eval_batches=0 --set data.valid=hours.bin --set data.tokenizer=byte --set data.format=text"
for n in 1 2; do
	for steps in 2 5; do
		hours $n tiny.ini $all --set train.steps=$steps --set train.eval_every=2 --set checkpoint.dir=c --set log.metrics=m.jsonl \
			--set checkpoint.gradients=yes
		is "signal in an evaluation, np $n, $steps steps: the status is 0" $rc 0
		is "... the last message names the step" \
			"$(printf '%s\n' "$said" | tail -1)" "heddle: asked to end after step 2; saved in c"
		like "... a message says that the evaluation was interrupted" \
			"$said" 'the evaluation after step 2 was interrupted; the resumed run repeats it'
		is "... no validation loss is printed" \
			"$(grep -c valid_loss out m.jsonl | tr '\n' ' ')" "out:0 m.jsonl:0 "
		[ -f c/step-00000002/heddle/state.json ]
		tap_result $? "... the checkpoint is complete"
	done
done
out=$(heddle train tiny.ini --set train.steps=3 --set train.eval_every=2 --set checkpoint.dir=c --set checkpoint.resume=auto \
	--set log.metrics=m.jsonl 2>&1)
is "the resumed run evaluates first" "$(grep -o '"step": [0-9]*\|"valid_loss"' m.jsonl | tr '\n' ' ')" \
	'"step": 1 "step": 2 "step": 2 "valid_loss" "step": 3 "step": 3 "valid_loss" '
for n in 1 2; do
	hours $n tiny.ini --set train.steps=2 --set log.sample=1000000 --set checkpoint.dir=c --set data.valid_fraction=0
	is "signal in a sample, np $n: the status is 0" $rc 0
	is "... the last message says that the step is saved" \
		"$(printf '%s\n' "$said" | tail -1)" "heddle: asked to end after step 2; saved in c"
	is "... no sample is printed" "$(grep -c '^sample' out)" 0
done

# A thousand signals within one step must not end it.  No handler may run on the stack of a computing thread,
# since a library's matrix product may have moved its stack pointer to the heap.
rm -rf c out
slow=$(patience)
timeout -k 5 $((60 * slow)) "$build/heddle" train tiny.ini $long --set train.global_batch=256 --set checkpoint.dir=c </dev/null >out 2>&1 &
shell=$!
for i in $(seq $((200 * slow))); do
	grep -qs 'planned memory' out && break
	sleep 0.05
done
run=$(ps -o pid= --ppid $shell | tr -d ' ')
signals=0
while [ $signals -lt 1000 ] && kill -USR1 "$run" 2>/dev/null; do signals=$((signals + 1)); done
end
is "many signals within a step: the run saves and ends with status 0" $rc 0
like "... with one message" "$said" '^heddle: asked to end after step [0-9]+; saved in c$'
ok "... after one signal or more ($signals)" [ $signals -gt 0 ]

# A program that executes itself again to set up its threads must not keep its signals blocked.
OMP_NUM_THREADS=3 timeout -s KILL 60 "$build/heddle" bench tiny.ini --steps 1000 --set train.global_batch=1024 </dev/null >out 2>&1 &
shell=$!
sleep 0.5
kill -TERM "$(ps -o pid= --ppid $shell | tr -d ' ')"
wait $shell
is "a verb that saves nothing is ended by the signal" $? 143

# A signal during a start that takes longer than anybody waits: the run ends with one message.
mkfifo pipe.ini
timeout -k 5 60 "$build/heddle" train pipe.ini </dev/null >out 2>&1 &
shell=$!
sleep 0.5
kill -TERM "$(ps -o pid= --ppid $shell | tr -d ' ')"
end
is "asked to end while the start waits for a file: the status is 1" $rc 1
is "... with one message" "$said" "heddle: asked to end before the first step: nothing is saved"
# The parent process sends the signal, as a launcher does.  The first of several ranks prints the message, as does a
# single rank.
# shellcheck disable=SC2016
timeout -k 5 60 sh -c '"$1" train pipe.ini </dev/null & sleep 0.5; kill -TERM $!; wait $!' sh "$build/heddle" >out 2>&1 &
shell=$!
end
is "asked to end by its parent: the status is 1" $rc 1
is "... with one message" "$said" "heddle: asked to end before the first step: nothing is saved"

# A plugin's kernel that does not return: the run never notices the signal, so a second one ends it.  (After only one it
# takes a minute.)
sed 's|^\tvoid \*out = a->outs\[0\];|&\n\n\twhile (a->step->step > 10)\n\t\tusleep(1000);|; s|^#include <string.h>|&\n#include <unistd.h>|' \
	"$src/examples/squared-relu/squared_relu.c" >squared_relu.c
grep -q usleep squared_relu.c && "${CC:-cc}" -w -std=gnu11 -O1 -fopenmp -fPIC -shared -fvisibility=hidden -I"$src/include" \
	-I"$src/examples/squared-relu" -o squared_relu.so squared_relu.c
cp tiny.ini keep.ini
printf '[plugin relu]\nfile = ./squared_relu.so\n' >>tiny.ini
begin 1
kill -TERM "$run"
sleep 4
[ -d "/proc/$run" ]
tap_result $? "in a kernel without end: the run continues after one signal"
kill -TERM "$run"
end
is "... the second signal ends it with status 1" $rc 1
is "... with one message" "$(lines)" 1
like "... which names the kernel" \
	"$said" '^heddle: asked to end, but still in kernel squared_relu of \[relu\] after [0-9]+ seconds: it is no longer waited for, and nothing is saved$'
# The kernel hangs on all ranks, so no rank waits for another.
for n in 1 2; do
	begin $n --set train.watchdog=2
	end
	is "the watchdog, np $n: a failure with one message" "$((rc != 0)) $(lines)" "1 1"
	like "... which names the rank and the kernel" "$said" \
		'^heddle: rank [01].* is still in kernel squared_relu of \[relu\] after [0-9]+ s \(train.watchdog = 2\)$'
done
# A run that was suspended for longer than the watchdog's limit is not late: batch systems suspend jobs.
begin 1 --set train.watchdog=6
kill -STOP "$run"
sleep 8
kill -CONT "$run"
sleep 1
kill -0 "$run"
tap_result $? "a run suspended for 8 seconds is not taken for one whose plugin does not return"
kill -KILL "$run"
end
mv keep.ini tiny.ini

for who in 1 2; do
	begin 2
	slow=$(patience)
	kill -KILL "$(printf '%s\n' $ranks | sed -n ${who}p)"
	end
	ok "killed rank $who of 2: the status is not 0" [ $rc -gt 0 ]
	ok "killed rank $who of 2: the run ends within seconds ($seconds, on a machine $slow times slower)" \
		[ "$seconds" -le $((6 * slow)) ]
	if open_mpi 5 && [ "$(lines)" = 0 ]; then	# when busy, it ends the other rank before that prints
		like "killed rank $who of 2: mpirun names it" "$(tr -d '\0' <out)" "process rank $((who - 1)) with PID"
	else
		is "killed rank $who of 2: one message" "$(lines)" 1
		like "killed rank $who of 2: it names the rank that is gone" \
			"$said" '^heddle: rank [01] .*is gone: its process has ended; rank [01] .*was waiting in '
	fi
	is "killed rank $who of 2: no process is left" \
		"$(for p in $ranks; do ps -o pid=,stat= -p "$p" | grep -v Z; done)" ""
done
# A copy over the data makes the file shorter while the run reads it.  The kernel would end the run without a message.
for n in 1 2; do
	cp text.txt short.txt
	begin $n --set data.train=short.txt
	truncate -s 4096 short.txt
	end
	is "data that became shorter, np $n: the status is 1" "$rc" 1
	is "data that became shorter, np $n: the message names the file and both sizes" \
		"$(printf '%s\n' "$said" | sort -u | grep -v ' is gone: ')" \
		"heddle: short.txt: had $(wc -c <text.txt) bytes when it was opened, but has 4096 now"
done
done_testing
