#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Between hosts, gradients that are complete move while backward makes the next ones.  If each bucket were waited for
# where it is started, a step would take the sum of all of them longer; if a buffer were used again while it is under
# way, weights would be wrong now and then.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sed -e 's/^layers = .*/layers = 6/' -e 's/^embed = .*/embed = 64/' -e 's/^seq = .*/seq = 64/' tiny.ini >six.ini
delay=4000		# microseconds for each movement

above() { awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > b) }'; tap_result $? "$1" || echo "# $2 is not above $3"; }

for sync in allreduce ring; do
	layout="--set dp.sync=$sync --set dp.bucket=64K"
	moves=$(heddle explain six.ini $layout --ranks 2 | grep -c "^sync .* bytes x1")
	ran=$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=$delay heddle_mpi 2 bench six.ini $layout --steps 3 --json 2>/dev/null)
	sum=$(awk -v m="$moves" -v d=$delay 'BEGIN { print m * d / 1e6 }')
	exposed=$(json "$ran" comm_exposed_seconds)
	hidden=$(json "$ran" comm_hidden_seconds)
	note "$sync: $moves movements of $delay us = $sum s; exposed $exposed s, hidden $hidden s, step $(json "$ran" step_seconds) s"
	above "$sync: there are many buckets" "$moves" 12
	above "$sync: some of it is hidden" "$hidden" 0
	above "$sync: a third of the sum is not exposed" "$(awk -v s="$sum" 'BEGIN { print s / 3 }')" "$exposed"
	above "$sync: the step is shorter than the sum" "$sum" "$(json "$ran" step_seconds)"
done

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
