#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ways to sum gradients give the same bits if they add in the same order, and send the bytes that explain prints.  If
# this broke, a choice made for speed would change the model, or cost more than planned.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/trained.sh"

same="--set model.tie_embeddings=no --set data.valid_fraction=0 --set train.clip=0 --set train.reduce=rank_order"

for optimizer in adamw sgd; do
	for n in 2 4; do
		o="--set train.optimizer=$optimizer"
		[ $optimizer$n = adamw4 ] || [ $optimizer$n = sgd2 ] || whole_sweep || continue
		trained $n sum$optimizer$n $o --set dp.sync=allreduce
		for bucket in 25M 8K; do
			trained $n server$optimizer$n$bucket $o --set dp.sync=server --set dp.bucket=$bucket
			same_bits "$optimizer, $n ranks, bucket $bucket: servers give the weights of an all-reduce" \
				sum$optimizer$n server$optimizer$n$bucket
		done
		trained $n late$optimizer$n $o --set dp.sync=allreduce --set dp.overlap=no --set dp.bucket=8K
		same_bits "$optimizer, $n ranks: late sums give the weights of an all-reduce" \
			sum$optimizer$n late$optimizer$n
	done
done
for n in 3 4; do	# terms of a ring are sent directly to the member that adds them
	batch="--set train.global_batch=$((2 * n))"
	trained $n sum$n $batch --set dp.sync=allreduce
	for way in "dp.bucket=25M" "dp.bucket=1K" "dp.overlap=no" "dp.zero=1"; do
		trained $n ring$n $batch --set dp.sync=ring --set $way
		same_bits "a ring of $n with $way gives the weights of an all-reduce" sum$n ring$n
		rm -r ring$n
	done
	HD_TEST_COMM=mpi
	export HD_TEST_COMM
	trained $n ring$n $batch --set dp.sync=ring
	unset HD_TEST_COMM
	same_bits "a ring of $n between hosts gives the weights of an all-reduce" sum$n ring$n
	trained $n fast$n $batch --set dp.sync=ring --set train.reduce=fast
	no_bits=$(same_bits "" sum$n fast$n)
	like "a ring of $n that adds while it sends gives other bits" "$no_bits" '^not ok'
done
# With a tied embedding and two micro-batches, zero 2 and 3 add over members before micro-batches.  They add the two
# terms of the embedding separately.  So their bits differ from an all-reduce, but equal each other's.
more="--set train.global_batch=12 --set model.tie_embeddings=yes"
trained 3 whole $more --set dp.sync=allreduce
for way in dp.sync=ring dp.sync=server dp.zero=1; do
	trained 3 way $more --set $way
	same_bits "tied, two micro-batches: $way gives the weights of an all-reduce" whole way
	rm -r way
done
trained 3 zero2 $more --set dp.zero=2
trained 3 zero3 $more --set dp.zero=3
same_bits "tied, two micro-batches: zero 3 gives the weights of zero 2" zero2 zero3
like "... which differ from those of an all-reduce" "$(same_bits "" whole zero2)" '^not ok'
batch="--set train.global_batch=6"
for zero in 2 3; do
	trained 3 untied$zero $batch --set dp.zero=$zero
	same_bits "untied, one micro-batch: zero $zero gives the weights of an all-reduce" sum3 untied$zero
done
trained 4 far --set dp.sync=server
HD_TEST_COMM=mpi
export HD_TEST_COMM
trained 4 near --set dp.sync=server
unset HD_TEST_COMM
same_bits "servers on other hosts give the same weights" far near

