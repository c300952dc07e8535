#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A plugin with a model family: examples/vaultgemma, which its own Makefile builds from an installed prefix alone.  A
# model that transformers has written must load, have the same logits, and take the same step.  It must be saved as its
# class, and generate text, also in layouts.  Each wrong table is refused in one line that names section, plugin,
# family, entry and value.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"

[ -f "$build/Makefile" ] || skip_all "no Makefile in the build folder"
command -v pkg-config >/dev/null || skip_all "no pkg-config"
root=$tmp/root
make -C "$build" install-heddleincludeHEADERS install-pkgconfigDATA DESTDIR="$root" >log 2>&1 || { tap_comment <log; skip_all "make install does not work here"; }
pc=$(find "$root" -name heddle.pc)
cp -r "$src/examples/vaultgemma" made
rm -f made/*.so
ok "its Makefile builds it" env PKG_CONFIG_PATH="${pc%/*}" \
	make -s -C made CC="${CC:-cc}" CFLAGS="-O2 -Wall -Wextra -Werror"
cp made/vaultgemma.so kept/brought
cd kept/brought || exit 1
model=vaultgemma
prompt=$(i=0; while [ $i -lt 18 ]; do printf '%d ' $((7 * i % 61)); i=$((i + 1)); done)
logits() { dir=$1; shift; "$heddle" generate "$dir" --ids --prompt "$prompt" --logits "$@" | sed -n 's/.*\[\(.*\)\].*/\1/p' | tr -d ,; }
kept=$(sed -n 's/^logits //p' $model/numbers.txt)
with="--set vg.file=./vaultgemma.so"

fails "without the plugin the model is refused" "$heddle" generate $model --ids --prompt "$prompt" --logits
like "... and the message says how to give the plugin" \
	"$(cat "$tmp/.ok")" 'model_type is vaultgemma; known: gpt2, .*--set NAME.file=X.so'
near "the logits are those of transformers" "$(apart "$kept" "$(logits $model $with)")" 0 1.5e-5
mkdir five && cp $model/model.safetensors five && cp $model/config-5.json five/config.json
near "... also with the config of transformers 5" "$(apart "$kept" "$(logits five $with)")" 0 1.5e-5
{ cat ../families/one.ini; printf '\n[plugin vg]\nfile = ./vaultgemma.so\n'; } >one.ini
cp ../families/ids-llmc.bin .
is "a plugin whose family is not used is named in a warning" \
	"$("$heddle" check one.ini --set model.load= --set model.family=gpt2 --set model.layers=1 --set model.embed=8 --set model.heads=2 2>&1 |
		grep 'plugin vg')" 'heddle: [plugin vg] does nothing with model.family = gpt2: it brings other families'
ok "the model takes a step" \
	"$heddle" train one.ini --set model.load=$model --set log.metrics=one.jsonl --set checkpoint.dir=stepped
near "... with the kept loss" \
	"$(sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' one.jsonl)" "$(sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' $model/one.jsonl)" 2e-6
near "... and the kept norm" "$(sed -n 's/.*"grad_norm": *\([0-9.]*\).*/\1/p' one.jsonl)" \
	"$(sed -n 's/.*"grad_norm": *\([0-9.]*\).*/\1/p' $model/one.jsonl)" 2e-5
ok "the model is saved" "$heddle" train one.ini --set model.load=$model --set train.steps=0 --set checkpoint.dir=saved
mkdir alone && cp saved/step-00000000/config.json saved/step-00000000/model.safetensors alone
near "... what is saved has the same logits, without Heddle's own files" \
	"$(apart "$kept" "$(logits alone $with)")" 0 1.5e-5
near "... and so has the checkpoint itself" "$(apart "$kept" "$(logits saved $with)")" 0 1.5e-5
like "the checkpoint does not load a plugin that the user did not give" \
	"$("$heddle" generate saved --ids --prompt "$prompt" --logits 2>&1)" \
	'\[plugin vg\] file: .*vaultgemma.so is a path, .*--set vg.file='
like "what is saved is of the right class" "$(cat alone/config.json)" '"VaultGemmaForCausalLM"'
like "... with the names of that class" \
	"$(strings -n 8 alone/model.safetensors | head -c 4000)" 'model.layers.1.pre_feedforward_layernorm.weight'
is "tp 2 x pp 2 generates the same text" \
	"$(mpi 4 "$heddle" generate saved --ids --prompt "$prompt" --tokens 4 --temperature 0 $with --set t.plugin=tp --set t.size=2 --set p.plugin=pp --set p.size=2)" \
	"$("$heddle" generate saved --ids --prompt "$prompt" --tokens 4 --temperature 0 $with)"
