#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models of all families must pass from transformers to here and back.  A model that transformers has written, in the
# form of its version 4 or 5, must have the same logits here.  So must what this program saves of it, with only
# config.json and the weights.  transformers must load that as the same class, with the same logits.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"
cd kept/families || exit 1
models=$(ls -d */ | tr -d /)
prompt=$(i=0; while [ $i -lt 18 ]; do printf '%d ' $((7 * i % 61)); i=$((i + 1)); done)

# The error of a logit is at most 1.5e-5 (t/lib/transformers.sh; these models are no longer), and versions 4 and 5
# agree.
logits() { dir=$1; shift; "$heddle" generate "$dir" --ids --prompt "$prompt" --logits "$@" | sed -n 's/.*\[\(.*\)\].*/\1/p' | tr -d ,; }
# In bf16, sums are computed in fp32, so only results are rounded, by u = 2^-9.  The bound is u sqrt(2 SUMS LAYERS) 4,
# for 20 sums in 4 layers.  Between two programs in bf16 it is sqrt(2) times that.
low=$(awk 'BEGIN { print 2 ^ -9 * sqrt(2 * 20 * 4) * 4 }')
has_logits() { near "$2" "$(apart "$(sed -n 's/^logits //p' "$1/numbers.txt")" "$(logits "$3")")" 0 1.5e-5; }

for model in $models; do
	mkdir "five-$model" "alone-$model"
	cp "$model/model.safetensors" "five-$model" && cp "$model/config-5.json" "five-$model/config.json"
	has_logits "$model" "$model: the logits are those of transformers" "$model"
	has_logits "$model" "$model: the config of transformers 5 gives the same logits" "five-$model"
	near "$model: the logits in bf16" \
		"$(apart "$(sed -n 's/^logits //p' "$model/numbers.txt")" "$(logits "$model" --set train.precision=bf16)")" 0 "$low"
	ok "$model: the model is saved" \
		"$heddle" train one.ini --set model.load="$model" --set train.steps=0 --set checkpoint.dir="saved-$model"
	cp "saved-$model"/step-00000000/config.json "saved-$model"/step-00000000/model.safetensors "alone-$model"
	has_logits "$model" "$model: what is saved, without Heddle's own files, has the same logits" "alone-$model"
done

# longrope has a list for texts within the positions of the first training, and one for longer texts; train.seq chooses.
all=$prompt
prompt=$(echo $all | cut -d' ' -f1-12)
near "phi3-long: a short train.seq uses the short list" \
	"$(apart "$(sed -n 's/^short //p' phi3-long/numbers.txt)" "$(logits phi3-long --set train.seq=16)")" 0 1.5e-5
prompt=$all

# refused MODEL SED REASON
refused() {
	rm -rf edited && cp -R "$1" edited && sed "$2" "$1/config.json" >edited/config.json
	fails "$1: $2" "$heddle" check one.ini --set model.load=edited --ranks 1
	like "... is refused, with the reason" "$(cat "$tmp/.ok")" "$3"
}
refused gemma2 's/"full_attention"/"linear_attention"/' 'layer_types is .*linear_attention.*; known: sliding_attention and full'
refused gemma2 's/"use_cache"/"use_bidirectional_attention": true, "use_cache"/' 'use_bidirectional_attention is true.*; known: false'
refused gemma2 's/"attn_logit_softcapping": [0-9.]*/"attn_logit_softcapping": 0.0/' 'attn_logit_softcapping is 0\.0.*; known: null, or a number other than 0'
refused gemma3 's/"rope_type": "linear"/"rope_type": "proportional"/' 'rope_scaling is .*proportional.*; known: rope_type default'
refused phi3-long 's/2\.5,/2.5, 7.0,/' '3 factors, but 2 pairs of a head are rotated'
refused olmoe 's/"clip_qkv": null/"clip_qkv": 8.0/' 'clip_qkv is 8\.0.*; known: null'
refused qwen3-moe 's/"mlp_only_layers": \[\]/"mlp_only_layers": [1]/' 'mlp_only_layers is \[1\].*; known: \[\]'
refused phi3 's/"model_type": "phi3"/"model_type": "phimoe"/' 'model_type is phimoe; known: gpt2, llama'

# A mixture of features that no class of transformers has must not claim to be one.
ok "a llama with norms of queries is saved" \
	"$heddle" train one.ini --set model.family=llama --set model.layers=2 --set model.embed=16 \
	--set model.heads=4 --set model.vocab=61 --set model.qk_norm=head --set model.norm=both --set train.steps=0 --set checkpoint.dir=mixed
