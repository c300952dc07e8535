#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Options, keys and tensors that would be accepted and then ignored must be refused with one message that names them, or
# named in a warning.  Otherwise their user would believe in a run that never was.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# Options
no 'explain: --times needs --schedule' explain tiny.ini --times t.json
no 'explain: --after prints the nodes of a plan and cannot be combined with --json' explain tiny.ini --after fuse --json
for view in schedule nodes; do
	ok "explain --$view --json is accepted" heddle explain tiny.ini --$view --json
	is "... with a warning" "$(grep 'does nothing' "$tmp/.ok")" \
		"heddle: explain: --$view does nothing with --json, which lists movements"
done
no 'check: --all does nothing with --json, which has all stages' check tiny.ini --all --json
no 'keys: --json does nothing with --man' keys --json --man
no 'plan: --search treats all ranks alike, so it cannot be combined with --slow' plan tiny.ini --ranks 2 --machine dgx-a100 --search --slow 1=2
no "report: 'b\.jsonl' is one too many after a\.jsonl" report a.jsonl b.jsonl
ok "plan --search --json is accepted" heddle plan tiny.ini --machine dgx-a100 --ranks 2 --search --top 2 --json
is "... and prints the best two" "$(grep -o '"bound_seconds"' "$tmp/.ok" | wc -l | tr -d ' ')" 2

# Keys
no '^heddle: --set log\.machine: nowhere: there is no such file, and no such name' check tiny.ini --set log.machine=nowhere
no '^heddle: --set log\.machine: nowhere: there is no such file' train tiny.ini --set log.machine=nowhere
for set in every=2 gradients=yes async=yes; do
	ok "train with checkpoint.$set and no dir" heddle train tiny.ini --set train.steps=1 --set checkpoint.$set
	is "... with a warning" "$(grep 'does nothing' "$tmp/.ok")" \
		"heddle: checkpoint.${set%=*} does nothing without checkpoint.dir: nothing is saved"
done
ok "keys may be given as off" \
	heddle train tiny.ini --set train.steps=1 --set checkpoint.every=0 --set checkpoint.async=no
is "... without a warning" "$(grep -c 'does nothing' "$tmp/.ok")" 0
idle() { # SECTION.KEY=VALUE WHY [--set ...]: check and train name the key in a warning
	set_=$1 why=$2
	shift 2
	for verb in check train; do
		ok "$verb with $set_" heddle $verb tiny.ini --set train.steps=1 --set "$set_" "$@"
		is "... with a warning" "$(grep 'does nothing' "$tmp/.ok")" "heddle: ${set_%=*} does nothing $why"
	done
}
idle train.beta1=0.8 'with train.optimizer = sgd' --set train.optimizer=sgd
idle train.eps=1 'with train.optimizer = descent' --set descent.file="$build/t/plugins/.libs/descent.so" --set train.optimizer=descent
idle train.hash_every=1 'with one rank'
idle train.warmup=256 'with schedule_unit = tokens: the first step has 256' --set train.schedule_unit=tokens
idle checkpoint.async=yes 'with checkpoint.every = 0: the run waits for its last save' --set checkpoint.dir=saved
idle train.min_lr=1e-6 'with train.schedule = constant' --set train.schedule=constant
idle train.min_lr=1e-6 'with train.warmup = 2: no step comes after it' --set train.warmup=2
idle train.schedule=linear 'with train.warmup = 300: no step comes after it' --set train.warmup=300 --set train.schedule_unit=tokens
ok "check with a warm-up that does not end" heddle check tiny.ini --set train.warmup=9
is "... is named with both numbers" "$(grep 'train.warmup' "$tmp/.ok")" \
	"heddle: train.warmup = 9 steps is beyond the end of the run at 3: no step has train.lr = 0.003"
ok "check with a warm-up in tokens that does not end" \
	heddle check tiny.ini --set train.warmup=769 --set train.schedule_unit=tokens
