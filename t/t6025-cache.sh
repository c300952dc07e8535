#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Generation with a cache of keys and values must give the same logits as without one, in any layout.  Prompts may have
# one piece or several, and many texts may be generated together.  A token that reads its neighbour's cache, or a
# position that is off by one, would still write text.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"

# t/lib/transformers.sh derives the rounding error of a logit, which both sides have.
limit=$(awk 'BEGIN { print 2 * 1.5e-5 }')
logits() { "$heddle" generate "$@" --logits 2>err | sed -n 's/.*\[\(.*\)\].*/\1/p' | tr -d ,; }
ids="48 49 50 255 0 7 7 3 200 100 1"
for model in gpt2 llama llama-tied mixtral; do
	near "$model: the same logits as without a cache" "$(apart "$(logits kept/$model --ids --prompt "$ids")" \
		"$(logits kept/$model --ids --prompt "$ids" --no-cache)")" 0 "$limit"
done

# Many texts: 3 prompts of different lengths, 8 tokens each; then 18 tokens, which is more than the model reads at once.
printf '48 49 50\n51\n52 53 54 55 56 57 58\n' >prompts.txt
text() { "$heddle" generate "$@" --ids --temperature 0 2>err || tap_comment <err; }
for model in gpt2 llama mixtral; do
	text kept/$model --prompts prompts.txt --tokens 8 --no-cache >"want-$model"
	is "$model: three texts together are the same as without a cache" \
		"$(text kept/$model --prompts prompts.txt --tokens 8)" "$(cat "want-$model")"
	is "$model: texts that outgrow the cache are the same as without one" \
		"$(text kept/$model --prompts prompts.txt --tokens 18)" \
		"$(text kept/$model --prompts prompts.txt --tokens 18 --no-cache)"
done
is "more texts than fit at once are the same as without a cache" \
	"$(seq 1 40 >many.txt; text kept/gpt2 --prompts many.txt --tokens 3)" \
	"$(text kept/gpt2 --prompts many.txt --tokens 3 --no-cache)"
is "sampled texts are the same as without a cache" \
	"$("$heddle" generate kept/gpt2 --ids --prompts prompts.txt --tokens 9 --top-p 0.9 --temperature 1)" \
	"$("$heddle" generate kept/gpt2 --ids --prompts prompts.txt --tokens 9 --top-p 0.9 --temperature 1 --no-cache)"

# A prompt that is longer than 256 tokens is read in several pieces, the first of them not full.
sed -e 's/^seq = .*/seq = 600/' kept/one-sgd.ini >long.ini
cat >>long.ini <<'END'
[log]
every = 1
END
printf '[model]\nlayers = 2\nembed = 16\nheads = 2\nvocab = 257\ninit_std = 0.3\n' >head.ini
sed -e '/^\[model\]/d' -e 's/^train = .*/train = text.txt\ntokenizer = byte/' long.ini >>head.ini
"$heddle" train head.ini --set train.steps=0 --set checkpoint.dir=long >out 2>&1 || tap_comment <out
seq 1 2000 | head -c 1500 | od -An -v -t u1 -w1 | head -530 | tr '\n' ' ' >prompt
cp prompt long-prompt
near "a prompt of 530 tokens has the same logits as without a cache" \
	"$(apart "$(logits long --ids --prompts prompt)" "$(logits long --ids --prompts prompt --no-cache)")" 0 "$limit"

# Every family, including windows, whose caches are rings that hold only the window, and sigmoid routers.
cd kept/families || exit 1
prompt=$(i=0; while [ $i -lt 18 ]; do printf '%d ' $((7 * i % 61)); i=$((i + 1)); done)
printf '%s\n5\n6 7 8 9 10 11\n' "$prompt" >prompts.txt
for model in */; do
	model=${model%/}
	near "$model: the same logits as without a cache" "$(apart "$(logits $model --ids --prompt "$prompt")" \
		"$(logits $model --ids --prompt "$prompt" --no-cache)")" 0 "$limit"
	is "$model: texts together are the same as without a cache" \
		"$(text $model --prompts prompts.txt --tokens 8)" "$(text $model --prompts prompts.txt --tokens 8 --no-cache)"
done
cd ../..
sed -e 's/^heads = .*/&\nfamily = llama\nmlp = 32\nwindow = 16\nwindow_layers = wf/' head.ini >window.ini
"$heddle" train window.ini --set train.steps=0 --set checkpoint.dir=window >out 2>&1 || tap_comment <out
near "a window and a prompt of many pieces have the same logits as without a cache" \
	"$(apart "$(logits window --ids --prompt "$(cat long-prompt)")" \
	"$(logits window --ids --prompt "$(cat long-prompt)" --no-cache)")" 0 "$limit"
if [ -e "$build/heddle-cuda-sim.so" ]; then
	is "on the cuda device (simulated): the same text" \
		"$(HD_TEST_CUDA_MODULE=$build/heddle-cuda-sim.so text window --prompts kept/families/prompts.txt --tokens 4 --set train.device=cuda --set train.precision=fp32)" \
		"$(text window --prompts kept/families/prompts.txt --tokens 4)"
	out=$(HD_TEST_CUDA_MODULE="$build/heddle-cuda-sim.so" "$heddle" bench window.ini --generate --batch 2 --steps 2 --json --set train.device=cuda --set train.precision=fp32 2>err) || tap_comment <err
	like "bench --generate runs there" "$out" '"tokens_per_second": *[0-9.]*[1-9]'
	unlike "... without a bound, which it cannot know" "$out" 'bound_tokens_per_second'
