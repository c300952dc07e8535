#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every key of the INI must have an effect.  If one is read, checked and then forgotten, nothing fails, but the run is
# not the one that was asked for.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sed '/^\[strategy/,$d' tiny.ini | sed -e 's/^micro_batch.*/micro_batch = 8/' -e 's/^train = text.txt/&\nvalid_fraction = 0/' >gpt2.ini
sed 's/^family = .*/family = llama\nkv_heads = 2\nmlp = 64/' gpt2.ini >llama.ini
sed 's/^family = .*/family = mixtral\nkv_heads = 2\nmlp = 64\nexperts = 4/' gpt2.ini >mixtral.ini
sed 's/^family = .*/family = gpt2\nexperts = 4/' gpt2.ini >gshard.ini

# -- sizes: the numbers of parameters, counted by hand
parameters() { heddle check --all "$@" | sed -n 's/^\([0-9]*\) parameters$/\1/p'; }
# embeddings 256 x 32 + 32 x 32; a layer 12 x 32^2 + 13 x 32; the last norm 64
is "parameters of gpt2" "$(parameters gpt2.ini)" 34688
is "parameters of gpt2, untied" "$(parameters gpt2.ini --set model.tie_embeddings=no)" $((34688 + 8192))
is "parameters of gpt2 with another mlp" "$(parameters gpt2.ini --set model.mlp=100)" $((34688 - 2 * 28 * 65))
is "parameters of gpt2 with another max_seq" "$(parameters gpt2.ini --set model.max_seq=40)" $((34688 + 8 * 32))
is "parameters of gpt2 with another vocab" \
	"$(parameters gpt2.ini --set model.vocab=300 --set data.tokenizer=byte)" $((34688 + 44 * 32))
# embedding and head 2 x 256 x 32; in a layer q and o 32 x 32, k and v 32 x 16, three of 32 x 64, norms 64; the last
# norm 32
is "parameters of llama" "$(parameters llama.ini)" 34976
is "parameters of llama with another kv_heads" \
	"$(parameters llama.ini --set model.kv_heads=1)" $((34976 - 2 * 2 * 32 * 8))
is "parameters of llama, tied" "$(parameters llama.ini --set model.tie_embeddings=yes)" $((34976 - 8192))
is "parameters of llama with the default mlp: 85.3, rounded up to 128" \
	"$(parameters llama.ini --set model.mlp=0)" $((34976 + 2 * 3 * 32 * 64))
# router 32 x 4, and three more feed-forward layers, in each layer or in layer 1 alone
is "parameters of mixtral" "$(parameters mixtral.ini)" $((34976 + 2 * (128 + 3 * 6144)))
is "parameters of mixtral with moe_every" \
	"$(parameters mixtral.ini --set model.moe_every=2)" $((34976 + 128 + 3 * 6144))
# four feed-forward layers of 2 x 32 x 128 without biases in place of one with biases
is "parameters of gpt2 with experts" "$(parameters gshard.ini)" $((34688 + 128 + 3 * 2 * 32 * 128 - 128 - 32))

# -- the attributes of the program's nodes
nodes() { ini=$1 op=$2; shift 2; heddle explain "$ini" --nodes "$@" | sed -n "s/.* $op \[\([^]]*\)\].*/\1/p" | sort -u; }
for family in gpt2 llama mixtral; do
	is "$family: norm_eps in all norms" "$(nodes $family.ini norm --set model.norm_eps=0.25 | sed 's/.*eps=//')" 0.25
	like "$family: norm_eps is 1e-5 by default" "$(nodes $family.ini norm)" 'eps=1\.0000000000000001e-05$'
done
asked() { nodes "$@" | tr ' ' '\n' | sed -n 's/^random=//p'; }
is "gshard: the second expert is used at random" "$(asked gshard.ini route)" 1
is "second_expert = all: the second expert is always used" "$(asked gshard.ini route --set model.second_expert=all)" 0
is "topk: no expert is used at random" "$(asked gshard.ini route --set model.router=topk)" 0

# -- the effect on the loss
first() { rm -f m.jsonl; heddle train "$@" --set train.steps=1 --set log.metrics=m.jsonl >out 2>&1 || tap_comment <out; head -n 1 m.jsonl; }
loss() { json "$(first "$@")" loss; }
# With eps = 1e12 norms scale their input by 1e-6, and all logits are equal; half an ulp of ln 256 in fp32 is 2.4e-7.
for family in gpt2 llama mixtral; do
	near "$family: with norms flattened by an eps of 1e12, the loss is ln 256" \
		"$(loss $family.ini --set model.norm_eps=1e12)" 5.54517744448 5e-7
	ok "$family: ... and with the default eps it is not" \
		awk -v x="$(loss $family.ini)" 'BEGIN { d = x - log(256); exit !(d > 1e-4 || d < -1e-4) }'
done
# An expert has 4 of a group's 32 x 2 / 4 places.  If the second expert is always used, 16 of 64 choices find a place.
share() { first gshard.ini --set model.capacity_factor=0.5 "$@" | sed -n 's/.*"dropped": \[\([0-9.]*\)\].*/\1/p'; }
all=$(share --set model.second_expert=all)
near "if the second expert is always used, three of four choices are dropped" "$all" 0.75 1e-9
random=$(share)
ok "... and fewer if it is used at random: $random" awk -v r="$random" 'BEGIN { exit !(r > 0.5 && r < 0.75) }'
near "... and none if the experts have room for all" \
	"$(first gshard.ini --set model.capacity_factor=4 | sed -n 's/.*"dropped": \[\([0-9.]*\)\].*/\1/p')" 0 0

# -- each key must change three steps of training
steps() { rm -f m.jsonl; heddle train "$@" --set log.metrics=m.jsonl >out 2>&1 || tap_comment <out; sed -e 's/, "time": [0-9.]*//' -e 's/, "lr".*"matmul_share": [^,}]*//' m.jsonl; }
for ini in gpt2 llama gshard; do
	steps $ini.ini >$ini.steps
	is "$ini: three steps are trained" "$(grep -c '"loss"' $ini.steps)" 3
done
matters() {			# INI KEY=VALUE...
	ini=$1
	shift
	for set; do
		steps "$ini.ini" --set "$set" >other.steps
		[ "$(grep -c '"loss"' other.steps)" -eq 3 ] && ! cmp -s "$ini.steps" other.steps
		tap_result $? "$ini: $set matters"
	done
}
matters gpt2 model.dropout=0.1 model.init_std=0.03 model.tie_embeddings=no model.norm_eps=1e-3 data.order=sequential \
	train.optimizer=sgd train.lr=1e-3 train.min_lr=0 train.schedule=linear train.warmup=2 train.decay=2 train.weight_decay=0 \
	train.beta1=0.8 train.beta2=0.9 train.eps=1e-4 train.clip=0.1 train.clip=0 train.seed=2 train.precision=bf16
matters llama model.rope_theta=100 model.norm_eps=1e-3
matters gshard model.router=topk model.capacity_factor=1 model.group_tokens=64 model.second_expert=all model.aux_loss=0.1 \
	model.z_loss=0.01 model.moe_every=1
for ini in gpt2 llama gshard; do
	is "$ini: without these keys, the run is the same as before" "$(steps $ini.ini)" "$(cat $ini.steps)"
done
done_testing