sed -e 's/^embed = .*/embed = 32/' -e 's/^seq = .*/seq = 32/' -e 's/^steps = .*/steps = 3/' -e "s|^train = .*|train = $tmp/text.txt|" \
	"$src/examples/vaultgemma/vaultgemma.ini" >small.ini
ok "its INI trains" "$heddle" train small.ini
like "heddle plugins prints the family" "$("$heddle" plugins ./vaultgemma.so)" 'model family: vaultgemma'
like "heddle conform passes the plugin" \
	"$("$heddle" conform ./vaultgemma.so --layouts 1 --no-runs | tail -1)" '^# vaultgemma .* [1-9][0-9]* passed, 0 failed'

# With both norms, a layer has a norm whose name the class of transformers gives to another.  Each must keep its own.
both() { "$heddle" "$@" small.ini --set model.norm=both --set train.steps=1 --set checkpoint.dir=both; }
ok "norms before and after pass check" both check
ok "... are trained and saved" both train
like "... under the decoder's names" "$(strings -n 8 both/step-00000001/model.safetensors | head -c 4000)" \
	'model.layers.1.post_attention_layernorm.weight.*model.layers.1.pre_feedforward_layernorm.weight'
like "... as no class of transformers" "$(cat both/step-00000001/config.json)" '"model_type": *"heddle"'
ok "... and read again" \
	"$heddle" train small.ini --set model.norm=both --set checkpoint.dir=both --set checkpoint.resume=auto --set train.steps=2

# -- wrong tables
wrong() { # NAME SED PATTERN
	sed "$2" "$src/examples/vaultgemma/vaultgemma.c" >vaultgemma.c
	cmp -s vaultgemma.c "$src/examples/vaultgemma/vaultgemma.c" && tap_result 1 "$1: $2 changes nothing"
	${CC:-cc} -w -std=gnu11 -fPIC -shared -fvisibility=hidden -I "$src/include" -o vaultgemma.so vaultgemma.c
	"$heddle" check small.ini >out 2>&1
	like "$1" "$(grep ^heddle: out)" "^heddle: small.ini:[0-9]*: \[plugin vaultgemma\] file: plugin vaultgemma, family [a-z0-9]*: $3\$"
}
wrong "an unknown key of a default" \
	's/{ "norm", "before" }/{ "nrom", "before" }/' 'default nrom = before: no adjustable key of \[model\] has this name'
wrong "a value that is not a choice" \
	's/{ "norm", "before" }/{ "norm", "behind" }/' "default norm = behind: 'behind' is not a choice; .*before, after.*"
wrong "a value that is neither yes nor no" \
	's/{ "norm_offset", "yes" }/{ "norm_offset", "on" }/' 'default norm_offset = on: it must be yes or no'
wrong "a default of a size" \
	's/{ "norm_offset", "yes" }/{ "layers", "4" }/' "default layers = 4: each model sets it itself"
wrong "a default given twice" \
	's/{ "norm_offset", "yes" }/{ "norm", "after" }/' 'default norm = after: it is already before'
wrong "a number in words" 's/{ "norm_offset", "yes" }/{ "window", "2k" }/' 'default window = 2k: it must be a whole number in digits'
wrong "letters other than w and f" \
	's/"window_layers", "wf"/"window_layers", "wx"/' 'default window_layers = wx: it must be letters w and f'
wrong "a default without a value" 's/{ "norm_offset", "yes" }/{ "norm_offset", 0 }/' 'default norm_offset has no value'
wrong "a missing model_type" '/\.model_type/d' 'model_type is missing'
wrong "a negative window" 's/4096/-1/' 'window_absent is -1, it must be 0 or more'
wrong "a key without a name" 's/"attention_bias", "out_bias"/"", "out_bias"/' "keys: an entry's name is empty"
wrong "words for a key that is not a choice" \
	's/"query_scale", NULL/"query_scale", "a=b"/' 'key query_pre_attn_scalar: values "a=b", but model.query_scale is not a choice'
wrong "a choice without words" 's/HD_FAMILY_ACTIVATIONS/NULL/' 'key hidden_activation: values are missing, but model.activation is a choice'
wrong "a word without its equivalent" \
	's/HD_FAMILY_ACTIVATIONS/"silu"/' 'key hidden_activation: values "silu": it must be "theirs=ours"'
