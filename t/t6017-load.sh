#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# model.load starts a run from given weights.  A size that is read wrongly, or weights that stay as they were
# initialised, would be trained for days before anybody looks at the start.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

hash() { sed -n 's/^heddle: initial weights //p' "$1"; }
column() { sed -n "s/.*\"$2\": \([^,}]*\).*/\1/p" "$1"; }
said() { heddle "$@" 2>&1 | messages; }

# Runs start from a model saved after three steps, or from the same model without Heddle's own files (hf).
ok "a model to start from is trained" heddle train tiny.ini --set checkpoint.dir=a
mkdir hf && cp a/step-00000003/config.json a/step-00000003/model.safetensors hf/
sed -e '/^layers\|^embed\|^heads\|^family\|^vocab/d' -e 's/^\[model\]/&\nload = hf/' tiny.ini >load.ini

ok "a run of no steps saves the loaded model" heddle train load.ini --set train.steps=0 --set checkpoint.dir=b
ok "... bit for bit" cmp hf/model.safetensors b/step-00000000/model.safetensors
same() { [ "$(sed 's/[[:space:]]//g' "$1" | sort)" = "$(sed 's/[[:space:]]//g' "$2" | sort)" ]; }
ok "... with its sizes" same hf/config.json b/step-00000000/config.json
ok "a directory of checkpoints is loaded" \
	heddle train load.ini --set model.load=a --set train.steps=0 --set checkpoint.dir=c
ok "... with the weights of the newest" cmp hf/model.safetensors c/step-00000000/model.safetensors

# The file may contain a head that config.json ties to the embedding: a copy is accepted, a different head is refused.
cp -r hf tied
head_of() { # FILE zero|copy: adds lm_head.weight
	perl -MJSON::PP -0777 -i -pe '
		BEGIN { $what = pop }
		$n = unpack "Q<";
		($head, $body) = (decode_json(substr($_, 8, $n)), substr($_, 8 + $n));
		($name) = grep /(wte|embed_tokens)\.weight$/, keys %$head;
		($begin, $end) = @{$head->{$name}{data_offsets}};
		$bytes = $end - $begin;
		$head->{"lm_head.weight"} = {%{$head->{$name}}, data_offsets => [length $body, $bytes + length $body]};
		$body .= $what eq "copy" ? substr($body, $begin, $bytes) : "\0" x $bytes;
		$text = encode_json($head);
		$_ = pack("Q<", length $text) . $text . $body' "$@"
}
ok "tiny.ini ties its embeddings" grep -q '"tie_word_embeddings": *true' tied/config.json
head_of tied/model.safetensors copy
unlike "a copy of a tied head is accepted" \
	"$(said train load.ini --set model.load=tied --set train.steps=0)" 'no place for'
cp hf/model.safetensors tied && head_of tied/model.safetensors zero
like "a head that differs from the embedding is refused" \
	"$(said train load.ini --set model.load=tied --set train.steps=0)" \
	'tied: lm_head\.weight differs from the embedding, but tie_word_embeddings says that they are the same'

# transformers applies dropout to attention probabilities where the config asks for it; Heddle never does.
cp -r hf dropped
sed -i 's/"attn_pdrop": *[0-9.]*/"attn_pdrop": 0.25/' dropped/config.json
for verb in check train; do
	said=$(heddle $verb load.ini --set model.load=dropped --set model.dropout=0.1 --set train.steps=1 2>&1)
	is "$verb: dropout together with attn_pdrop gives a warning" "$(printf '%s\n' "$said" | grep attn_pdrop)" \
		"heddle: dropped/config.json: attn_pdrop is 0.25, but attention probabilities are never dropped: model.dropout = 0.1 applies to the embeddings and the outputs of each layer"
done
unlike "without dropout, no warning is printed" "$(heddle check load.ini --set model.load=dropped 2>&1)" attn_pdrop

# 0 is a number that the user has chosen, except where the engine would derive another.
ok "a model with dropout is saved" heddle train tiny.ini --set model.dropout=0.1 --set train.steps=1 --set checkpoint.dir=dropout
plan_with() { heddle explain load.ini --set model.load=dropout --nodes "$@" 2>&1; }
like "its dropout is loaded" "$(plan_with)" 'dropout .*p=0.1'
for off in 0 0.0; do
	unlike "model.dropout = $off switches it off" "$(plan_with --set model.dropout=$off)" 'p=0\.1'
