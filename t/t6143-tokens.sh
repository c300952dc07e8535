#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model whose tokens are not bytes.  Text must go in and out through the model's tokenizer, and a message must say
# where none is known.  Bytes in place of tokens would train, evaluate and print nonsense, with status 0.
. "${0%/*}/lib/tap.sh"
heddle() { "$build/heddle" "$@"; }
tokenizer=$src/t/data/tokenizers/llama3
export XDG_CACHE_HOME="$tmp/cache"
cd "$tmp" || exit 1

awk 'BEGIN { for (i = 0; i < 300; i++) printf "The old man told us twice, %d times, that it is short.\n", i }' >text.txt
cat >bpe.ini <<END
[model]
layers = 1
heads = 2
embed = 16
[data]
train = text.txt
tokenizer = $tokenizer
[train]
seq = 16
global_batch = 2
steps = 2
threads = 1
[log]
metrics = m.jsonl
sample = 4
sample_prompt = The old
[checkpoint]
dir = ck
END
heddle train bpe.ini >train.out 2>train.err
is "a run trains on text with a tokenizer" "$(ls -d ck/step-00000002 2>&1)" ck/step-00000002
like "its vocab is the tokenizer's" "$(cat ck/step-00000002/config.json)" '"vocab_size": 454'
step=ck/step-00000002
ok "the checkpoint contains the tokenizer" cmp "$tokenizer/tokenizer.json" $step/tokenizer.json
like "... and the token that ends a text" "$(cat $step/config.json)" '"eos_token_id": 450'
like "the sample is text" "$(grep -A1 '^sample:' train.out)" '^The old'

# -- the ids are those of tokenize -----------------------------------------------------------------------------------------------
heddle tokenize --tokenizer "$tokenizer" --out ids text.txt >/dev/null 2>&1
is "the ids are those of files that tokenize wrote" "$(heddle data bpe.ini --step 1)" \
	"$(heddle data bpe.ini --step 1 --set data.train=ids.bin)"
rm -rf cache
is "ids from the cache are the same as new ones" \
	"$(heddle data bpe.ini --step 1 2>/dev/null)" "$(heddle data bpe.ini --step 1 2>/dev/null)"

# -- another file, or other content, with the same name, size and time
ids_step() { XDG_CACHE_HOME="$tmp/theirs" heddle data "${2:-bpe.ini}" --step 1 --set "data.train=$1" 2>/dev/null; }
alike() { sed "s/old man/$1/" text.txt; }
alike 'new cat' >one.txt && touch -d '2024-05-05 05:05:05.1' one.txt
first=$(ids_step one.txt)
alike 'red dog' >one.txt && touch -d '2024-05-05 05:05:05.2' one.txt
cp one.txt fresh.txt
ok "a file written again within a second has other ids" [ "$(ids_step one.txt)" != "$first" ]
is "... which are its own" "$(ids_step one.txt)" "$(ids_step fresh.txt)"
alike 'big fox' >one.txt && touch -d '2024-05-05 05:05:05.2' one.txt
cp one.txt fresh.txt
is "... even if its time was set" "$(ids_step one.txt)" "$(ids_step fresh.txt)"
mkdir here there && cp fresh.txt here/one.txt && alike 'bad hen' >there/one.txt
touch -d '2024-05-05 05:05:05.2' here/one.txt there/one.txt
first=$(cd here && ids_step one.txt ../bpe.ini)
ok "a file of the same name in another directory has its own ids" \
	[ "$(cd there && ids_step one.txt ../bpe.ini)" != "$first" ]

# -- ranks of two hosts, here with a cache each: one has its ids, and waits for the other longer than the watchdog
# allows
sed 's/^threads.*/&\nwatchdog = 1\nmicro_batch = 1/' bpe.ini >two.ini
printf '[strategy dp]\nplugin = dp\n' >>two.ini
heddle data two.ini --step 1 >/dev/null 2>&1
lock=$(basename "$(ls cache/heddle/tokens-*.lock)")
mkdir -p other/heddle
(flock 9 && sleep 4) 9>"other/heddle/$lock" &
# shellcheck disable=SC2016
HD_TEST_SECONDS=100 ok "the watchdog does not end a run that makes ids" mpi 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export XDG_CACHE_HOME="$0/other"
	exec "$@"' "$tmp" "$build/heddle" train two.ini --set checkpoint.dir= --set log.metrics=
