#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Replicas shard everything even if their number divides no dim, or exceeds some.  They train the bits of full replicas,
# send the bytes that explain prints, need less memory, and write checkpoints that other layouts read.  If this broke,
# 48 replicas could not share what 64 can, or padding would get into a weight or a file.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/trained.sh"

cat >>tiny.ini <<'END'
sync = allreduce
END
same="--set model.tie_embeddings=no --set train.clip=0 --set data.valid_fraction=0.2 --set checkpoint.gradients=yes"

planned() { sed -n 's/^memory: planned \([0-9.]*\) MB.*/\1/p' "$1.out"; }
less() {	# WHAT DIR DIR
	awk -v a="$(planned "$2")" -v b="$(planned "$3")" 'BEGIN { exit !(a > 0 && a < b) }'
	tap_result $? "$1: $(planned "$2") MB, less than $(planned "$3")"
}
said() {
	heddle explain tiny.ini $same "$@" --json | tr '{' '\n' | awk '
		/"collective"/ {
			b = $0; sub(/.*"bytes": /, "", b)
			c = $0; sub(/.*"count": /, "", c)
			sum += (b + 0) * (c + 0)
		}
		END { printf "%d\n", sum }'
}

# With one micro-batch, the sums are the same with every value of zero.
for n in 3 $(whole_sweep && echo 5 7) 12; do
	one="--set train.global_batch=$((2 * n)) --set train.steps=2"
	trained $n "odd$n-0" $one
	for zero in 1 $(whole_sweep && echo 2) 3; do
		for bucket in 25M $(whole_sweep && echo 1K); do
			trained $n "odd$n-$zero-$bucket" $one --set dp.zero=$zero --set dp.bucket=$bucket
			same_step "$n members, zero $zero, bucket $bucket" odd$n-0 "odd$n-$zero-$bucket" 2
		done
	done
	less "$n members, zero 1: planned memory" odd$n-1-25M odd$n-0
	less "$n members, zero 3: planned memory" odd$n-3-25M odd$n-1-25M
	for comm in "" mpi; do
		ran=$(HD_TEST_COMM=$comm heddle_mpi $n bench tiny.ini $same $one --set dp.zero=3 --json --steps 2 2>/dev/null)
		is "$n members${comm:+, between hosts}: a run sends the bytes that explain prints" \
			"$(json "$ran" bytes_counted)" \
			"$(said $one --set dp.zero=3 --ranks $n ${comm:+--ranks-per-node 1})"
	done
done

# Three ranks save what one rank saves, and other layouts resume from it.
for n in 1 3; do
	trained $n begin$n --set train.global_batch=6 --set train.micro_batch=1 --set train.steps=0 --set dp.zero=3
done
cmp -s begin1/step-00000000/model.safetensors begin3/step-00000000/model.safetensors
tap_result $? "three members, zero 3: the saved initial model is that of one rank"
six="--set train.global_batch=12 --set train.micro_batch=1 --set train.schedule=constant --set train.steps=4"
loss() { sed -n 's/.*"step": 4, "loss": \([0-9.]*\).*/\1/p' "$1.jsonl"; }
trained 3 three $six
trained 3 part $six --set dp.zero=3 --set train.steps=2
for n in 1 2 3 $(whole_sweep && echo 4); do
	for zero in 0 $(whole_sweep && echo 1 2) 3; do
		[ $n$zero = 13 ] && continue
		cp -r part go$n$zero
		trained $n go$n$zero $six --set checkpoint.resume=auto --set dp.zero=$zero
		near "resumed from zero 3 on 3 ranks with zero $zero on $n: the loss is the same" \
			"$(loss go$n$zero)" "$(loss three)" 1e-5
	done
done

# A server owns pieces of all parameters, for any number of workers.
trained 3 sum $six --set train.reduce=rank_order
trained 3 server $six --set train.reduce=rank_order --set dp.sync=server
cmp -s sum/step-00000004/model.safetensors server/step-00000004/model.safetensors
tap_result $? "three servers give the weights of an all-reduce"
# Two sections that shard: the second looks for a dim that the first has not sharded, or pads the rest.
both="--set model.heads=2 --set train.steps=2 --set dp.size=2 --set dpb.plugin=dp --set dpb.size=2 --set dpb.sync=allreduce"
second() { sed -n 's/.*"step": 2, "loss": \([0-9.]*\).*/\1/p' "$1.jsonl"; }
trained 4 both00 $both
for zeros in "1 1" "1 3"; do
	cuts=both${zeros% *}${zeros#* }
	trained 4 "$cuts" $both --set dp.zero="${zeros% *}" --set dpb.zero="${zeros#* }"
	near "two sections, zero $zeros: the loss is the same" "$(second "$cuts")" "$(second both00)" 1e-5
	less "two sections, zero $zeros: planned memory" "$cuts" both00
done
same_step "two sections, zero 1 1" both00 both11 2
is "two sections, zero 1 1: no shard is padded if a different dim divides" \
	"$(heddle explain tiny.ini $same $both --ranks 4 --set dp.zero=1 \
	--set dpb.zero=1 --nodes 2>&1 | grep adamw | grep -c padded)" 0
is "two sections, zero 1 2: gradients are sharded like the states if both divide" \
	"$(heddle explain tiny.ini $same $both --ranks 4 \
	--set model.heads=4 --set dp.zero=1 --set dpb.zero=2 2>/dev/null | grep -c all-to-all)" 0

done_testing
