#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `plan` charges for a product, a kernel's memory, a collective and a message.  Each is priced on a machine where
# all else is free and compared with seconds worked out by hand.  A prediction that is only compared with itself may be
# off by any factor.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# 28,032 parameters; a step is 128 tokens, in micro-batches of 32.
cat >p.ini <<'E'
[model]
layers = 2
embed = 32
heads = 4
vocab = 64
[data]
train = none
[train]
seq = 16
global_batch = 8
micro_batch = 2
steps = 1
precision = fp32
[strategy tp]
plugin = tp
size = 1
[strategy dp]
plugin = dp
size = 1
[strategy pp]
plugin = pp
size = 1
E
# machine KEY=VALUE...: writes machine.ini; whatever is not given costs nothing
machine() {
	{
		echo '[machine]'
		printf '%s\n' flops_fp32=1e30 memory_bandwidth=1e30 node_bandwidth=1e30 ranks_per_node=8 "$@" |
			awk -F= '{ v[$1] = $2 } END { for (k in v) print k " = " v[k] }'
	} >machine.ini
}
plan() {			# RANKS args...
	ranks=$1
	shift
	said=$(heddle plan p.ini --machine machine.ini --ranks "$ranks" --json "$@" 2>&1)
}
top() { json "$(printf '%s\n' "$said" | sed 's/"stages".*//')" "$1"; }
share() {			# NAME GOT WANT: equal up to the rounding of JSON
	near "$1" "$2" "$3" "$(awk -v w="$3" 'BEGIN { print 1e-9 * w }')"
}
product() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.12g", a * b }'; }
difference() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.12g", a - b }'; }

# -- arithmetic per token: 3 x 24 embed^2 for each layer and 3 x 2 embed vocab.  In each layer attention adds 7 products
# of 2 seq embed, half of each since it is causal.  Two are in forward, and five in backward, which recomputes the
# scores.
flops=$(((3 * (2 * 24 * 32 * 32 + 2 * 32 * 64) + 2 * 7 * 16 * 32) * 128))
machine flops_fp32=1e9
plan 1
share "a step takes the time of its products" "$(product "$(top flops_per_second)" "$(top step_seconds)")" $flops
share "a step has 128 tokens" "$(product "$(top tokens_per_second)" "$(top step_seconds)")" 128
share "the share of the peak follows from the rate" "$(top peak_share)" "$(product "$(top flops_per_second)" 1e-9)"
whole=$(top step_seconds)
is "without recompute, the hardware does only what the model needs" \
	"$(top hardware_flops_per_rank) $(top peak_share_hardware) $(top job_flops)" \
	"$(top model_flops_per_rank) $(top peak_share_model) $(top flops_per_second)"
plan 2 --set train.recompute=full --set dp.size=2
share "with recompute, job_flops are all products of both ranks" \
	"$(product "$(top job_flops)" "$(top step_seconds)")" "$(heddle explain p.ini \
	--ranks 2 --work --json --set train.recompute=full --set dp.size=2 |
	tr '{' '\n' | sed -n 's/.*"product_flops": *\([-0-9.e+]*\).*/\1/p' | awk '{ n += $1 } END { printf "%.0f", 2 * n }')"
ok "... which is more than the model needs" \
	awk -v a="$(top hardware_flops_per_rank)" -v b="$(top model_flops_per_rank)" 'BEGIN { exit !(a > 1.1 * b) }'
# Products that a layout repeats, or that a form of products splits, do not add to the FLOPs of the model.
for layout in 'cp size=4 form=ring' 'cp size=4 form=ring balance=none' 'cp size=2 form=ulysses' 'tp size=4 form=2d' 'pp size=2'; do
	{ sed '/^\[strategy/,$d' p.ini; echo "[strategy ${layout%% *}]"; printf '%s\n' plugin="$layout" | tr ' ' '\n'; } >l.ini
	for recompute in none full; do
		said=$(heddle plan l.ini --machine machine.ini --json --set train.recompute=$recompute 2>&1)
		share "$layout, recompute $recompute: the FLOPs of the model do not change" \
			"$(product "$(product "$(top model_flops_per_rank)" "$(top ranks)")" "$(top step_seconds)")" $flops
		[ $recompute = full ] || share "$layout: no rank does more than the model needs" \
			"$(top hardware_flops_per_rank)" "$(top model_flops_per_rank)"
	done
