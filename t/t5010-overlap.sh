#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Between hosts, gradients that are complete move while backward makes the next ones.  If each bucket were waited for
# where it is started, a step would take the sum of all of them longer; if a buffer were used again while it is under
# way, weights would be wrong now and then.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

. "$src/t/lib/beside.sh"

sed -e 's/^layers = .*/layers = 6/' -e 's/^embed = .*/embed = 64/' -e 's/^seq = .*/seq = 64/' -e 's/^steps = .*/steps = 4/' \
	tiny.ini >six.ini
delay=4000		# microseconds for each movement

above() { awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > b) }'; tap_result $? "$1" || echo "# $2 is not above $3"; }
# traced SYNC PATTERN [args...]: $moves, $beside, $together of three steps
traced() {
	rm -f trace.json
	sync=$1 pattern=$2
	shift 2
	ran=$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=$delay heddle_mpi 2 train six.ini --set dp.sync="$sync" --set dp.bucket=64K \
		--set log.trace=trace.json "$@" 2>&1) || printf '%s\n' "$ran" | tap_comment
	set -- $(beside trace.json "$pattern")
	moves=$1 beside=$2 together=$3
	note "$sync: of $moves movements $beside beside products, $together end within a delay of another"
}

# Of the last layers that backward comes to nothing is left to compute.
traced allreduce ' of pack '
above "allreduce: there are many buckets" "$moves" 36
above "allreduce: all but the last two of a step are under way beside backward" "$beside" "$((moves - 3 * 2 - 1))"
above "allreduce: and beside each other" "$together" "$((moves / 2))"
traced allreduce ' of pack ' --set dp.overlap=no
above "allreduce, overlap = no: as many buckets" "$moves" 36
is "allreduce, overlap = no: none is" "$beside" 0
# A ring's second half waits for its first, a few buckets behind.
traced ring ring-
above "ring: there are many pieces" "$moves" 72
above "ring: half of them are under way beside backward" "$beside" "$((moves / 2))"
above "ring: and beside each other" "$together" "$((moves / 3))"
traced ring ring- --set dp.overlap=no
above "ring, overlap = no: as many pieces" "$moves" 72
is "ring, overlap = no: none is" "$beside" 0

# The same weights in the end, late or early, in one bucket or many.
train() { heddle_mpi "$@" --set train.steps=6 --set log.metrics=m.jsonl >/dev/null 2>&1 && json "$(tail -2 m.jsonl | head -1)" loss; }
first=$(train 2 train six.ini)
for sync in ring allreduce; do
	for bucket in 1K 64K; do
		layout="--set dp.sync=$sync --set dp.bucket=$bucket"
		is "$sync in buckets of $bucket: the same loss" "$(train 2 train six.ini $layout)" "$first"
		is "$sync in buckets of $bucket: between hosts" \
			"$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=300 train 2 train six.ini $layout)" "$first"
	done
done
is "four ranks, in rank order: between hosts" "$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=300 train 4 train six.ini \
	--set dp.sync=allreduce --set dp.bucket=64K --set train.reduce=rank_order)" \
	"$(train 4 train six.ini --set dp.sync=allreduce --set train.reduce=rank_order)"
done_testing
