#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The loss of an evaluation must count every validation token once, with the current weights.  A divisor that is wrong
# in one layout, counted padding of the last batch, or dropout left on would give a curve that nobody doubts.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# 60 samples of 16 tokens, and 9 more tokens that do not fill a sample, which training leaves out.
sed '/^\[strategy/,$d' tiny.ini | sed -e 's/^layers = .*/layers = 3/' -e 's/^embed = .*/embed = 24/' -e 's/^heads = .*/heads = 3/' \
	-e 's/^seq = .*/seq = 16/' -e 's/^steps = .*/steps = 1/' -e 's/^lr = .*/lr = 0/' -e '/^eval_batches/d' \
	-e '/^micro_batch/d' -e 's/^threads = .*/&\ndeterministic = yes/' -e 's/^train = text.txt/&\nvalid = all.txt/' >eval.ini
tail -c 970 text.txt >all.txt
head -c 961 all.txt >valid.txt
valid() { sed -n 's/.*"valid_loss": *\([^,}]*\).*/\1/p' "$1"; }
# trained NAME RANKS args...: prints the validation loss.  With lr = 0, the evaluation and the checkpoint after step 1
# are of the initial weights.
trained() {
	name=$1 n=$2
	shift 2
	rm -rf "$name.jsonl" "$name"
	heddle_mpi "$n" train eval.ini --set "log.metrics=$name.jsonl" --set "checkpoint.dir=$name" "$@" >out 2>&1 ||
		tap_comment <out
	valid "$name.jsonl"
}
said() { json "$(heddle eval one --data "$1" --json 2>/dev/null)" "$2"; }

# -- what the loss must be: ln 256 if all logits are equal (to an ulp of fp32, 5e-7), and the mean of its parts
near "the loss of a model with equal logits is ln 256" "$(trained flat 1 --set model.init_std=0)" 5.54517744448 5e-7
one=$(trained one 1 --set model.init_std=0.1)
awk -v x="$one" 'BEGIN { d = x - log(256); exit !(d > 1e-3 || d < -1e-3) }'
tap_result $? "... and that of a model with other logits is not: $one"
head -c $((28 * 16 + 1)) valid.txt >head.txt
tail -c +$((28 * 16 + 1)) valid.txt >tail.txt

# Each of 960 losses has the rounding errors of 13 products of at most 96 terms, whatever blocks are summed: 3 sigma.
tolerance=$(awk -v x="$one" 'BEGIN { print 3 * x * sqrt(13 * 96 / 960) / 2 ^ 24 }')
near "eval computes the loss that training printed" "$(said valid.txt loss)" "$one" "$tolerance"
is "... of 60 x 16 tokens" "$(said valid.txt tokens)" 960
tail -c +961 all.txt >rest.txt
is "the 9 tokens after them are left out" "$(said all.txt loss) $(said all.txt tokens)" "$(said valid.txt loss) 960"
like "... and a message says so" "$(heddle eval one --data all.txt 2>&1)" \
	'eval: the last 9 of 970 tokens are left out: they do not fill a window of train\.seq = 16'
is "the 9 tokens of a file shorter than a window are evaluated" "$(said rest.txt tokens)" 9
is "... in a window of train.seq" "$(said rest.txt seq)" 16
near "... with the loss that train.seq = 9 gives" \
	"$(json "$(heddle eval one --data rest.txt --set train.seq=9 --json 2>/dev/null)" loss)" \
	"$(said rest.txt loss)" "$(awk -v t="$tolerance" 'BEGIN { print t * sqrt(960 / 9) }')"
near "the loss is the mean of 28 samples and the other 32" \
	"$(awk -v a="$(said head.txt loss)" -v b="$(said tail.txt loss)" 'BEGIN { printf "%.9f", (28 * a + 32 * b) / 60 }')" "$one" "$tolerance"
near "eval_batches evaluates the first 4 x 7 samples" \
	"$(trained four 1 --set model.init_std=0.1 --set train.global_batch=7 \
	--set train.eval_batches=4)" "$(said head.txt loss)" "$tolerance"

# -- whatever the batch and the layout.  60 = 8 x 7 + 4 = 7 x 8 + 4 = 6 x 9 + 6 = 2 x 21 + 18.  Of the last batch,
# rank 2 of 3 has nothing (batches of 9) or a part (batches of 21)
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
	is "... of 960 tokens" "$(json "$out" tokens)" 960