# Bytes.  S is the number of bytes of all gradients.
wide="--set train.micro_batch=1 --set model.vocab=256 --set model.embed=64"	# no piece is padded
bytes() { heddle explain tiny.ini --ranks 4 $wide "$@" --json | tr '{' '\n'; }
sum_of() {	# AXIS KIND < JSON: prints the sum of bytes x count, without scalars
	awk -v axis="$1" -v kind="$2" '
		index($0, "\"axis\": \"" axis "\"") && $0 ~ "\"collective\": \"" kind "\"" {
			b = $0; sub(/.*"bytes": /, "", b)
			c = $0; sub(/.*"count": /, "", c)
			if (b + 0 > 64) sum += (b + 0) * (c + 0)
		}
		END { printf "%d\n", sum }'
}
S=$((4 * $(heddle check --all tiny.ini $wide --ranks 4 | sed -n 's/^rank 0.*: \([0-9]*\) parameters.*/\1/p')))
is "ring: a rank sends 2 (n - 1) / n of the gradients" "$(bytes | sum_of dp "ring-.*")" $((2 * S * 3 / 4))
for wire in bf16 fp16; do
	is "ring, $wire: a rank sends half of that" "$(bytes --set dp.wire=$wire | sum_of dp "ring-.*")" $((S * 3 / 4))
	is "ring, $wire: both directions use $wire" \
		"$(bytes --set dp.wire=$wire | sed -n 's/.*"ring-.*"dtype": "\([a-z0-9]*\)".*/\1/p' |
		sort -u | sed "s,^f16,fp16,")" $wire
	is "all-reduce, $wire: a rank sends half the bytes" \
		"$(bytes --set dp.wire=$wire --set dp.sync=allreduce | sum_of dp all-reduce)" $((S * 3 / 4))
	said=$(bytes --set dp.wire=$wire --set dp.zero=1)
	is "zero 1, $wire: gradients have half the bytes" \
		"$(printf '%s\n' "$said" | sum_of dp reduce-scatter)" $((S * 3 / 8))
	is "zero 1, $wire: parameters have all their bytes" \
		"$(printf '%s\n' "$said" | sum_of dp all-gather)" $((S * 3 / 4))
done
said=$(bytes --set dp.sync=server)
is "servers: a rank pushes (n - 1) / n of the gradients" \
	"$(printf '%s\n' "$said" | sum_of dp ordered-reduce-scatter)" $((S * 3 / 4))
is "servers: ... and pulls as much" "$(printf '%s\n' "$said" | sum_of dp all-gather)" $((S * 3 / 4))
said=$(bytes --set dp.sync=hierarchical --set dp.node_size=2)
is "two levels: the bytes of the reduce-scatter in the node" \
	"$(printf '%s\n' "$said" | sum_of dp.node reduce-scatter)" $((S / 2))
is "two levels: half of each bucket is sent between nodes" \
	"$(printf '%s\n' "$said" | sum_of dp.across all-reduce)" $((2 * S / 2 / 2))
is "two levels: the bytes of the all-gather in the node" \
	"$(printf '%s\n' "$said" | sum_of dp.node all-gather)" $((S / 2))
is "node_size without sync = hierarchical is reported" \
	"$(heddle check tiny.ini --ranks 4 $wide --set dp.node_size=2 2>&1 | grep -c 'node_size does nothing without sync = hierarchical')" 1
is "two levels on one node: one all-reduce" \
	"$(bytes --set dp.sync=hierarchical --set dp.node_size=4 | sum_of dp all-reduce)" $((2 * S * 3 / 4))
for way in "dp.sync=server" "dp.wire=bf16" "dp.wire=fp16" "dp.sync=hierarchical --set dp.node_size=2"; do
	for comm in "" mpi; do
		planned=$(bytes ${comm:+--ranks-per-node 1} --set $way | awk '/"collective"/ { b = $0; sub(/.*"bytes": /, "", b)
			c = $0; sub(/.*"count": /, "", c); sum += (b + 0) * (c + 0) } END { printf "%d\n", sum }')
		ran=$(HD_TEST_COMM=$comm heddle_mpi 4 bench tiny.ini $wide --set $way --json \
			--steps 2 2>/dev/null)
		is "$way${comm:+, between hosts}: a run sends the bytes that explain prints" \
			"$(json "$ran" bytes_counted)" "$planned"
	done
done

# Layouts that are refused, with the reason.
refused() {	# TEXT SETS...
	text=$1
	shift
	out=$(heddle check tiny.ini --ranks 4 "$@" 2>&1)
	is "refused: $*" $? 1
	like "... with the reason: $*" "$out" "$text"
}
refused 'overlap: no, but zero = 2' --set dp.overlap=no --set dp.zero=2
refused 'servers: 1, but sync is not server' --set dp.servers=1
refused 'node_size: a node of 3 ranks holds 3.0 of 4 replicas' --set dp.sync=hierarchical --set dp.node_size=3
done_testing
