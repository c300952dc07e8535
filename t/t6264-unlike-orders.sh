#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A schedule whose stages take messages in another order than they were sent in would train on another micro-batch's gradients, and
# the loss hardly shows it: a run refuses to begin.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

{ sed '/^\[strategy/,$d' tiny.ini; printf '[strategy s]\nplugin = %s\nsize = 2\n' "$build/t/plugins/.libs/unlike.so"; } >unlike.ini
for m in 1 2 4; do
	heddle_mpi 2 train unlike.ini --set train.micro_batch=$m >out 2>err
	is "micro-batches of $m: the run ends with 1" $? 1
	like "and says why" "$(cat err)" 'a send and the receive in its place are not the same on two ranks, by the order of their units. heddle check CONF --ranks 2'
done
ok "one micro-batch has one order" heddle_mpi 2 train unlike.ini --set train.micro_batch=8
like "check names them" "$(heddle check unlike.ini --ranks 2 2>&1)" 'a send and the receive in its place are not the same: rank 1 reaches send of'
{ sed '/^\[strategy/,$d' tiny.ini; printf '[strategy pp]\nplugin = pp\nsize = 2\n'; } >pp.ini
for schedule in gpipe 1f1b zb; do
	ok "$schedule has one order" heddle_mpi 2 train pp.ini --set pp.schedule=$schedule --set train.micro_batch=1
done
done_testing
