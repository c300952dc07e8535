#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A step must allocate nothing: all memory is known before the first.  An allocation costs time in every step, and may
# grow until the run dies of memory in its third week.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

ok "a library that counts allocations is built" \
	${CC:-cc} -O1 -g -fPIC -shared -DHD_COUNT_ALLOC -o count.so "$src/t/lib/count_alloc.c" -ldl -lpthread
[ -f count.so ] || done_testing

# calls STEPS RANKS args...: prints the allocations of all ranks by place, sorted.
calls() {
	steps=$1 n=$2
	shift 2
	rm -f calls.* m.jsonl
	mpi "$n" env LD_PRELOAD="$tmp/count.so" HD_COUNT_ALLOC="$tmp/calls" "$build/heddle" train tiny.ini \
		--set train.steps="$steps" --set log.metrics=m.jsonl "$@" >out 2>&1 || tap_comment <out
	cat calls.* 2>/dev/null | awk '{ c = $1; $1 = ""; sum[$0] += c } END { for (k in sum) print sum[k] k }' | sort -k2
}

# where PLACE...: prints the functions, if addr2line exists.
where() {
	for at in "$@"; do
		case $at in *+0x*) addr2line -fs -e "${at%+0x*}" "0x${at##*+0x}" 2>/dev/null | paste -sd' ' ;; esac
	done
}

quiet() {
	name=$1
	shift
	calls 1 "$@" >few		# the cache of timings is written
	# The message of a rank that has waited long allocates too, so on a busy machine a run may have more
	# allocations.  Then it is repeated: what every step allocates is in all runs.
	for try in 1 2 3 4 5; do
		calls 3 "$@" >few
		calls 10 "$@" >many
		more=$(awk 'NR == FNR { c = $1; $1 = ""; few[$0] = c; next } { c = $1; $1 = ""; if (c > few[$0]) print c - few[$0] $0 }' few many)
		[ -n "$more" ] || break
	done
	ok "$name: the counter counts" [ "$(awk '{ s += $1 } END { print s + 0 }' few)" -gt 100 ]
	[ -z "$more" ]
	tap_result $? "$name: seven more steps, not one allocation more" ||
		printf '%s\n' "$more" | while read -r count what places; do
			echo "$count $what"
			where $places
		done | tap_comment
}

quiet "one rank" 1
quiet "two ranks" 2
quiet "two ranks, all-reduce, sgd" 2 --set dp.sync=allreduce --set train.optimizer=sgd
quiet "bf16, two ranks" 2 --set train.precision=bf16 --set train.recompute=full
experts="--set dp.plugin=ep --set model.experts=4 --set model.router=topk"	# rows as tokens choose
quiet "experts, two ranks" 2 $experts
quiet "experts, bf16, two ranks" 2 $experts --set train.precision=bf16
HD_TEST_COMM=mpi
export HD_TEST_COMM
quiet "two hosts" 2 --set dp.bucket=16K
quiet "experts, two hosts" 2 $experts
done_testing