like "... but not as a Llama" "$(cat mixed/step-00000000/config.json)" '"model_type": "heddle"'
like "... and its config names the norms" "$(cat mixed/step-00000000/config.json)" '"norm": "both"'
before=$(logits mixed)
mkdir mixed-alone && cp mixed/step-00000000/config.json mixed/step-00000000/model.safetensors mixed-alone
near "... so that it can be read again" "$(apart "$before" "$(logits mixed-alone)")" 0 1.5e-5
# Mixtral's class has experts in every layer: where a model lacks them, transformers would fill in random ones.
ok "a mixtral with experts in every other layer is saved" \
	"$heddle" train one.ini --set model.family=mixtral --set model.layers=2 --set model.embed=16 \
	--set model.heads=4 --set model.vocab=61 --set model.experts=4 --set model.moe_every=2 --set train.steps=0 --set checkpoint.dir=every
like "... but not as a Mixtral" "$(cat every/step-00000000/config.json)" '"model_type": "heddle"'
before=$(logits every)
mkdir every-alone && cp every/step-00000000/config.json every/step-00000000/model.safetensors every-alone
near "... and it is read again" "$(apart "$before" "$(logits every-alone)")" 0 1.5e-5
# No class of transformers has the blocks of Llama or GPT-2 with experts: their router would be lost.
for family in llama gpt2; do
	ok "$family with experts is saved" \
		"$heddle" train one.ini --set model.family=$family --set model.layers=2 --set model.embed=16 \
		--set model.heads=4 --set model.vocab=61 --set model.experts=4 --set model.router=topk --set model.capacity_factor=1.5 \
		--set train.steps=0 --set checkpoint.dir=$family-experts
	like "... but not as a $family of transformers" \
		"$(cat $family-experts/step-00000000/config.json)" '"model_type": "heddle"'
	before=$(logits $family-experts)
	mkdir $family-alone && cp $family-experts/step-00000000/config.json $family-experts/step-00000000/model.safetensors $family-alone
	near "... and it is read again" "$(apart "$before" "$(logits $family-alone)")" 0 1.5e-5
done
with_torch

cat >check.py <<-'EOT'
	import sys, torch, transformers
	from transformers import AutoModelForCausalLM
	torch.set_num_threads(1)
	plain = dict(attn_implementation="eager")
	if transformers.__version__ >= "5": # its products of experts want sizes that are multiples of 16 bytes
	    plain["experts_implementation"] = "eager"
	ids = torch.tensor([[int(x) for x in sys.argv[1].split()]])
	for name in sys.argv[2:]:
	    theirs, info = AutoModelForCausalLM.from_pretrained(name, output_loading_info=True, dtype="float32", **plain)
	    ours = AutoModelForCausalLM.from_pretrained("saved-%s/step-00000000" % name, dtype="float32", **plain)
	    again, unknown = AutoModelForCausalLM.from_pretrained("alone-" + name, output_loading_info=True, dtype="float32", **plain)
	    with torch.no_grad():
	        a, b, c = (m.eval()(ids).logits for m in (theirs, ours, again))
	    same = type(theirs) is type(ours) is type(again)
	    print(name, float((a - b).abs().max()), float((a - c).abs().max()), sum(len(v) for v in unknown.values()), same)
	    theirs.to(torch.bfloat16).save_pretrained("low-" + name, max_shard_size="10KB")
	    low = AutoModelForCausalLM.from_pretrained("low-" + name, dtype="float32", **plain).eval()
	    with torch.no_grad():
	        print("low-" + name, *low(ids).logits[0, -1].tolist())
	    bf16 = AutoModelForCausalLM.from_pretrained("low-" + name, dtype="bfloat16", **plain).eval()
	    with torch.no_grad():
	        print("bf16-" + name, *bf16(ids).logits[0, -1].float().tolist())
	    theirs.to(torch.float16).save_pretrained("half-" + name, max_shard_size="10KB")
	    half = AutoModelForCausalLM.from_pretrained("half-" + name, dtype="float32", **plain).eval()
	    with torch.no_grad():
	        print("half-" + name, *half(ids).logits[0, -1].tolist())
EOT
ok "transformers reads the saved models" "$python" check.py "$prompt" $models
cp "$tmp/.ok" theirs.txt
for model in $models; do
	line=$(grep "^$model " theirs.txt)
	is "$model: transformers loads the same class and knows every tensor" \
		"$(echo "$line" | cut -d' ' -f4-)" "0 True"
	near "$model: transformers computes the same logits" "$(echo "$line" | awk 'NF == 5 { print $2 + $3 }')" 0 1e-5
	near "$model: the logits of bf16 weights in several files" \
		"$(apart "$(sed -n "s/^low-$model //p" theirs.txt)" "$(logits "low-$model")")" 0 1e-4
	near "$model: the logits of fp16 weights in several files" \
		"$(apart "$(sed -n "s/^half-$model //p" theirs.txt)" "$(logits "half-$model")")" 0 1e-4
	near "$model: the logits when both programs compute in bf16" \
		"$(apart "$(sed -n "s/^bf16-$model //p" theirs.txt)" "$(logits "low-$model" --set train.precision=bf16)")" 0 \
		"$(awk -v x="$low" 'BEGIN { print x * sqrt(2) }')"
done
done_testing
