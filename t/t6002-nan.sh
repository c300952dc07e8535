#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A loss that is not a number must end the run at once, with the step, the rank and the tensor where it began.  Found a
# day later, or reported only as "nan", it costs the run.  It must not spoil what is saved.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

spoil="--set train.lr=1e30 --set train.schedule=constant --set train.optimizer=sgd --set checkpoint.dir=c"
spoil="$spoil --set checkpoint.every=1 --set train.steps=5 --set log.metrics=m.jsonl --set dp.size=auto"
for n in 1 2; do
	rm -rf c m.jsonl m.jsonl.replaced
	if [ $n = 1 ]; then out=$(heddle train tiny.ini $spoil 2>&1); else out=$(heddle_mpi 2 train tiny.ini $spoil 2>&1); fi
	is "np $n: the run ends with status 1" $? 1
	said=$(printf '%s\n' "$out" | messages)
	is "np $n: one message" "$(printf '%s\n' "$said" | wc -l)" 1
	like "np $n: the message names the step and the rank" \
		"$said" '^heddle: step 2: loss .*, gradient norm .*; first on rank 0 \(dp 0\): '
	like "np $n: it names the operation and the tensor" \
		"$said" ': [a-z_]+ .*(in|with) .* computed a value of \(batch.* not finite, in micro-batch 0'
	unlike "np $n: nan is printed without a sign" "$said" '-nan'
	is "np $n: the step before it is in the metrics" "$(grep -c '"step": 1, ' m.jsonl)" 1
	is "np $n: the step that failed is not saved" "$(cat c/latest)" step-00000001
	is "np $n: the last line of the metrics is the step that failed" \
		"$(sed -n '$s/^{"step": \([0-9]*\), .*/\1/p' m.jsonl)" 2
	like "np $n: that line contains the message" \
		"$(tail -n 1 m.jsonl)" '"error": "step 2: loss .*, gradient norm .*; first on rank 0'
	unlike "np $n: that line is valid JSON, without nan or inf" "$(tail -n 1 m.jsonl)" '(: |\[)(-?nan|-?inf)'
	heddle report m.jsonl --out page.html
	like "np $n: the report shows the failure" "$(cat page.html)" '<b>Failed:</b> step 2: loss'
	heddle train tiny.ini $spoil --set train.lr=1e-3 --set checkpoint.resume=auto >again.txt 2>&1
	is "np $n: after a resumed run the metrics contain that step once" "$(grep -c '"step": 2, ' m.jsonl)" 1
	is "np $n: the resumed run keeps the line that it replaces" "$(grep -c '"error": ' m.jsonl.replaced)" 1
done

# The step after an update that spoilt the weights finds them, and the message names that update.
said=$(heddle train tiny.ini --set train.lr=1e300 --set train.schedule=constant --set train.optimizer=sgd --set dp.size=auto 2>&1 | messages)
like "an update that spoils the weights is named" "$said" \
	'^heddle: step 2: loss nan, gradient norm nan\. The update of step 1 \(train.optimizer = sgd\) left [0-9]+ of the [0-9]+ values of [^ ]+ on rank 0 .*not finite$'

# Gradients that are too large for the dtype in transit: the message names the cast, and no micro-batch, since gradients
# are summed once a step.
wide="--set model.init_std=3000 --set model.tie_embeddings=no --set dp.wire=fp16"
like "gradients that are too large for wire = fp16" \
	"$(heddle_mpi 2 train tiny.ini $wide --set dp.zero=1 2>&1 | messages | grep '^heddle: step')" \
	'first on rank 0 \(dp 0\): cast computed a value of \(flat[0-9]+\) that is not finite in fp16; the weights stay as they were'
like "... and in a ring" "$(heddle_mpi 2 train tiny.ini $wide 2>&1 | messages | grep '^heddle: step')" \
	'first on rank 0 \(dp 0\): map computed a value of \(flat[0-9]+\) that is not finite; the weights stay as they were'

