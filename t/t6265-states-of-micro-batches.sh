#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A plugin's state takes one value a step.  What each micro-batch makes anew is refused where there are several: the last one's
# would stay without a word, and a run would depend on how a batch is cut.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

{ sed '/^\[strategy/,$d' tiny.ini; printf '[plugin seen]\nfile = %s\n' "$build/t/plugins/.libs/seen.so"; } >seen.ini
batch="--set train.global_batch=8"
ok 'one micro-batch: an activation' heddle check seen.ini $batch --set train.micro_batch=8
said=$(heddle check seen.ini $batch --set train.micro_batch=2 2>&1)
is 'four: refused' $? 1
ok 'and the section, the state and their number are named' sh -c 'case $1 in *"[plugin seen]"*"4 micro-batches"*"state seen.seen"*) ;; *) echo "$1"; exit 1;; esac' - "$said"
ok 'what no micro-batch changes is not refused' heddle check seen.ini $batch --set train.micro_batch=2 --set seen.weights=1
done_testing
