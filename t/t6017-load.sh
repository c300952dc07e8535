#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# model.load: to begin from weights that somebody has.  A size read wrongly, or weights left as they were initialised, would
# train for days before anybody looks at where it began.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

hash() { sed -n 's/^heddle: initial weights //p' "$1"; }
column() { sed -n "s/.*\"$2\": \([^,}]*\).*/\1/p" "$1"; }
said() { heddle "$@" 2>&1 | messages; }

# What it begins from: three steps, saved; and the same without what is ours in it.
ok "a model to begin from" heddle train tiny.ini --set checkpoint.dir=a
mkdir hf && cp a/step-00000003/config.json a/step-00000003/model.safetensors hf/
sed -e '/^layers\|^embed\|^heads\|^family\|^vocab/d' -e 's/^\[model\]/&\nload = hf/' tiny.ini >load.ini

ok "without a step it is saved as it was" heddle train load.ini --set train.steps=0 --set checkpoint.dir=b
ok "bit for bit" cmp hf/model.safetensors b/step-00000000/model.safetensors
same() { [ "$(sed 's/[[:space:]]//g' "$1" | sort)" = "$(sed 's/[[:space:]]//g' "$2" | sort)" ]; }
ok "with its sizes" same hf/config.json b/step-00000000/config.json
ok "a directory of checkpoints: the newest" heddle train load.ini --set model.load=a --set train.steps=0 --set checkpoint.dir=c
ok "the same weights" cmp hf/model.safetensors c/step-00000000/model.safetensors