is "... is named with both numbers too" "$(grep 'train.warmup' "$tmp/.ok")" \
	"heddle: train.warmup = 769 tokens is beyond the end of the run at 768: no step has train.lr = 0.003"
ok "check with a warm-up that ends with the run" heddle check tiny.ini --set train.warmup=3
is "... has no such message" "$(grep -c 'beyond the end' "$tmp/.ok")" 0
idle train.decay=9 'with train.warmup = 1: no step comes after it' --set train.warmup=1
idle train.min_lr=1e-6 'with train.warmup = 1: no step comes after it' --set train.warmup=1
idle train.schedule_unit=tokens 'without train.warmup, train.decay and train.global_batch_ramp'
idle train.schedule_unit=tokens 'with train.schedule = constant and no train.warmup' --set train.schedule=constant
idle train.eval_batches=2 'with train.steps = 0' --set train.steps=0
idle train.global_batch_ramp=8,4,1000 'that begins at train.global_batch' --set train.global_batch=8
idle data.field=body 'where no file is JSONL'
idle data.field=body 'where no file is JSONL' --set data.format=text
idle model.capacity_factor=1 'without model.experts'
idle model.second_expert=all 'without model.router = gshard' --set model.experts=2 --set model.router=topk
idle model.rope_factor=2 'without model.rope_scaling' --set model.family=llama
scaled="--set model.family=llama --set model.rope_factor=2 --set model.rope_scaling"
idle model.rope_low=2 'without model.rope_scaling = llama3' $scaled=linear
idle model.rope_truncate=no 'without model.rope_scaling = yarn' $scaled=llama3
idle model.rope_short=1 'without model.rope_scaling = longrope' $scaled=yarn
idle model.rope_attention=8 'without model.rope_scaling = yarn or longrope' $scaled=linear
idle model.rope_original=64 'with model.rope_scaling = linear' $scaled=linear
for scaling in linear llama3 yarn; do
	idle model.rope_scaling=$scaling 'with model.rope_factor = 1' --set model.family=llama
done
idle model.rope_theta=500 'with model.rotary_fraction = 0.1: no pair of dims is rotated' --set model.family=llama --set model.rotary_fraction=0.1
idle model.rope_scaling=linear 'with model.rotary_fraction = 0: no pair of dims is rotated' --set model.family=llama --set model.rotary_fraction=0
idle model.mlp=64 'with model.expert_mlp and experts in every layer' --set model.family=mixtral --set model.experts=2 --set model.expert_mlp=32
idle model.window_layers=wf 'without model.window' --set model.family=llama
idle model.window=4 'with model.window_layers that has only f' --set model.family=llama --set model.window_layers=f
late='with model.layers = 2: the first w of model.window_layers is for layer 4'
ok "check with a window only for layers after the last" \
	heddle check tiny.ini --set model.family=llama --set model.window=4 --set model.window_layers=fffw
is "... is named with its layers" "$(grep 'does nothing' "$tmp/.ok")" "heddle: model.window does nothing $late
heddle: model.window_layers does nothing $late"
idle model.window=32 'with model.max_seq = 32: a window of 32 holds all positions. Checkpoints keep it' --set model.family=llama
idle model.rope_scaling=linear 'with model.rope_theta_window and a window in every layer' --set model.family=llama \
	--set model.rope_theta_window=500 --set model.window=4
idle checkpoint.keep=5 'without checkpoint.dir: nothing is saved'
idle log.sample_prompt=x 'without log.sample or log.sample_every'
idle log.sample_every=2 'with log.sample = 0' --set log.sample=0
idle log.trace_steps=1 'without log.trace or log.machine'
ok "train with evaluations but without data for them" \
	heddle train tiny.ini --set train.steps=1 --set data.valid_fraction=0 --set train.eval_every=1
