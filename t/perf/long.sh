#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: t/perf/long.sh [STEPS [LAYOUT...]]	(from the build folder)
# Trains a small model for long, in several layouts, and checks two things.  The memory of every rank, as the system
# counts it, is the same after the last step as after step 10, to the byte.  And all copies of parameters and states are
# equal, by train.hash_every, at 20 steps.  Open MPI's own segment for messages is excluded: the library touches more of
# its pages as it runs, even in a program that only calls MPI_Allreduce.  Prints a line for each layout; the status is 0
# only if both hold for all.
. "${0%/*}/../lib/tap.sh"
src=$(cd "${0%/*}/../.." && pwd)
. "$src/t/lib/tiny.sh"
steps=${1:-20000}
hash=$(((steps + 19) / 20))
: "${HD_TEST_SECONDS:=100000}"		# ends a run that hangs
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- one dp zero tp pp tp+pp async

sed "/^\[strategy/,\$d; s/^steps.*/steps = $steps\nhash_every = $hash/; s/^lr.*/lr = 1e-3/" tiny.ini >one.ini
printf '[log]\nmetrics = m.jsonl\nevery = 1000000\n' >>one.ini
layout() {			# NAME SECTIONS
	cp one.ini "$1.ini"
	printf "$2" >>"$1.ini"
}
layout dp '[strategy dp]\nplugin = dp\nsize = 2\n'
layout zero '[strategy dp]\nplugin = dp\nsize = 2\nzero = 1\n'
layout tp '[strategy tp]\nplugin = tp\nsize = 2\n'
layout pp '[strategy pp]\nplugin = pp\nsize = 2\n'
layout tp+pp '[strategy tp]\nplugin = tp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 2\n'
layout ep '[strategy ep]\nplugin = ep\nsize = 2\n'
layout async "[strategy dp]\nplugin = dp\nsize = 2\n[checkpoint]\ndir = ck\nevery = 200\nasync = yes\n"

ranks_of() { case $1 in one) echo 1 ;; tp+pp) echo 4 ;; *) echo 2 ;; esac; }
# Prints the bytes of each rank in order: its own pages, and the shared pages it has touched.
memory() {
	for p in $ranks; do
		awk '/^[0-9a-f]+-[0-9a-f]+ / { name = $6; shared = name ~ /^\/(dev|memfd|SYSV)/ }
			name ~ /vader_segment|sm_segment/ { next }
			shared && /^Rss:/ || !shared && /^Anonymous:/ { sum += $2 }
			END { printf "%d ", sum * 1024 }' "/proc/$p/smaps"
	done
}
bad=0
for name; do
	rm -rf m.jsonl ck
	n=$(ranks_of "$name")
	heddle_mpi "$n" train "$name.ini" >out 2>&1 &
	job=$!
	while kill -0 $job 2>/dev/null && [ "$(cat m.jsonl 2>/dev/null | grep -c \"loss\")" -lt 10 ]; do sleep 0.02; done
	ranks=$(ps -eo pid=,ppid=,comm= | awk -v top=$job '{ of[$1] = $2; name[$1] = $3 } END { for (p in name) if (name[p] == "heddle") {
		for (a = p; a > 1 && a != top; a = of[a]); if (a == top) print p } }' | sort -n)
	first=$(tail -1 m.jsonl | sed 's/.*"step": \([0-9]*\),.*/\1/')
	before=$(memory) after=$before
	while kill -0 $job 2>/dev/null; do
		now=$(memory 2>/dev/null)
		[ "$(echo "$now" | wc -w)" -ne "$n" ] || { after=$last last=$now; }
		sleep 0.1
	done
	wait $job
	rc=$?
	[ "$before" = "${after:-$before}" ] && [ $rc = 0 ] || bad=$((bad + 1))
	echo "$name: $n rank$([ "$n" = 1 ] || echo s), $(grep -c '"loss"' m.jsonl) steps, status $rc; bytes after step $first: $before; before the end: ${after:-$before}"
	[ $rc = 0 ] || tail -3 out
done
tap_planned=yes
exit $bad
