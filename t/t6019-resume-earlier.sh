#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run that goes back to an earlier checkpoint and on from there, in the same directory.  The later ones may be what somebody
# wants to compare with: they go when this run comes to their number, and not because `keep` counts them.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

steps() { ls c | tr '\n' ' '; }
weights() { cksum <"c/step-0000000$1/model.safetensors"; }
train() { heddle train tiny.ini --set checkpoint.dir=c "$@"; }

ok "a run saves steps 2, 4 and 6" train --set checkpoint.every=2 --set checkpoint.keep=9 --set train.steps=6
is "they are there" "$(steps)" "latest step-00000002 step-00000004 step-00000006 "
four=$(weights 4) six=$(weights 6)

ok "another one goes on from step 2" train --set checkpoint.resume=c/step-00000002 --set checkpoint.every=1 \
	--set checkpoint.keep=2 --set train.steps=3 --set train.lr=1e-2
is "it keeps two of its own, and those that are later" "$(steps)" "latest step-00000002 step-00000003 step-00000004 step-00000006 "
is "latest is the one it has saved last" "$(cat c/latest)" step-00000003
is "the later ones are what they were" "$(weights 4) $(weights 6)" "$four $six"

ok "it goes on" train --set checkpoint.resume=auto --set checkpoint.every=1 --set checkpoint.keep=2 --set train.steps=5 \
	--set train.lr=1e-2
is "from the step that latest names" "$(steps)" "latest step-00000004 step-00000005 step-00000006 "
ok "step 4 is its own now" [ "$(weights 4)" != "$four" ]
is "step 6 is still that of the first" "$(weights 6)" "$six"
is "latest" "$(cat c/latest)" step-00000005

ok "and past it" train --set checkpoint.resume=auto --set checkpoint.every=1 --set checkpoint.keep=2 --set train.steps=7 \
	--set train.lr=1e-2
is "two stay" "$(steps)" "latest step-00000006 step-00000007 "
ok "step 6 is its own too" [ "$(weights 6)" != "$six" ]
# Into another directory, where no step is left: whoever reads that directory next finds the checkpoint there.
ok "another directory" heddle train tiny.ini --set checkpoint.dir=new --set checkpoint.resume=c/step-00000006 --set train.steps=6 \
	--set train.lr=1e-2 --set checkpoint.gradients=yes
is "has the step" "$(ls new | tr '\n' ' ')" "latest step-00000006 "
like "and that is said" "$(cat .ok)" 'step 6 is the last of train\.steps = 6: nothing to train; saved in new$'
ok "its weights" cmp new/step-00000006/model.safetensors c/step-00000006/model.safetensors
ok "its states" cmp new/step-00000006/heddle/optimizer.safetensors c/step-00000006/heddle/optimizer.safetensors
fails "no gradients, for no step has made any" [ -e new/step-00000006/heddle/gradients.safetensors ]
ok "by another name of the directory" heddle train tiny.ini --set checkpoint.dir=new --set checkpoint.resume="$tmp/new/step-00000006/" \
	--set train.steps=6 --set train.lr=1e-2
like "it is there" "$(cat .ok)" 'step 6 is the last of train\.steps = 6: nothing to do$'
done_testing
