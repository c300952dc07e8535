#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The learning rate of every step, compared with numbers worked out by hand.  Layouts agree with each other about a
# wrong schedule too, and a run whose rate decays to the wrong value looks healthy for weeks.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# 4 sequences of 16 tokens: 64 tokens a step.
sed -e 's/^layers = .*/layers = 1/' -e 's/^embed = .*/embed = 8/' -e 's/^heads = .*/heads = 1/' -e 's/^seq = .*/seq = 16/' \
	-e 's/^global_batch = .*/global_batch = 4/' -e 's/^steps = .*/steps = 10/' -e 's/^lr = .*/lr = 0.01/' tiny.ini >lr.ini

# rates NAME WANT [--set ...]: compares the learning rates in the metrics, which have nine significant digits.
rates() {
	name=$1 want=$2
	shift 2
	rm -f m.jsonl
	heddle train lr.ini --set log.metrics=m.jsonl "$@" >out 2>&1
	got=$(sed -n 's/^{"step": .*"lr": *\([^,]*\),.*/\1/p' m.jsonl | tr '\n' ' ')
	awk -v g="$got" -v w="$want" 'BEGIN {
		n = split(g, a, " ")
		if (n != split(w, b, " ")) exit 1
		for (i = 1; i <= n; i++) {
			d = a[i] - b[i]
			if (!(d <= 1e-9 * b[i] && -d <= 1e-9 * b[i])) exit 1
		}
	}'
	tap_result $? "$name" || { printf '  got %s\n want %s\n' "$got" "$want"; cat out; } | tap_comment
}

warm="0.0025 0.005 0.0075 0.01"
# The fractions of lr - min_lr are (1 + cos 30) / 2 = 0.93301270189, (1 + cos 60) / 2 = 0.75 ...
cosine="$warm 0.00939711431703 0.00775 0.0055 0.00325 0.00160288568297 0.001"
to_4="$warm 0.00959807621135 0.0085 0.007 0.0055 0.00440192378865 0.004"
to_0="$warm 0.00933012701892 0.0075 0.005 0.0025 0.000669872981078 0"
early="$warm 0.00775 0.00325 0.001 0.001 0.001 0.001"
rates "cosine, to a tenth of lr" "$cosine" --set train.warmup=4
rates "cosine, to min_lr" "$to_4" --set train.warmup=4 --set train.min_lr=0.004
rates "cosine, to min_lr = 0" "$to_0" --set train.warmup=4 --set train.min_lr=0
rates "cosine, a decay that ends before the last step" "$early" --set train.warmup=4 --set train.decay=7
rates "cosine, a decay that ends after the last step" \
	"$warm 0.00977975432333 0.00914057647469 0.00814503363532 0.00689057647469 0.0055 0.00410942352531" \
	--set train.warmup=4 --set train.decay=14
rates "no warm-up" "0.0091 0.0082 0.0073 0.0064 0.0055 0.0046 0.0037 0.0028 0.0019 0.001" --set train.schedule=linear
rates "a warm-up that ends with the run" "0.001 0.002 0.003 0.004 0.005 0.006 0.007 0.008 0.009 0.01" --set train.warmup=10
rates "linear, to a tenth of lr" "$warm 0.0085 0.007 0.0055 0.004 0.0025 0.001" --set train.warmup=4 --set train.schedule=linear
rates "linear, to min_lr" "$warm 0.009 0.008 0.007 0.006 0.005 0.004" --set train.warmup=4 --set train.schedule=linear \
	--set train.min_lr=0.004
rates "constant ignores min_lr and decay" \
	"$warm 0.01 0.01 0.01 0.01 0.01 0.01" --set train.warmup=4 --set train.schedule=constant \
	--set train.min_lr=0.004 --set train.decay=7

like "a min_lr above lr is refused" "$(heddle train lr.ini --set train.min_lr=0.011 2>&1)" \
	'train\.min_lr: 0\.011 is more than lr = 0\.01$'

# In tokens, those of the current step are included.
tokens="--set train.schedule_unit=tokens"
rates "a warm-up in tokens, 64 in each step" "$cosine" $tokens --set train.warmup=256
rates "a decay in tokens" "$early" $tokens --set train.warmup=256 --set train.decay=448
rates "a warm-up that ends within a step" "0.00256 0.00512 0.00768 0.00988 0.0086 0.00732 0.00604 0.00476 0.00348 0.0022" \
	$tokens --set train.warmup=250 --set train.decay=750 --set train.schedule=linear --set train.min_lr=0
# 2 x 16 tokens for the first two steps, then 4 x 16: 32 64 128 192 ... 576
rates "tokens of a batch that grows" "0.0025 0.005 0.01 0.008875 0.00775 0.006625 0.0055 0.004375 0.00325 0.002125" \
	$tokens --set train.warmup=128 --set train.decay=640 --set train.schedule=linear \
	--set train.global_batch_ramp=2,2,64

# A resumed run has the rates of the steps that it continues with.
heddle train lr.ini --set train.warmup=4 --set checkpoint.dir=c --set checkpoint.every=5 >out 2>&1
rates "resumed at step 6" "0.00775 0.0055 0.00325 0.00160288568297 0.001" --set train.warmup=4 \
	--set checkpoint.resume=c/step-00000005

# A run in tokens that is resumed with sequences of another length counts all tokens: 5 steps of 64, then 5 of 32.
short="$tokens --set train.seq=8 --set model.max_seq=16 --set checkpoint.resume=d/step-00000005 --set train.schedule=linear --set train.min_lr=0"
heddle train lr.ini $tokens --set model.max_seq=16 --set checkpoint.dir=d --set train.schedule=linear --set checkpoint.every=5 >out 2>&1
rates "resumed with shorter sequences" \
	"0.00625 0.005 0.00375 0.0025 0.00125" $short --set train.warmup=256 --set train.decay=512
is "... total_tokens counts all steps" \
	"$(sed -n 's/.*"total_tokens": *\([0-9]*\).*/\1/p' m.jsonl | tr '\n' ' ')" "352 384 416 448 480 "
rates "resumed without train.decay: the decay ends with the last step" \
	"0.00571428571429 0.00428571428571 0.00285714285714 0.00142857142857 0" $short --set train.warmup=256
like "... and a message says so" \
	"$(cat out)" 'was to end at token 640, but now ends at token 480\. train\.decay = 640 keeps'
heddle train lr.ini $short --set checkpoint.dir=e >out 2>&1
like "a checkpoint counts the tokens of all steps too" "$(cat e/step-00000010/heddle/state.json)" '"tokens": 480,'
done_testing
