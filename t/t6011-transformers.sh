#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A checkpoint is worth something only if other programs read the same model from it, and if their models are read here.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"

kept_model gpt2 kept/gpt2
ok "a model without its head is in several files" test -f kept/headless/model.safetensors.index.json
kept_model gpt2 kept/headless
kept_refused gpt2 's/"gelu_new"/"relu"/' activation_function
kept_refused gpt2 's/\("scale_attn_by_inverse_layer_idx":\) false/\1 true/' scale_attn_by_inverse_layer_idx
kept_saved gpt2 3 tp
kept_config gpt2 n_layer n_embd n_head n_inner n_positions vocab_size layer_norm_epsilon
fails "a directory without a model is not evaluated" "$heddle" eval . --data text.txt
like "... but refused with the reason" "$(cat .ok)" 'is not a checkpoint'
with_torch

cat >run.ini <<-'EOT'
	[model]
	layers = 2
	heads = 4
	embed = 32
	init_std = 0.1
	[data]
	train = text.txt
	[train]
	seq = 32
	global_batch = 4
	steps = 6
	lr = 1e-2
	threads = 1
EOT
ok "a model with tied embeddings" "$heddle" train run.ini --set checkpoint.dir=tied
ok "a model without tied embeddings" "$heddle" train run.ini --set checkpoint.dir=untied --set model.tie_embeddings=no

cat >check.py <<-'EOT'
	import sys, torch
	from transformers import GPT2LMHeadModel, GPT2Model, GPT2Config
	torch.set_num_threads(1)
	data = torch.tensor(list(open("text.txt", "rb").read()))
	def loss(model, seq):
	    n = (len(data) - 1) // seq
	    ids, targets = data[:n * seq].view(n, seq), data[1:n * seq + 1].view(n, seq)
	    with torch.no_grad():
	        logits = model.eval()(ids).logits
	    return torch.nn.functional.cross_entropy(logits.reshape(n * seq, -1).double(), targets.reshape(-1)).item()
	for name in "tied", "untied":
	    model, info = GPT2LMHeadModel.from_pretrained(name + "/step-00000006", output_loading_info=True)
	    print(name, loss(model, 32), sum(len(v) for v in info.values()))
	model.save_pretrained("theirs")
	torch.manual_seed(1)
	sizes = dict(vocab_size=256, n_positions=24, n_embd=48, n_layer=3, n_head=3)
	model = GPT2LMHeadModel(GPT2Config(**sizes))
	for p in model.parameters():
	    p.data += 0.1 * torch.randn_like(p)
	model.save_pretrained("another", max_shard_size="100KB")
	model.transformer.save_pretrained("headless")
	print("another", loss(model, 24), 0)
	GPT2LMHeadModel(GPT2Config(activation_function="relu", **sizes)).save_pretrained("relu")
EOT
ok "transformers reads both, and writes others" "$python" check.py
cp .ok theirs.txt
said() { awk -v name="$1" -v field="$2" '$1 == name { print $field }' theirs.txt; }

for name in tied untied; do
	is "$name: every tensor is known, none is missing" "$(said $name 3)" 0
	near "$name: the same loss" "$(ours $name text.txt)" "$(said $name 2)" 1e-5
done
near "a model that transformers has saved again has the same loss" "$(ours theirs text.txt)" "$(said untied 2)" 1e-5
ok "a model of transformers is in several files" test -f another/model.safetensors.index.json
near "... and has the same loss here" "$(ours another text.txt)" "$(said another 2)" 1e-5
near "... so has the model without its head, under shorter names" "$(ours headless text.txt)" "$(said another 2)" 1e-5
{ sed -e '/layers\|heads\|embed/d' -e 's/seq = 32/seq = 24/' run.ini; printf '[strategy tp]\nplugin = tp\n'; } >load.ini
ok "three ranks start from this model" \
	mpi 3 "$heddle" train load.ini --set model.load=another --set train.steps=0 --set checkpoint.dir=begun
near "... with its loss" "$(ours begun text.txt)" "$(said another 2)" 1e-5
fails "a model with an unknown activation is not evaluated" "$heddle" eval relu --data text.txt
like "... but refused with the reason" "$(cat .ok)" 'relu/config\.json: .*activation_function'
done_testing
