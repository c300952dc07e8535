#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tensor parallelism in two and three dimensions, as users meet it.  A run must send what explain prints, and that must
# be what the published products send.  Impossible layouts are refused with both numbers; weights, losses and
# checkpoints are those of one rank.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/explained.sh"

sed '/^\[strategy/,$d' tiny.ini | sed 's/^micro_batch.*/micro_batch = 4/' >one.ini
for form in 2d 2.5d 3d; do
	{ cat one.ini; printf '[strategy tp]\nplugin = tp\nform = %s\n' $form; } >$form.ini
done
echo 'depth = 2' >>2.5d.ini
layouts='2d:4 2.5d:8 3d:8'

# -- bytes
q=2 h=32 m=$((4 * 32)) layers=2 micros=2 mk=0 kn=0
for pair in 32:96 32:32 32:128 128:32; do	# q, k and v of one activation, which is sent once; proj; fc, proj
	mk=$((mk + m * ${pair%:*})) kn=$((kn + ${pair%:*} * ${pair#*:}))
done
for layout in $layouts; do
	form=${layout%:*} n=${layout#*:} depth=1
	json=$(heddle explain $form.ini --ranks $n --json)
	ran=$(heddle_mpi $n bench $form.ini --json --steps 1 2>/dev/null)
	is "$form: sent as explained" "$(json "$ran" bytes_counted)" "$(said .)"
	[ $form = 3d ] && continue
	[ $form = 2d ] || depth=2
	is "$form: 3 (q - 1) / q^2 (M K / depth + K N) elements a product" "$(said '"reason": "summa_[a-z]* of layer')" \
		"$((4 * 3 * (q - 1) * (mk / depth + kn) / (q * q) * layers * micros))"
done
json=$(heddle explain 3d.ini --ranks 8 --json)
is "3d: weights are gathered twice" "$(said '"axis": "tp.weight", "collective": "all-gather", "tensor": "h.[01].(attn.(q|k|v|proj)|mlp.(fc|proj)).weight"')" \
	"$((4 * 2 * (q - 1) * kn / (q * q * q) * layers * micros))"
is "3d: their gradients are reduce-scattered once a step" \
	"$(said '"axis": "tp.weight", "collective": "reduce-scatter", "tensor": "grad:h.[01].(attn.(q|k|v|proj)|mlp.(fc|proj)).weight"')" \
	"$((4 * (q - 1) * kn / (q * q * q) * layers))"
is "between hosts: sent as explained" "$(json "$(HD_TEST_COMM=mpi heddle_mpi 4 bench 2d.ini --json --steps 1 2>/dev/null)" bytes_counted)" \
	"$(json=$(heddle explain 2d.ini --ranks 4 --json); said .)"

# -- the same run
numbers() { sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([^,]*\), *"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1"; }
# u sqrt(2 x 20 sums x 2 layers x 128 terms), three steps of adamw in a row: t/lib/layout_run.h
close_to() {
	[ -s "$1" ] && awk -v u="$3" 'NR == FNR { l[$1] = $2; next }
		{ n++; d = $2 / l[$1] - 1; if (d < 0) d = -d; if (!(d < u)) exit 1 } END { exit !(n == 3) }' "$1" "$2"
}
hash() { sed -n 's/^heddle: initial weights //p' "$1"; }
heddle train one.ini --set log.metrics=one.jsonl --set checkpoint.dir=one >one.out 2>one.err
is "one rank trains" $? 0
whole_sweep || layouts=2.5d:8 # t1222 compares the others with one rank
numbers one.jsonl >one.txt
ok "one rank trains in bf16" heddle train one.ini --set log.metrics=low.jsonl --set train.precision=bf16
numbers low.jsonl >low.txt
for layout in $layouts; do
	form=${layout%:*} n=${layout#*:}
	heddle_mpi $n train $form.ini --set log.metrics=$form.jsonl --set checkpoint.dir=$form >$form.out 2>$form.err
	is "$form: the layout trains" $? 0
	is "$form: the same initial weights" "$(hash $form.err)" "$(hash one.err)"
	numbers $form.jsonl >$form.txt
	ok "$form: the losses are those of one rank" close_to one.txt $form.txt 2e-5
	ok "$form: one rank evaluates its checkpoint" heddle eval $form/step-00000003 --data text.txt
	ok "$form: one rank generates text from its checkpoint" \
		heddle generate $form/step-00000003 --prompt 'and god' --tokens 4
	ok "$form: one rank resumes from it" \
		heddle train one.ini --set train.steps=4 --set checkpoint.dir=$form-on --set checkpoint.resume=$form/step-00000003
	ok "$form: the layout trains in bf16" \
		heddle_mpi $n train $form.ini --set train.precision=bf16 --set log.metrics=$form-low.jsonl
	numbers $form-low.jsonl >$form-low.txt
	ok "$form: the losses in bf16 are those of one rank" \
		close_to low.txt $form-low.txt 8e-3	# 2^-7: u of bf16 is 2^-8
	ok "$form: the layout resumes from one rank's checkpoint" \
		heddle_mpi $n train $form.ini --set train.steps=4 --set checkpoint.dir=$form-from --set checkpoint.resume=one/step-00000003
done
ok "a grid generates text while it trains" heddle_mpi 4 train 2d.ini --set log.sample=8 --set log.sample_prompt=and

# -- memory
parameters() { heddle check --all "$1" --ranks "$2" | sed -n 's/^rank 0.*: \([0-9]*\) parameters.*/\1/p'; }
all=$(parameters one.ini 1)
for layout in 2d:4:4 2.5d:8:4 3d:8:8; do
	form=${layout%%:*} pieces=${layout##*:} n=${layout#*:}
	here=$(parameters $form.ini ${n%:*})
	# in 3d, norms and biases are replicated on the weight group, as published
	ok "$form: a rank has 1 of $pieces of the parameters" [ $((here * pieces)) -ge "$all" -a $((here * pieces * 100)) -le $((all * 112)) ]
done

# -- refused by check, with both numbers and without a launch
refused() {
	name=$1 pattern=$2
	shift 2
	out=$(heddle check "$@" 2>&1)
	rc=$?
	[ $rc -gt 0 ] && [ $rc -lt 124 ] && [ "$(printf '%s\n' "$out" | messages | wc -l)" -eq 1 ] &&
		printf '%s\n' "$out" | messages | grep -Eq -e "$pattern"
	tap_result $? "refused: $name" || printf 'status %s\n%s\n want %s\n' $rc "$out" "$pattern" | tap_comment
}
refused "a size that is not a square" \
	'\[strategy tp\] size: 8 ranks are not a square; the nearest squares are 4 and 9$' 2d.ini --ranks 8
refused "a size that is not depth times a square" \
	'tp\.size: 12 is not depth = 2 times a square; the nearest are 8 and 18$' 2.5d.ini --set tp.size=12
refused "a size that is not a cube" 'size: 4 ranks are not a cube; the nearest cubes are 1 and 8$' 3d.ini --ranks 4
refused "heads" 'size: q = 3 does not divide model\.heads = 4$' 2d.ini --ranks 9
refused "key heads" 'size: q = 2 does not divide model\.kv_heads = 1$' 2d.ini --ranks 4 --set model.family=llama --set model.kv_heads=1
refused "the feed-forward layer" 'size: q = 2 does not divide model\.mlp = 33$' 3d.ini --ranks 8 --set model.mlp=33
refused "the batch on a grid" 'train\.micro_batch: 3 is not a multiple of 2: tp\.row 2 .* batch = 3' 2d.ini --ranks 4 --set train.micro_batch=3 --set train.global_batch=9
refused "the batch on two grids" 'tp\.row 2 x tp\.depth 2 = 4 do not divide batch = 2' 2.5d.ini --ranks 8 --set train.micro_batch=2
refused "the batch in three dimensions" 'tp\.[a-z]* 2 x tp\.[a-z]* 2 = 4 do not divide batch = 2' 3d.ini --ranks 8 --set train.micro_batch=2
refused "the batch on grids of two replicas" \
	'train\.micro_batch: 1 is not a multiple of 2: tp\.row 2 x d 2 = 4 do not divide batch = 2' 2d.ini --ranks 8 --set train.micro_batch=1 \
	--set d.plugin=dp --set d.size=2
sed '/micro_batch/d' 2d.ini >odd.ini
refused "a global batch without such micro-batches" \
	'train\.global_batch: 9 has no micro_batch that is a multiple of 2: tp\.row 2' odd.ini --ranks 4 --set train.global_batch=9
refused "depth with another form" 'depth: 2, but form = 2d has none' 2d.ini --ranks 4 --set tp.depth=2
refused "sequence parallelism with another form" \
	'sequence_parallel: form = 3d shards' 3d.ini --ranks 8 --set tp.sequence_parallel=yes
ok "a vocabulary need not divide" heddle check 2d.ini --ranks 4 --set model.vocab=259 --set data.tokenizer=byte
sed '/micro_batch/d' 2.5d.ini >free.ini
ok "a micro-batch that is not given is chosen so that it can be sharded" \
	heddle check free.ini --ranks 8 --set train.global_batch=12

# -- experts with a limit can be trained in 3d, but not sampled: generation has no limit
limited="3d.ini --set model.experts=4 --ranks 8"
ok "3d: experts with a limit" heddle check $limited
refused "samples of a model with experts, in 3d" 'generation has experts without a limit: .*: generate in another layout' \
	$limited --set log.sample=4
done_testing