done
machine flops_fp32=1e9 efficiency=0.5
plan 1
share "efficiency 0.5: products take twice as long" \
	"$(difference "$(top step_seconds)" "$whole")" "$(product $flops 1e-9)"
like "bf16 without a peak of its own is counted at that of fp32, and a message says so" \
	"$(heddle plan p.ini --machine machine.ini --ranks 1 --set train.precision=bf16 2>&1)" \
	'^heddle: plan: machine.ini has no flops_bf16: bf16 is counted at the peak of fp32, 1\.0 GFLOP/s$'
unlike "... but not in fp32" "$(heddle plan p.ini --machine machine.ini --ranks 1 2>&1)" 'no flops_bf16'
machine memory=80
is "80 bytes of memory are refused" "$(heddle plan p.ini --machine machine.ini --ranks 1 2>&1)" \
	"heddle: machine.ini:$(grep -n '^memory ' machine.ini | cut -d: -f1): [machine] memory: 80 bytes are too few for a rank, at least 1M; is the unit missing?"
machine flops_bf16=1e9
plan 1 --set train.precision=bf16
bf16=$(top step_seconds)
share "bf16 with a peak of its own: products run at that rate" "$bf16" "$(product $flops 1e-9)"
share "... and the share is that of this peak" "$(top peak_share)" 1

# -- memory.  adamw reads and writes two moments of 4 bytes, which sgd does not have.
machine memory_bandwidth=1
plan 1
adamw=$(top step_seconds)
plan 1 --set train.optimizer=sgd
share "adamw moves 16 bytes a parameter more than sgd" "$(difference "$adamw" "$(top step_seconds)")" $((16 * 28032))
machine memory_bandwidth=2
plan 1
share "with twice the bandwidth, memory takes half the time" "$(product 2 "$(top step_seconds)")" "$adamw"
machine memory_bandwidth=1e9 flops_fp32=1e9
plan 1
awk -v t="$(top step_seconds)" -v f="$whole" -v m="$(product "$adamw" 1e-9)" 'BEGIN {
	printf "# %s s; arithmetic alone %s, memory alone %s\n", t, f, m; exit !(t > f && t > m && t < f + m) }'
tap_result $? "each kernel takes the longer of arithmetic and memory: for some it is arithmetic, for others memory"

# -- a kernel's own time.  Each micro-batch has the same number of kernels, except that the first adds to no sums.
machine kernel_latency=1
for batch in 8 4 2; do
	plan 1 --set train.micro_batch=$batch --set train.global_batch=$((batch * 2))
	two=$(top step_seconds)
	plan 1 --set train.micro_batch=$batch --set train.global_batch=$((batch * 3))
	three=$(top step_seconds)
	plan 1 --set train.micro_batch=$batch --set train.global_batch=$((batch * 5))
	is "each further micro-batch of $batch has the same number of kernels" \
		"$(difference "$(top step_seconds)" "$three")" "$(product 2 "$(difference "$three" "$two")")"
done
count=$(heddle explain p.ini --ranks 1 --nodes | grep -c -E '^(forward|backward|weight).* (einsum|norm|attention)[a-z_]* \[')
awk -v n="$count" -v got="$(difference "$three" "$two")" 'BEGIN { exit !(n > 50 && got > n) }'
tap_result $? "a micro-batch has more kernels than products, norms and attention: $(difference "$three" "$two"), $count"

# -- nodes that only name bytes take no time: packs and pieces that are created in place, and the node that shows the
# update its gradient
plan 1
one=$(top compute_seconds)
for bucket in 25M 1; do
	plan 4 --set train.global_batch=32 --set dp.size=4 --set dp.sync=allreduce --set dp.bucket=$bucket
	share "buckets of $bucket: kernels take as long as on one rank" "$(top compute_seconds)" "$one"
done

# -- three kernels of this plugin run in every second step, so each step has half of them
cp p.ini plain.ini
printf '[strategy b]\nplugin = %s\n' "$build/t/plugins/.libs/builders.so" >>p.ini
plan 1
mv plain.ini p.ini
is "kernels that run in every second step count half" "$(top step_seconds | sed 's/.*\././')" .5

