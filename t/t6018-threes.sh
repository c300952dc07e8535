#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of models that are cut in three: by heads, layers, experts and replicas.  A third slice has an offset that
# is neither zero nor a half.  If this broke, a run that moves from three machines to one would continue with a
# different model.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/resumed.sh"

model() {	# NAME [KEYS]...
	name=$1
	shift
	{
		printf '[model]\nlayers = 4\nembed = 18\nvocab = 257\n'
		printf '%s\n' "$@"
		printf '[data]\ntrain = text.txt\ntokenizer = byte\nvalid_fraction = 0\n'
		printf '[train]\nseq = 9\nglobal_batch = 9\nmicro_batch = 1\nsteps = 4\n'
		printf 'lr = 3e-3\nmin_lr = 0\nthreads = 1\n[checkpoint]\nevery = 2\nkeep = 9\n'
	} >"$name.ini"
}
model gpt2 'heads = 6' 'mlp = 45'
model llama 'family = llama' 'heads = 3' 'mlp = 33' 'kv_heads = 1'
model mixtral 'family = mixtral' 'heads = 3' 'mlp = 21' 'kv_heads = 3' 'experts = 3' 'init_std = 0.2'

# Of two ranks, one has heads 0 to 2, the other 3 to 5, and both need kv head 1 of three.  So each has a kv head that
# its own heads do not read, or read only in part.
ok "6 heads and 3 kv heads on two ranks: the gradients are those of one rank" \
	heddle check llama.ini --ranks 2 --set model.embed=24 --set model.heads=6 \
	--set model.kv_heads=3 --set model.mlp=32 --set model.vocab=258 --set tp.plugin=tp --set tp.size=2 --set checkpoint.every=0 --against-one-rank

# in_layout NAME MODEL [PLUGIN KEYS]...: writes NAME.ini
in_layout() {
	to=$1
	cp "$2.ini" "$to.ini"
	shift 2
	while [ $# -gt 0 ]; do
		printf '[strategy %s]\nplugin = %s\nsize = 3\n%b' "$1" "$1" "$2" >>"$to.ini"
		shift 2
	done
}
in_layout gpt2-tp gpt2 tp 'sequence_parallel = yes\n'
in_layout gpt2-pp gpt2 pp 'schedule = zb\n'
in_layout llama-tp llama tp ''
in_layout llama-dp llama dp 'zero = 3\n'
in_layout mixtral-ep mixtral ep ''
in_layout mixtral-tp mixtral tp ''

weights() { cmp "$1/step-0000000$2/model.safetensors" "$3/step-0000000$4/model.safetensors"; }

# alike A B: the losses of A are those of B at the same steps.  They are sums of some tens of floats in another order,
# with a rounding unit of 6e-8.
alike() {
	numbers "$1" >.a
	numbers "$2" >.b
	join .a .b | awk '{ d = $2 / $4 - 1; if (d < 0) d = -d; print; if (!(d <= 1e-6)) bad = 1; n++ }
		END { exit bad || n != 2 }'
}

# With a learning rate of 0 a run saves the weights that it started with or loaded, bit for bit.  AdamW's states are
# saved and loaded as well.
still="--set train.lr=0 --set checkpoint.every=0"
for family in gpt2 llama mixtral; do
	ok "$family trains on one rank" train $family 1 $family
	ok "$family saves its first weights on one rank" train $family-first 1 $family $still --set train.steps=1
done
for layout in gpt2-tp gpt2-pp llama-tp llama-dp mixtral-ep mixtral-tp; do
	family=${layout%%-*}
	ok "$layout trains" train $layout-first 3 $layout $still --set train.steps=1
	ok "$layout: it saves the same file as one rank" weights $layout-first 1 $family-first 1
	ok "$layout: it loads what one rank saved" train $layout-loaded 3 $layout $still --set train.steps=3 \
		--set "checkpoint.resume=$family/step-00000002"
	ok "$layout: it saves that unchanged" weights $layout-loaded 3 $family 2
done

# handed FROM TO: takes two steps in layout FROM and two more in layout TO, with weights and states.
handed() {
	family=${1%%-*}
	[ -d "$1" ] || ok "$1 trains" train "$1" 3 "$1"
	ok "$1 is resumed as $2" train "$1-as-$2" 3 "$2" --set "checkpoint.resume=$1/step-00000002"
	ok "$1 is resumed as $2: the losses are those of one rank" alike "$1-as-$2.jsonl" "$family.jsonl"
}
handed gpt2-tp gpt2-pp
handed llama-dp llama-tp
handed mixtral-ep mixtral-tp
if whole_sweep; then # and back
	handed gpt2-pp gpt2-tp
	handed llama-tp llama-dp
	handed mixtral-tp mixtral-ep
fi
done_testing
