#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory for the rows of experts without a capacity limit (train.expert_rows).  If this broke, a model of many experts
# would need several times the memory that it uses, or rows would be written beyond their memory.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

cat text.txt text.txt text.txt text.txt >text
cat >experts.ini <<'EOF'
[model]
family = mixtral
layers = 2
embed = 32
heads = 4
kv_heads = 2
mlp = 64
vocab = 256
experts = 8
experts_per_token = 2
[data]
train = text
[train]
seq = 512
micro_batch = 4
global_batch = 16
steps = 2
deterministic = yes
[strategy ep]
plugin = ep
size = 4
EOF
tokens=$((4 * 4 * 512))			# of the micro-batches of the four ranks
numbers() { sed -n 's/.*"loss": \([0-9.e-]*\).*"grad_norm": \([0-9.e-]*\).*/\1 \2/p' "$1"; }
train() {	# NAME args
	name=$1
	shift
	heddle_mpi 4 train experts.ini --set log.metrics="$name.jsonl" "$@" >"$name.out" 2>&1
}
memory() { heddle check experts.ini --ranks 4 --json "$@" | sed -n 's/.*"memory_case": "\([a-z_]*\)".*/\1/p'; }

# Two experts of eight are here: any choices are two rows of each token, equal ones half a row.
is "without the key, memory is for any choices" "$(memory)" largest
is "... with it, for as many rows as it says" "$(memory --set train.expert_rows=1.5)" expert_rows
is "... with 4 and more, for any choices again" "$(memory --set train.expert_rows=4)" largest
like "check says so" "$(heddle check experts.ini --ranks 4 --set train.expert_rows=1.5)" \
	'^memory holds 1\.5 times the rows of equal choices of experts'
bytes_of() { heddle explain experts.ini --ranks 4 --saved "$@" | sed -n 's/^layer 0 .*expert,batch,slot,mlp *\([0-9]*\) bytes.*/\1/p' | head -n 1; }
is "any choices take two rows of each token" "$(bytes_of)" $((2 * tokens * 64 * 4))
is "1.5 times equal choices take three quarters of a row" "$(bytes_of --set train.expert_rows=1.5)" $((tokens * 3 / 4 * 64 * 4))
is "few rows are not limited below 1,024" \
	"$(bytes_of --set train.expert_rows=1 --set train.seq=64 --set train.global_batch=16)" $((1024 * 64 * 4))

train any
train some --set train.expert_rows=2
is "two steps train" "$(numbers any.jsonl | wc -l)" 2
is "rows that fit: the same bits" "$(numbers some.jsonl)" "$(numbers any.jsonl)"
for comm in "" mpi; do
	HD_TEST_COMM=$comm
	export HD_TEST_COMM
	fails "rows that do not fit end the run${comm:+, between hosts}" train few --set train.expert_rows=1
	like "... the message says how many there are, and what they need" "$(cat few.out)" \
		"^heddle: rank [0-3] .*layer 0: [0-9]+ choices fell on the experts of this rank, and it has memory for $((tokens / 2)) \(train\.expert_rows = 1\); they need 1\.[0-9]+"
done
unset HD_TEST_COMM

# Text of one letter, whose tokens all choose the same experts.  The rank that has no room must end the others, which
# wait for its rows, and say why: in an evaluation of a run, in eval and in bench.
head -c 20000 /dev/zero | tr '\0' a >letter.txt
room='choices fell on the experts of this rank, and it has memory for [0-9]+ \(train\.expert_rows = 1\.9\); they need [2-4]'
HD_TEST_SECONDS=60
fails "rows of an evaluation that do not fit end the run" train late --set train.expert_rows=1.9 --set data.valid=letter.txt \
	--set checkpoint.dir=late --set checkpoint.every=1
like "... and the message says so" "$(cat late.out)" "^heddle: rank [0-3] .*: evaluation: layer [01]: [0-9]+ $room"
fails "... so does eval" heddle_mpi 4 eval late --data letter.txt
like "... with the message" "$(cat "$tmp/.ok")" "^heddle: rank [0-3] .*: evaluation: layer [01]: [0-9]+ $room"
fails "... and bench" heddle_mpi 4 bench experts.ini --set train.expert_rows=1
like "... with the message" "$(cat "$tmp/.ok")" '^heddle: rank [0-3] .*: a step of bench: layer [01]: [0-9]+ choices fell on'
unset HD_TEST_SECONDS
fails "less than equal choices is refused" heddle check experts.ini --ranks 4 --set train.expert_rows=0.5
like "... by name" "$(heddle check experts.ini --ranks 4 --set train.expert_rows=0.5 2>&1)" \
	'train\.expert_rows: 0\.5 has no room for equal choices'
like "with a capacity limit the key does nothing" \
	"$(heddle check experts.ini --ranks 4 --set train.expert_rows=2 --set model.capacity_factor=2 2>&1)" \
	'train\.expert_rows does nothing in this layout: model\.capacity_factor limits'
like "nor does it if each rank has all experts" \
	"$(heddle check experts.ini --ranks 1 --set train.expert_rows=2 --set ep.size=1 2>&1)" \
	'train\.expert_rows does nothing in this layout: each rank has all experts'
like "what does not fit names the key" \
	"$(heddle check experts.ini --ranks 4 --memory 20M 2>&1)" 'This helps: .*train\.expert_rows = 2'

done_testing