# Values that are not finite on one rank only: all ranks agree on the failure, and the rank and coordinate named are
# right.
mesh=$build/t/plugins/.libs/mesh3.so
if [ -f "$mesh" ]; then
	{
		sed '/^\[strategy/,$d' tiny.ini
		printf '[strategy m]\nplugin = %s\na = 1\nb = 1\nc = 2\n' "$mesh"
	} >mesh.ini
	said=$(heddle_mpi 2 train mesh.ini --set train.lr=1e30 --set train.schedule=constant --set train.optimizer=sgd 2>&1 |
		failures)
	is "stages: one message" "$(printf '%s\n' "$said" | wc -l)" 1
	like "stages: the message names the rank and its coordinate" \
		"$said" 'step 2: .*; first on rank [01] \(m\.b 0, m\.a 0, m\.c [01]\): '
else
	skip "t/plugins is not built"
fi

# The message names where the value began, not who received it first.  One weight is spoilt; earlier ranks see it only
# in backward.
sed '/^\[strategy/,$d' tiny.ini >model.ini
size() { od -An -t u8 -N 8 "$1" | tr -d ' '; }
write() {			# FILE TENSOR ELEMENT: writes stdin over that element
	at=$(tail -c +9 "$1" | head -c "$(size "$1")" | sed "s/.*\"$2\": *{[^}]*\"data_offsets\": *\[\([0-9]*\),.*/\1/")
	dd of="$1" bs=1 seek=$((8 + $(size "$1") + at + 4 * $3)) conv=notrunc 2>/dev/null
}
spoil() { printf '\000\000\300\177' | write "$1" "$2" 0; }	# FILE TENSOR
began() {			# NAME RANKS WEIGHT PATTERN [args...]
	what=$1 n=$2 weight=$3 want=$4
	shift 4
	rm -rf c
	heddle train model.ini --set train.steps=0 --set checkpoint.dir=c "$@" >/dev/null 2>&1
	spoil c/step-00000000/model.safetensors "$weight"
	rm c/step-00000000/heddle/sums.json
	set -- "$@" $axes
	said=$(heddle_mpi "$n" train model.ini --set checkpoint.resume=c/step-00000000 --set train.micro_batch=1 "$@" 2>&1 | failures)
	is "$what: one message" "$(printf '%s\n' "$said" | wc -l)" 1
	like "$what: the message names where the value began" \
		"$said" "step 1: .*; first on $want: [a-z]+ with [^ ]+ in layer 1 computed a value"
}
axis() { axes="$axes --set $1.plugin=$1 --set $1.size=$2"; }
axes=; axis tp 2; axis pp 2
began "stages" 4 transformer.h.1.mlp.c_fc.weight 'rank 2 \(tp 0, pp 1\)'
axes=; axis ep 4
began "experts" 4 transformer.h.1.moe.experts.6.fc.weight 'rank 3 \(ep 3\)' --set model.experts=8
began "experts without a limit" 4 transformer.h.1.moe.experts.6.fc.weight 'rank 3 \(ep 3\)' --set model.experts=8 --set model.router=topk
axes=; axis ep 2; axis pp 2
began "experts, stages" 4 transformer.h.1.moe.experts.2.fc.weight 'rank 3 \(ep 1, pp 1\)' --set model.experts=4

