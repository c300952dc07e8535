#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Replicas that shard optimizer states, gradients and parameters train the same bits as full replicas: the same sums in
# the same order, the same update.  If this broke, the saved memory would be paid for with a different model.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/trained.sh"

cat >>tiny.ini <<'END'
sync = allreduce
END
# A tied embedding has two gradients.  They are added before or after the sum over members, which changes bits.
same="--set model.tie_embeddings=no --set train.clip=0 --set data.valid_fraction=0.2 --set checkpoint.gradients=yes"

trained 4 whole
for zero in 1 2 3; do
	for bucket in 25M $(whole_sweep && echo 64K) 1K; do
		trained 4 "z$zero$bucket" --set dp.zero=$zero --set dp.bucket=$bucket
		same_step "zero $zero, bucket $bucket" whole "z$zero$bucket" 3
	done
	is "zero $zero: the validation loss is the same" \
		"$(grep -o '"valid_loss.*' "z${zero}25M.jsonl")" "$(grep -o '"valid_loss.*' whole.jsonl)"
done
trained 4 low --set train.precision=bf16
for zero in 1 3; do
	trained 4 "low$zero" --set train.precision=bf16 --set dp.zero=$zero
	same_step "bf16, zero $zero" low "low$zero" 3
done
trained 4 sgd --set train.optimizer=sgd --set train.lr=0.1
for zero in 1 2 3; do
	trained 4 "sgd$zero" --set train.optimizer=sgd --set train.lr=0.1 --set dp.zero=$zero
	cmp -s sgd/step-00000003/model.safetensors "sgd$zero/step-00000003/model.safetensors"
	tap_result $? "sgd, zero $zero: the weights are the same"
done

# The norm is a sum of the squares of all pieces, in double, so only its last digit may differ.
for zero in 0 1 2 3; do
	trained 4 "clip$zero" --set train.clip=0.1 --set dp.zero=$zero
	norm=$(sed -n 's/.*"step": 3,.*"grad_norm": \([0-9.]*\).*/\1/p' "clip$zero.jsonl")
	near "zero $zero: the norm of step 3 with clipping is that of full replicas" "$norm" \
		"$(sed -n 's/.*"step": 3,.*"grad_norm": \([0-9.]*\).*/\1/p' clip0.jsonl)" 1e-6
done

# A checkpoint does not depend on the layout: two steps in one, then two in another.
more="--set train.steps=4 --set train.schedule=constant"
trained 4 long $more
trained 4 part $more --set dp.zero=3 --set train.steps=2
cp -r part two
for zero in 0 1 2 3; do
	rm -rf go
	cp -r part go
	trained 4 go $more --set checkpoint.resume=auto --set dp.zero=$zero
	same_step "resumed from zero 3 with zero $zero" long go 4
done
trained 2 two $more --set checkpoint.resume=auto --set dp.zero=1
near "resumed from zero 3 on 4 ranks with zero 1 on 2: the loss is the same" \
	"$(sed -n 's/.*"step": 4, "loss": \([0-9.]*\).*/\1/p' two.jsonl)" \
	"$(sed -n 's/.*"step": 4, "loss": \([0-9.]*\).*/\1/p' long.jsonl)" 1e-5

# A run sends the bytes that explain prints.
said() {
	heddle explain tiny.ini $same "$@" --json | tr '{' '\n' | awk '
		/"collective"/ {
			b = $0; sub(/.*"bytes": /, "", b)
			c = $0; sub(/.*"count": /, "", c)
			sum += (b + 0) * (c + 0)
		}
		END { printf "%d\n", sum }'
}
for zero in 1 2 3; do
	for comm in "" mpi; do
		ran=$(HD_TEST_COMM=$comm heddle_mpi 4 bench tiny.ini $same --set dp.zero=$zero --json --steps 2 2>/dev/null)
		is "zero $zero${comm:+, between hosts}: a run sends the bytes that explain prints" \
			"$(json "$ran" bytes_counted)" \
			"$(said --set dp.zero=$zero --ranks 4 ${comm:+--ranks-per-node 1})"
	done
done

done_testing