done
fails "a window that differs from the model's" heddle check load.ini --set model.load="$src/t/data/families/gemma2" --set model.window=0
like "... is refused, even if it is 0" "$(cat "$tmp/.ok")" 'model\.window: 0, but the model in .* has [0-9]+'
ok "0 where the engine derives the number" heddle check load.ini --set model.kv_heads=0 --set model.mlp=0 --set model.head_dim=0

# In a layout, every rank loads its slices.
heddle train load.ini --set log.metrics=one.jsonl >out1 2>err1
is "one rank trains from the model" $? 0
printf '[strategy tp]\nplugin = tp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 2\n' >tail
{ sed '/^\[strategy/,$d' load.ini; cat tail; } >many.ini
heddle_mpi 4 train many.ini --set log.metrics=four.jsonl >out4 2>err4
is "tp 2 x pp 2 trains from the model" $? 0
is "... from the same weights" "$(hash err4)" "$(hash err1)"
near "... with the same loss" "$(column four.jsonl loss | head -1)" "$(column one.jsonl loss | head -1)" 1e-5
heddle train tiny.ini >out0 2>err0
ok "the loaded weights are not those of the seed" test "$(hash err0)" != "$(hash err1)"
ok "a run with model.load and resume = auto starts" \
	heddle train load.ini --set checkpoint.dir=d --set checkpoint.resume=auto
ok "... and is resumed where it ended" \
	heddle train load.ini --set train.steps=4 --set checkpoint.dir=d --set checkpoint.resume=auto
ok "... and eval reads what it saved" heddle eval d --data text.txt

# A resumed run uses the checkpoint's weights.  The keys that define the model may have changed in the meantime, in the
# INI or in the directory that model.load names.
llama='--set model.family=llama --set model.kv_heads=2 --set model.mlp=48'
# shellcheck disable=SC2086
ok "a model with rotary positions is saved" \
	heddle train tiny.ini $llama --set model.rope_theta=500000 --set model.vocab=512 --set data.tokenizer=byte --set train.steps=0 --set checkpoint.dir=r
mkdir base other && cp r/step-00000000/config.json r/step-00000000/model.safetensors \
	"$src/t/data/tokenizers/gpt2/tokenizer.json" base