# Only backward overflows.  A bias adds 1e36 to all values of attention, but the row of weights that reads them is zero,
# so the loss is unaffected.  The last norm makes gradients so large that those of the row overflow fp32.
c=c/step-00000000/model.safetensors
rm -rf c m.jsonl
heddle train model.ini --set train.steps=0 --set checkpoint.dir=c >/dev/null 2>&1
printf '\316\227\100\173' | write $c transformer.h.1.attn.c_attn.bias 64	# 1e36
printf '\000\044\164\111' | write $c transformer.ln_f.weight 0		# 1e6
head -c 128 /dev/zero | write $c transformer.h.1.attn.c_proj.weight 0
rm c/step-00000000/heddle/sums.json
sum=$(cksum <$c)
for run in 1:clip=1 1:clip=0 1:optimizer=sgd 2:clip=1; do
	said=$(heddle_mpi ${run%:*} train tiny.ini --set checkpoint.resume=c --set checkpoint.dir=c --set checkpoint.every=1 \
		--set log.metrics=m.jsonl --set train.${run#*:} 2>&1)
	is "gradients alone, np ${run%:*}, ${run#*:}: the status is 1" $? 1
	said=$(printf '%s\n' "$said" | failures)
	is "... with one message" "$(printf '%s\n' "$said" | wc -l)" 1
	like "... that names the step, a finite loss and the norm" \
		"$said" '^heddle: step 1: loss [0-9]+[.0-9]*, gradient norm (inf|nan); '
	like "... and where the value began" \
		"$said" 'first on rank [01] .*: einsum in layer 1 \(backward\) computed a value of \(heads,head_dim,embed\)'
	is "... and the step is neither saved nor logged" \
		"$(cat c/latest) $(cksum <$c) $(grep -vc '"error": ' m.jsonl)" "step-00000000 $sum 0"
done
# Weights that the last update made infinite are not saved over good ones.  No later step would find them.
heddle train tiny.ini --set train.steps=1 --set checkpoint.dir=kept >/dev/null 2>&1
for n in 1 2; do
	said=$(heddle_mpi $n train tiny.ini --set train.steps=2 --set train.optimizer=sgd --set train.lr=3e38 --set train.weight_decay=1000 \
		--set checkpoint.dir=kept --set checkpoint.resume=kept/step-00000001 2>&1)
	is "an update makes weights infinite, np $n: the status is 1" $? 1
	like "... the message names the step, the optimizer and the tensor" "$(printf '%s\n' "$said" | failures)" \
		'^heddle: step 2 is not saved: after its update \(train.optimizer = sgd\), [0-9]+ of the [0-9]+ values of [a-z0-9_.]+ that a rank holds are not'
	is "... the previous step is still the latest" "$(cat kept/latest)" step-00000001
done
# Results that are not numbers must be a failure, not an answer: among choices scored NaN, the first would win.
heddle train tiny.ini --set train.steps=1 --set checkpoint.dir=broken >/dev/null 2>&1
perl -0777 -i -pe 'substr($_, -400) = pack("V", 0x7fc00000) x 100' broken/step-00000001/model.safetensors
rm broken/step-00000001/heddle/sums.json
for async in yes no; do
	said=$(heddle train tiny.ini --set train.steps=3 --set checkpoint.dir=other --set checkpoint.resume=broken/step-00000001 \
		--set checkpoint.async=$async 2>&1 | failures)
	like "resumed with weights that are not finite, async = $async: the message names the step that finds them" \
		"$said" '^heddle: step 2: loss .*nan.* computed a value'
done
printf '{"prompt": "and ", "choices": ["god", "x"], "answer": 0}\n' >q.jsonl
no 'eval: the loss is not a number: weights are not finite' eval broken --data text.txt --json
no 'eval: question 1: the log-likelihood of choice 0 is not a number' eval broken --choices q.jsonl
# Only one rank's shard contains them, and rank 0 prints the message.
heddle_mpi 2 train tiny.ini --set train.steps=1 --set checkpoint.dir=halves --set tp.plugin=tp --set tp.size=2 >/dev/null 2>&1
half=$(perl -0777 -ne '$n = unpack("Q<", $_); /h\.0\.mlp\.c_fc\.weight"[^}]*"data_offsets": ?\[(\d+), ?(\d+)/; print 8 + $n + $1, " ", 8 + $n + $2 - 4' \
	halves/step-00000001/model.safetensors)
for hole in $half; do		# the first value, of rank 0, and the last, of rank 1
	cp -r halves hole
	printf '\0\0\300\177' | dd of=hole/step-00000001/model.safetensors bs=1 seek="$hole" conv=notrunc 2>/dev/null
	rm hole/step-00000001/heddle/sums.json
	like "eval on two ranks names the weight that is not finite, at byte $hole" \
		"$(heddle_mpi 2 eval hole --data text.txt 2>&1 | failures)" \
		'not finite: 1 of the [0-9]+ values of [a-z0-9_.]+'
	rm -r hole
done
for how in --logits '--tokens 3' '--tokens 3 --temperature 0'; do
	no 'the logits of token 2 are not numbers: weights are not finite' generate broken --prompt a $how
done
done_testing
