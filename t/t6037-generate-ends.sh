#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where `generate` ends a text: at the token that the model's files name, each of several by itself.  One that goes on writes what
# the model never learnt to write.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"

model=kept/llama
printf '48 49 50\n51\n52 53 54 55 56 57 58\n' >prompts.txt
text() { "$heddle" generate "$model" --ids --tokens 7 --temperature 0 "$@" 2>err || cat err; }
one() { text --prompt '48 49 50' "$@"; }
names() { echo "$2" >"$model/$1"; }
plain=$(sed 's/"eos_token_id": *[0-9]*/"eos_token_id": null/' $model/config.json)
names config.json "$plain"

# -- the whole, of a model that names none, and the ids it has
whole=$(one)
is "without an end-of-text token all are generated" "$(echo "$whole" | wc -w)" 10
is "and --ignore-eos changes nothing" "$(one --ignore-eos)" "$whole"
logits=$("$heddle" generate $model --ids --prompt '48 49 50' --logits)
end=$(echo "$whole" | cut -d ' ' -f 7)
short=$(echo "$whole" | awk -v e="$end" '{ s = $1 " " $2 " " $3; for (i = 4; i <= NF && $i != e; i++) s = s " " $i; print s }')
ok "an id that ends it earlier" [ "$(echo "$short" | wc -w)" -lt 10 ]

# -- who names it
names config.json "$(echo "$plain" | sed "s/\"eos_token_id\": null/\"eos_token_id\": $end/")"
is "config.json" "$(one)" "$short"
is "... without a cache" "$(one --no-cache)" "$short"
is "... on three ranks" "$(mpi 3 "$heddle" generate $model --ids --tokens 7 --temperature 0 --prompt '48 49 50' --set t.plugin=tp \
	--set t.size=3 2>/dev/null | tr -d '\r')" "$short"
is "--ignore-eos goes on" "$(one --ignore-eos)" "$whole"
is "... without a cache too" "$(one --ignore-eos --no-cache)" "$whole"
is "the logits are as they were" "$("$heddle" generate $model --ids --prompt '48 49 50' --logits)" "$logits"
fails "with --logits it does nothing" "$heddle" generate $model --ids --prompt 1 --logits --ignore-eos
like "... and that is said" "$(cat .ok)" '--ignore-eos does nothing with --logits: no text is generated'
names generation_config.json "{\"eos_token_id\": 100000}"
is "generation_config.json is before it" "$(one)" "$whole"
names generation_config.json "{\"eos_token_id\": [100000, $end]}"
is "... with several" "$(one)" "$short"
names config.json "$plain"
is "... and alone" "$(one)" "$short"

# -- several texts: each by itself, whatever stands beside it
text --prompts prompts.txt --no-cache >want
is "each text ends by itself" "$(text --prompts prompts.txt)" "$(cat want)"
ok "at lengths of their own" [ "$(awk '{ print NF }' want | tr '\n' ' ')" != "10 8 14 " ]
text --prompts prompts.txt --ignore-eos >all
is "and is the beginning of what goes on" "$(awk -v e="$end" 'NR == FNR { n[FNR] = NF; next }
	{ s = $1; for (i = 2; i <= n[FNR]; i++) s = s " " $i; print s; if (n[FNR] < NF && $(n[FNR] + 1) != e) print "not at its end" }' want all)" \
	"$(cat want)"
rm $model/generation_config.json

# -- text: the end is not shown; and what the tokenizer's files name
names config.json "$(echo "$plain" | sed "s/\"eos_token_id\": null/\"eos_token_id\": $end/")"
show() { "$heddle" generate $model --prompt 012 --tokens 7 --temperature 0 --tokenizer byte "$@" | od -An -v -tu1 | tr -s ' \n' ' '; }
is "the text ends before it" "$(show)" " $short 10 "

# -- a checkpoint of ours that names none has 0 for all special tokens
printf '[model]\nlayers = 1\nheads = 1\nembed = 8\n[data]\ntrain = zeros\ntokenizer = byte\n[train]\nseq = 8\nglobal_batch = 8\nsteps = 30\nlr = 0.1\nthreads = 1\n' >zeros.ini
head -c 4000 /dev/zero >zeros
ok "a model that writes zeros" "$heddle" train zeros.ini --set checkpoint.dir=zero --set checkpoint.every=0
like "says token 0" "$(cat zero/step-*/config.json)" '"eos_token_id": *0'
is "and does not end there" "$("$heddle" generate zero --ids --prompt 0 --tokens 5 --temperature 0)" "0 0 0 0 0 0"
done_testing
