#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Several hosts, simulated by namespaces: layouts across them train as one rank does.  A host that dies, is cut off or
# is set up differently is named with its rank, and all ranks end.  If this broke, only runs on a real network would
# show it.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/hosts.sh"
trap 'hosts_end; rm -rf "$tmp"; [ $tap_planned = yes ] || { echo "# ended early"; exit 1; }' EXIT

hosts=2
! whole_sweep || hosts=4
hosts_make $hosts
sed '/^\[strategy/,$d; s/^layers.*/layers = 4/' tiny.ini >one.ini
layout() {			# NAME SECTIONS
	cp one.ini "$1.ini"
	printf "$2" >>"$1.ini"
}
layout hierarchical '[strategy dp]\nplugin = dp\nsync = hierarchical\n'
layout tp+dp '[strategy tp]\nplugin = tp\nsize = 2\n[strategy dp]\nplugin = dp\nzero = 1\n'
layout tp '[strategy tp]\nplugin = tp\n'
layout pp+dp '[strategy dp]\nplugin = dp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 2\n'
layout pp '[strategy pp]\nplugin = pp\nsize = 2\n'
layout server '[strategy dp]\nplugin = dp\nsync = server\n'
layout ring '[strategy dp]\nplugin = dp\nwire = fp32\nzero = 3\n'
layout cp '[strategy cp]\nplugin = cp\n'
layout ep+tp '[strategy ep]\nplugin = ep\nsize = 2\n[strategy tp]\nplugin = tp\nsize = 2\n'

numbers() { sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([^,]*\), *"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1"; }
# Compares losses to 1e-5 of themselves, as between any two layouts (t6231).
alike() {
	numbers "$1" >.a
	numbers "$2" >.b
	[ -s .a ] && [ "$(wc -l <.a)" -eq "$(wc -l <.b)" ] && join .a .b |
		awk '{ d = $2 - $4; if (d < 0) d = -d; print; if (!(d <= 1e-5 * $2)) bad = 1 } END { exit bad }'
}
as_one_rank() {			# LAYOUT RANKS HOSTS [ARGS...]
	name=$1 ranks=$2 list=$3
	shift 3
	[ -f "one$*.jsonl" ] || heddle train one.ini --set "log.metrics=one$*.jsonl" "$@" >/dev/null 2>&1
	rm -f m.jsonl
	ok "$name on $list: training succeeds" hosts_train "$ranks" "$list" "$name.ini" --set log.metrics=m.jsonl "$@"
	said=$(cat .ok)
	ok "$name on $list: losses are those of one rank" alike m.jsonl "one$*.jsonl"
}
as_one_rank hierarchical 4 h1:2,h2:2
like "sums in two levels follow the hosts" "$said" 'dp\.node 2 x dp\.across 2'
as_one_rank tp+dp 4 h1:2,h2:2
# A verb that starts its own ranks starts them on one host.
# Hosts with unequal numbers of ranks all read the matmul rate from the cache, or all measure it.
export XDG_CACHE_HOME="$tmp/uneven"
for turn in first second; do
	ok "two ranks on one host and one on the other: the $turn run succeeds" hosts_train 3 h1:2,h2:1 one.ini \
		--set dp.plugin=dp --set dp.size=3 --set train.global_batch=6 \
		--set train.micro_batch=1 --set train.steps=1 --set train.watchdog=20
done
unset XDG_CACHE_HOME
hosts_verb=check hosts_train 4 h1:2,h2:2 tp+dp.ini --ranks 4 --against-one-rank >out 2>&1
is "check --against-one-rank under a launcher with two hosts is refused" "$? $(messages <out | wc -l | tr -d ' ')" "1 1"
like "... and the message has both numbers" "$(cat out)" \
	'heddle: .*--against-one-rank: the launcher has started 2 ranks on other hosts, but the comparison starts all 4 ranks'
