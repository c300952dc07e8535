#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model that was trained in shards must be the same model for other programs.  Its checkpoint must have the same
# logits in transformers as here, and a Llama that transformers has written must be read here.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"

for name in llama llama-tied; do
	kept_model $name kept/$name
	kept_saved $name 1
	kept_config $name num_hidden_layers hidden_size num_attention_heads num_key_value_heads \
		intermediate_size vocab_size max_position_embeddings rms_norm_eps
done
kept_refused llama 's/\("attention_dropout":\) 0.0/\1 0.1/' 'attention_dropout is 0\.1.*; known: 0, null'
kept_refused llama 's/\("rope_scaling":\) null/\1 {"rope_type": "spiral", "factor": 2.0}/' \
	'rope_scaling is .*spiral.*; known: rope_type default, linear, dynamic, llama3, yarn, longrope'
kept_refused llama 's/\("rope_scaling":\) null/\1 {"rope_type": "linear", "factor": 2.0, "turbo": 1}/' 'rope_scaling is .*turbo'
kept_refused llama 's/"silu"/"relu2"/' 'hidden_act is .relu2.*; known: silu, swish, gelu_pytorch_tanh'
kept_refused llama 's/"hidden_act"/"use_alibi": true, "hidden_act"/' 'use_alibi is true.*; known: the keys num_hidden_layers'
kept_refused llama 's/\("num_hidden_layers":\) 2,//' 'has no num_hidden_layers'
with_torch

cat >run.ini <<-'EOT'
	[model]
	layers = 2
	heads = 8
	embed = 64
	init_std = 0.1
	vocab = 259
	norm_eps = 1e-4
	[data]
	tokenizer = byte
	train = text.txt
	[train]
	seq = 32
	global_batch = 4
	steps = 6
	lr = 1e-2
	threads = 1
	[strategy tp]
	plugin = tp
EOT
llama='--set model.family=llama --set model.rope_theta=5000'
train() {
	name=$1 ranks=$2
	shift 2
	ok "$name: $ranks ranks train" mpi "$ranks" "$heddle" train run.ini --set checkpoint.dir="$name" "$@"
}
train gpt2 4
train llama 2 $llama
train grouped 4 $llama --set model.kv_heads=2
train sequence 4 $llama --set model.kv_heads=1 --set tp.sequence_parallel=yes --set model.tie_embeddings=yes

cat >check.py <<-'EOT'
	import json, sys, torch
	from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
	torch.set_num_threads(1)
	data = torch.tensor(list(open("text.txt", "rb").read()))
	prompts = ["1\n2\n3\n", "699\n70"]
	def loss(model, seq):
	    n = (len(data) - 1) // seq
	    ids, targets = data[:n * seq].view(n, seq), data[1:n * seq + 1].view(n, seq)
	    with torch.no_grad():
	        logits = model.eval()(ids).logits
	    return torch.nn.functional.cross_entropy(logits.reshape(n * seq, -1).double(), targets.reshape(-1)).item()
	def say(name, model, seq, unknown):
	    print(name, loss(model, seq), unknown, type(model).__name__)
	    for i, text in enumerate(prompts):
	        with torch.no_grad():
	            z = model.eval()(torch.tensor([list(text.encode())])).logits[0, -1]
	        json.dump(z.tolist(), open("%s.%d.json" % (name, i), "w"))
	for name in "gpt2", "llama", "grouped", "sequence":
	    model, info = AutoModelForCausalLM.from_pretrained(name + "/step-00000006", output_loading_info=True, dtype="float32")
	    say(name, model, 32, sum(len(v) for v in info.values()))
	model.save_pretrained("again")
	torch.manual_seed(1)
	for name, more in ("theirs", {}), ("tied", dict(tie_word_embeddings=True, num_key_value_heads=1)):
	    sizes = dict(vocab_size=256, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
	                 num_key_value_heads=2, max_position_embeddings=40, rms_norm_eps=1e-6, rope_theta=500000.0)
	    model = LlamaForCausalLM(LlamaConfig(**{**sizes, **more}))
	    for p in model.parameters():
	        p.data += 0.1 * torch.randn_like(p)
	    model.save_pretrained(name, max_shard_size="100KB")
	    say(name, model, 40, 0)
EOT
ok "transformers reads them, and writes others" "$python" check.py
cp .ok theirs.txt
said() { awk -v name="$1" -v field="$2" '$1 == name { print $field }' theirs.txt; }
# far FILE LINE: prints the largest difference of two lists of numbers
far() { "$python" -c 'import json, sys
a, b = json.load(open(sys.argv[1])), json.loads(sys.argv[2])["logits"]
print(max(abs(x - y) for x, y in zip(a, b)) if len(a) == len(b) else "%d and %d" % (len(a), len(b)))' "$1" "$2"; }
logits() {		# NAME DIRECTORY
	i=0
	for text in '1
2
3
' '699
70'; do
		near "$1: the same logits after prompt $i" "$(far "$1.$i.json" "$("$heddle" generate "$2" --prompt "$text" --logits)")" 0 1e-4
		i=$((i + 1))
	done
}

is "gpt2: transformers loads it as its class" "$(said gpt2 4)" GPT2LMHeadModel
is "llama: transformers loads it as its class" "$(said llama 4)" LlamaForCausalLM
for name in gpt2 llama grouped sequence; do
	is "$name: every tensor is known, none is missing" "$(said $name 3)" 0
	near "$name: the same loss" "$(ours $name text.txt)" "$(said $name 2)" 1e-5
	logits $name $name
done
near "four ranks compute the same logits" \
	"$(far grouped.0.json "$(mpi 4 "$heddle" generate grouped --prompt '1
2
3
' --logits 2>/dev/null)")" 0 1e-4
near "a model that transformers has saved again has the same loss" \
	"$(ours again text.txt --tokenizer byte)" "$(said sequence 2)" 1e-5
ok "a model of transformers is in several files" test -f theirs/model.safetensors.index.json
for name in theirs tied; do
	near "$name: a Llama written by transformers has the same loss" "$(ours $name text.txt)" "$(said $name 2)" 1e-5
	logits $name $name
done
done_testing
