#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank of a hybrid layout is killed or stops. On thousands of ranks it costs a day if a run merely hangs, or prints
# thousands of messages none of which names that rank. One line must name the rank, its place in the mesh and the
# operation that others wait in, over shared memory and over messages alike.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

watchdog=2
grace=no
sed '/^\[strategy/,$d' tiny.ini >model.ini
{ cat model.ini; printf '[strategy tp]\nplugin = tp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 2\n'; } >tp+pp.ini
{ sed '/^heads/a experts = 4' model.ini; printf '[strategy ep]\nplugin = ep\nsize = 2\n[strategy dp]\nplugin = dp\nsize = 2\n'; } >ep+dp.ini
tp_pp() { echo "rank $1 \(tp $(($1 % 2)), pp $(($1 / 2))\)"; }
ep_dp() { echo "rank $1 \(ep $(($1 % 2)), dp $(($1 / 2))\)"; }

# begin INI: starts a run in the background and waits for its third step; sets $run and $ranks to the processes. With
# grace = yes, mpirun gives the ranks that it ends more than a second on a busy machine.  It waits that long twice, so
# the time is no longer than needed.
begin() {
	rm -f m.jsonl
	slow=$(patience)
	mpirun_flags=
	[ $grace = no ] || mpirun_flags="--mca odls_base_sigkill_timeout $slow"
	timeout -k 5 $((50 * slow)) mpirun -np 4 --oversubscribe --bind-to none $mpirun_flags "$build/heddle" train "$1" --set train.steps=1000000 \
		--set train.watchdog=$((watchdog * ${scale:-1})) --set log.metrics=m.jsonl </dev/null >out 2>&1 &
	shell=$!
	for i in $(seq $((200 * slow))); do
		[ -f m.jsonl ] && [ "$(wc -l <m.jsonl)" -ge 3 ] && break
		sleep 0.1
	done
	run=$(ps -o pid= --ppid $shell | tr -d ' ')
	ranks=$(ps -o pid= --ppid "$run" | tr -d ' ')
}
pid_of() {			# RANK
	for p in $ranks; do
		tr '\0' '\n' <"/proc/$p/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$p"
	done
}
# end: waits for the run; sets $rc, $seconds and its messages in $said.
end() {
	from=$(date +%s)
	wait $shell
	rc=$?
	seconds=$(($(date +%s) - from))
	said=$(tr '\r' '\n' <out | messages)
}
operation='(all-reduce|(ring-)?reduce-scatter|(ring-)?all-gather|all-to-all|all-max|shift|send|receive|broadcast) of [^ ]+ \([^)]*\)'
control='an? [a-z ]*all ranks( on errors)?'

# failure NAME INI SIGNAL RANK PATTERN: sends the signal to the rank; the pattern is that of the one message.
failure() {
	name=$1
	case $3 in KILL) grace=yes ;; *) grace=no ;; esac	# stopped ranks would use up all of that time
	begin "$2"
	slow=$(patience)
	kill -"$3" "$(pid_of "$4")"
	end
	ok "$name: the run fails and does not time out" [ $rc -gt 0 -a $rc -ne 124 ]
	ok "$name: it ends in time, after $seconds s" [ $seconds -le $((watchdog + 4 * slow)) ]
	if open_mpi 5 && [ "$3" = KILL ] && [ -z "$said" ]; then	# mpirun ends the others half a second later
		like "$name: mpirun names the rank" "$(tr -d '\0' <out)" "process rank $4 with PID"
	else
		is "$name: one message is printed" "$(printf '%s\n' "$said" | grep -c .)" 1
		like "$name: the message names the rank, its place and the operation" "$said" "$5"
	fi
	is "$name: no process is left" "$(for p in $ranks; do ps -o pid=,stat= -p "$p" | grep -v Z; done)" ""
}

late='([2-9]|[1-9][0-9]+)'	# seconds; a watchdog may itself be late, but never early
waiting="rank [0-3] \([a-z]+ [01], [a-z]+ [01]\) (waits|was waiting) .*in ($operation.* on [a-z+]+|$control)"
failure "killed, tp x pp" tp+pp.ini KILL 2 "^heddle: $(tp_pp 2) is gone: its process has ended; $waiting"
failure "stopped, tp x pp" tp+pp.ini STOP 1 "^heddle: $waiting since $late s; late: $(tp_pp 1)\$"
failure "stopped, ep x dp" ep+dp.ini STOP 3 "^heddle: $waiting since $late s; late: $(ep_dp 3)\$"

# A rank that is late and then continues does not end the run.
scale=$(patience)		# a nap takes longer on a busy machine too
begin tp+pp.ini
scale=1
kill -STOP "$(pid_of 3)"
sleep 0.7
kill -CONT "$(pid_of 3)"
was=$(wc -l <m.jsonl)
for i in $(seq $((50 * slow))); do
	[ "$(wc -l <m.jsonl)" -gt $((was + 2)) ] && break
	sleep 0.1
done
ok "a rank is late by less than the watchdog's time: the run continues" [ "$(wc -l <m.jsonl)" -gt $((was + 2)) ]
kill -TERM "$run"
end
unlike "... and no message names a rank" "$said" 'late:|gone'

# As if each rank were a host: they share no memory and only exchange messages.
HD_TEST_COMM=mpi
export HD_TEST_COMM
silent='which does not answer: its process is stopped or has ended$'
failure "between hosts: killed, ep x dp" ep+dp.ini KILL 1 "^heddle: $waiting since [0-9]+ s; late: $(ep_dp 1), $silent"
failure "between hosts: stopped, tp x pp" tp+pp.ini STOP 3 "^heddle: $waiting since $late s; late: $(tp_pp 3), $silent"
grace=yes
begin tp+pp.ini
kill -TERM "$run"
end
unlike "between hosts: a run that is ended names no rank" "$said" 'late:|gone'
open_mpi 5 || like "between hosts: ... and finishes its step" "$said" ' after step [0-9]+'
done_testing