# -- collectives of 4 members.  The gradients have 112,128 bytes.  The loss, 4 bytes, is summed too: up a tree and down.
comm() { awk -v e="$(top comm_exposed_seconds)" -v h="$(top comm_hidden_seconds)" 'BEGIN { printf "%.12g", e + h }'; }
machine node_latency=1
plan 4 --set dp.size=4 --set dp.sync=allreduce
share "latency of an all-reduce by a tree: 2 x 2, and the same for the loss" "$(comm)" 8
plan 8 --set dp.size=8 --set dp.sync=allreduce --set train.micro_batch=1
share "latency on 8 ranks: 2 x 3 each" "$(comm)" 12
printf '[style]\nname = r\nall_reduce = rings\n' >rings.ini
plan 8 --set dp.size=8 --set dp.sync=allreduce --set train.micro_batch=1 --style "$tmp/rings.ini"
share "... and 2 x 7 each in a style that sums over rings only" "$(comm)" 28
plan 4 --set dp.size=4 --set dp.sync=ring
share "latency of a ring of shifts: 3 and 3, and the loss" "$(comm)" 10
plan 4 --set dp.size=4 --set dp.zero=1
share "latency of reduce-scatter and all-gather: 3 each, the norm and the loss" "$(comm)" 14
machine network_latency=1 ranks_per_node=2
plan 4 --set dp.size=4 --set dp.sync=ring
share "a ring of shifts over two nodes: two of its links are between them, each way; and the loss by a tree" "$(comm)" 6
machine node_latency=1
plan 2 --set pp.size=2 --set model.tie_embeddings=no --set train.global_batch=2
share "latency of two stages: a message each way, and 2 for the norm; the loss takes 1 at the same time" \
	"$(top step_seconds)" 4
machine node_latency=1 node_bandwidth=1e3
plan 4 --set dp.size=4 --set dp.sync=allreduce
share "bytes and latency of a ring: 2 x 3, and 3/2 of the gradients at 1 KB/s" "$(comm)" "$(difference 178.192 -0.008)"
plan 4 --set dp.size=4 --set dp.zero=1
# 28,672 gradients with padding: 3/4 of them each way; 8 bytes of the norm and 4 of the loss, twice, by trees
share "bytes and latency of reduce-scatter and all-gather: 3, and 3/4 of the gradients each" \
	"$(comm)" "$(difference 186.032 -0.024)"

# -- which link is used.  3/2 of the gradients, and 6 bytes of the loss, travel round a ring.  Two members on a node use
# two rings, each of which leaves the node through a different card.
slow="network_bandwidth=1e3 network_latency=0"
for nodes in '8 0' '4 0' '2 84.099' '1 168.198'; do
	machine ranks_per_node=${nodes% *} $slow
	plan 4 --set dp.size=4 --set dp.sync=allreduce
	near "${nodes% *} ranks a node: the time of an all-reduce of 4" "$(comm)" "${nodes#* }" 1e-9
done
machine ranks_per_node=2 $slow
plan 4 --set tp.size=2 --set dp.size=2 --set dp.sync=allreduce
share "tp 2 x dp 2, 2 ranks a node: tp stays within the node" "$(comm)" "$(product "$(json "$said" network)" 1e-3)"
ok "... and sends something there" [ "$(json "$said" node)" -gt 50000 ]
plan 4 --set dp.size=4 --set dp.sync=allreduce
is "the bytes that a rank sends are counted on the link that they take" \
	"$(json "$said" node) $(json "$said" network)" "84099 84099"
# All-to-alls between 4 members at the same time as sums of gradients: whatever the nodes, each byte takes one link.
cp p.ini plain.ini
printf '[strategy cp]\nplugin = cp\nform = ulysses\nsize = 4\n' >>p.ini
for here in 4 2 1; do
	machine ranks_per_node=$here $slow
	plan 4
	echo $(($(json "$said" node) + $(json "$said" network)))
done >sent
mv plain.ini p.ini
is "all-to-alls: the number of bytes does not depend on the nodes of the other ranks" \
	"$(sort -u sent | wc -l) $(sed -n 's/^[1-9][0-9]*$/a number/p;q' sent)" \
	"1 a number"

