#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How a run ends before its time.  A signal finishes the step and saves, or a batch system's time limit costs hours; a
# rank that is killed ends the others within seconds, or they hold their machines until somebody looks.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# More than mpirun's second, which a busy machine may need to save; mpirun waits so long twice.
mpirun_flags="--mca odls_base_sigkill_timeout $((6 * $(patience)))"
long="--set train.steps=1000000 --set train.eval_batches=1"

# begin N args...: in the background, after its tenth step; $run and $ranks are the processes.
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
	ranks=$(ps -o pid= --ppid "$run" | tr -d ' ')
}

# end: waits; $rc and $seconds.
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
		# Saved is no failure; of its own end by a signal mpirun says 1.
		is "$sig, np $n: its status" $rc $((n - 1))
		if [ $n = 2 ] && open_mpi 5; then	# it has no such flag, and kills half a second later
			like "$sig, np $n: what would save" "$said" '^heddle: asked to end; .* kill -USR1 of mpirun has no such limit$'
			continue
		fi
		is "$sig, np $n: one message" "$(lines)" 1
		like "$sig, np $n: which step, and where it is saved" "$said" " after step $(last); saved in c"
		is "$sig, np $n: it is" "$(cat c/latest)" "$(printf 'step-%08d' "$(last)")"
		[ -f "c/$(cat c/latest)/heddle/state.json" ]
		tap_result $? "$sig, np $n: whole"
	done
done

# Without a limit of mpirun's, and without its flag: says how to get time, where there is none.
mpirun_flags=
rm -rf c
begin 2 --set checkpoint.dir=c
kill -USR1 "$run"
end
is "USR1 of mpirun: saved, so its status is 0" $rc 0
is "USR1 of mpirun: one message" "$(lines)" 1
like "USR1: saved, and no word of a limit" "$said" " after step $(last); saved in c\$"
rm -rf c
begin 2 --set checkpoint.dir=c
kill -TERM "$(printf '%s\n' $ranks | head -1)"
end
like "TERM: saved" "$said" " after step $(last); saved in c\$"
like "before that, the flag" "$(printf '%s\n' "$said" | head -n $(($(lines) - 1)))" \
	'^heddle: asked to end; if mpirun was, .* kill -USR1 of mpirun has no such limit'

# By the launcher itself, which reads no more of what its ranks print: said where its own messages go, within the step. (Its parent is
# the launcher here, and kills nobody.)
rm -rf c
# shellcheck disable=SC2016
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 timeout -k 5 60 sh -c '
	rm -f m.jsonl
	"$1" train tiny.ini --set train.steps=1000000 --set log.metrics=m.jsonl --set checkpoint.dir=c </dev/null >ranks 2>&1 &
	while kill -0 $! && ! [ -s m.jsonl ]; do sleep 0.05; done
	kill -TERM $!
	wait $!' sh "$build/heddle" 2>launcher
is "asked by the launcher: saved, status 0" $? 0
like "the flag, to the launcher's stderr" "$(head -1 launcher)" '^heddle: asked to end; if mpirun was, .*kill -USR1'
is "one line beside it" "$(wc -l <launcher)" 2
like "which is the last" "$(tail -1 launcher)" '^heddle: asked to end after step [0-9]+; saved in c$'
# That of Open MPI 5 has no such setting, so one that is in the environment tells it nothing.
rm -rf c
# shellcheck disable=SC2016
PRTE_LAUNCHED=1 OMPI_MCA_odls_base_sigkill_timeout=30 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 timeout -k 5 60 sh -c '
	rm -f m.jsonl
	"$1" train tiny.ini --set train.steps=1000000 --set log.metrics=m.jsonl --set checkpoint.dir=c </dev/null >ranks 2>&1 &
	while kill -0 $! && ! [ -s m.jsonl ]; do sleep 0.05; done
	kill -TERM $!
	wait $!' sh "$build/heddle" 2>launcher
like "asked by the launcher of Open MPI 5: the flag all the same" "$(head -1 launcher)" '^heddle: asked to end; if mpirun was, .*kill -USR1'

begin 1
kill -TERM "$run"
end
like "nothing is saved: says so" "$said" 'nothing is saved \(checkpoint\.dir is not given\)'
is "and its status is 1" $rc 1