else
	skip "no simulated device"
fi

# -- layouts: replicas, sharded leaves, heads, stages, experts, rows and columns, and a sequence that training shards
for layout in gpt2:2:dp gpt2:2:dp:zero=3 gpt2:2:tp gpt2:3:pp mixtral:2:ep llama:4:tp:form=2d llama:2:cp:form=ring gpt2:2:tp:sequence_parallel=yes; do
	model=${layout%%:*} rest=${layout#*:}
	n=${rest%%:*} rest=${rest#*:}
	axis=${rest%%:*} more=${rest#"$axis"}
	case $model:$axis:$more in
	llama:tp:*) model=llama-tied text kept/llama-tied --prompts prompts.txt --tokens 5 --no-cache >want-one; model=llama-tied ;;
	*) text kept/$model --prompts prompts.txt --tokens 5 --no-cache >want-one ;;
	esac
	mpi "$n" "$heddle" generate kept/$model --ids --prompts prompts.txt --tokens 5 --temperature 0 --set train.seq=12 \
		--set x.plugin="$axis" --set x.size="$n" ${more:+--set "x.${more#:}"} >said 2>err || tap_comment <err
	is "$model, $axis $n ${more#:}: the text of one rank" "$(cat said)" "$(cat want-one)"
	[ "$more" != :form=ring ] || unlike "... and no warning of a second ring" "$(cat err)" 'another section'
done

# Layouts of more keys or strategies.  A line is MODEL:RANKS:SECTION=KEY=VALUE,... with a blank between sections.  Two
# have more members than key heads, so that an axis shards the key heads and another only the heads.
while IFS=: read -r model n sections; do
	text kept/$model --prompts prompts.txt --tokens 5 --no-cache >want-one
	set --
	for section in $sections; do
		for key in $(echo "${section#*=}" | tr , ' '); do set -- "$@" --set "${section%%=*}.$key"; done
	done
	mpi "$n" "$heddle" generate kept/$model --ids --prompts prompts.txt --tokens 5 --temperature 0 --set train.seq=12 \
		"$@" >said 2>err || tap_comment <err
	is "$model, $n ranks: the text of one rank with $sections" "$(cat said)" "$(cat want-one)"
done <<'END'
llama-tied:8:tp=plugin=tp,size=8,form=2.5d,depth=2
llama-tied:8:tp=plugin=tp,size=8,form=3d
llama-tied:4:tp=plugin=tp,size=4
llama-tied:4:cp=plugin=cp,size=2 tp=plugin=tp,size=2
gpt2:8:dp=plugin=dp,size=2,zero=3 tp=plugin=tp,size=2 pp=plugin=pp,size=2
mixtral:4:dp=plugin=dp,size=2,zero=2 ep=plugin=ep,size=2
mixtral:4:ep=plugin=ep,size=2 pp=plugin=pp,size=2
gpt2:4:cp=plugin=cp,size=2,form=ulysses pp=plugin=pp,size=2
gpt2:1:pp=plugin=pp,size=1,schedule=interleaved
gpt2:2:pp=plugin=pp,size=2,schedule=interleaved
END

# -- bench
out=$("$heddle" bench head.ini --generate --batch 3 --steps 4 --json 2>err) || tap_comment <err
for key in prompt_tokens_per_second tokens_per_second bound_tokens_per_second bound_share; do
	like "bench: $key" "$out" "\"$key\": *[0-9.]*[1-9]"
done
like "... of three texts" "$out" '"batch": *3, *"prompt_tokens": *128, *"tokens": *4,'
# in fp32: 12 e^2 of weights and 9 e of biases a layer, the head, and 128 + 2 positions of the caches of three texts
is "... bytes_per_token counts what a token must read" \
	"$(printf '%s\n' "$out" | sed -n 's/.*"bytes_per_token": *\([0-9.]*\).*/\1/p' | sed 's/\.0*$//')" \
	$((4 * (2 * (12 * 16 * 16 + 9 * 16) + 257 * 16 + 3 * 2 * 2 * 130 * 16)))
# Llama's weights: 4 e^2 + 3 e mlp in a layer; the layer with the window reads 16 positions, the other 130
is "... and of a window only the window" \
	"$("$heddle" bench window.ini --generate --batch 3 --steps 4 --json 2>err | sed -n 's/.*"bytes_per_token": *\([0-9.]*\).*/\1/p' | sed 's/\.0*$//')" \
	$((4 * (2 * (4 * 16 * 16 + 3 * 16 * 32) + 257 * 16 + 3 * 2 * (16 + 130) * 16)))
fails "bench --batch without --generate" "$heddle" bench head.ini --batch 3
like "... is refused" "$(cat .ok)" "^heddle: bench: --batch works only with --generate"
done_testing