like "... with a warning" "$(cat "$tmp/.ok")" 'heddle: train\.eval_every does nothing with data\.valid_fraction = 0'
for what in "train.min_lr=0 --set train.warmup=2" "train.schedule_unit=tokens --set train.warmup=257" "train.schedule_unit=tokens --set train.decay=512" \
	"log.trace_steps=1 --set log.machine=dgx-a100" "model.mlp=64 --set model.family=mixtral --set model.experts=2 --set model.expert_mlp=32 --set model.moe_every=2" \
	"model.rope_attention=2 --set model.family=llama --set model.rope_scaling=yarn" "model.rope_scaling=dynamic --set model.family=llama" \
	"model.window=31 --set model.family=llama" "model.window=32 --set model.family=llama --set model.max_seq=33" \
	"model.window=32 --set model.family=llama --set model.rope_theta_window=500" \
	"model.rope_theta=500 --set model.family=llama --set model.rope_theta_window=600 --set model.window=4 --set model.window_layers=wf"; do
	ok "check with $what" heddle check tiny.ini --set $what
	is "... has no warning" "$(grep -c 'does nothing' "$tmp/.ok")" 0
done

# A plugin whose optimizer the run does not use
plugin() { # WARNING SETS...
	why=$1
	shift
	ok "a plugin: $*" heddle check tiny.ini "$@"
	is "... with ${why:+a}${why:-no} warning" "$(sed -n 's/^heddle: \(.* does nothing .*\)/\1/p' "$tmp/.ok")" "$why"
}
descent="--set x.file=$build/t/plugins/.libs/descent.so"
plugin '[plugin x] does nothing with train.optimizer = adamw: it brings another optimizer' $descent
plugin '' $descent --set train.optimizer=x

# Values from other formats, which become part of a text
sed 's/^\[log\].*/&\nmetrics = "m.jsonl"/;$a\[log]\nmetrics = "m.jsonl"\nsample = 3\nsample_prompt = x   # a prompt' tiny.ini >slips.ini
ok "check with a value in quotes and a comment after #" heddle check slips.ini
like "... names the quotes" "$(cat "$tmp/.ok")" '^heddle: slips\.ini:[0-9]+: \[log\] metrics: "m\.jsonl" is used as it stands \(values are written without quotes\)$'
like "... and the comment" "$(cat "$tmp/.ok")" '^heddle: slips\.ini:[0-9]+: \[log\] sample_prompt: x   # a prompt is used as it stands \(a comment after a value begins with ;\)$'
like "... also of --set" "$(heddle check tiny.ini --set "log.metrics='m'" 2>&1)" "^heddle: --set log\.metrics: 'm' is used as it stands"
unlike "other values have no such message" "$(heddle check tiny.ini --set log.metrics=m#1.jsonl 2>&1)" 'as it stands'

# A ramp that the run ends before
like "a ramp that does not reach its end" "$(heddle check tiny.ini --set train.global_batch_ramp=2,2,1M 2>&1)" \
	'^heddle: train.global_batch_ramp does not reach train.global_batch = 8: the last step has 2 sequences$'
unlike "a ramp that does" "$(heddle check tiny.ini --set train.global_batch_ramp=4,4,128 2>&1)" 'does not reach'
said=$(heddle train tiny.ini --set dp.plugin=dp --set dp.offload=states --set train.global_batch_ramp=4,4,128 --set train.steps=3 \
	--set log.sample=2 2>&1)
is "the plans of a ramp, of evaluation and of samples print a plugin's message once" \
	"$(echo "$said" | grep -c '^heddle: states stay where they are')" 1
no 'train\.eval_batches: 9223372036854775807 is too large' check tiny.ini --set train.eval_batches=9223372036854775807
no '[0-9]+: the layout would need more than 10000000 ranks' check tiny.ini --set dp.size=4611686018427387904 \
	--set tp.plugin=tp --set tp.size=4 --set pp.plugin=pp --set pp.size=auto