# Messages of 2 x 16 x 32 x 4 = 4,096 bytes each way, then the norm: 8 bytes with two stages, 12 with four.  The loss,
# 4 bytes, is sent at the same time.
stages() {			# RANKS: plans that many stages with one micro-batch
	plan "$1" --set pp.size="$1" --set model.layers=4 --set model.tie_embeddings=no --set train.global_batch=2
}
machine ranks_per_node=1 network_bandwidth=1e3
stages 2
share "two stages on two nodes send at the network's rate" "$(top step_seconds)" 8.2
machine ranks_per_node=2 network_bandwidth=1e3
stages 2
near "two stages on one node do not use the network" "$(top step_seconds)" 0 1e-9
machine ranks_per_node=2 network_bandwidth=1e30 node_bandwidth=2e3
stages 2
share "two stages on one node send at the node's rate" "$(top step_seconds)" 4.1
machine ranks_per_node=2 network_bandwidth=1e3
stages 4
share "four stages on two nodes: one message of three leaves its node" "$(top step_seconds)" 8.198
machine ranks_per_node=2 network_bandwidth=1e30 node_bandwidth=1e3
stages 4
share "... and two do not; half of the norm's 12 bytes stay too, but its rings pass through the node in full" \
	"$(top step_seconds)" 16.396
machine ranks_per_node=1 node_bandwidth=1e3
stages 2
share "without network_bandwidth, stages on two nodes send at the node's rate" "$(top step_seconds)" 8.2

# -- what styles add.  A ring of 4 computes a layer's attention in 4 parts; with all movements measured at 1 KB/s,
# gathering the parameters of complete layers takes as long as gathering them one by one.
printf '[style]\nname = p\npass = 1\n' >pass.ini
cp p.ini plain.ini
printf '[strategy cp]\nplugin = cp\nsize = 4\n' >>p.ini
machine
for form in ulysses ring; do
	plan 4 --set cp.form=$form --style "$tmp/pass.ini"
	share "cp.form = $form: 2 passes of 2 layers and 4 micro-batches take a second each" "$(top step_seconds)" 16
done
mv plain.ini p.ini
machine
{
	printf '[measured]\ndevice = cuda\ncores = 8\nthreads = 1\n[product forward]\nfp32 = 8x8x8:1e30\n'
	printf '[movement %s]\nrate = 1:1e3\n' all-reduce reduce-scatter all-gather
} >>machine.ini
plan 4 --set dp.size=4 --set dp.zero=3
apart=$(comm)
ok "measured movements: the sums of gradients and the gathers take the time of their bytes" [ "${apart%%.*}" -gt 200 ]
printf '[style]\nname = l\ngather = layer\n' >layer.ini
plan 4 --set dp.size=4 --set dp.zero=3 --style "$tmp/layer.ini"
share "... also where parameters are gathered by layer" "$(comm)" "$apart"

# -- hardware whose rates depend on the size
machine flops_fp32=1e9 sustained_clock=0.5
plan 1
share "a clock that halves under load: products take twice as long" \
	"$(difference "$(top step_seconds)" "$whole")" "$(product $flops 1e-9)"
# 2^18 and 2^20 FLOPs are a third and a half of the way from 2^16 to 2^22
machine flops_fp32=1e9 efficiency=65536:0.25,4194304:1
plan 1
curve=$(top step_seconds)
ok "a curve of efficiency gives a value between its ends" \
	awk -v c="$curve" -v w="$whole" 'BEGIN { exit !(c > 1.1 * w && c < 3.9 * w) }'
machine flops_fp32=1e9 efficiency=1e1:0.25,1e2:0.5
plan 1
share "beyond its last point a curve keeps the last value" \
	"$(difference "$(top step_seconds)" "$whole")" "$(product $flops 1e-9)"
# heads of 8: only the products of attention, 7 x 2 x 16 x 32 / 2 FLOPs a token and layer.  The others have 32 and more.
machine flops_fp32=1e9 extent_efficiency=8:0.5,9:1
plan 1
share "extent_efficiency: only attention's products are small enough to take twice as long" \
	"$(difference "$(top step_seconds)" "$whole")" \
	"$(product $((2 * 7 * 16 * 32 * 128)) 1e-9)"
# Each expert has its own product, so the number of experts is not an extent.  All products have an extent of 8.
experts="--set model.embed=8 --set model.heads=1 --set model.mlp=32 --set model.experts=4 --set model.experts_per_token=2"
machine flops_fp32=1e9 extent_efficiency=1:0.5
plan 1 $experts
halved=$(top step_seconds)
machine flops_fp32=1e9 extent_efficiency=8:0.5,9:1
plan 1 $experts
share "products of experts are as small as those of one expert" "$(top step_seconds)" "$halved"
machine memory_bandwidth=1e9 memory_efficiency=0.5
plan 1
share "memory_efficiency 0.5: memory takes twice as long" "$(top step_seconds)" "$(product "$adamw" 2e-9)"
machine node_bandwidth=1e6 ranks_per_node=8
plan 4 --set dp.size=4 --set dp.sync=allreduce
round=$(comm)
machine node_bandwidth=1e6 ranks_per_node=8 node_efficiency=1e3:0.25,1e4:0.5
plan 4 --set dp.size=4 --set dp.sync=allreduce
# 168,192 bytes at half the rate, 6 at a quarter
share "node_efficiency: large messages at half the bandwidth, the loss at a quarter" \
	"$(difference "$(comm)" "$round")" .16821
