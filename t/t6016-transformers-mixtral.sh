#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Experts in the files of other programs.  A Mixtral that was trained on several ranks must have the same logits in
# transformers, whichever rank held an expert.  One that transformers has written must have them here.  For that,
# choices, gates and names must all agree.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"

kept_model mixtral kept/mixtral
kept_saved mixtral 3 ep
kept_config mixtral num_hidden_layers hidden_size num_attention_heads num_key_value_heads \
	intermediate_size vocab_size max_position_embeddings rms_norm_eps num_local_experts num_experts_per_tok \
	router_aux_loss_coef
kept_refused mixtral 's/\("router_jitter_noise":\) 0.0/\1 0.1/' 'router_jitter_noise is 0\.1'
kept_refused mixtral 's/"num_experts_per_tok"/"num_shared_experts": 1, "num_experts_per_tok"/' 'num_shared_experts is 1'
with_torch

cat >run.ini <<-'EOT'
	[model]
	family = mixtral
	layers = 2
	heads = 4
	kv_heads = 2
	embed = 32
	mlp = 48
	experts = 4
	rope_theta = 5000
	init_std = 0.2
	[data]
	train = text.txt
	valid_fraction = 0
	[train]
	seq = 32
	global_batch = 4
	steps = 6
	lr = 1e-2
	threads = 1
	[strategy ep]
	plugin = ep
EOT
ok "four ranks train with an expert each" mpi 4 "$heddle" train run.ini --set checkpoint.dir=experts
ok "one rank resumes that run" \
	mpi 1 "$heddle" train run.ini --set checkpoint.dir=resumed --set checkpoint.resume=experts --set train.steps=7
ok "a model without experts trains" \
	"$heddle" train run.ini --set ep.size=1 --set ep.plugin=dp --set model.experts=0 --set checkpoint.dir=dense

cat >check.py <<-'EOT'
	import json, torch
	from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM
	torch.set_num_threads(1)
	data = torch.tensor(list(open("text.txt", "rb").read()))
	def say(name, model, seq, unknown):
	    n = (len(data) - 1) // seq
	    ids, targets = data[:n * seq].view(n, seq), data[1:n * seq + 1].view(n, seq)
	    with torch.no_grad():
	        logits = model.eval()(ids).logits
	        z = model(torch.tensor([list(b"699")])).logits[0, -1]
	    loss = torch.nn.functional.cross_entropy(logits.reshape(n * seq, -1).double(), targets.reshape(-1)).item()
	    print(name, loss, unknown, type(model).__name__)
	    json.dump(z.tolist(), open(name + ".json", "w"))
	for name, step in ("experts", 6), ("resumed", 7), ("dense", 6):
	    model, info = AutoModelForCausalLM.from_pretrained("%s/step-%08d" % (name, step), output_loading_info=True, dtype="float32")
	    say(name, model, 32, sum(len(v) for v in info.values()))
	torch.manual_seed(1)
	sizes = dict(vocab_size=256, hidden_size=48, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
	             num_key_value_heads=2, max_position_embeddings=40, num_local_experts=6, num_experts_per_tok=3)
	model = MixtralForCausalLM(MixtralConfig(**sizes))
	for p in model.parameters():
	    p.data += 0.1 * torch.randn_like(p)
	model.save_pretrained("theirs")
	say("theirs", model, 40, 0)
	for name, more in ("sliding", dict(sliding_window=16)), ("single", dict(num_experts_per_tok=1)):
	    model = MixtralForCausalLM(MixtralConfig(**{**sizes, **more}))
	    for p in model.parameters():
	        p.data += 0.1 * torch.randn_like(p)
	    model.save_pretrained(name)
	    say(name, model, 40, 0)
EOT
ok "transformers reads them, and writes another" "$python" check.py
cp .ok theirs.txt
said() { awk -v name="$1" -v field="$2" '$1 == name { print $field }' theirs.txt; }
far() { "$python" -c 'import json, sys
a, b = json.load(open(sys.argv[1])), json.loads(sys.argv[2])["logits"]
print(max(abs(x - y) for x, y in zip(a, b)) if len(a) == len(b) else "%d and %d" % (len(a), len(b)))' "$1" "$2"; }
is "transformers loads it as a Mixtral" "$(said experts 4)" MixtralForCausalLM
is "transformers loads the model without experts as a Llama" "$(said dense 4)" LlamaForCausalLM
for name in experts resumed dense theirs sliding single; do
	is "$name: every tensor is known, none is missing" "$(said $name 3)" 0
	near "$name: the same loss" "$(ours $name text.txt)" "$(said $name 2)" 1e-5
	near "$name: the same logits" "$(far $name.json "$("$heddle" generate "$name" --prompt 699 --logits)")" 0 1e-4
done
done_testing
