#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run that is resumed from an earlier checkpoint, in the same directory.  Somebody may want to compare it with the
# later checkpoints.  So each is removed when this run reaches its number, and not because `keep` counts it.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

steps() { ls c | tr '\n' ' '; }
weights() { cksum <"c/step-0000000$1/model.safetensors"; }
train() { heddle train tiny.ini --set checkpoint.dir=c "$@"; }

ok "a run saves steps 2, 4 and 6" train --set checkpoint.every=2 --set checkpoint.keep=9 --set train.steps=6
is "... which are all kept" "$(steps)" "latest step-00000002 step-00000004 step-00000006 "
four=$(weights 4) six=$(weights 6)

ok "another run resumes from step 2" train --set checkpoint.resume=c/step-00000002 --set checkpoint.every=1 \
	--set checkpoint.keep=2 --set train.steps=3 --set train.lr=1e-2
is "... it keeps two of its own steps, and the later ones" \
	"$(steps)" "latest step-00000002 step-00000003 step-00000004 step-00000006 "
is "... latest names the step that it saved last" "$(cat c/latest)" step-00000003
is "... the later steps are unchanged" "$(weights 4) $(weights 6)" "$four $six"

ok "that run is resumed to step 5" \
	train --set checkpoint.resume=auto --set checkpoint.every=1 --set checkpoint.keep=2 --set train.steps=5 \
	--set train.lr=1e-2
is "... from the step that latest names" "$(steps)" "latest step-00000004 step-00000005 step-00000006 "
ok "... step 4 is its own now" [ "$(weights 4)" != "$four" ]
is "... step 6 is still that of the first run" "$(weights 6)" "$six"
is "... latest names step 5" "$(cat c/latest)" step-00000005

ok "that run is resumed past step 6" \
	train --set checkpoint.resume=auto --set checkpoint.every=1 --set checkpoint.keep=2 --set train.steps=7 \
	--set train.lr=1e-2
is "... two steps are kept" "$(steps)" "latest step-00000006 step-00000007 "
ok "... step 6 is its own too" [ "$(weights 6)" != "$six" ]
# Resuming the last step into another directory trains nothing, but the checkpoint must be saved there for the next
# reader.
ok "a run with no step left resumes into another directory" \
	heddle train tiny.ini --set checkpoint.dir=new --set checkpoint.resume=c/step-00000006 --set train.steps=6 \
	--set train.lr=1e-2 --set checkpoint.gradients=yes
is "... which contains the step" "$(ls new | tr '\n' ' ')" "latest step-00000006 "
like "... a message says so" "$(cat .ok)" 'step 6 is the last of train\.steps = 6: nothing to train; saved in new$'
ok "... the weights are the same" cmp new/step-00000006/model.safetensors c/step-00000006/model.safetensors
ok "... and the states" cmp new/step-00000006/heddle/optimizer.safetensors c/step-00000006/heddle/optimizer.safetensors
fails "... but no gradients, since no step has computed any" [ -e new/step-00000006/heddle/gradients.safetensors ]
ok "the same directory may be given by another name" \
	heddle train tiny.ini --set checkpoint.dir=new --set checkpoint.resume="$tmp/new/step-00000006/" \
	--set train.steps=6 --set train.lr=1e-2
like "... nothing is left to do" "$(cat .ok)" 'step 6 is the last of train\.steps = 6: nothing to do$'
done_testing