wait
ok "... the other rank has made them" test -s "other/heddle/${lock%.lock}.bin"

# -- ids that nobody has used for 30 days are removed when new ids are made; used ones are kept, however old they are
kept() { ls cache/heddle | grep '^tokens-' | sed 's/\..*//' | sort -u | wc -l; }
old() { for end in idx bin lock; do touch -d "$2 days ago" "cache/heddle/tokens-000000000000000$1.$end"; done; }
mine=$(ls cache/heddle/tokens-*.idx)
touch -d '40 days ago' cache/heddle/tokens-*
heddle data bpe.ini --step 1 >/dev/null 2>&1
ok "the use of ids is recorded" [ -n "$(find "$mine" -mtime -1)" ]
old 1 31
old 2 29
touch -d '31 days ago' cache/heddle/tokens-0000000000000001.part.json cache/heddle/other-file
is "three sets of ids are in the cache" "$(kept)" 3
touch -d '5 minutes ago' text.txt
heddle data bpe.ini --step 1 >/dev/null 2>&1
is "new ids are made: those of 31 days ago are removed" "$(ls cache/heddle | grep -c tokens-0000000000000001)" 0
is "... those of 29 days ago are kept" "$(ls cache/heddle | grep -c tokens-0000000000000002)" 3
ok "... and so are the used ones, which are 40 days old" test -s "${mine%.idx}.bin"
ok "... and other files" test -e cache/heddle/other-file
first=$(heddle data bpe.ini --step 1 2>/dev/null)
rm cache/heddle/tokens-*.bin
is "ids of which another program has removed the older file are made again" "$(heddle data bpe.ini --step 1 2>/dev/null)" "$first"
like "a cache that cannot be created: the message says what it is for" \
	"$(XDG_CACHE_HOME=/proc/x heddle data bpe.ini --step 1 2>&1)" '/proc/x: cannot be created: .*; the ids of text are cached in /proc/x/heddle \(XDG_CACHE_HOME\)'

# -- text with the checkpoint's tokenizer
# -------------------------------------------------------------------------------------------------------
prompt=$(printf 'The old' >p.txt; heddle tokenize --tokenizer $step --ids p.txt)
ids=$(heddle generate ck --ids --prompt "$prompt" --tokens 5 --temperature 0)
echo "$ids" >g.ids
is "generate: its text is that of its ids" "$(heddle generate ck --prompt 'The old' --tokens 5 --temperature 0)" \
	"$(heddle tokenize --tokenizer $step --text g.ids)"
like "... which begin with the prompt" "$ids" "^$prompt [0-9]+( [0-9]+){4}\$"
is "a prompt of text has the logits of its ids" "$(heddle generate ck --prompt 'The old' --logits | cksum)" \
	"$(heddle generate ck --ids --prompt "$prompt" --logits | cksum)"
is "eval of text is eval of its ids" "$(heddle eval ck --data text.txt 2>/dev/null)" "$(heddle eval ck --data ids.bin)"

like "... and prints a loss" "$(heddle eval ck --data ids.bin)" '^loss [0-9.]+  perplexity [0-9.]+  tokens [0-9]{4}'

# -- training from a loaded model
# ------------------------------------------------------------------------------------------------------
mkdir hf && cp $step/model.safetensors $step/tokenizer.json hf
sed 's/"bos_token_id": [a-z0-9]*/"bos_token_id": 7/; s/"eos_token_id": [0-9]*/"eos_token_id": [8, 9]/' $step/config.json >hf/config.json
echo '{"eos_token_id": [8, 9], "temperature": 0.6}' >hf/generation_config.json
echo '{"eos_token": "<|endoftext|>"}' >hf/tokenizer_config.json
sed -e '/^tokenizer\|^layers\|^heads\|^embed\|^sample\|^metrics/d' -e 's/^\[model\]/&\nload = hf/' -e 's/^dir = .*/dir = on/' bpe.ini >on.ini
heddle train on.ini >on.out 2>&1
ok "model.load: its tokenizer makes the ids, and is kept" cmp hf/tokenizer.json on/step-00000002/tokenizer.json
ok "... with the tokenizer's config" cmp hf/tokenizer_config.json on/step-00000002/tokenizer_config.json
ok "... and generation_config.json" cmp hf/generation_config.json on/step-00000002/generation_config.json
is "special tokens are the model's" "$(tr -d ' \n' <on/step-00000002/config.json | grep -o '"[be]os_token_id":\(\[[0-9,]*\]\|[0-9]*\)' | xargs)" \
	'bos_token_id:7 eos_token_id:[8,9]'
