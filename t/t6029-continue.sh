#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Types each command of doc/continue.md as a new user does, on a model of SmolLM's family with random weights, and with
# fewer layers and steps.  What no longer works here is somebody's first impression.
. "${0%/*}/lib/tap.sh"
heddle=$build/heddle
[ -x "$heddle" ] || skip_all "heddle is not built"
command -v mpirun >/dev/null || skip_all "no mpirun"
python=${PYTHON:-python3}
export XDG_CACHE_HOME="$tmp/cache" HF_HUB_OFFLINE=1
cd "$tmp" || exit 1

# Writes the commands of the page to files command.N.
awk '/^<!-- command: / { n = $3; next } /^```/ { on = !on && n; if (!on) n = ""; next } on { print >"command." n }' "$src/doc/continue.md"
is "the page has five commands" "$(echo command.*)" "command.1 command.2 command.3 command.4 command.5"

# The commands find this program, with few steps, and the first command's model, with two layers.
mkdir bin && ln -s "$src/conf" conf
cat >bin/heddle <<EOT
#!/bin/sh
v=\$1
shift
[ \$v != train ] || set -- "\$@" --set train.steps=2 --set train.global_batch=4 --set train.seq=64 --set train.eval_batches=1 --set train.lr=1e-2 \
	--set train.threads=1 --set train.warmup=0 --set train.precision=fp32
exec $heddle "\$v" "\$@"
EOT
printf '#!/bin/sh\nexec %s --oversubscribe "$@"\n' "$(command -v mpirun)" >bin/mpirun
chmod +x bin/heddle bin/mpirun
seq 1 3000 >my.txt
seq 3000 3300 >held-out.txt
cat >made.ini <<-'EOT'
	[model]
	family = llama
	layers = 2
	embed = 72
	heads = 9
	kv_heads = 3
	mlp = 160
	vocab = 512
	max_seq = 256
	tie_embeddings = yes
	[data]
	train = my.txt
	tokenizer = byte
	[train]
	seq = 64
	global_batch = 1
	steps = 0
EOT
ok "a model of the family with random weights is saved" "$heddle" train made.ini --set checkpoint.dir=made
mkdir smollm && cp made/step-00000000/config.json made/step-00000000/model.safetensors "$src/t/data/tokenizers/gpt2/tokenizer.json" smollm
typed() { PATH=$tmp/bin:$PATH timeout -k 5 100 sh -e "$1" </dev/null; }

ok "command 2 trains" typed command.2
ok "command 3 evaluates" typed command.3
perplexity=$(sed -n 's/.*perplexity \([0-9.]*\).*/\1/p' .ok | tr '\n' ' ')
ok "... the perplexity has fallen" \
	awk -v p="$perplexity" 'BEGIN { n = split(p, a, " "); exit !(n == 2 && a[2] < a[1]) }'
ok "command 4 generates" typed command.4
like "... and continues the prompt" "$(cat .ok)" '^Once upon a time'
ok "the checkpoint contains the tokenizer" cmp smollm/tokenizer.json continued/step-00000002/tokenizer.json
if "$python" -c 'import torch, transformers' 2>/dev/null; then
	sed 's/step-00000100/step-00000002/' command.5 >command.5b
	printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v "$python")" >bin/python3 && chmod +x bin/python3
	ok "command 5 generates with transformers" typed command.5b
	like "... and continues the prompt too" "$(cat .ok)" 'generated_text.*Once upon a time'
else
	skip "python3 has no torch and transformers"
fi
done_testing