echo '{"eos_token_id": 7}' >base/generation_config.json
cp base/* other && sed -i 's/500000\(\.0\)\{0,1\}/20000.0/' other/config.json
ok "a run starts from it" \
	heddle train load.ini --set model.load=base --set train.steps=1 --set train.schedule=constant --set checkpoint.dir=k
again() { rm -rf g; cp -r k g; said train load.ini --set model.load=base --set train.steps=1 --set train.schedule=constant \
	--set checkpoint.dir=g --set checkpoint.resume=auto "$@"; }
changes() { again "$@" | sed -n 's/.*was made with \(.*\)/\1/p'; }
is "an unchanged run reports no change" "$(changes)" ""
is "keys that repeat what the family or config.json gives are no change" \
	"$(changes --set model.rope_theta=5e5 --set model.window_layers=ww --set model.tie_embeddings=no --set model.head_dim=8)" ""
is "a changed key in addition to model.load is reported" \
	"$(changes --set model.rope_theta=20000)" "model.rope_theta = 500000, but it is 20000 now"
is "a key that was not given before is reported" "$(changes --set model.window=7)" "model.window = 0, but it is 7 now"
is "another activation is reported" \
	"$(changes --set model.activation=gelu_tanh)" "model.activation = silu, but it is gelu_tanh now"
is "another directory is reported, and what differs in it" \
	"$(changes --set model.load=other)" "model.rope_theta = 500000, but it is 20000 now
model.load = base, but it is other now: the weights are the checkpoint's. To begin from other weights, give a different checkpoint.dir"
is "the checkpoint itself as model.load is no change" "$(changes --set model.load=g)" ""
mv base away
is "without the directory, the run uses the checkpoint's keys and says so" \
	"$(again --set train.steps=5 --set checkpoint.every=1 | grep base)" \
	"heddle: g/step-00000001: model.load = base is not there: the keys of [model] are the checkpoint's"
is "... and continues" "$(cat g/latest)" step-00000005
ok "... it keeps the tokenizer" cmp g/step-00000005/tokenizer.json away/tokenizer.json
ok "... and the generation config" cmp g/step-00000005/generation_config.json away/generation_config.json
ok "check accepts the run without the directory" \
	heddle check load.ini --set model.load=base --set checkpoint.dir=g --set checkpoint.resume=auto
like "a run from step 0 needs the directory" \
	"$(said train load.ini --set model.load=base)" 'model\.load: base: no such directory'
mv away base
is "another path to the same directory is no change" "$(changes --set model.load="$tmp/base/")" ""

# Checkpoints without the needed states: the message says what a run can start from.
sgd() { said train tiny.ini --set checkpoint.dir=s --set checkpoint.resume=auto "$@"; }
sgd --set train.optimizer=sgd --set train.steps=1 >/dev/null
like "a checkpoint with the states of another optimizer is refused" "$(sgd --set train.optimizer=adamw)" \
	'has no tensor .*different train\.optimizer\? To start without its states, at step 0, use model\.load instead of checkpoint\.resume'
rm s/step-00000001/heddle/optimizer.safetensors s/step-00000001/heddle/sums.json
like "a checkpoint without states is refused" \
	"$(sgd)" 's/step-00000001: has no heddle/optimizer\.safetensors, .*model\.load = s/step-00000001 starts from its weights, at step 0$'
like "... by check too" "$(said check tiny.ini --set checkpoint.dir=s --set checkpoint.resume=auto)" \
	's/step-00000001: has no heddle/optimizer\.safetensors'
# Lists of numbers are equal despite blanks and trailing zeros.
turns="--set model.family=llama --set model.embed=16 --set model.heads=4 --set model.rope_scaling=longrope --set model.rope_original=16"
lists() { said train tiny.ini $turns --set checkpoint.dir=l --set checkpoint.resume=auto --set train.steps=1 "$@" | grep 'was made with model'; }
lists --set model.rope_short=1.25,1.5 --set model.rope_long=1,2 >/dev/null
is "blanks and trailing zeros in a list are no change" \
	"$(lists --set model.rope_short='1.250, 1.5' --set model.rope_long='1, 2.0')" ""
like "another number in a list is reported" \
	"$(lists --set model.rope_short=1.25,1.6 --set model.rope_long=1,2)" 'rope_short = 1\.25,1\.5, but it is 1\.25,1\.6 now'
like "a list of another length is refused" \
	"$(said train tiny.ini $turns --set checkpoint.dir=l --set checkpoint.resume=auto --set model.rope_short=1.25 --set model.rope_long=1,2)" \
	'rope_short: 1 factors'
like "a directory of another program cannot be resumed" "$(said train tiny.ini --set checkpoint.resume=hf)" \
	'hf: has no heddle/state\.json, so no run can resume from it; model\.load = hf starts from its weights'

# A key that changes what the model computes is no size, so it is accepted, but not in silence.
like "another model than the loaded one is reported, with both values" \
	"$(said train load.ini --set model.norm_eps=1e-3 --set train.steps=1)" '^heddle: hf: was made with model\.norm_eps = .*, but it is 1e-3 now$'
unlike "the same value in another form is not reported, nor are keys of training" \
	"$(said train load.ini --set model.norm_eps=0.00001 --set model.dropout=0.1 --set train.steps=1)" 'was made with'

# Models that must be refused.
like "other sizes are refused, with both numbers" "$(said train load.ini --set model.layers=3)" 'layers: 3, but the model in hf has 2'
like "check refuses other sizes too" \
	"$(said check load.ini --ranks 2 --set model.embed=64)" 'embed: 64, but the model in hf has 32'
like "more positions are refused by their shape" \
	"$(said check load.ini --set model.max_seq=64)" 'transformer.wpe.weight is \[32, 32\] there, but \[64, 32\]'
mkdir few && sed 's/"n_positions": *[0-9]*/"n_positions": 8/' hf/config.json >few/config.json
like "a key of the model that does not fit is named, not only load" "$(said check load.ini --set model.load=few)" \
	'^heddle: --set model\.load: max_seq of few: 8 positions are fewer than train\.seq = '
sed 's/^load = .*/load = few/' load.ini >few.ini
like "... also where the INI has load" \
	"$(said check few.ini)" '^heddle: few\.ini:[0-9]+: \[model\] load: max_seq of few: 8 positions are fewer'
like "a directory that does not exist is refused" \
	"$(said check load.ini --set model.load=nowhere)" 'model\.load: nowhere: no such directory$'
like "the name of a model of the Hub is refused, with the command that downloads it" \
	"$(said check load.ini --set model.load=org/name)" \
	'org/name: no such directory; a model of the Hub is downloaded first: huggingface-cli download org/name --local-dir DIR$'