wrong "an absent value without a key" \
	's/"out_bias", NULL, "no"/NULL, NULL, "no"/' 'key attention_bias: absent "no", but it is not a key of \[model\]'
wrong "an absent value that is not valid" 's/NULL, "256"/NULL, "much"/' 'absent query_scale = much: .*much.*'
wrong "a weight without a name" \
	's/"model.layers.\*.pre_feedforward_layernorm"/""/' 'weight model.layers.\*.post_attention_layernorm has no name'
wrong "a weight with two names" \
	's/\(	{ "model.layers.*.post_attention_layernorm".*\)/\1 { "model.layers.*.post_attention_layernorm", "model.layers.*.b" },/' \
	'weight .*post_attention_layernorm is model.layers.\*.b, but it is already .*pre_feedforward_layernorm'
wrong "two weights with one name" \
	's/\(	{ "model.layers.*.post_attention_layernorm".*\)/\1 { "model.layers.*.input_layernorm", "model.layers.*.pre_feedforward_layernorm" },/' \
	'weights .*post_attention_layernorm and .*input_layernorm are both .*pre_feedforward_layernorm'
wrong "the name of a family of Heddle" 's/\.name = "vaultgemma"/.name = "gemma2"/' 'there is already a family gemma2'
wrong "the model_type of another family" \
	's/\.model_type = "vaultgemma"/.model_type = "gemma2"/' "model_type gemma2 already belongs to another family"
wrong "a missing class" '/\.class_name/d' 'class_name is missing'
wrong "a class with an empty name" 's/\(\.class_name = \)"[^"]*"/\1""/' 'class_name is missing'
wrong "missing keys" '/\.keys = keys/d' 'keys are missing'
wrong "keys without a size" \
	's/HD_FAMILY_KEYS_LLAMA(.*),/{ "n_layers", "layers", 0, "!", 0 },/' 'keys: no key gives model.embed'
wrong "a key for something unknown" \
	's/"query_scale", NULL/"query_size", NULL/' 'key query_pre_attn_scalar: no adjustable key of \[model\] has the name query_size'
wrong "words that the choice does not contain" \
	's/HD_FAMILY_ACTIVATIONS/"silu=relu"/' "hidden_activation activation = relu: 'relu' is not a choice; .*"
wrong "an unknown flag" \
	's/"50", HD_FAMILY_KEY_NULL/"50", 2/' 'key attn_logit_softcapping: flags are 0x2, this engine knows 0x1'
wrong "a weight that the decoder does not have" 's/"model.layers.\*.post_attention_layernorm"/"model.layers.*.norm"/' \
	'weight model.layers.\*.norm is model.layers.\*.pre_feedforward_layernorm: the decoder has no weight model.layers.\*.norm'
wrong "a name with a missing star" \
	's/"model.layers.\*.pre_/"model.layers.pre_/' 'weight .* is model.layers.pre_feedforward_layernorm: it must have the same number of \*.*'
wrong "one weight with the name of several" \
	's/\(	{ "model.layers.*.post_attention_layernorm".*\)/\1 { "model.norm", "model.layers.*.pre_feedforward_layernorm" },/' \
	'weight model.norm is .*: it must have the same number of \*.*'
wrong "an unknown kind of window" 's/HD_FAMILY_WINDOW_TYPES/9/' 'window is 9, this engine knows 0..4'
sed 's/\.name = "vaultgemma"/.name = "a b"/' "$src/examples/vaultgemma/vaultgemma.c" >vaultgemma.c
${CC:-cc} -w -std=gnu11 -fPIC -shared -fvisibility=hidden -I "$src/include" -o vaultgemma.so vaultgemma.c
"$heddle" check small.ini >out 2>&1
like "a family's name of two words" "$(grep ^heddle: out)" 'family 0: name is "a b", it must be one word'
sed 's/{ &vaultgemma, NULL }/{ \&vaultgemma, \&vaultgemma, NULL }/' "$src/examples/vaultgemma/vaultgemma.c" >vaultgemma.c
${CC:-cc} -w -std=gnu11 -fPIC -shared -fvisibility=hidden -I "$src/include" -o vaultgemma.so vaultgemma.c
"$heddle" check small.ini >out 2>&1
like "the same family twice" "$(grep ^heddle: out)" 'families 0 and 1 are both vaultgemma'

sed 's/"model.layers.\*.post_att[a-z_]*", "model.layers.\*.pre_[a-z_]*"/"model.layers.*.mlp.down_proj", "model.layers.*.self_attn.o_proj"/' \
	"$src/examples/vaultgemma/vaultgemma.c" >vaultgemma.c
