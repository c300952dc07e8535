#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a search reports about the layout that it was given, and what a run takes from a checkpoint.  That includes sizes
# that are left open or given differently, tokenizers, names that are not steps, and damaged files.  A mistake here
# would train or load something else.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# -- the layout of the INI
sed '/^\[strategy/,$d' tiny.ini >model.ini
cat >space.ini <<'E'
[strategy a]
plugin = tp
size = 1..2
choose = form=1d, form=1d sequence_parallel=yes
[strategy b]
plugin = dp
choose = zero=0, zero=1
[vary train.micro_batch]
values = 1, 2
E
search() { # searches with the strategies on standard input
	{ cat model.ini; cat; } >given.ini
	heddle plan given.ini --machine dgx-a100 --search --space space.ini --ranks 4 "$@" 2>&1
}
whole='^the layout of the INI: .*; (the best is [0-9.]+% faster|nothing that was looked at is faster)'
like "a layout in the space" \
	"$(printf '[strategy a]\nplugin = tp\nsize = 2\nform = 1d\n[strategy b]\nplugin = dp\nzero = 1\nsize = auto\n' | search)" "$whole"
like "a size that the space does not contain" \
	"$(printf '[strategy a]\nplugin = tp\nsize = 4\n' | search)" 'the layout of the INI|layouts:'
like "a strategy that the space does not contain" \
	"$(printf '[strategy b]\nplugin = dp\nsize = 4\n[strategy c]\nplugin = pp\nsize = 1\n' | search)" \
	'\[strategy c\]: the space has no strategy of its plugin; name a space that does with --space'
like "a strategy of another name" \
	"$(printf '[strategy z]\nplugin = dp\nsize = 4\n' | search)" 'the layout of the INI|layouts:'
like "a key that no choice contains" "$(printf '[strategy b]\nplugin = dp\nzero = 2\n' | search)" "$whole"
like "a micro-batch that is not among the values" \
	"$(printf '[strategy b]\nplugin = dp\n' | search --set train.micro_batch=8 --set train.global_batch=32)" 'the layout of the INI|layouts:'
unlike "without a given layout, none is reported" "$(: | search)" '^the layout of the INI'
like "one row, and few tries" "$(printf '[strategy b]\nplugin = dp\n' | search --top 1 --tries 1)" 'less promising, so not looked at|none of them that is possible can be faster'
like "experts" "$(: | search --set model.family=mixtral --set model.experts=2 --set model.heads=4)" 'layouts: '
like "experts in every second layer" "$(: | search --set model.experts=2 --set model.moe_every=2 --tries 2)" 'layouts: '
like "memory for few layouts" "$(printf '[strategy b]\nplugin = dp\n' | search --memory 560K)" 'layouts?'
like "memory for no layout" \
	"$(: | search --memory 1K)" 'plan: no layout fits into 1.0 KB: of the [0-9]+ that were planned completely, the smallest needs [0-9.]+ MB'
like "no layout is possible" \
	"$(: | search --set train.global_batch=1 --set model.heads=1 --set train.micro_batch=1 --set model.embed=2)" 'plan: no layout of [0-9]+ is possible|layouts'

# -- model.load
ok "a model is saved" heddle train tiny.ini --set checkpoint.dir=ck --set train.steps=1
load='train tiny.ini --set train.steps=1 --set model.load=ck'
ok "sizes that the INI leaves to the model" \
	heddle train model.ini --set train.steps=1 --set model.load=ck --set model.kv_heads=0 --set checkpoint.dir=again
for same in layers=02 kv_heads=4 max_seq=32; do
	ok "a size equal to the model's: $same" heddle $load --set model.$same
done
for other in layers=3 family=llama embed=64 heads=2; do
	fails "a size that differs from the model's: $other" heddle $load --set model.$other
	like "... is refused with both values" "$(cat "$tmp/.ok")" "model\\.${other%=*}: .*, but the model in ck has "
done
ok "a model that was itself loaded" heddle train tiny.ini --set train.steps=1 --set model.load=again
ok "an empty model.load" heddle train tiny.ini --set train.steps=1 --set model.load=
fails "a model that does not exist is refused" heddle train tiny.ini --set model.load=nowhere

# -- other names next to the steps
mkdir ck/step-1 ck/step-0000000x ck/step-00000009x ck/step-12345678901234567890 ck/other ck/.removed-step-00000001 ck/.removed-.step-2 ck/.step-00000003
ok "a run resumes next to directories that are not steps" \
	heddle train tiny.ini --set checkpoint.dir=ck --set train.steps=2 --set checkpoint.resume=auto
