#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of models that are cut in three: by heads, layers, experts and replicas.  A third slice has an offset that
# is neither nothing nor a half.  If this broke, a run that moves from three machines to one would go on with another
# model.
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

# A rank of two has heads 0 to 2 or 3 to 5 and needs kv head 1 of three, so each has one that no head of its own reads, or half reads.
ok "6 heads and 3 kv heads on two ranks: the gradients of one" heddle check llama.ini --ranks 2 --set model.embed=24 --set model.heads=6 \
	--set model.kv_heads=3 --set model.mlp=32 --set model.vocab=258 --set tp.plugin=tp --set tp.size=2 --set checkpoint.every=0 --against-one-rank

# in_layout NAME MODEL [PLUGIN KEYS]...: NAME.ini
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

# alike A B: the losses of A are those of B at the same steps; sums of some tens of floats in another order, whose unit
# is 6e-8.
alike() {
	numbers "$1" >.a
	numbers "$2" >.b
	join .a .b | awk '{ d = $2 / $4 - 1; if (d < 0) d = -d; print; if (!(d <= 1e-6)) bad = 1; n++ }
		END { exit bad || n != 2 }'
}

# Without a learning rate a run saves what it began with or has loaded, bit by bit; AdamW's states are saved and loaded
# as well.
still="--set train.lr=0 --set checkpoint.every=0"
for family in gpt2 llama mixtral; do
	ok "$family, one rank" train $family 1 $family
	ok "$family, one rank, first weights" train $family-first 1 $family $still --set train.steps=1
done
for layout in gpt2-tp gpt2-pp llama-tp llama-dp mixtral-ep mixtral-tp; do
	family=${layout%%-*}
	ok "$layout" train $layout-first 3 $layout $still --set train.steps=1
	ok "$layout: saves the file of one rank" weights $layout-first 1 $family-first 1
	ok "$layout: loads what one rank saved" train $layout-loaded 3 $layout $still --set train.steps=3 \
		--set "checkpoint.resume=$family/step-00000002"
	ok "$layout: and saves it as it was" weights $layout-loaded 3 $family 2
done

# handed FROM TO: two steps of the one, two more of the other; weights and states.
handed() {
	family=${1%%-*}
	[ -d "$1" ] || ok "$1" train "$1" 3 "$1"
	ok "$1 goes on as $2" train "$1-as-$2" 3 "$2" --set "checkpoint.resume=$1/step-00000002"
	ok "$1 goes on as $2: the losses of one rank" alike "$1-as-$2.jsonl" "$family.jsonl"
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
