#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A plugin's state takes one value a step.  A value that every micro-batch computes is refused if a step has several.
# The state would silently keep that of the last one, and a run would depend on how a batch is divided.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

{ sed '/^\[strategy/,$d' tiny.ini; printf '[plugin seen]\nfile = %s\n' "$build/t/plugins/.libs/seen.so"; } >seen.ini
batch="--set train.global_batch=8"
ok 'with one micro-batch a state may take an activation' heddle check seen.ini $batch --set train.micro_batch=8
said=$(heddle check seen.ini $batch --set train.micro_batch=2 2>&1)
is 'with four micro-batches it is refused' $? 1
ok '... and the message names the section, the state and the number of micro-batches' \
	sh -c 'case $1 in *"[plugin seen]"*"4 micro-batches"*"state seen.seen"*) ;; *) echo "$1"; exit 1;; esac' - "$said"
ok 'a value that does not depend on the micro-batch is accepted' \
	heddle check seen.ini $batch --set train.micro_batch=2 --set seen.weights=1
done_testing