# A signal before the first step, at any moment from when the program waits for it: of several, saved each time, and each goes on.  While
# its libraries are loaded it cannot, which takes longer on a busy machine; one of them may block all signals for a moment.
waits_for_signals() {	# PID: it blocks SIGINT, SIGUSR1 and SIGTERM for the thread that takes them, and no other
	awk '/^Name:/ { name = $2 } /^SigBlk:/ { blocked = $2 } END { exit name != "heddle" || blocked !~ /^0*4202$/ }' "/proc/$1/status"
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
	tap_result $? "asked to end after 0.$ms s: saved, status 0" || { note "status $rc"; tap_comment <out; }
done

# A signal in an evaluation of hours, or in a text as long: the run leaves it, saves and ends.  The run that goes on evaluates first.
truncate -s 1G hours.bin
until_said() { # TEXT: the run has printed it
	for i in $(seq $((200 * slow))); do
		grep -qs "$1" out && return
		sleep 0.05
	done
}
hours() { # N args...: as begin, until the line of its last step
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
		is "in an evaluation, np $n, $steps steps: its status" $rc 0
		is "... in which step" "$(printf '%s\n' "$said" | tail -1)" "heddle: asked to end after step 2; saved in c"
		like "... and says so" "$said" 'the evaluation after step 2 was interrupted; the resumed run repeats it'
		is "... and no loss" "$(grep -c valid_loss out m.jsonl | tr '\n' ' ')" "out:0 m.jsonl:0 "
		[ -f c/step-00000002/heddle/state.json ]
		tap_result $? "... whole"
	done
done
out=$(heddle train tiny.ini --set train.steps=3 --set train.eval_every=2 --set checkpoint.dir=c --set checkpoint.resume=auto \
	--set log.metrics=m.jsonl 2>&1)
is "the run that goes on evaluates first" "$(grep -o '"step": [0-9]*\|"valid_loss"' m.jsonl | tr '\n' ' ')" \
	'"step": 1 "step": 2 "step": 2 "valid_loss" "step": 3 "step": 3 "valid_loss" '
for n in 1 2; do
	hours $n tiny.ini --set train.steps=2 --set log.sample=1000000 --set checkpoint.dir=c --set data.valid_fraction=0
	is "in a sample, np $n: its status" $rc 0
	is "... saved" "$(printf '%s\n' "$said" | tail -1)" "heddle: asked to end after step 2; saved in c"
	is "... and no sample" "$(grep -c '^sample' out)" 0
done

# Signals by the thousand within one step, which goes on: no handler may run on the stack of a thread that computes, because a library's
# product may have put its stack pointer on the heap.
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
is "signals within a step: saved, status 0" $rc 0
like "one message" "$said" '^heddle: asked to end after step [0-9]+; saved in c$'
ok "there were some ($signals)" [ $signals -gt 0 ]

# A program that has started itself again for its threads has not kept its signals blocked.
OMP_NUM_THREADS=3 timeout -s KILL 60 "$build/heddle" bench tiny.ini --steps 1000 --set train.global_batch=1024 </dev/null >out 2>&1 &
shell=$!
sleep 0.5
kill -TERM "$(ps -o pid= --ppid $shell | tr -d ' ')"
wait $shell
is "a verb that does not save ends by the signal" $? 143

# A start that takes longer than anybody waits: refused, in one message.
mkfifo pipe.ini
timeout -k 5 60 "$build/heddle" train pipe.ini </dev/null >out 2>&1 &
shell=$!
sleep 0.5
kill -TERM "$(ps -o pid= --ppid $shell | tr -d ' ')"
end
is "asked to end while the start waits for a file: its status" $rc 1
is "one message" "$said" "heddle: asked to end before the first step: nothing is saved"
# Its parent asks, as a launcher does: of several ranks the first speaks, and a rank alone is the first.
# shellcheck disable=SC2016
timeout -k 5 60 sh -c '"$1" train pipe.ini </dev/null & sleep 0.5; kill -TERM $!; wait $!' sh "$build/heddle" >out 2>&1 &
shell=$!
end
is "asked by its parent: its status" $rc 1
is "one message" "$said" "heddle: asked to end before the first step: nothing is saved"

# A plugin's kernel that does not return: the run never looks, so it is ended by whom asks twice. (Who asks once waits a minute.)
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
tap_result $? "in a kernel without end: it is asked to end, and goes on"
kill -TERM "$run"
end
is "asked again: its status" $rc 1
is "one message" "$(lines)" 1
like "which names the kernel" "$said" '^heddle: asked to end, but still in kernel squared_relu of \[relu\] after [0-9]+ seconds: it is no longer waited for, and nothing is saved$'
# On all ranks: none waits for another.
for n in 1 2; do
	begin $n --set train.watchdog=2
	end
	is "the watchdog, np $n: its status" "$((rc != 0)) $(lines)" "1 1"
	like "which names the rank and the kernel" "$said" \
		'^heddle: rank [01].* is still in kernel squared_relu of \[relu\] after [0-9]+ s \(train.watchdog = 2\)$'
done
# A run that is stopped for longer than that is not late: batch systems suspend jobs.
begin 1 --set train.watchdog=6
kill -STOP "$run"
sleep 8
kill -CONT "$run"
sleep 1
kill -0 "$run"
tap_result $? "stopped for 8 seconds: not taken for a plugin that does not return"
kill -KILL "$run"
end
mv keep.ini tiny.ini

for who in 1 2; do
	begin 2
	slow=$(patience)
	kill -KILL "$(printf '%s\n' $ranks | sed -n ${who}p)"
	end
	ok "killed rank $who of 2: a status" [ $rc -gt 0 ]
	ok "killed rank $who of 2: within seconds ($seconds, of a machine $slow times slower)" [ "$seconds" -le $((6 * slow)) ]
	if open_mpi 5 && [ "$(lines)" = 0 ]; then	# on a busy machine it ends the other before that has seen it
		like "killed rank $who of 2: mpirun names it" "$(tr -d '\0' <out)" "process rank $((who - 1)) with PID"
	else
		is "killed rank $who of 2: one message" "$(lines)" 1
		like "killed rank $who of 2: it names it" "$said" '^heddle: rank [01] .*is gone: its process has ended; rank [01] .*was waiting in '
	fi
	is "killed rank $who of 2: none is left" "$(for p in $ranks; do ps -o pid=,stat= -p "$p" | grep -v Z; done)" ""
done
# A copy over the data makes the file shorter under the run.  The kernel would end it without a word.
for n in 1 2; do
	cp text.txt short.txt
	begin $n --set data.train=short.txt
	truncate -s 4096 short.txt
	end
	is "data that became shorter, $n: the status" "$rc" 1
	is "data that became shorter, $n: the file and both sizes" "$(printf '%s\n' "$said" | sort -u | grep -v ' is gone: ')" \
		"heddle: short.txt: had $(wc -c <text.txt) bytes when it was opened, but has 4096 now"
done
done_testing
