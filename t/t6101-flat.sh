#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# After step 10 a run must not grow: neither the bytes that malloc has given out, nor the pages that every rank has
# touched.  A little growth in each step ends a run of weeks.  A thread of Open MPI may allocate something once, or
# touch a page for the first time, at any moment.  So less than 32 bytes a step, or up to two pages, do not count as
# growth.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

ok "a library that counts live bytes is built" \
	${CC:-cc} -O1 -fPIC -shared -DHD_LIVE_BYTES -o live.so "$src/t/lib/live_bytes.c" -ldl
[ -f live.so ] || done_testing
first=10 last=120
! whole_sweep || last=400
sed "/^\[strategy/,\$d; s/^embed.*/embed = 16/; s/^seq.*/seq = 8/; s/^global_batch.*/global_batch = 4/; s/^micro_batch.*/micro_batch = 1/
	s/^steps.*/steps = $((last + 1))\nhash_every = 5/" tiny.ini >one.ini
printf '[log]\nmetrics = m.jsonl\nevery = 7\n' >>one.ini
layout() {			# NAME SECTIONS
	cp one.ini "$1.ini"
	printf "$2" >>"$1.ini"
}
layout dp '[strategy dp]\nplugin = dp\nsize = 2\n'
layout zero '[strategy dp]\nplugin = dp\nsize = 2\nzero = 1\n'
layout tp '[strategy tp]\nplugin = tp\nsize = 2\n'
layout pp '[strategy pp]\nplugin = pp\nsize = 2\n'
layout ep '[strategy ep]\nplugin = ep\nsize = 2\n'

# counted NAME RANKS [VARIABLE=VALUE...] -- [ARGS...]: lines "STEP WHAT BYTES BYTES..." of all ranks, sorted
counted() {
	name=$1 n=$2
	shift 2
	rm -f live[.-][0-9]* m.jsonl*
	set -- "$build/heddle" train "$name.ini" "$@"
	mpi "$n" env LD_PRELOAD="$tmp/live.so" GLIBC_TUNABLES=glibc.malloc.tcache_count=0 HD_LIVE_BYTES="$tmp/live" HD_LIVE_FIRST=$first \
		HD_LIVE_LAST=$last HD_LIVE_LEAK="$leak" "$@" >out 2>&1 || tap_comment <out
	for f in live.[0-9]*; do echo "$(cat "$f" | tr '\n' ' ')"; done | sort
}
# The fields of each line are: first live BYTES first own BYTES last live BYTES last own BYTES
flat() {
	what=$1 n=$2
	counted "$@" >lines
	is "$what: every rank was measured at both steps" \
		"$(awk -v a=$first -v b=$last '$1 == a && $7 == b && NF == 12' lines | wc -l)" "$n"
	ok "$what: the bytes that malloc has given out do not grow" \
		awk '{ print $3, $9; bad += $9 - $3 >= 32 * ('$last' - '$first') } END { exit bad > 0 }' lines
	ok "$what: the pages of its own do not grow" \
		awk '{ print $6, $12; bad += $12 - $6 > 8192 } END { exit bad > 0 }' lines ||
		for f in live-$first.*; do diff "$f" "live-$last.${f##*.}"; done | tap_comment
}
leak=32
counted one 1 >lines
ok "a leak in each step is detected" awk '{ print $9 - $3; exit !($9 - $3 >= '$leak' * ('$last' - '$first')) }' lines
leak=
flat one 1
flat dp 2
flat zero 2
flat tp 2
flat pp 2
flat ep 2 --set model.experts=4 --set model.router=topk
if whole_sweep; then
	first=35		# after the first save
	flat dp 2 --set checkpoint.dir=ck --set checkpoint.every=30
	first=10
	HD_TEST_COMM=mpi
	export HD_TEST_COMM
	flat tp 2
	flat zero 2
fi
done_testing