no '\[model\] dense_layers: 1 of model.layers = 2, with model.moe_every = 2|dense_layers: 2 of' check tiny.ini \
	--set model.family=mixtral --set model.experts=2 --set model.moe_every=2 --set model.layers=3 --set model.dense_layers=2

# Keys and options that a verb does not read
ok "bench with keys of training" heddle bench tiny.ini --steps 1 --set log.trace=none.json
is "... names them" "$(grep 'does nothing' "$tmp/.ok")" 'heddle: bench: --set log.trace=none.json does nothing: only training reads it'
fails "... and writes no file" test -e none.json
of_verb() { verb=$1; shift; "$build/heddle" $verb "$@" 2>&1 >/dev/null | sed -n "s/^heddle: $verb: --set \(.*\) does nothing.*/\1/p" | tr '\n' ' '; }
is "... so do those of steps and checkpoints" \
	"$(of_verb bench tiny.ini --steps 1 --set train.steps=9 --set checkpoint.dir=none --set train.clip=2)" 'train.steps=9 checkpoint.dir=none '
heddle train tiny.ini --set train.steps=0 --set checkpoint.dir=start >/dev/null 2>&1
is "generate names keys of updates, too" "$(of_verb generate start --tokens 1 --set train.lr=1 --set checkpoint.resume=auto --set train.seq=16)" \
	'train.lr=1 checkpoint.resume=auto '
is "eval does, too" "$(of_verb eval start --data text.txt --set train.optimizer=sgd --set train.clip=1)" 'train.optimizer=sgd train.clip=1 '
no 'bench: --steps 17: with --generate it is a number of tokens, of which half of train.seq = 32 has room for 16' \
	bench tiny.ini --generate --steps 17
no 'tokenize: --append-eos does nothing with --ids' tokenize --tokenizer byte --ids text.txt --append-eos yes
ok "tokenize --field with files of text" "$build/heddle" tokenize --tokenizer "$src/t/data/tokenizers/gpt2" --out ids --field body text.txt
is "... does nothing, and says so" "$(grep 'does nothing' "$tmp/.ok")" 'heddle: tokenize: --field does nothing where no file is JSONL'
no 'tokenize: --field does nothing with --text' tokenize --tokenizer byte --text text.txt --field x
no 'run: --probe does nothing without --hostfile' run tiny.ini --ranks 1:2 --probe true --set checkpoint.dir=r

# check of an INI whose run exists already prints the layout, and then the reason why train would refuse it.
heddle train tiny.ini --set train.steps=1 --set checkpoint.dir=there >/dev/null 2>&1
fails "check of an INI whose run exists already fails" \
	heddle check tiny.ini --set train.steps=1 --set checkpoint.dir=there
is "... prints the layout, and last the reason" "$(sed -n '1p;$p' "$tmp/.ok" | sed 's/already contains.*/already contains/')" \
	"1 rank = dp 1 (1 apart)
heddle: --set checkpoint.dir: there already contains"

# Keys of strategies that have no effect: their plugins name them in check, but not for each layout of a search.
layout() { # WHY RANKS SETS...: check warns with WHY, or not at all if it is empty
	why=$1 ranks=$2
	shift 2
	ok "$ranks ranks, $*" heddle check tiny.ini --ranks "$ranks" "$@"
	is "... with ${why:+a}${why:-no} warning" "$(sed -n 's/^heddle: \(.*\) does nothing /\1: /p' "$tmp/.ok")" "$why"
}
cut='gradients are reduce-scattered'
layout "dp: sync = allreduce: with zero = 1: $cut" 2 --set dp.sync=allreduce --set dp.zero=1
layout "dp: sync = hierarchical: with zero = 3: $cut" 4 --set dp.sync=hierarchical --set dp.zero=3
layout "" 4 --set dp.sync=hierarchical --set dp.zero=3 --set dp.node_size=2
layout "" 4 --set dp.sync=allreduce --set dp.zero=1 --set dp.zero_size=2
layout "dp: sync = hierarchical: with 4 ranks a node: the 4 replicas do not form two levels, so one all-reduce sums over all of them" \
	4 --set dp.sync=hierarchical --set dp.node_size=4