done
# No step is divided among the replicas, so global_batch need not be a multiple of them, and a model from elsewhere has none.
mkdir hf && cp one/step-00000001/config.json one/step-00000001/model.safetensors hf
for model in one hf; do
	near "eval of $model on three replicas, which do not divide its global_batch" \
		"$(json "$(heddle_mpi 3 eval $model --data valid.txt --json --set train.seq=16 --set d.plugin=dp --set d.size=3 2>/dev/null)" loss)" \
		"$one" "$tolerance"
done
near "a file shorter than a window on three ranks" \
	"$(json "$(heddle_mpi 3 eval one --data rest.txt --json --set t.plugin=tp --set t.size=3 2>/dev/null)" loss)" \
	"$(said rest.txt loss)" "$(awk -v t="$tolerance" 'BEGIN { print t * sqrt(960 / 9) }')"

# -- replicas cut the states, and with sgd the gradients, of parameters that a grid stores in pieces.  The evaluation
# still finds the pieces where training keeps them, also if 2 x 4 does not divide a dim (mlp = 36)
wide="--set model.init_std=0.1 --set model.heads=4 --set model.mlp=36 --set train.global_batch=8 --set train.micro_batch=4"
wide1=$(trained wide 1 $wide)
for order in "dp tp" "tp dp"; do
	for optimizer in adamw sgd; do
		near "training, $order, zero 1, $optimizer" "$(trained some 8 $wide --set train.optimizer=$optimizer \
			$(for axis in $order; do echo "--set $axis.plugin=$axis"; done) \
			--set dp.size=2 --set dp.zero=1 --set tp.size=4 --set tp.form=2d)" "$wide1" "$tolerance"
	done
done

# -- experts with a limit would spend it on the padding of a window
trained limit 1 --set model.experts=2 --set model.capacity_factor=1 >out
like "experts with a limit refuse a file shorter than a window" "$(heddle eval limit --data rest.txt 2>&1)" \
	'eval: 10 tokens; experts with a limit \(model\.capacity_factor = 1\) need train\.seq \+ 1 = 17$'
is "... which three ranks say once, without naming a rank" \
	"$(heddle_mpi 3 eval limit --data rest.txt --set t.plugin=tp --set t.size=3 2>&1 | messages)" \
	"heddle: eval: 10 tokens; experts with a limit (model.capacity_factor = 1) need train.seq + 1 = 17"

# -- several validation sets: each has the loss that eval computes, and valid_loss is the mean over all tokens
trained sets 1 "$@" --set data.valid=head.txt,tail.txt >/dev/null
cp out out.sets
like "the line of an evaluation names each set" "$(grep ' valid_loss ' out.sets)" \
	'^step 1  valid_loss [0-9.]+  \(perplexity [0-9.]+, 960 tokens\)  head [0-9.]+  tail [0-9.]+$'
mpirun_sets=$(trained sets3 3 "$@" --set data.valid=head.txt,tail.txt --set train.global_batch=9 --set dp.plugin=dp --set dp.size=3)
near "three ranks have the same valid_loss" \
	"$mpirun_sets" "$(sed -n 's/.*"valid_loss": *\([^,]*\),.*/\1/p' sets.jsonl)" "$tolerance"
near "valid_loss is the mean of both sets" \
	"$(sed -n 's/.*"valid_loss": *\([^,]*\),.*/\1/p' sets.jsonl)" "$one" "$tolerance"
near "the first set has the loss of eval" \
	"$(sed -n 's/.*"valid_loss.head": *\([^,]*\),.*/\1/p' sets.jsonl)" "$(said head.txt loss)" "$tolerance"
near "the second set has the loss of eval" \
	"$(sed -n 's/.*"valid_loss.tail": *\([^}]*\)}.*/\1/p' sets.jsonl)" "$(said tail.txt loss)" "$tolerance"

# -- evaluation has no dropout
is "with dropout, the validation loss is the same to the last digit" \
	"$(trained dropped 1 "$@" --set model.dropout=0.5)" "$one"
ok "... while training does use dropout" \
	[ "$(json "$(head -1 dropped.jsonl)" loss)" != "$(json "$(head -1 one.jsonl)" loss)" ]
is "... nor does eval use dropout" "$(heddle eval dropped --data valid.txt)" "$(heddle eval one --data valid.txt)"
like "... and it prints a loss" "$(heddle eval dropped --data valid.txt)" '^loss 5\.[0-9]+ '
done_testing
