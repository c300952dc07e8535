#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The loss of an evaluation: of all validation tokens, each once, with the weights as they are.  A divisor that is wrong in
# one layout, a last batch that is filled up and counted, or dropout left on give a curve that nobody doubts.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# 60 samples of 16 tokens; and 9 tokens more that make none, which training leaves out.
sed '/^\[strategy/,$d' tiny.ini | sed -e 's/^layers = .*/layers = 3/' -e 's/^embed = .*/embed = 24/' -e 's/^heads = .*/heads = 3/' \
	-e 's/^seq = .*/seq = 16/' -e 's/^steps = .*/steps = 1/' -e 's/^lr = .*/lr = 0/' -e '/^eval_batches/d' \
	-e '/^micro_batch/d' -e 's/^threads = .*/&\ndeterministic = yes/' -e 's/^train = text.txt/&\nvalid = all.txt/' >eval.ini
tail -c 970 text.txt >all.txt
head -c 961 all.txt >valid.txt
valid() { sed -n 's/.*"valid_loss": *\([^,}]*\).*/\1/p' "$1"; }
# lr = 0: the evaluation after step 1 is one of the initial weights, and so is the checkpoint.  trained NAME RANKS args...
trained() {
	name=$1 n=$2
	shift 2
	rm -rf "$name.jsonl" "$name"
	heddle_mpi "$n" train eval.ini --set "log.metrics=$name.jsonl" --set "checkpoint.dir=$name" "$@" >out 2>&1 ||
		tap_comment <out
	valid "$name.jsonl"
}
said() { json "$(heddle eval one --data "$1" --json 2>/dev/null)" "$2"; }

# -- what the loss must be: with all logits alike ln 256 (to an ulp of fp32, 5e-7); and a mean is made up of its parts
near "a model that knows nothing: ln 256" "$(trained flat 1 --set model.init_std=0)" 5.54517744448 5e-7
one=$(trained one 1 --set model.init_std=0.1)
awk -v x="$one" 'BEGIN { d = x - log(256); exit !(d > 1e-3 || d < -1e-3) }'
tap_result $? "and one that is not flat: $one"
head -c $((28 * 16 + 1)) valid.txt >head.txt
tail -c +$((28 * 16 + 1)) valid.txt >tail.txt

# Each of 960 losses is off by rounding of 13 products of at most 96 terms, whatever blocks they are summed in: 3 sigma.
tolerance=$(awk -v x="$one" 'BEGIN { print 3 * x * sqrt(13 * 96 / 960) / 2 ^ 24 }')
near "eval says what training said" "$(said valid.txt loss)" "$one" "$tolerance"
is "of 60 x 16 tokens" "$(said valid.txt tokens)" 960
tail -c +961 all.txt >rest.txt
is "the 9 tokens more are left out" "$(said all.txt loss) $(said all.txt tokens)" "$(said valid.txt loss) 960"
like "and that is said" "$(heddle eval one --data all.txt 2>&1)" \
	'eval: the last 9 of 970 tokens are left out: they do not fill a window of train\.seq = 16'
is "of a file shorter than a window" "$(said rest.txt tokens)" 9
is "whose windows are those of train.seq" "$(said rest.txt seq)" 16
near "with train.seq = 9 the same" "$(json "$(heddle eval one --data rest.txt --set train.seq=9 --json 2>/dev/null)" loss)" \
	"$(said rest.txt loss)" "$(awk -v t="$tolerance" 'BEGIN { print t * sqrt(960 / 9) }')"
near "the mean of 28 samples and of the other 32" \
	"$(awk -v a="$(said head.txt loss)" -v b="$(said tail.txt loss)" 'BEGIN { printf "%.9f", (28 * a + 32 * b) / 60 }')" "$one" "$tolerance"
near "eval_batches: the first 4 x 7 samples" "$(trained four 1 --set model.init_std=0.1 --set train.global_batch=7 \
	--set train.eval_batches=4)" "$(said head.txt loss)" "$tolerance"

# -- whatever the batch, and whoever holds it.  60 = 8 x 7 + 4 = 7 x 8 + 4 = 6 x 9 + 6 = 2 x 21 + 18: of the last batch
# rank 2 of 3 has nothing (9) or a part (21)
set -- --set model.init_std=0.1
for layout in 1:7 1:8 3:9:dp 3:21:dp 3:7:tp 3:8:pp; do
	n=${layout%%:*} rest=${layout#*:}
	batch=${rest%%:*} axis=${rest#"$batch"}
	axis=${axis#:}
	args="--set train.global_batch=$batch"
	[ -z "$axis" ] || args="$args --set $axis.plugin=$axis --set $axis.size=$n"
	near "training, ${axis:-dp} $n, global_batch $batch" "$(trained some "$n" "$@" $args)" "$one" "$tolerance"
	out=$(heddle_mpi "$n" eval some --data valid.txt --json 2>/dev/null)
	near "eval, ${axis:-dp} $n, global_batch $batch" "$(json "$out" loss)" "$one" "$tolerance"
	is "of as many tokens" "$(json "$out" tokens)" 960
done
near "the rest on three ranks" "$(json "$(heddle_mpi 3 eval one --data rest.txt --json --set t.plugin=tp --set t.size=3 2>/dev/null)" loss)" \
	"$(said rest.txt loss)" "$(awk -v t="$tolerance" 'BEGIN { print t * sqrt(960 / 9) }')"

# -- experts that take so many tokens and no more would take what fills a window up
trained limit 1 --set model.experts=2 --set model.capacity_factor=1 >out
like "experts with a limit take no file of less" "$(heddle eval limit --data rest.txt 2>&1)" \
	'eval: 10 tokens; experts with a limit \(model\.capacity_factor = 1\) need train\.seq \+ 1 = 17$'

# -- sets of their own: each as eval says, and valid_loss the mean over all tokens
trained sets 1 "$@" --set data.valid=head.txt,tail.txt >/dev/null
cp out out.sets
like "the line of an evaluation names each set" "$(grep ' valid_loss ' out.sets)" \
	'^step 1  valid_loss [0-9.]+  \(perplexity [0-9.]+, 960 tokens\)  head [0-9.]+  tail [0-9.]+$'
mpirun_sets=$(trained sets3 3 "$@" --set data.valid=head.txt,tail.txt --set train.global_batch=9 --set dp.plugin=dp --set dp.size=3)
near "three ranks" "$mpirun_sets" "$(sed -n 's/.*"valid_loss": *\([^,]*\),.*/\1/p' sets.jsonl)" "$tolerance"
near "the mean of both" "$(sed -n 's/.*"valid_loss": *\([^,]*\),.*/\1/p' sets.jsonl)" "$one" "$tolerance"
near "the first" "$(sed -n 's/.*"valid_loss.head": *\([^,]*\),.*/\1/p' sets.jsonl)" "$(said head.txt loss)" "$tolerance"
near "the second" "$(sed -n 's/.*"valid_loss.tail": *\([^}]*\)}.*/\1/p' sets.jsonl)" "$(said tail.txt loss)" "$tolerance"

# -- nothing is dropped
is "with dropout the same to the digit" "$(trained dropped 1 "$@" --set model.dropout=0.5)" "$one"
ok "which training does drop" [ "$(json "$(head -1 dropped.jsonl)" loss)" != "$(json "$(head -1 one.jsonl)" loss)" ]
is "in eval too" "$(heddle eval dropped --data valid.txt)" "$(heddle eval one --data valid.txt)"
like "which says something" "$(heddle eval dropped --data valid.txt)" '^loss 5\.[0-9]+ '
done_testing