# A head that config.json ties to the embedding: the same once more is no news, another one is.
cp -r hf tied
head_of() { # FILE zero|copy: with lm_head.weight
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
unlike "a tied head, stored too" "$(said train load.ini --set model.load=tied --set train.steps=0)" 'no place for'
cp hf/model.safetensors tied && head_of tied/model.safetensors zero
like "another head than the embedding" "$(said train load.ini --set model.load=tied --set train.steps=0)" \
	'tied: lm_head\.weight differs from the embedding, but tie_word_embeddings says that they are the same'

# transformers drops probabilities of attention where the config says so; here they never are.
cp -r hf dropped
sed -i 's/"attn_pdrop": *[0-9.]*/"attn_pdrop": 0.25/' dropped/config.json
for verb in check train; do
	said=$(heddle $verb load.ini --set model.load=dropped --set model.dropout=0.1 --set train.steps=1 2>&1)
	is "$verb: dropout beside attn_pdrop is a warning" "$(printf '%s\n' "$said" | grep attn_pdrop)" \
		"heddle: dropped/config.json: attn_pdrop is 0.25, but attention probabilities are never dropped: model.dropout = 0.1 applies to the embeddings and the outputs of each layer"
done
unlike "without dropout nothing is said" "$(heddle check load.ini --set model.load=dropped 2>&1)" attn_pdrop

# In a layout: every rank its slices.
heddle train load.ini --set log.metrics=one.jsonl >out1 2>err1
is "one rank trains on" $? 0
printf '[strategy tp]\nplugin = tp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 2\n' >tail
{ sed '/^\[strategy/,$d' load.ini; cat tail; } >many.ini
heddle_mpi 4 train many.ini --set log.metrics=four.jsonl >out4 2>err4
is "tp 2 x pp 2 trains on" $? 0
is "from the same weights" "$(hash err4)" "$(hash err1)"
near "with the same loss" "$(column four.jsonl loss | head -1)" "$(column one.jsonl loss | head -1)" 1e-5
heddle train tiny.ini >out0 2>err0
ok "which are not those of the seed" test "$(hash err0)" != "$(hash err1)"
ok "and resumes" heddle train load.ini --set checkpoint.dir=d --set checkpoint.resume=auto
ok "where it stood" heddle train load.ini --set train.steps=4 --set checkpoint.dir=d --set checkpoint.resume=auto
ok "eval of what it saved" heddle eval d --data text.txt

# A run that goes on has the checkpoint's weights; the keys that make a function of them may have changed meanwhile, here or in the
# directory that model.load names.
llama='--set model.family=llama --set model.kv_heads=2 --set model.mlp=48'
# shellcheck disable=SC2086
ok "a model with rotary positions" heddle train tiny.ini $llama --set model.rope_theta=500000 --set model.vocab=512 --set data.tokenizer=byte --set train.steps=0 --set checkpoint.dir=r
mkdir base other && cp r/step-00000000/config.json r/step-00000000/model.safetensors \
	"$src/t/data/tokenizers/gpt2/tokenizer.json" base
echo '{"eos_token_id": 7}' >base/generation_config.json
cp base/* other && sed -i 's/500000\(\.0\)\{0,1\}/20000.0/' other/config.json
ok "a run from it" heddle train load.ini --set model.load=base --set train.steps=1 --set train.schedule=constant --set checkpoint.dir=k
again() { rm -rf g; cp -r k g; said train load.ini --set model.load=base --set train.steps=1 --set train.schedule=constant \
	--set checkpoint.dir=g --set checkpoint.resume=auto "$@"; }
changes() { again "$@" | sed -n 's/.*was made with \(.*\)/\1/p'; }
is "nothing has changed" "$(changes)" ""
is "nor with what the family or config.json gives, said again" \
	"$(changes --set model.rope_theta=5e5 --set model.window_layers=ww --set model.tie_embeddings=no --set model.head_dim=8)" ""
is "a key beside model.load" "$(changes --set model.rope_theta=20000)" "model.rope_theta = 500000, but it is 20000 now"
is "a key that nothing said before" "$(changes --set model.window=7)" "model.window = 0, but it is 7 now"
is "another activation" "$(changes --set model.activation=gelu_tanh)" "model.activation = silu, but it is gelu_tanh now"
is "another directory" "$(changes --set model.load=other)" "model.rope_theta = 500000, but it is 20000 now
model.load = base, but it is other now: the weights are the checkpoint's. To begin from other weights, give a different checkpoint.dir"
is "the checkpoint itself is no other" "$(changes --set model.load=g)" ""
mv base away
is "the directory is gone: the checkpoint has all that a run needs" "$(again --set train.steps=5 --set checkpoint.every=1 | grep base)" \
	"heddle: g/step-00000001: model.load = base is not there: the keys of [model] are the checkpoint's"
is "it has gone on" "$(cat g/latest)" step-00000005
ok "and kept what others have written" cmp g/step-00000005/tokenizer.json away/tokenizer.json
ok "all of it" cmp g/step-00000005/generation_config.json away/generation_config.json
ok "check" heddle check load.ini --set model.load=base --set checkpoint.dir=g --set checkpoint.resume=auto
like "a run from step 0 needs it" "$(said train load.ini --set model.load=base)" 'model\.load: base: no such directory'
mv away base
is "nor is the same by another way" "$(changes --set model.load="$tmp/base/")" ""

# States that are not there: what a run can still begin from.
sgd() { said train tiny.ini --set checkpoint.dir=s --set checkpoint.resume=auto "$@"; }
sgd --set train.optimizer=sgd --set train.steps=1 >/dev/null
like "states of another optimizer" "$(sgd --set train.optimizer=adamw)" \
	'has no tensor .*different train\.optimizer\? To start without its states, at step 0, use model\.load instead of checkpoint\.resume'
rm s/step-00000001/heddle/optimizer.safetensors s/step-00000001/heddle/sums.json
like "no states" "$(sgd)" 's/step-00000001: has no heddle/optimizer\.safetensors, .*model\.load = s/step-00000001 starts from its weights, at step 0$'
like "check says so" "$(said check tiny.ini --set checkpoint.dir=s --set checkpoint.resume=auto)" \
	's/step-00000001: has no heddle/optimizer\.safetensors'
# Lists of numbers are the same with blanks, and with digits that say nothing.
turns="--set model.family=llama --set model.embed=16 --set model.heads=4 --set model.rope_scaling=longrope --set model.rope_original=16"
lists() { said train tiny.ini $turns --set checkpoint.dir=l --set checkpoint.resume=auto --set train.steps=1 "$@" | grep 'was made with model'; }
lists --set model.rope_short=1.25,1.5 --set model.rope_long=1,2 >/dev/null
is "blanks in a list" "$(lists --set model.rope_short='1.250, 1.5' --set model.rope_long='1, 2.0')" ""
like "another number" "$(lists --set model.rope_short=1.25,1.6 --set model.rope_long=1,2)" 'rope_short = 1\.25,1\.5, but it is 1\.25,1\.6 now'
like "another length" "$(said train tiny.ini $turns --set checkpoint.dir=l --set checkpoint.resume=auto --set model.rope_short=1.25 --set model.rope_long=1,2)" \
	'rope_short: 1 factors'
like "a directory of another program" "$(said train tiny.ini --set checkpoint.resume=hf)" \
	'hf: has no heddle/state\.json, so no run can resume from it; model\.load = hf starts from its weights'

# What cannot be.
like "other sizes are refused, with both numbers" "$(said train load.ini --set model.layers=3)" 'layers: 3, but the model in hf has 2'
like "by check too" "$(said check load.ini --ranks 2 --set model.embed=64)" 'embed: 64, but the model in hf has 32'
like "positions: by their shape" "$(said check load.ini --set model.max_seq=64)" 'transformer.wpe.weight is \[32, 32\] there, and \[64, 32\]'
like "a directory that is not there" "$(said check load.ini --set model.load=nowhere)" 'model\.load: nowhere: no such directory$'
like "nor is a model of the Hub" "$(said check load.ini --set model.load=org/name)" \
	'org/name: no such directory; a model of the Hub is downloaded first: huggingface-cli download org/name --local-dir DIR$'
mkdir lora && touch lora/adapter_config.json
like "a LoRA adapter" "$(said check load.ini --set model.load=lora)" 'lora: is a LoRA adapter \(adapter_config\.json\).*merge_and_unload'
like "heads are in no shape: resuming with others" \
	"$(said train tiny.ini --set model.heads=2 --set train.steps=5 --set checkpoint.dir=a --set checkpoint.resume=auto)" \
	'a/step-00000003/config.json: n_head is 4, but model.heads is 2'
cp -r hf spoilt
perl -MJSON::PP -0777 -i -pe '
	$n = unpack "Q<";
	$begin = 8 + $n + decode_json(substr($_, 8, $n))->{"transformer.ln_f.bias"}{data_offsets}[0];
	substr($_, $begin + 4, 4) = pack "V", 0x7fc00000' spoilt/model.safetensors
like "a weight that is no number: train" "$(said train load.ini --set model.load=spoilt)" \
	'step 1: .*as they were before it, with 1 of the 32 values of ln_f\.bias not finite$'
like "a weight that is no number: eval" "$(said eval spoilt --data text.txt)" \
	'the loss is not a number: weights are not finite: 1 of the 32 values of ln_f\.bias$'
cp -r base slow && rm slow/tokenizer.json && touch slow/vocab.json slow/merges.txt
how='from vocab\.json and merges\.txt there, transformers makes a tokenizer\.json with AutoTokenizer.*save_pretrained\(DIR\)'
like "a tokenizer in two files: train" "$(said train load.ini --set model.load=slow)" "$how"
like "a tokenizer in two files: generate" "$(said generate slow --prompt a)" "$how"
like "a tokenizer in two files: tokenize" "$(said tokenize --tokenizer slow --ids text.txt)" "slow/tokenizer\.json: .*; $how"
rm hf/model.safetensors
like "weights that are not there" "$(said check load.ini)" 'hf/model.safetensors'
touch hf/pytorch_model.bin
like "weights in another format: how to make these of them" "$(said check load.ini)" \
	'hf: has its weights in pytorch_model\.bin and no model\.safetensors; .*save_pretrained'
done_testing