if whole_sweep; then
	as_one_rank tp 2 h1:1,h2:1
	as_one_rank pp 2 h1:1,h2:1
	as_one_rank pp+dp 4 h1:2,h2:2
	as_one_rank server 4 h1:2,h2:2
	as_one_rank ring 4 h1:1,h2:1,h3:1,h4:1
	as_one_rank cp 2 h1:1,h2:1
	as_one_rank ep+tp 4 h1:2,h2:2 --set model.experts=4
	wire tc qdisc add dev p2 root tbf rate 20mbit burst 32kbit latency 400ms && as_one_rank tp+dp 4 h1:2,h2:2
	wire tc qdisc del dev p2 root
fi

# begin: starts four ranks on h1 and h2, and waits for step 1.
long="--set train.steps=1000000 --set train.eval_batches=1 --set train.watchdog=$((3 * $(patience)))"
begin() {
	rm -f m.jsonl
	# shellcheck disable=SC2086
	hosts_train 4 h1:2,h2:2 hierarchical.ini $long --set log.metrics=m.jsonl >out 2>&1 &
	job=$!
	for i in $(seq 300); do
		[ ! -s m.jsonl ] && kill -0 $job 2>/dev/null || break
		sleep 0.1
	done
	sleep 0.3
}
# left WHAT PATTERN: checks that the run ends by itself, with one message.
left() {
	wait $job
	rc=$?
	said=$(tr '\r' '\n' <out | messages)
	ok "$1: all ranks end, with a nonzero status ($rc)" [ $rc -gt 0 -a $rc -ne 124 -a $rc -ne 137 ]
	is "$1: exactly one message is printed" "$(printf '%s\n' "$said" | grep -c .)" 1
	like "$1: the message names rank and host" "$said" "$2"
	is "$1: no process remains on h1" "$(on h1 ps -eo stat,args | grep -v ^Z | grep -c '[h]eddle train')" 0
}

# lost WHAT PATTERN: the same for a run that has lost h2.  Open MPI 5 ends it before its ranks can report, with status
# 0 and its own message.
lost() {
	if ! open_mpi 5; then
		left "$1" "$2"
		return
	fi
	wait $job
	like "$1: mpirun names the host" "$(tr -d '\0' <out)" 'Remote daemon: .* on node h2'
	for i in $(seq 100); do
		on h1 ps -eo stat,args | grep -v ^Z | grep -q '[h]eddle train' || break
		sleep 0.1
	done
	is "$1: no process remains on h1" "$(on h1 ps -eo stat,args | grep -v ^Z | grep -c '[h]eddle train')" 0
}

# A different INI, a different program, no data: h2 mounts its own file over the common one.
over() { on h2 mount --bind "$1" "$2"; }
sed 's/^lr.*/lr = 1e-3/' hierarchical.ini >other.ini
over other.ini hierarchical.ini
begin
left "a different INI on h2" "rank 2 on h2 has a different INI from rank 0 on h1: 'lr = 1e-3' there, 'lr = 3e-3' here"
on h2 umount hierarchical.ini
mkdir empty none
mv text.txt empty/text.txt
sed -i 's|text.txt|empty/text.txt|' hierarchical.ini
over none empty
begin
left "h2 without the data" 'rank [23] on h2.*empty/text.txt.*No such file'
on h2 umount empty
cp "$build/heddle" other-build && printf 'x' >>other-build
over other-build "$build/heddle"
begin
left "a different build on h2" 'rank 2 on h2 runs a different build of heddle from rank 0 on h1'
on h2 umount "$build/heddle"

begin
cable h2 down
lost "a cut cable" 'waits .* late: rank [23] \(.*\) on h2, rank [23] \(.*\) on h2, which do not answer'	# the first rank that is waited for
cable h2 up
sleep 1
begin
power_off h2 # a last message of its daemon would let mpirun end all before the ranks can report
lost "a dead host" 'rank [23] \(.*\) on h2'
done_testing