mkdir lora && touch lora/adapter_config.json
like "a LoRA adapter is refused, with the way to merge it" \
	"$(said check load.ini --set model.load=lora)" 'lora: is a LoRA adapter \(adapter_config\.json\).*merge_and_unload'
like "resuming with another number of heads is refused, although no shape shows it" \
	"$(said train tiny.ini --set model.heads=2 --set train.steps=5 --set checkpoint.dir=a --set checkpoint.resume=auto)" \
	'a/step-00000003/config.json: n_head is 4, but model.heads is 2'
cp -r hf spoilt
perl -MJSON::PP -0777 -i -pe '
	$n = unpack "Q<";
	$begin = 8 + $n + decode_json(substr($_, 8, $n))->{"transformer.ln_f.bias"}{data_offsets}[0];
	substr($_, $begin + 4, 4) = pack "V", 0x7fc00000' spoilt/model.safetensors
like "train names a weight that is not a number" "$(said train load.ini --set model.load=spoilt)" \
	'step 1: .*as they were before it, with 1 of the 32 values of ln_f\.bias not finite$'
like "eval names a weight that is not a number" "$(said eval spoilt --data text.txt)" \
	'the loss is not a number: weights are not finite: 1 of the 32 values of ln_f\.bias$'
cp -r base slow && rm slow/tokenizer.json && touch slow/vocab.json slow/merges.txt
how='from vocab\.json and merges\.txt there, transformers makes a tokenizer\.json with AutoTokenizer.*save_pretrained\(DIR\)'
like "a tokenizer in two files: train says how to convert it" "$(said train load.ini --set model.load=slow)" "$how"
like "a tokenizer in two files: generate says how to convert it" "$(said generate slow --prompt a)" "$how"
like "a tokenizer in two files: tokenize says how to convert it" \
	"$(said tokenize --tokenizer slow --ids text.txt)" "slow/tokenizer\.json: .*; $how"
# SentencePiece's own file is not read here, but whoever loads the checkpoint needs it.  It is not text.
sentencepiece() { mkdir "$1" && cp base/config.json base/model.safetensors "$1" && printf '\012\000\377piece\000' >"$1/tokenizer.model" &&
	echo '{"tokenizer_class": "LlamaTokenizer"}' >"$1/tokenizer_config.json"; }
sentencepiece pieces
how='from tokenizer\.model there, transformers makes a tokenizer\.json with AutoTokenizer.*save_pretrained\(DIR\)'
like "a tokenizer of SentencePiece: train says how to convert it" "$(said train load.ini --set model.load=pieces)" "$how"
like "a tokenizer of SentencePiece: generate says how to convert it" "$(said generate pieces --prompt a)" "$how"
ok "ids are made" heddle tokenize --tokenizer base --out ids text.txt
saves() { # LOAD DIR [ARGUMENT...]
	load=$1 dir=$2 && shift 2
	heddle train load.ini --set model.load="$load" --set data.train=ids --set train.steps=1 --set checkpoint.dir="$dir" "$@"
}
has_pieces() { cmp pieces/tokenizer.model "$1/tokenizer.model" && cmp pieces/tokenizer_config.json "$1/tokenizer_config.json"; }
ok "a run on ids starts from its model" saves pieces p
ok "... and its checkpoint has the tokenizer's files" has_pieces p/step-00000001
mv pieces elsewhere
ok "... and continues without the directory" saves pieces p --set checkpoint.resume=auto --set train.steps=2
mv elsewhere pieces
ok "... the next checkpoint has them too" has_pieces p/step-00000002
ok "a run with another tokenizer starts from the model" saves pieces q --set data.tokenizer=base
is "... its checkpoint has only that tokenizer" "$(cd q/step-00000001 && echo tokenizer*)" tokenizer.json
cp -r pieces both && cp base/tokenizer.json both
ok "a run starts from a model with both files" saves both r2
ok "... and its checkpoint has both" sh -c 'cmp both/tokenizer.json r2/step-00000001/tokenizer.json &&
	cmp both/tokenizer.model r2/step-00000001/tokenizer.model'
rm hf/model.safetensors
like "a missing file of weights is named" "$(said check load.ini)" 'hf/model.safetensors'
touch hf/pytorch_model.bin
like "weights in another format: the message says how to convert them" "$(said check load.ini)" \
	'hf: has its weights in pytorch_model\.bin and no model\.safetensors; .*save_pretrained'
done_testing