is "... which stay, while the rest of a killed run is removed" \
	"$(ls -A ck | grep -v -e '^step-0000000[12]$' -e '^latest$' | LC_ALL=C sort | tr '\n' ' ')" \
	"other step-00000009x step-0000000x step-1 step-12345678901234567890 "
like "... and none is resumed" "$(heddle train tiny.ini --set checkpoint.dir=ck --set train.steps=2 --set checkpoint.resume=auto 2>&1)" 'step-00000002' 

# -- tokenizers
printf '{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}' >t.json
printf '{"added_tokens":[{"id":299,"content":"<x>"}],"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}' >big.json
awk 'BEGIN { for (i = 0; i < 4000; i++) printf i % 3 ? "ab" : "ba" }' >ab.txt
ok "a tokenizer by its bare name" heddle train tiny.ini --set data.train=ab.txt --set data.tokenizer=t.json --set checkpoint.dir=three --set train.steps=1
ok "... is copied into the checkpoint" test -f "$(echo three/step-*/tokenizer.json)"
like "... which names no token that ends a text" "$(cat three/step-*/config.json)" '"eos_token_id": null'
ok "... and reads prompts" heddle generate three --prompt ab --tokens 2
printf 'ab\rba\r\na\r\n' >returns.txt
is "... of which only the line break is cut off" "$(heddle generate three --prompts returns.txt --tokens 0)" "$(printf 'ab b a\na')"
ok "... and text" heddle eval three --data ab.txt
ok "... which another run continues with" \
	heddle train tiny.ini --set data.train=ab.txt --set model.load=three --set train.steps=1
fails "a tokenizer of more tokens than the model" heddle generate ck --prompt a --tokenizer big.json
like "... is refused with both" "$(cat "$tmp/.ok")" 'generate: big\.json has 300 tokens, but the model.s vocab is 256'
unlike "a copy of its own tokenizer gives no warning" \
	"$(heddle generate three --prompt ab --tokens 1 --tokenizer t.json 2>&1)" 'instead of'
printf '{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}}' >two.json
like "another tokenizer than its own: a warning with both" \
	"$(heddle generate three --prompt ab --tokens 1 --tokenizer two.json 2>&1)" \
	'generate: --tokenizer two\.json: another file, with 2 ids, instead of the 3 of three/step-00000001/tokenizer\.json$'
like "... of eval too" "$(heddle eval three --data ab.txt --tokenizer two.json 2>&1)" 'eval: --tokenizer two\.json: another file, with 2 ids'
fails "eval with a tokenizer of more tokens than the model" heddle eval three --data ab.txt --tokenizer big.json
like "... is refused with both" "$(cat "$tmp/.ok")" 'big\.json has 300 tokens, but the model.s vocab is 3$'
rm three/step-*/tokenizer.json t.json
fails "a vocabulary too small for bytes is refused" heddle eval three --data ab.txt --tokenizer byte
like "... with the reason" "$(cat "$tmp/.ok")" 'the vocabulary has 3 entries, but text as bytes needs 256|vocab'
fails "generate without the tokenizer is refused" heddle generate three --prompt ab
fails "choices without the tokenizer are refused" heddle eval three --choices ab.txt

# A tokenizer that is removed during the run.
until_there() { for i in $(seq 400); do [ -e "$1" ] && return || sleep 0.05; done; }
away() { # DIR FILE keys...: trains until FILE exists, removes the tokenizer, trains on, and ends with a save
	dir=$1 file=$2
	shift 2
	mkdir -p gone && cp two.json gone/tokenizer.json
	"$build/heddle" train tiny.ini --set data.train=ab.txt --set data.tokenizer=gone --set checkpoint.dir="$dir" \
		--set train.steps=1000000 --set log.metrics="$dir.jsonl" "$@" >away.out 2>&1 &
	run=$!
	until_there "$file"
	rm -r gone
	sleep 0.2
	kill -TERM $run
	wait $run
}
away kept kept/latest --set checkpoint.every=10 --set checkpoint.keep=1
ok "a tokenizer removed during the run is taken from the last step" cmp "kept/$(cat kept/latest)/tokenizer.json" two.json
away lost lost.jsonl --set checkpoint.every=0
ok "without such a step, the run ends with a save" test -s lost/latest
like "... and a warning" \
	"$(cat away.out)" '^heddle: data\.tokenizer: gone no longer exists; the checkpoint is saved without a tokenizer$'
