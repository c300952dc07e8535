#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Between hosts, completed gradients move while backward computes the next ones.  If each bucket were waited for
# where it is started, a step would take longer by all of them.  If a buffer were reused while it is under
# way, weights would be wrong now and then.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

. "$src/t/lib/beside.sh"

sed -e 's/^layers = .*/layers = 6/' -e 's/^embed = .*/embed = 64/' -e 's/^seq = .*/seq = 64/' -e 's/^steps = .*/steps = 4/' \
	tiny.ini >six.ini
delay=4000		# microseconds for each movement

above() { awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > b) }'; tap_result $? "$1" || echo "# $2 is not above $3"; }
# traced SYNC PATTERN [args...]: sets $moves, $beside, $together, over three steps
traced() {
	rm -f trace.json
	sync=$1 pattern=$2
	shift 2
	ran=$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=$delay heddle_mpi 2 train six.ini --set dp.sync="$sync" --set dp.bucket=64K \
		--set log.trace=trace.json "$@" 2>&1) || printf '%s\n' "$ran" | tap_comment
	set -- $(beside trace.json "$pattern")
	moves=$1 beside=$2 together=$3
	note "$sync: of $moves movements $beside overlap with products, $together end within a delay of another"
}

# After the last layers of backward nothing is left to compute.
traced allreduce ' of pack '
above "allreduce: there are many buckets" "$moves" 36
above "allreduce: all but the last two of a step overlap with backward" "$beside" "$((moves - 3 * 2 - 1))"
above "allreduce: buckets overlap with each other" "$together" "$((moves / 2))"
traced allreduce ' of pack ' --set dp.overlap=no
above "allreduce, overlap = no: as many buckets" "$moves" 36
is "allreduce, overlap = no: none overlaps with backward" "$beside" 0
# A ring's second half waits for its first, a few buckets later.
traced ring ring-
above "ring: there are many pieces" "$moves" 72
above "ring: half of them overlap with backward" "$beside" "$((moves / 2))"
above "ring: pieces overlap with each other" "$together" "$((moves / 3))"
traced ring ring- --set dp.overlap=no
above "ring, overlap = no: as many pieces" "$moves" 72
is "ring, overlap = no: none overlaps with backward" "$beside" 0

# ZeRO 2 sums the gradients of each micro-batch: those of a block are in flight while the block below computes. The block
# of the embedding has no product, so the sums of layer 0 have nothing to overlap with.
traced ring reduce-scatter --set dp.zero=2
above "zero = 2: each layer's gradients are summed in each of three steps" "$moves" 17
above "zero = 2: those of five of six layers overlap with backward" "$beside" "$((moves * 3 / 4))"
# ZeRO 1 gathers the updated parameters when the next step begins: all are in flight while forward computes. The first
# product waits for its own, and gradients of six layers and the head overlap with nothing here.
traced ring all-gather --set dp.zero=1 --set train.precision=bf16
above "zero = 1 in bf16: parameters are gathered in each of three steps" "$moves" 17
above "zero = 1 in bf16: most overlap with forward" "$beside" "$((moves / 2))"
# ZeRO 3 gathers buckets of parameters: each is in flight while the block before the one that reads it computes.
traced ring all-gather --set dp.zero=3
above "zero = 3: each layer's parameters are gathered in each of three steps" "$moves" 17
above "zero = 3: most overlap with products" "$beside" "$((moves / 2))"

# The final weights are the same, late or early, in one bucket or many.
train() { heddle_mpi "$@" --set train.steps=6 --set log.metrics=m.jsonl >/dev/null 2>&1 && json "$(tail -2 m.jsonl | head -1)" loss; }
first=$(train 2 train six.ini)
for sync in ring allreduce; do
	for bucket in 1K 64K; do
		layout="--set dp.sync=$sync --set dp.bucket=$bucket"
		is "$sync in buckets of $bucket: the same loss" "$(train 2 train six.ini $layout)" "$first"
		is "$sync in buckets of $bucket: the same loss between hosts" \
			"$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=300 train 2 train six.ini $layout)" "$first"
	done
done
for zero in 2 3; do
	is "zero = $zero: the same loss between hosts" "$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=300 train 2 train six.ini \
		--set dp.zero=$zero)" "$(train 2 train six.ini --set dp.zero=$zero)"
done
# With masters in pieces, parameters are one step behind after a step. What reads them then gets the current ones: an
# evaluation, a text and a checkpoint.
with_masters() {	# DIR SETS...: prints what a run with masters learned
	rm -rf "$1" m.jsonl
	heddle_mpi 3 train six.ini --set train.precision=bf16 --set train.global_batch=6 --set train.eval_every=2 \
		--set data.valid_fraction=0.2 --set checkpoint.dir="$1" --set checkpoint.every=3 --set log.sample_every=2 \
		--set log.metrics=m.jsonl "${2:---set}" "${3:-train.threads=1}" "${4:---set}" "${5:-train.threads=1}" >"$1.out" 2>&1 ||
		tap_comment <"$1.out"
	grep -o '"[a-z_]*loss": [0-9.]*' m.jsonl
	grep -A 3 'sample' "$1.out" | grep -v tokens/s
}
for zero in 1 2; do
	here=$(with_masters here --set dp.zero=$zero)
	is "zero = $zero in bf16: what is learned and written is the same between hosts" \
		"$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=300 with_masters there --set dp.zero=$zero)" "$here"
	like "... and that includes evaluations" "$here" '"valid_loss"'
	for step in 3 4; do
		cmp -s here/step-0000000$step/model.safetensors there/step-0000000$step/model.safetensors
		tap_result $? "... so are the weights of step $step"
	done
done
is "four ranks, in rank order: the same loss between hosts" \
	"$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=300 train 4 train six.ini \
	--set dp.sync=allreduce --set dp.bucket=64K --set train.reduce=rank_order)" \
	"$(train 4 train six.ini --set dp.sync=allreduce --set train.reduce=rank_order)"
done_testing