layout "" 4 --set dp.sync=hierarchical
layout "" 4 --set dp.sync=allreduce
layout "dp: zero = 3: with zero_size = 1" 4 --set dp.zero=3 --set dp.zero_size=1
layout "dp: zero = 1: with zero_size = 1" 4 --set dp.zero=1 --set dp.zero_size=1 --set dp.sync=allreduce
layout "" 4 --set dp.zero=3 --set dp.zero_size=2
cp="--set dp.size=1 --set cp.plugin=cp --set cp.size=2 --set cp.balance=none"
layout "cp: balance = none: with form = ulysses: the work is equal in any order" 2 $cp
layout "" 2 $cp --set cp.form=ring
llama="--set model.family=llama --set train.recompute=selective"
recompute='train.recompute = selective: in this layout: it has no gelu, and no attention that is one node'
layout "$recompute" 2 $cp --set cp.form=ring $llama
layout "cp: balance = none: with form = ulysses: the work is equal in any order" 2 $cp $llama
layout "" 2 $cp --set cp.form=ring --set train.recompute=selective
pp="--set dp.size=1 --set pp.plugin=pp --set pp.scatter_gather=yes --set pp.size"
whole="pp: scatter_gather = yes: without an axis that replicates what crosses stages"
layout "$whole" 1 $pp=1
layout "$whole" 2 $pp=2
layout "" 4 $pp=2 --set tp.plugin=tp --set tp.size=2
layout "$whole" 4 $pp=2 --set tp.plugin=tp --set tp.size=2 --set tp.sequence_parallel=yes
layout "$whole" 8 $pp=2 --set tp.plugin=tp --set tp.size=4 --set tp.form=2d
orders="--set dp.size=1 --set pp.plugin=pp --set pp.size=2 --set pp.schedule=interleaved"
layout "pp: schedule = interleaved: with chunks = 1: it is 1f1b" 2 $orders --set pp.chunks=1
layout "" 2 $orders --set model.layers=4
is "a search of such layouts prints no warning" \
	"$(heddle plan tiny.ini --ranks 4 --machine dgx-a100 --search --top 1 2>&1 | grep -c 'does nothing')" 0
ok "train with keys that have an effect" \
	heddle train tiny.ini --set train.steps=1 --set model.experts=2 --set model.capacity_factor=1 --set train.beta1=0.8 \
	--set train.min_lr=1e-6 --set log.sample=3 --set log.sample_prompt=x --set log.trace=t.json --set log.trace_steps=1
is "... without a warning" "$(grep -c 'does nothing' "$tmp/.ok")" 0
no '^heddle: --set train\.loss_parts: 7: a rank.s micro-batch has 2 x 32 tokens' check tiny.ini --set train.loss_parts=7
sed 's/^steps/loss_parts = 7\n&/' tiny.ini >parts.ini
no '^heddle: parts\.ini:[0-9]+: \[train\] loss_parts: 7: ' check parts.ini

# Standard output that cannot be written
if [ -w /dev/full ]; then
	for verb in --help --version 'check tiny.ini' 'explain tiny.ini' 'keys' 'train tiny.ini --set train.steps=1'; do
		# shellcheck disable=SC2086
		said=$(heddle $verb 2>&1 >/dev/full)
		is "$verb to a full disk: status 1 and the reason" \
			"$? $(printf '%s\n' "$said" | grep -c 'standard output could not be written completely')" "1 1"
	done
fi

