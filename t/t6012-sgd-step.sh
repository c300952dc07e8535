#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Adam hides a gradient that is wrong by a factor, and a loss curve hides nearly everything.  One step of plain gradient
# descent with learning rate 1 shows the gradient itself: it must be that of another implementation, tensor by tensor.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/transformers.sh"

# t/t6051-kept-models.c compares four models with kept results, tensor by tensor.  This part checks the batch, and two
# ranks.
cd kept || exit 1
is "the tokens of the kept step" "$("$heddle" data one-sgd.ini --set model.load=gpt2 --step 1 --json | tr -d ' ')" \
	"$(od -A n -v -t u2 -j 1024 -N 158 -w2 ids-llmc.bin | awk '{ id[NR - 1] = $1 + 0 } END {
		printf "{\"step\":1,\"tokens\":["
		for (i = 0; i < 6; i++)
			for (k = 0; k < 14; k++)
				printf "%s%d%s", k ? "," : "[", id[13 * i + k], k == 13 ? (i == 5 ? "]]}\n" : "],") : ""
	}')"
{ cat one-sgd.ini; printf '\n[strategy dp]\nplugin = dp\n'; } >dp.ini
ok "two ranks take the kept step" \
	mpi 2 "$heddle" train dp.ini --set model.load=gpt2 --set log.metrics=two.jsonl --set checkpoint.dir=two
for key in loss grad_norm; do
	near "... the relative error of its $key" \
		"$(awk -v key="\"$key\":" '{ for (i = 1; i < NF; i++) if ($i == key) x[NR] = $(i + 1) + 0 }
		END { print x[1] / x[2] - 1 }' two.jsonl gpt2/one-sgd.jsonl)" 0 1e-5
done
cd "$tmp" || exit 1
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
	seq = 24
	global_batch = 8
	micro_batch = 2
	steps = 1
	optimizer = sgd
	lr = 1
	schedule = constant
	weight_decay = 0
	clip = 0
	threads = 1
	[checkpoint]
	gradients = yes
EOT
cp run.ini dp.ini
printf '\n[strategy dp]\nplugin = dp\nsize = 2\n' >>dp.ini

ok "the initial model is saved" "$heddle" train run.ini --set train.steps=0 --set checkpoint.dir=start
ok "one rank takes a step" "$heddle" train run.ini --set checkpoint.dir=one --set log.metrics=one.jsonl
runs=one
if [ -f "$build/plugins/dp/dp.la" ]; then
	ok "two ranks take a step" mpi 2 "$heddle" train dp.ini --set checkpoint.dir=two --set log.metrics=two.jsonl
	runs="one two"
else
	skip "the plugin dp is not built"
fi
ok "the tokens of the step are printed" "$heddle" data run.ini --step 1 --json
cp .ok tokens.json

# Prints for each run the relative errors of the loss and of the norm.  Then the largest error of a weight and of a
# gradient, each divided by its bound.
cat >check.py <<-'EOT'
	import json, sys, torch
	from safetensors.torch import load_file
	from transformers import GPT2LMHeadModel
	torch.set_num_threads(1)
	tokens = torch.tensor(json.load(open("tokens.json"))["tokens"])
	model = GPT2LMHeadModel.from_pretrained("start/step-00000000").double().train()
	logits = model(tokens[:, :-1]).logits
	loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
	loss.backward()
	grads = {n: p.grad for n, p in model.named_parameters()}
	norm = torch.sqrt(sum((g * g).sum() for g in grads.values())).item()
	start = load_file("start/step-00000000/model.safetensors")
	def of(ours, name):		# a gradient of ours in the shape of theirs
	    name = name.replace("transformer.", "").replace(".c_fc", ".fc").replace(".c_proj", ".proj")
	    rows = 1 if name.endswith(".bias") else None
	    if ".c_attn" in name:
	        parts = [ours[name.replace("c_attn", x)] for x in "qkv"]
	        return torch.cat([p.reshape(-1) if rows else p.reshape(p.shape[0], -1) for p in parts], dim=-1)
	    return ours[name]
	def worst(pairs):
	    return max(((a.double() - b).abs() / bound).max().item() for a, b, bound in pairs)
	for run in sys.argv[1:]:
	    first = json.loads(open(run + ".jsonl").readline())
	    now = load_file(run + "/step-00000001/model.safetensors")
	    ours = load_file(run + "/step-00000001/heddle/gradients.safetensors")
	    assert set(now) == set(start) == set(grads), set(now) ^ set(grads)
	    weights, gradients = [], []
	    for n, g in grads.items():
	        top = 1e-5 * g.abs().max()
	        ulp = torch.nextafter(start[n].abs(), torch.tensor(float("inf"))) - start[n].abs()
	        weights.append((now[n], start[n].double() - g, top + ulp.double()))
	        gradients.append((of(ours, n).reshape(g.shape), g, top))
	    print(run, abs(first["loss"] / loss.item() - 1), abs(first["grad_norm"] / norm - 1), worst(weights),
	          worst(gradients))
EOT
ok "PyTorch computes the same step" "$python" check.py $runs
cp .ok errors.txt
note "$(cat errors.txt)"
for run in $runs; do
	near "$run: the loss, relative error" "$(awk -v r=$run '$1 == r { print $2 }' errors.txt)" 0 1e-5
	near "$run: the gradient's norm, relative error" "$(awk -v r=$run '$1 == r { print $3 }' errors.txt)" 0 1e-5
	near "$run: the largest error of a weight, divided by its bound" \
		"$(awk -v r=$run '$1 == r { print $4 }' errors.txt)" 0 1
	near "$run: the largest error of a gradient, divided by its bound" \
		"$(awk -v r=$run '$1 == r { print $5 }' errors.txt)" 0 1
done
done_testing