${CC:-cc} -w -std=gnu11 -fPIC -shared -fvisibility=hidden -I "$src/include" -o vaultgemma.so vaultgemma.c
"$heddle" check small.ini --set checkpoint.dir=none >out 2>&1
like "a weight with the name of one that is not renamed" "$(grep ^heddle: out)" \
	'layers.0.self_attn.o_proj.weight and layers.0.mlp.down_proj.weight are both model.layers.0.self_attn.o_proj.weight in a checkpoint of'

# Weights that are rows of one tensor, in the order of the list, and conform where no key gives a value.
rows='{ "model.layers.*.self_attn.k_proj", "model.layers.*.a" }, { "model.layers.*.self_attn.q_proj", "model.layers.*.a" },'
sed "s/^static const struct hd_family_name names\[\] = {/& $rows/" "$src/examples/vaultgemma/vaultgemma.c" >vaultgemma.c
${CC:-cc} -w -std=gnu11 -fPIC -shared -fvisibility=hidden -I "$src/include" -o vaultgemma.so vaultgemma.c
"$heddle" train small.ini --set train.steps=0 --set checkpoint.dir=rows >out 2>&1 || tap_comment <out
like "keys and queries in one tensor" "$(strings -n 8 rows/step-00000000/model.safetensors | head -c 4000)" '"model.layers.0.a.weight":\{"dtype":"F32","shape":\[192,32\]'
like "... with room for each" "$("$heddle" conform ./vaultgemma.so --only 'each weight')" '^ok'
before=$(logits rows --set vaultgemma.file=./vaultgemma.so)
near "... which can be read again" \
	"$(apart "$before" "$(mkdir bare; cp rows/step-00000000/[cm]*.* bare; logits bare $with)")" 0 1.5e-5
sed '/"query_pre_attn_scalar"/d; s/{ "norm", "before" }/&, { "query_scale", "10" }/; /"logit_softcap", NULL/d; s/{ "logit_softcap", "30" }/{ "rotary_fraction", "0.5" }/' \
	"$src/examples/vaultgemma/vaultgemma.c" >vaultgemma.c
sed -i '/"attention_softcap", NULL/d; s/{ "attention_softcap", "50" }/{ "attention_softcap", "50.0" }/' vaultgemma.c
${CC:-cc} -w -std=gnu11 -fPIC -shared -fvisibility=hidden -I "$src/include" -o vaultgemma.so vaultgemma.c
like "conform passes defaults that no key gives" "$("$heddle" conform ./vaultgemma.so --only 'config.json')" '^ok'
sed -i 's/"attention_bias", "qkv_bias"/"bias", "qkv_bias"/; s/"attention_bias", "out_bias", NULL, "no"/"bias", "norm_offset", NULL, "no"/' vaultgemma.c
${CC:-cc} -w -std=gnu11 -fPIC -shared -fvisibility=hidden -I "$src/include" -o vaultgemma.so vaultgemma.c
like "conform refuses a key with two meanings" \
	"$("$heddle" conform ./vaultgemma.so --only 'config.json')" 'not ok.* config.json'
cp "$tmp/made/vaultgemma.so" .
with_torch

cat >check.py <<-'EOT2'
	import sys, torch, transformers
	from transformers import AutoModelForCausalLM
	torch.set_num_threads(1)
	ids = torch.tensor([[int(x) for x in sys.argv[1].split()]])
	theirs, info = AutoModelForCausalLM.from_pretrained("vaultgemma", output_loading_info=True, dtype="float32", attn_implementation="eager")
	ours, unknown = AutoModelForCausalLM.from_pretrained("alone", output_loading_info=True, dtype="float32", attn_implementation="eager")
	with torch.no_grad():
	    a, b = (m.eval()(ids).logits for m in (theirs, ours))
	print(float((a - b).abs().max()), sum(len(v) for v in unknown.values()), type(ours).__name__)
EOT2
"$python" -c 'from transformers import VaultGemmaForCausalLM' 2>/dev/null || { skip "transformers without it"; done_testing; exit; }
ok "transformers reads the saved model" "$python" check.py "$prompt"
near "... with the same logits" "$(cut -d' ' -f1 "$tmp/.ok")" 0 1e-5
is "... as the right class, and knows every tensor" "$(cut -d' ' -f2- "$tmp/.ok")" "0 VaultGemmaForCausalLM"
done_testing
