#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where `generate` ends a text: at the token that the model's files name, for each of several texts separately.  A text
# that goes on would contain what the model never learnt to write.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"

model=kept/llama
printf '48 49 50\n51\n52 53 54 55 56 57 58\n' >prompts.txt
text() { "$heddle" generate "$model" --ids --tokens 7 --temperature 0 "$@" 2>err || cat err; }
one() { text --prompt '48 49 50' "$@"; }
names() { echo "$2" >"$model/$1"; }
plain=$(sed 's/"eos_token_id": *[0-9]*/"eos_token_id": null/' $model/config.json)
names config.json "$plain"

# -- the complete text, of a model that names no such token
whole=$(one)
is "without an end-of-text token, all tokens are generated" "$(echo "$whole" | wc -w)" 10
is "... and --ignore-eos changes nothing" "$(one --ignore-eos)" "$whole"
logits=$("$heddle" generate $model --ids --prompt '48 49 50' --logits)
end=$(echo "$whole" | cut -d ' ' -f 7)
short=$(echo "$whole" | awk -v e="$end" '{ s = $1 " " $2 " " $3; for (i = 4; i <= NF && $i != e; i++) s = s " " $i; print s }')
ok "an id of the text can end it earlier" [ "$(echo "$short" | wc -w)" -lt 10 ]

# -- the files that name the token
names config.json "$(echo "$plain" | sed "s/\"eos_token_id\": null/\"eos_token_id\": $end/")"
is "the text ends at the token of config.json" "$(one)" "$short"
is "... without a cache" "$(one --no-cache)" "$short"
is "... on three ranks" "$(mpi 3 "$heddle" generate $model --ids --tokens 7 --temperature 0 --prompt '48 49 50' --set t.plugin=tp \
	--set t.size=3 2>/dev/null | tr -d '\r')" "$short"
is "with --ignore-eos it goes on" "$(one --ignore-eos)" "$whole"
is "... without a cache too" "$(one --ignore-eos --no-cache)" "$whole"
is "the logits are unchanged" "$("$heddle" generate $model --ids --prompt '48 49 50' --logits)" "$logits"
fails "--ignore-eos with --logits is refused" "$heddle" generate $model --ids --prompt 1 --logits --ignore-eos
like "... with the reason" "$(cat .ok)" '--ignore-eos does nothing with --logits: no text is generated'
names generation_config.json "{\"eos_token_id\": 100000}"
is "generation_config.json takes precedence over config.json" "$(one)" "$whole"
names generation_config.json "{\"eos_token_id\": [100000, $end]}"
is "... also with several tokens" "$(one)" "$short"
names config.json "$plain"
is "... and without a token in config.json" "$(one)" "$short"
names config.json "$(echo "$plain" | sed "s/\"eos_token_id\": null/\"eos_token_id\": $end/")"
names generation_config.json '{"eos_token_id": null}'
is "with null in generation_config.json it does not end" "$(one)" "$whole"
names generation_config.json '{"eos_token_id": null, "repetition_penalty": 1.0, "min_length": 0, "suppress_tokens": null}'
is "settings without effect are not warned of" "$("$heddle" generate $model --ids --prompt 48 --tokens 1 2>&1 >/dev/null)" ""
names generation_config.json '{"repetition_penalty": 1.2, "suppress_tokens": [3]}'
like "... others are" "$("$heddle" generate $model --ids --prompt 48 --tokens 1 2>&1 >/dev/null)" \
	'generation_config.json: repetition_penalty, suppress_tokens: not used, so texts differ from those of transformers'
names generation_config.json '{"stop_strings": ["."], "encoder_repetition_penalty": 1.5, "guidance_scale": 2.0, "exponential_decay_length_penalty": [1, 1.5]}'
for key in stop_strings encoder_repetition_penalty guidance_scale exponential_decay_length_penalty; do
	like "... $key too" "$("$heddle" generate $model --ids --prompt 48 --tokens 1 2>&1 >/dev/null)" "$key.*: not used"
done
names generation_config.json "{\"eos_token_id\": $end"
like "a damaged file is warned of" "$("$heddle" generate $model --ids --prompt 48 --tokens 1 2>&1 >/dev/null)" \
	'generation_config.json: is not a file of JSON in that directory: not used, not even for eos_token_id'
names config.json "$plain"
names generation_config.json "{\"eos_token_id\": $((end + 4294967296))}"
is "an id beyond 32 bits is no token" "$(one)" "$whole"
names generation_config.json "{\"eos_token_id\": [100000, $end]}"
names config.json "$plain"

# -- several texts: each ends by itself, whatever the others do
text --prompts prompts.txt --no-cache >want
is "each text ends by itself" "$(text --prompts prompts.txt)" "$(cat want)"
ok "... at its own length" [ "$(awk '{ print NF }' want | tr '\n' ' ')" != "10 8 14 " ]
text --prompts prompts.txt --ignore-eos >all
is "... as the beginning of the text with --ignore-eos" "$(awk -v e="$end" 'NR == FNR { n[FNR] = NF; next }
	{ s = $1; for (i = 2; i <= n[FNR]; i++) s = s " " $i; print s; if (n[FNR] < NF && $(n[FNR] + 1) != e) print "not at its end" }' want all)" \
	"$(cat want)"
rm $model/generation_config.json

# -- text: the end token is not shown
names config.json "$(echo "$plain" | sed "s/\"eos_token_id\": null/\"eos_token_id\": $end/")"
show() { "$heddle" generate $model --prompt 012 --tokens 7 --temperature 0 --tokenizer byte "$@" | od -An -v -tu1 | tr -s ' \n' ' '; }
is "the text ends before the token" "$(show)" " $short 10 "

# -- a checkpoint of Heddle without special tokens has null for all of them; earlier versions wrote 0
printf '[model]\nlayers = 1\nheads = 1\nembed = 8\n[data]\ntrain = zeros\ntokenizer = byte\n[train]\nseq = 8\nglobal_batch = 8\nsteps = 30\nlr = 0.1\nthreads = 1\n' >zeros.ini
head -c 4000 /dev/zero >zeros
ok "a model that writes zeros is trained" "$heddle" train zeros.ini --set checkpoint.dir=zero --set checkpoint.every=0
zeros() { "$heddle" generate "$@" --ids --prompt 0 --tokens 5 --temperature 0; }
is "its config names no tokens that begin or end a text" "$(grep -c '"[be]os_token_id": null' zero/step-*/config.json)" 2
mkdir bare && cp zero/step-*/config.json zero/step-*/model.safetensors bare
is "... so its text does not end at a byte, for programs that read only the model too" "$(zeros bare)" "0 0 0 0 0 0"
sed -i 's/\("[be]os_token_id": \)null/\10/' zero/step-*/config.json
rm zero/step-*/heddle/sums.json
is "... nor in a checkpoint of an earlier version, whose config names token 0" "$(zeros zero)" "0 0 0 0 0 0"
done_testing
