#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run refuses a schedule whose stages receive messages in a different order than they were sent. It would train on the
# gradients of a different micro-batch, and the loss would hardly show it.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

{ sed '/^\[strategy/,$d' tiny.ini; printf '[strategy s]\nplugin = %s\nsize = 2\n' "$build/t/plugins/.libs/unlike.so"; } >unlike.ini
for m in 1 2 4; do
	heddle_mpi 2 train unlike.ini --set train.micro_batch=$m >out 2>err
	is "micro-batches of $m: the run ends with status 1" $? 1
	like "micro-batches of $m: ... and the message says why" \
		"$(cat err)" 'a send and the receive in its place are not the same on two ranks, by the order of their units. heddle check CONF --ranks 2'
done
ok "with one micro-batch the order is the same, and the run trains" \
	heddle_mpi 2 train unlike.ini --set train.micro_batch=8
like "check names the send and the receive" \
	"$(heddle check unlike.ini --ranks 2 2>&1)" 'a send and the receive in its place are not the same: rank 1 reaches send of'
{ sed '/^\[strategy/,$d' tiny.ini; printf '[strategy pp]\nplugin = pp\nsize = 2\n'; } >pp.ini
for schedule in gpipe 1f1b zb; do
	ok "$schedule has the same order on both stages, and trains" \
		heddle_mpi 2 train pp.ini --set pp.schedule=$schedule --set train.micro_batch=1
done
done_testing
