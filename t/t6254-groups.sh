#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Groups of replicas share states, gradients and parameters (zero_size).  They train the bits of sums in two levels, and
# the size of the group decides the bytes on each link and the memory.  Other layouts read their checkpoints.  If this
# broke, full gradients would cross the slow links that groups are meant to spare, or groups would drift apart.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/trained.sh"

same="--set model.tie_embeddings=no --set train.clip=0 --set data.valid_fraction=0 --set checkpoint.gradients=yes"
wide="--set train.micro_batch=1 --set model.vocab=256 --set model.embed=128"	# no piece is padded

# Sums are taken within two ranks and then across, for every value of zero.
trained 4 levels --set dp.sync=hierarchical --set dp.node_size=2
for zero in 1 2 3; do
	trained 4 group$zero --set dp.sync=allreduce --set dp.zero=$zero --set dp.zero_size=2
	same_step "zero $zero in groups of two" levels group$zero
done
trained 4 node --set dp.sync=hierarchical --set dp.node_size=2 --set dp.zero=3 --set dp.bucket=4K
same_step "zero 3 over both levels" levels node

# Bytes.  S is the number of bytes of all gradients; n replicas are in groups of k.
bytes() { heddle explain tiny.ini $same $wide "$@" --json | tr '{' '\n'; }
sum_of() {	# AXIS KIND < JSON: prints the sum of bytes x count, without scalars
	awk -v axis="$1" -v kind="$2" '
		index($0, "\"axis\": \"" axis "\"") && $0 ~ "\"collective\": \"" kind "\"" {
			b = $0; sub(/.*"bytes": /, "", b)
			c = $0; sub(/.*"count": /, "", c)
			if (b + 0 > 64) sum += (b + 0) * (c + 0)
		}
		END { printf "%d\n", sum }'
}
S=$((4 * $(heddle check --all tiny.ini $same $wide --ranks 4 | sed -n 's/^rank 0.*: \([0-9]*\) parameters.*/\1/p')))
for layout in 4:2 8:2 8:4; do
	n=${layout%:*} k=${layout#*:}
	way="--ranks $n --set dp.zero_size=$k"
	said=$(bytes $way --set dp.zero=1)
	is "$n in groups of $k: gradients are scattered within a group" \
		"$(printf '%s\n' "$said" | sum_of dp.shard reduce-scatter)" $((S * (k - 1) / k))
	is "$n in groups of $k: parameters are gathered within a group" \
		"$(printf '%s\n' "$said" | sum_of dp.shard all-gather)" $((S * (k - 1) / k))
	is "$n in groups of $k: only pieces are summed across groups" \
		"$(printf '%s\n' "$said" | sum_of dp.across "ring-.*")" \
		$((2 * (n / k - 1) * S / k / (n / k)))
	said=$(bytes $way --set dp.zero=3)
	is "$n in groups of $k, zero 3: ... with the same bytes" \
		"$(printf '%s\n' "$said" | sum_of dp.across "ring-.*")" \
		$((2 * (n / k - 1) * S / k / (n / k)))
	is "$n in groups of $k: nothing is sent among all replicas at once" \
		"$(printf '%s\n' "$said" | sum_of dp ".*")" 0
done
said=$(bytes --ranks 8 --set dp.sync=hierarchical --set dp.node_size=4 --set dp.zero=1)
is "both levels: gradients are scattered in the node" \
	"$(printf '%s\n' "$said" | sum_of dp.node reduce-scatter)" $((S * 3 / 4))
is "both levels: a piece of a piece is scattered between nodes" \
	"$(printf '%s\n' "$said" | sum_of dp.across reduce-scatter)" $((S / 4 / 2))
is "both levels: parameters are gathered between nodes" \
	"$(printf '%s\n' "$said" | sum_of dp.across all-gather)" $((S / 4 / 2))
is "both levels: ... and in the node" "$(printf '%s\n' "$said" | sum_of dp.node all-gather)" $((S * 3 / 4))
for way in "dp.zero_size=2" "dp.sync=hierarchical --set dp.node_size=2"; do
	for comm in "" mpi; do
		planned=$(bytes --ranks 4 ${comm:+--ranks-per-node 1} --set dp.zero=3 --set $way | awk '/"collective"/ { b = $0; sub(/.*"bytes": /, "", b)
			c = $0; sub(/.*"count": /, "", c); sum += (b + 0) * (c + 0) } END { printf "%d\n", sum }')
		ran=$(HD_TEST_COMM=$comm heddle_mpi 4 bench tiny.ini $same $wide --set dp.zero=3 --set $way --json --steps 2 2>/dev/null)
		is "$way${comm:+, between hosts}: a run sends the bytes that explain prints" \
			"$(json "$ran" bytes_counted)" "$planned"
	done
done

# Memory lies between that of one group and that of no sharding; smaller groups need more.
planned() { heddle check --all tiny.ini $same $wide --set checkpoint.gradients=no "$@" | sed -n 's/^rank 0.*memory \([0-9.]*\) MB.*/\1/p'; }
for zero in 1 3; do
	less=$(awk -v a="$(planned --ranks 8 --set dp.zero=$zero)" -v b="$(planned --ranks 8 --set dp.zero=$zero --set dp.zero_size=4)" \
		-v c="$(planned --ranks 8 --set dp.zero=$zero --set dp.zero_size=2)" -v d="$(planned --ranks 8)" \
		'BEGIN { print a, b, c, d; exit !(a > 0 && a < b && b < c && c < d) }')
	tap_result $? "zero $zero: memory increases with groups of 8, 4, 2 and 1: $less MB"
done

# Every layout can resume from a checkpoint of groups.
loss() { sed -n 's/.*"step": 4, "loss": \([0-9.]*\).*/\1/p' "$1.jsonl"; }
more="--set train.schedule=constant --set train.steps=4 --set train.global_batch=12 --set train.micro_batch=1"
trained 4 long $more
trained 4 part $more --set dp.zero=3 --set dp.zero_size=2 --set train.steps=2
for next in "1" "3 --set dp.zero=2" "4" "6 --set dp.zero=3 --set dp.zero_size=3"; do
	set -- $next
	n=$1
	shift
	cp -r part go$n
	trained $n go$n $more --set checkpoint.resume=auto "$@"
	near "resumed from zero 3 in groups of two on $n ranks $*: the loss is the same" \
		"$(loss go$n)" "$(loss long)" 1e-5
done

# Layouts that are refused, with the reason.
refused() {	# TEXT SETS...
	text=$1
	shift
	out=$(heddle check tiny.ini --ranks 4 "$@" 2>&1)
	is "refused: $*" $? 1
	like "... with the reason: $*" "$out" "$text"
}
refused 'zero_size: 3 does not divide 4 replicas' --set dp.zero=1 --set dp.zero_size=3
refused 'zero_size: 8 does not divide 4 replicas' --set dp.zero=1 --set dp.zero_size=8
refused 'zero_size: 2, but nothing is sharded, since zero is 0' --set dp.zero_size=2
done_testing
