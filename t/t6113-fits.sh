#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run that cannot fit.  The system promises memory that it does not have, and ends this or another process when it is
# touched.  So the host must be asked before.  Whoever has to change the layout must be told by how much, and which keys
# help.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# No host has 89 TB.  If a run started all the same, a limit of 40 GB of address space would end it, not the host's
# memory.
sed -e 's/^layers = .*/layers = 96/' -e 's/^embed = .*/embed = 65536/' -e 's/^heads = .*/heads = 64/' tiny.ini >huge.ini
limited() { (ulimit -v 40000000; "$@" 2>&1); }
numbers='[0-9.]+ [TP]B of memory would be needed'

for verb in train bench; do
	said=$(limited heddle $verb huge.ini)
	is "$verb is refused" $? 1
	like "... with the numbers" "$said" "^heddle: $numbers, and .* has [0-9.]+ [MGT]B left"
	like "... and what the memory consists of" \
		"$said" '\(rank 0: parameters and state 59\.4 TB, within a step [0-9.]+ [GTM]B[,)]'
	like "... and the keys that help" \
		"$said" 'This helps: a smaller train\.micro_batch \(it is 2\), train\.recompute = full, dp\.zero \(less memory: .*\), more hosts'
	is "... in one message" "$(printf '%s\n' "$said" | messages | wc -l)" 1
	unlike "... before weights and steps" "$said" 'initial weights|^step '
done
said=$(limited heddle_mpi 2 train huge.ini)
like "the memory of a host's ranks is added up" \
	"$said" '^heddle: 1[0-9.]+ TB of memory would be needed by the 2 ranks of this host'
unlike "keys that are already at their limit are not named" \
	"$(limited heddle train huge.ini --set dp.zero=3 --set train.recompute=full)" \
	'dp\.zero|recompute'

# A checkpoint of that size: eval and generate read its config.json before its weights.
mkdir hf
echo '{"model_type":"gpt2","n_layer":96,"n_embd":65536,"n_head":64,"vocab_size":256,"n_positions":64}' >hf/config.json
for verb in "eval hf --data text.txt" "generate hf --prompt x"; do
	said=$(limited heddle $verb)
	is "${verb%% *} is refused" $? 1
	like "... with the numbers and what helps" \
		"$said" "^heddle: $numbers, and .* left .*\. This helps: more hosts, in a layout that shards the model"
done

# The tiny model fits.
ok "a model that fits is trained" heddle train tiny.ini

# NCCL's communicators take memory of each rank in addition to its plan: one for a group's collectives, and with two
# stages one in each direction.
checked() { heddle check tiny.ini --ranks 2 --set train.device=cuda "$@"; }
of_rank=$(checked --json)
is "the communicators are part of the memory" \
	"$(json "$of_rank" memory_bytes)" "$(($(json "$of_rank" persistent_bytes) +
	$(json "$of_rank" transient_bytes) + $(json "$of_rank" communicator_bytes)))"
like "... and named" "$(checked)" 'within a step [0-9.]+ KB, 1 NCCL communicator about 209\.7 MB'
is "with MPI there are no communicators" "$(json "$(checked --json --set train.comm=mpi)" communicator_bytes)" 0
fails "--memory counts the communicators" checked --memory 100M
ok "without communicators the rest fits" checked --memory 100M --set train.comm=mpi
sed 's/^\[strategy dp\]/[strategy pp]/; s/^plugin = dp/plugin = pp\nsize = 2/' tiny.ini >stages.ini
like "two stages have one more for messages in each direction" \
	"$(heddle check stages.ini --ranks 2 --set train.device=cuda --set model.tie_embeddings=no)" \
	', 3 NCCL communicators about 629\.1 MB'

# Sizes whose products overflow.
refused() {
	name=$1 pattern=$2
	shift 2
	said=$(heddle check huge.ini --ranks 4 "$@" 2>&1)
	is "$name is refused" $? 1
	like "... and named" "$said" "$pattern"
}
refused "a width that is too large" \
	'model\.embed: 99999999999996 is too large, at most 1000000000$' --set model.embed=99999999999996
refused "a parameter that is too large" \
	'h\.1\..*weight \(.*embed.*\): .*134217728.* elements, with the parameters before it, are more than' \
	--set model.embed=134217728
refused "an activation that is too large" '\(batch,seq,embed\): 1000000000 x 100000000 x 65536 elements are more than' \
	--set train.global_batch=1000000000 --set train.micro_batch=1000000000 --set train.seq=100000000 \
	--set data.train=nowhere.txt --set model.vocab=256
refused "a number of tokens that is too large" \
	'train\.steps: 9000000000000 x global_batch = 1000000 x seq = 32 are more tokens' \
	--set train.steps=9000000000K --set train.global_batch=1000000
done_testing