mkdir -p odd/merges.txt && cp two.json odd/tokenizer.json
fails "a file of the tokenizer that cannot be copied fails the save" \
	heddle train tiny.ini --set data.train=ab.txt --set data.tokenizer=odd --set checkpoint.dir=oddly --set train.steps=1
like "... and is named" "$(cat "$tmp/.ok")" 'odd/merges\.txt: cannot be read: Is a directory'

# -- files of weights
mkdir one
cp ck/step-00000002/config.json ck/step-00000002/model.safetensors one
damaged() { # NAME FILE TEXT PATTERN
	printf '%s' "$3" >"one/$2"
	fails "$1" heddle generate one --prompt a --tokens 1
	like "... is refused with the reason" "$(cat "$tmp/.ok")" "$4"
}
# Two files with all tensors, one of them with another ln_f.weight: the index says which one counts.
cat >zero.pl <<'EOT'
# zero.pl FILE TENSOR: sets all of it to 0
my ($path, $name) = @ARGV;
open(my $f, '+<:raw', $path) or die "$path: $!";
read($f, my $size, 8);
read($f, my $header, $size = unpack('Q<', $size));
$header =~ /"\Q$name\E": *\{[^}]*"data_offsets": *\[(\d+), *(\d+)\]/ or die "$path: no $name";
seek($f, 8 + $size + $1, 0);
print $f "\0" x ($2 - $1);
EOT
cp -R one shards
mv shards/model.safetensors shards/a.safetensors
cp shards/a.safetensors shards/b.safetensors
perl zero.pl shards/b.safetensors transformer.ln_f.weight
index() { # FILE TENSOR: writes an index with ln_f.weight in FILE and TENSOR in b
	printf '{"weight_map": {"transformer.ln_f.weight": "%s", "%s": "b.safetensors"}}' "$1" "$2" >shards/model.safetensors.index.json
}
logits() { heddle generate "$1" --prompt a --logits 2>&1; }
index a.safetensors transformer.ln_f.bias
is "of a tensor in two files, the one that the index names counts" "$(logits shards)" "$(logits one)"
index b.safetensors transformer.ln_f.bias
ok "... whichever it is" [ "$(logits shards)" != "$(logits one)" ]
index a.safetensors x
fails "a file that lacks what the index places there" heddle generate shards --prompt a --logits
like "... with both names" "$(cat "$tmp/.ok")" 'model\.safetensors\.index\.json: x should be in b\.safetensors, but that file has no such tensor$'
config=$(cat one/config.json)
mv one/model.safetensors one/part
damaged "an index without a map" model.safetensors.index.json '{}' 'model\.safetensors\.index\.json: has no weight_map'
damaged "an index with a tensor in no file" model.safetensors.index.json '{"weight_map": {"wte.weight": 3}}' \
	'model\.safetensors\.index\.json: wte\.weight: is not in any file of this directory'
damaged "an index that is damaged" \
	model.safetensors.index.json '{' 'model\.safetensors\.index\.json: has no weight_map: .*expected'
rm one/model.safetensors.index.json
mv one/part one/model.safetensors
damaged "sizes of another model" config.json "$(printf '%s' "$config" | sed 's/"n_embd": *32/"n_embd": 64/')" ' is .* there, but .* in this model'
damaged "one layer more than the file has" \
	config.json "$(printf '%s' "$config" | sed 's/"n_layer": *2/"n_layer": 3/')" 'has no tensor .*, which should contain the model.s '
damaged "far more layers than the file has" \
	config.json "$(printf '%s' "$config" | sed 's/"n_layer": *2/"n_layer": 30000/')" 'claims 30000 layers, but its files have [0-9]+ tensors'
for ours in '"a\u0001b": "1"' '"x": "[y"' '"x": "a\nb"' '"x": 7' '"": ";"'; do
	damaged "a key of Heddle that is not one line: $ours" \
		config.json "{\"model_type\": \"heddle\", \"n_positions\": 32, \"heddle\": {\"family\": \"gpt2\", $ours}}" \
		'config\.json: heddle\..* must be one line of text'
done
damaged "an unknown family of Heddle" \
	config.json '{"model_type": "heddle", "n_positions": 32, "heddle": {"family": "gpt9"}}' 'model_type is heddle; known'
damaged "a missing family of Heddle" \
	config.json '{"model_type": "heddle", "n_positions": 32, "heddle": {}}' 'model_type is heddle; known'
damaged "a missing number of positions" config.json '{"model_type": "heddle", "heddle": {"family": "gpt2"}}' 'has no '
done_testing