is "the batches are the same" "$(heddle data on.ini --step 1)" "$(heddle data bpe.ini --step 1)"

# -- what would give nonsense
# ------------------------------------------------------------------------------------------------------
field() { awk -v n="$1" '{ print $n }' "$2"; }
refusal() { heddle "$@" 2>&1 >/dev/null | grep '^heddle: '; }
rm hf/tokenizer.json
like "text for a model without its tokenizer is refused" "$(refusal train on.ini --set checkpoint.dir=x)" \
	"text.txt is text, but the model's vocab of 454 is not that of bytes. Give the DIR of its tokenizer.json, or byte if"
ok "... unless data.tokenizer says that it is bytes" \
	heddle train on.ini --set checkpoint.dir=bytes --set data.tokenizer=byte
fails "... and then no tokenizer is kept" test -e bytes/step-00000002/tokenizer.json
like "generate without a tokenizer is refused" "$(refusal generate hf --prompt a)" \
	"vocab of 454 is not that of bytes, and there is no tokenizer.json in hf: put it there, or give --tokenizer DIR, or the prompt as ids"
like "... unless one is given" "$(heddle generate hf --prompt 'The old' --tokenizer "$tokenizer" --tokens 1)" '^The old'
like "an error of --tokenizer names it, not the line of the checkpoint's INI" \
	"$(heddle generate $step --prompt x --tokenizer nowhere 2>&1)" '^heddle: --tokenizer: nowhere/tokenizer\.json: No such file or directory$'
like "... also of eval" "$(heddle eval $step --data text.txt --tokenizer nowhere 2>&1)" '^heddle: --tokenizer: nowhere/tokenizer\.json: '

like "eval of text without a tokenizer is refused" \
	"$(refusal eval hf --data text.txt)" "text.txt is text, but the model's vocab of 454"
# The directory has no INI, so its batches differ, as do the shapes of the products and the order of their sums.
heddle eval hf --data text.txt --tokenizer "$tokenizer" >hf.out 2>/dev/null
heddle eval ck --data ids.bin >ck.out
near "eval of text with a tokenizer: the loss" "$(field 2 hf.out)" "$(field 2 ck.out)" 1e-5
is "... and the number of tokens" "$(field 6 hf.out)" "$(field 6 ck.out)"
like "a model with fewer tokens than the tokenizer is refused" \
	"$(refusal train bpe.ini --set model.vocab=300 --set checkpoint.dir=y)" \
	'has 454 tokens, but the model.s vocab is 300'
ok "with vocab given, the data need not exist" heddle check bpe.ini --set model.vocab=64 --set data.train=none \
	--set data.tokenizer=byte
ok "... nor need a tokenizer be named" heddle check on.ini --set data.train=none
like "an id beyond the model's vocabulary is refused" \
	"$(refusal generate ck --ids --prompt '5 454')" "'454' is not an id below the model's vocab of 454"

# -- ids without a known tokenizer: the sample is ids, and so is its prompt
perl -e 'print pack("v*", map { $_ % 50 } 1 .. 500)' >few.bin
sed -e '/^tokenizer\|^metrics\|^dir\|^sample_prompt/d' -e 's/^train = .*/train = few.bin\nformat = uint16/' \
	-e 's/^\[model\]/&\nvocab = 50/' bpe.ini >few.ini
sampled() { heddle train few.ini --set train.steps=0 "$@" 2>&1 | sed -n '/^sample, in ids/{n;p;}' | grep -oE "^$want( [0-9]+){4}$" | cut -d ' ' -f -2; }
want='7 49'
is "ids without a tokenizer: the prompt of a sample is ids" "$(sampled --set 'log.sample_prompt=7, 49')" '7 49'
want=0
like "... and 0 without a prompt" "$(sampled)" '^0 '
sed -i '/^sample = 4/a sample_prompt = 7 50' few.ini
line=$(sed -n '/^sample_prompt/=' few.ini)
for verb in train check; do
	like "$verb refuses a prompt beyond the vocabulary" "$(refusal $verb few.ini)" \
		"^heddle: few.ini:$line: \[log\] sample_prompt: '50' is not an id below the model's vocab of 50\. It is read as ids"