# Tensors
if command -v python3 >/dev/null; then
	heddle train tiny.ini --set train.steps=1 --set checkpoint.dir=c >log 2>&1 || tap_comment <log
	hf=c/$(cat c/latest)
	ok "a model whose tensors all have a place loads" \
		heddle train tiny.ini --set train.steps=1 --set model.load="$hf"
	is "... with no message about them" "$(grep -c 'stay unread\|does nothing' "$tmp/.ok")" 0
	ok "check with init_std and a loaded model" \
		heddle check tiny.ini --set model.load="$hf" --set model.init_std=0.5
	is "... with a warning" "$(grep 'does nothing' "$tmp/.ok")" "heddle: model.init_std does nothing with model.load, whose weights are read"
	llama="--set model.family=llama --set train.steps=1"
	heddle train tiny.ini $llama --set model.rope_scaling=linear --set checkpoint.dir=l >log 2>&1 || tap_comment <log
	ok "keys of the loaded model are not given by the user" heddle check tiny.ini $llama --set model.load=l
	is "... so there is no warning about them" "$(grep -c 'does nothing' "$tmp/.ok")" 0
	cat >more.py <<'END'
import json, struct, sys
raw = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', raw[:8])[0]
header, data = json.loads(raw[8:8 + n]), raw[8 + n:]
for name in sys.argv[2:]:
    header[name] = {'dtype': 'F32', 'shape': [1], 'data_offsets': [len(data), len(data) + 4]}
    data += bytes(4)
text = json.dumps(header).encode()
text += b' ' * (-len(text) % 8)
open(sys.argv[1], 'wb').write(struct.pack('<Q', len(text)) + text + data)
END
	cp -r "$hf" more
	python3 more.py "$hf/model.safetensors" h.0.attn.bias vision.0.attn.q_norm.weight h.9.ln_1.weight
	for verb in check train; do
		ok "$verb: a model with more tensors loads" heddle $verb tiny.ini --set train.steps=1 --set model.load="$hf"
		is "... with one warning that names them, but not what is not a weight" \
			"$(grep 'stay unread' "$tmp/.ok")" \
			"heddle: $hf: this model has no place for 2 of its tensors, which stay unread: vision.0.attn.q_norm.weight, h.9.ln_1.weight"
	done
	python3 more.py more/model.safetensors transformer.h.0.attn.q_norm.weight transformer.h.1.mlp.c_fc.lora_A.weight \
		base_model.model.transformer.h.0.attn.c_attn.lora_B.weight transformer.ln_f.scale h.9.ln_1.weight
	fails "tensors in parts of the model that have no such parameter" heddle check tiny.ini --set model.load=more
	like "... are refused by name" "$(cat "$tmp/.ok")" 'more: 4 of its tensors belong to parts of this model that have no such parameter: .*, \.\.\.'
fi
# Two micro-batches at a time need collectives to overlap with.
pairs="--set train.overlap_micro_batches=yes"
like "overlap_micro_batches where only sums of a step move" "$(heddle check tiny.ini --ranks 2 $pairs 2>&1)" \
	'^heddle: train.overlap_micro_batches takes memory and saves no time in this layout: forward and backward have no collectives$'
is "... with zero = 3: no warning" "$(heddle check tiny.ini --ranks 2 $pairs --set dp.zero=3 2>&1 | grep -c overlap_micro_batches)" 0

# A ring's attention is not recomputed; each verb that prints memory says so.
{ sed '/^\[strategy/,$d' tiny.ini; printf '[strategy cp]\nplugin = cp\nsize = 2\nform = ring\n'; } >ring.ini
for verb in 'check ring.ini' 'explain ring.ini --saved' 'plan ring.ini --machine dgx-h100'; do
	like "recompute = selective with a ring and no gelu: $verb" \
		"$(heddle $verb --ranks 2 --set model.family=llama --set train.recompute=selective 2>&1)" \
		'^heddle: train.recompute = selective does nothing in this layout: it has no gelu, and no attention that is one node$'
done
unlike "a ring of one rank gives no warning" \
	"$(heddle check ring.ini --ranks 1 --set cp.size=1 --set model.family=llama --set train.recompute=selective 2>&1)" \
	'does nothing'
done_testing
