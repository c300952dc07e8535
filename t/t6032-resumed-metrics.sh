#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The metrics of a run that died and was resumed.  Each step and each evaluation that was due must have one line, and
# nothing that was logged may be lost.  Otherwise a curve goes back in time, and the loss of the last weights is
# missing.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sed -i 's/^train = text.txt/&\nvalid = text.txt/; s/^steps = .*/steps = 6\ndecay = 6/' tiny.ini
train() { heddle train tiny.ini --set checkpoint.dir=c --set checkpoint.every=2 --set train.eval_every=2 --set log.metrics=m.jsonl "$@" >out 2>&1; }
steps() { sed -n 's/^{"step": *\([0-9]*\), *"loss".*/\1/p' "$1" | tr '\n' ' '; }
evaluations() { sed -n 's/^{"step": *\([0-9]*\),.*"valid_loss".*/\1/p' "$1" | tr '\n' ' '; }
valid() { sed -n 's/^{"step": *'"$1"',.*"valid_loss": *\([^,}]*\).*/\1/p' m.jsonl; }

ok "a run trains" train
is "... and logs its steps and evaluations" "$(steps m.jsonl)| $(evaluations m.jsonl)" "1 2 3 4 5 6 | 2 4 6 "
whole=$(valid 4) last=$(valid 6)

# The state that a kill after step 5 leaves: step 4 is saved, and 5 is not.
killed() { rm -rf c/step-00000006 && echo step-00000004 >c/latest && cp killed m.jsonl; }
grep -v '"step": 6' m.jsonl >killed
killed
ok "the run resumes from step 4" train --set checkpoint.resume=auto
is "... each step has one line" "$(steps m.jsonl)| $(evaluations m.jsonl)" "1 2 3 4 5 6 | 2 4 6 "
like "... the lines that are replaced are counted" \
	"$(cat out)" 'log\.metrics: 1 line of steps after 4 moved from m\.jsonl to m\.jsonl\.replaced$'
is "... and kept" "$(cat m.jsonl.replaced)" "$(grep '"step": 5' killed)"

# A kill between a save and the evaluation that follows it.
grep -v -e '"step": [56]' -e '"step": 4.*valid_loss' killed >m && mv m killed
killed
ok "the run resumes from step 4 without its evaluation" train --set checkpoint.resume=auto
is "... which comes first" "$(steps m.jsonl)| $(evaluations m.jsonl)" "1 2 3 4 5 6 | 2 4 6 "
is "... with the same weights" "$(valid 4)" "$whole"

grep -v '"step": 6.*valid_loss' m.jsonl >m && mv m m.jsonl
ok "the run resumes without its last evaluation" train --set checkpoint.resume=auto
like "... there is nothing to train" "$(cat out)" 'step 6 is the last of train\.steps = 6: nothing to do'
is "... but the evaluation is done" "$(evaluations m.jsonl)" "2 4 6 "
is "... with the last weights" "$(valid 6)" "$last"
cp m.jsonl was
ok "the run resumes with nothing missing" train --set checkpoint.resume=auto
ok "... and logs nothing" cmp m.jsonl was
ok "the run resumes with another file of metrics" train --set checkpoint.resume=auto --set log.metrics=other.jsonl
is "... which has no step, so no evaluation is missing" "$(evaluations other.jsonl)" ""
done_testing