done
like "... and text" "$(refusal train few.ini --set log.sample_prompt=The)" "^heddle: --set log.sample_prompt: 'The' is not an id below"

# -- special tokens around a text, as the tokenizer's post-processor names them
mkdir around && cp $step/config.json $step/model.safetensors around
perl -pe 's/"post_processor": *null/"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
	"single":[{"SpecialToken":{"id":"x","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"x":{"id":"x","ids":[7],"tokens":["x"]}}}]}/' \
	"$tokenizer/tokenizer.json" >around/tokenizer.json
logits() { heddle generate around --logits "$@" 2>&1; }
printf %s 'The old' >old.txt
old=$(heddle tokenize --tokenizer around --ids old.txt)
is "a prompt has the token before it" "$(logits --prompt 'The old')" "$(logits --ids --prompt "7 $old")"
is "... in a file of prompts" "$(echo 'The old' >old.prompts; logits --prompts old.prompts)" "$(logits --ids --prompt "7 $old")"
is "... and none with --no-special-tokens" "$(logits --prompt 'The old' --no-special-tokens)" "$(logits --ids --prompt "$old")"
is "... but the token is not printed" "$(heddle generate around --prompt 'The old' --tokens 0)" "The old"
seven=$(echo 7 | heddle tokenize --tokenizer around --text /dev/stdin)
is "a token that the prompt spells is not added again" "$(logits --prompt "${seven}The old")" \
	"$(logits --ids --prompt "$(printf %s "${seven}The old" >spelt; heddle tokenize --tokenizer around --ids spelt)")"
cp -r around both
sed 's/{"Sequence":{"id":"A","type_id":0}}/&,{"SpecialToken":{"id":"x","type_id":0}}/' around/tokenizer.json >both/tokenizer.json
is "a token after a text is left out, since the prompt continues there" \
	"$(heddle generate both --logits --prompt 'The old' 2>&1)" "$(logits --prompt 'The old')"
like "with --ids no such tokens are added" \
	"$(logits --ids --prompt 1 --no-special-tokens)" '--no-special-tokens does nothing with --ids, which adds none'
like "... nor with eval --data" \
	"$(heddle eval around --data text.txt --no-special-tokens 2>&1)" '--no-special-tokens does nothing with --data, which adds none'
echo '{"prompt": "", "choices": ["The", "old"], "answer": 0}' >empty.jsonl
ok "a question with an empty prompt has the token before its answers" heddle eval around --choices empty.jsonl
fails "... and without that token it is refused" heddle eval around --choices empty.jsonl --no-special-tokens
like "... with the reason" "$(cat "$tmp/.ok")" 'the prompt has no token'
fails "--prepend-bos needs a token that is known" \
	heddle tokenize --tokenizer around --out begun --prepend-bos yes old.txt
like "... a message says so" "$(cat "$tmp/.ok")" 'which token begins a text\?'
echo '{"bos_token": "'"$(heddle tokenize --tokenizer around --text /dev/stdin <<-E
	7
	E
)"'"}' >around/tokenizer_config.json
ok "--prepend-bos puts a token before each document" \
	heddle tokenize --tokenizer around --out begun --prepend-bos yes old.txt old.txt
is "... the token that the config names" "$(od -An -v -tu2 begun.bin | tr -s ' \n' ' ')" " 7 $old 7 $old "
sed 's/"ids":\[7\]/"ids":[70000]/' around/tokenizer.json >far.json
like "a post-processor with an id beyond the vocabulary" \
	"$(heddle tokenize --tokenizer far.json --ids old.txt 2>&1)" 'post_processor: id 70000 is not in the vocabulary of'
sed 's/TemplateProcessing/OtherProcessing/' around/tokenizer.json >far.json
like "a post-processor that is not known" "$(heddle tokenize --tokenizer far.json --ids old.txt 2>&1)" 'post_processor is OtherProcessing; known: ByteLevel'
done_testing
