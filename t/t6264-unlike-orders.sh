#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stages take messages in the order in which they were sent, whatever the order of weight gradients. Otherwise a stage
# would train on the gradients of a different micro-batch, and the loss would hardly show it.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

{ sed '/^\[strategy/,$d' tiny.ini; printf '[strategy s]\nplugin = %s\nsize = 2\n' "$build/t/plugins/.libs/unlike.so"; } >unlike.ini
for m in 1 2 4; do
	ok "micro-batches of $m, weight gradients in another order than their gradients arrive: trains" \
		heddle_mpi 2 train unlike.ini --set train.micro_batch=$m
	ok "micro-batches of $m: ... as one rank does" heddle check unlike.ini --against-one-rank --set train.micro_batch=$m
done
ok "with one micro-batch the order is the same, and the run trains" \
	heddle_mpi 2 train unlike.ini --set train.micro_batch=8
{ sed '/^\[strategy/,$d' tiny.ini; printf '[strategy pp]\nplugin = pp\nsize = 2\n'; } >pp.ini
for schedule in gpipe 1f1b zb; do
	ok "$schedule has the same order on both stages, and trains" \
		heddle_mpi 2 train pp.ini --set pp.schedule=$schedule --set train.micro_batch=1
done
done_testing