machine ranks_per_node=2 cards=1 $slow
plan 4 --set dp.size=4 --set dp.sync=allreduce
near "a node's ranks share its card" "$(comm)" 168.198 1e-9
# 4 nodes of one rank: 1.5 times a rank's bytes at half a byte a second, whatever is given for other numbers of nodes.
whole="--set dp.size=4 --set dp.sync=allreduce --set dp.bucket=1G"
machine ranks_per_node=1 node_bandwidth=1 network_bandwidth=1e30
plan 4 $whole
share "an all-reduce between whole nodes runs at most at the node's bandwidth" "$(comm)" 168198
for shares in 0.5 4:0.5,8:0.1 2:0.9,4:0.5; do
	machine ranks_per_node=1 node_bandwidth=1 network_bandwidth=1e30 all_reduce_efficiency=$shares
	plan 4 $whole
	share "... and at half of it with all_reduce_efficiency = $shares" "$(comm)" 336396
done
machine ranks_per_node=4 node_bandwidth=1 network_bandwidth=1e30 all_reduce_efficiency=0.5
plan 4 $whole
share "within a node all_reduce_efficiency changes nothing" "$(comm)" 168198
machine ranks_per_node=4 node_bandwidth=1e30 network_bandwidth=1e30 all_reduce_efficiency=1e-30
plan 8 $whole --set tp.size=2
near "between parts of nodes all_reduce_efficiency changes nothing" "$(comm)" 0 1e-20
machine ranks_per_node=1 $slow
plan 4 --set dp.size=4 --set dp.sync=server
one=$(comm)
machine ranks_per_node=1 $slow incast=0.5
plan 4 --set dp.size=4 --set dp.sync=server
ok "incast: several ranks that send to one card slow each other down" \
	awk -v a="$one" -v b="$(comm)" 'BEGIN { exit !(b > 1.2 * a) }'
# -- overlap with kernels: the gradients of a step travel while it computes
busy="flops_fp32=1e9 node_bandwidth=3e7"
machine $busy
plan 4 --set dp.size=4 --set dp.sync=allreduce --set train.micro_batch=1 --set train.global_batch=4 --set dp.bucket=1K
free=$(top compute_seconds)
hidden=$(top comm_hidden_seconds)
machine $busy overlap_cost=0.5
plan 4 --set dp.size=4 --set dp.sync=allreduce --set train.micro_batch=1 --set train.global_batch=4 --set dp.bucket=1K
ok "overlap_cost: some movements are hidden" awk -v h="$hidden" 'BEGIN { exit !(h > 0) }'
ok "... and kernels that overlap them take longer, by at most the time of the movements" \
	awk -v a="$free" -v b="$(top compute_seconds)" -v c="$(comm)" 'BEGIN { exit !(b > 1.01 * a && b - a <= c) }'
# -- memory besides the plan: of the device, of libraries and of communicators (tp, dp, and both for the loss and the
# norm)
machine
plan 4 --set tp.size=2 --set dp.size=2
bytes=$(top planned_peak_bytes)
machine context_memory=1M workspace_memory=2M communicator_memory=4M
plan 4 --set tp.size=2 --set dp.size=2
is "the planned peak includes memory of the device, of libraries and of communicators" \
	$((($(top planned_peak_bytes) - bytes) % 4194304)) 3145728
ok "... of at least two communicators" [ $((($(top planned_peak_bytes) - bytes) / 4194304)) -ge 2 ]
for wrong in efficiency=2 efficiency=1e3:0.5,1e2:0.5 efficiency=1e3:0.5,0.7 memory_efficiency=x extent_efficiency=1:0; do
	machine $wrong
	plan 1
	like "$wrong is refused by name" "$said" "machine.ini:[0-9]+: .machine. ${wrong%%=*}: .*(value|size|SIZE)"
done
done_testing
