#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `plan` charges for a product, a kernel's memory, a collective and a message, each on a machine where all else is
# free, against seconds worked out by hand.  A prediction that is only compared with itself may be off by any factor.
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
# machine KEY=VALUE...: all that is not said costs nothing
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
share() {			# NAME GOT WANT: to rounding of what JSON prints
	near "$1" "$2" "$3" "$(awk -v w="$3" 'BEGIN { print 1e-9 * w }')"
}
product() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.12g", a * b }'; }
difference() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.12g", a - b }'; }

# -- arithmetic: of a token, three times 24 embed^2 a layer and 2 embed vocab; and 7 products of attention of 2 seq embed,
# half of each (causal): two in forward, five in backward, where scores are made again
flops=$(((3 * (2 * 24 * 32 * 32 + 2 * 32 * 64) + 2 * 7 * 16 * 32) * 128))
machine flops_fp32=1e9
plan 1
share "products of a step" "$(product "$(top flops_per_second)" "$(top step_seconds)")" $flops
share "tokens of a step" "$(product "$(top tokens_per_second)" "$(top step_seconds)")" 128
share "share of the peak" "$(top peak_share)" "$(product "$(top flops_per_second)" 1e-9)"
whole=$(top step_seconds)
is "nothing is recomputed: the hardware does what the model needs" "$(top hardware_flops_per_rank) $(top peak_share_hardware) $(top job_flops)" \
	"$(top model_flops_per_rank) $(top peak_share_model) $(top flops_per_second)"
plan 2 --set train.recompute=full --set dp.size=2
share "recomputed: all products of both ranks" "$(product "$(top job_flops)" "$(top step_seconds)")" "$(heddle explain p.ini \
	--ranks 2 --work --json --set train.recompute=full --set dp.size=2 |
	tr '{' '\n' | sed -n 's/.*"product_flops": *\([-0-9.e+]*\).*/\1/p' | awk '{ n += $1 } END { printf "%.0f", 2 * n }')"
ok "which is more than the model needs" awk -v a="$(top hardware_flops_per_rank)" -v b="$(top model_flops_per_rank)" 'BEGIN { exit !(a > 1.1 * b) }'
# What a layout repeats, or a form of products splits, is no more of the model.
for layout in 'cp size=4 form=ring' 'cp size=4 form=ring balance=none' 'cp size=2 form=ulysses' 'tp size=4 form=2d' 'pp size=2'; do
	{ sed '/^\[strategy/,$d' p.ini; echo "[strategy ${layout%% *}]"; printf '%s\n' plugin="$layout" | tr ' ' '\n'; } >l.ini
	for recompute in none full; do
		said=$(heddle plan l.ini --machine machine.ini --json --set train.recompute=$recompute 2>&1)
		share "$layout, recompute $recompute: the FLOPs of the model" \
			"$(product "$(product "$(top model_flops_per_rank)" "$(top ranks)")" "$(top step_seconds)")" $flops
		[ $recompute = full ] || share "$layout: nobody does more" "$(top hardware_flops_per_rank)" "$(top model_flops_per_rank)"
	done
done
machine flops_fp32=1e9 efficiency=0.5
plan 1
share "efficiency 0.5: products twice" "$(difference "$(top step_seconds)" "$whole")" "$(product $flops 1e-9)"
like "bf16 without a peak of its own: at that of fp32, and a line says so" \
	"$(heddle plan p.ini --machine machine.ini --ranks 1 --set train.precision=bf16 2>&1)" \
	'^heddle: plan: machine.ini has no flops_bf16: bf16 is counted at the peak of fp32, 1\.0 GFLOP/s$'
unlike "in fp32 nothing is said" "$(heddle plan p.ini --machine machine.ini --ranks 1 2>&1)" 'no flops_bf16'
machine memory=80
is "80 bytes of memory: refused" "$(heddle plan p.ini --machine machine.ini --ranks 1 2>&1)" \
	"heddle: machine.ini:$(grep -n '^memory ' machine.ini | cut -d: -f1): [machine] memory: 80 bytes are too few for a rank, at least 1M; is the unit missing?"
machine flops_bf16=1e9
plan 1 --set train.precision=bf16
bf16=$(top step_seconds)
share "bf16: its own rate" "$bf16" "$(product $flops 1e-9)"
share "bf16: share of its own peak" "$(top peak_share)" 1

# -- memory.  adamw reads and writes two moments of 4 bytes more than sgd does.
machine memory_bandwidth=1
plan 1
adamw=$(top step_seconds)
plan 1 --set train.optimizer=sgd
share "memory: adamw and sgd differ by 16 bytes a parameter" "$(difference "$adamw" "$(top step_seconds)")" $((16 * 28032))
machine memory_bandwidth=2
plan 1
share "twice the bandwidth, half the time" "$(product 2 "$(top step_seconds)")" "$adamw"
machine memory_bandwidth=1e9 flops_fp32=1e9
plan 1
awk -v t="$(top step_seconds)" -v f="$whole" -v m="$(product "$adamw" 1e-9)" 'BEGIN {
	printf "# %s s; arithmetic alone %s, memory alone %s\n", t, f, m; exit !(t > f && t > m && t < f + m) }'
tap_result $? "a kernel takes the longer of arithmetic and memory: some the one, some the other"

# -- a kernel's own time: as many in each micro-batch, but for sums that the first has nothing to add to
machine kernel_latency=1
for batch in 8 4 2; do
	plan 1 --set train.micro_batch=$batch --set train.global_batch=$((batch * 2))
	two=$(top step_seconds)
	plan 1 --set train.micro_batch=$batch --set train.global_batch=$((batch * 3))
	three=$(top step_seconds)
	plan 1 --set train.micro_batch=$batch --set train.global_batch=$((batch * 5))
	is "kernels: each micro-batch of $batch as many" "$(difference "$(top step_seconds)" "$three")" "$(product 2 "$(difference "$three" "$two")")"
done
count=$(heddle explain p.ini --ranks 1 --nodes | grep -c -E '^(forward|backward|weight).* (einsum|norm|attention)[a-z_]* \[')
awk -v n="$count" -v got="$(difference "$three" "$two")" 'BEGIN { exit !(n > 50 && got > n) }'
tap_result $? "more of them than products, norms and attention: $(difference "$three" "$two"), $count"

# -- what only names bytes takes no time: packs and pieces that are made in place, and what shows the update its gradient
plan 1
one=$(top compute_seconds)
for bucket in 25M 1; do
	plan 4 --set train.global_batch=32 --set dp.size=4 --set dp.sync=allreduce --set dp.bucket=$bucket
	share "buckets of $bucket: as many kernels as one rank has" "$(top compute_seconds)" "$one"
done

# -- three kernels of this plugin run in every other step: half of them are of each
cp p.ini plain.ini
printf '[strategy b]\nplugin = %s\n' "$build/t/plugins/.libs/builders.so" >>p.ini
plan 1
mv plain.ini p.ini
is "kernels of every other step count half" "$(top step_seconds | sed 's/.*\././')" .5

# -- collectives of 4 members.  Gradients: 112,128 bytes.  The loss, 4 bytes, is summed too: by a tree, there and back.
comm() { awk -v e="$(top comm_exposed_seconds)" -v h="$(top comm_hidden_seconds)" 'BEGIN { printf "%.12g", e + h }'; }
machine node_latency=1
plan 4 --set dp.size=4 --set dp.sync=allreduce
share "latency: an all-reduce by a tree, 2 x 2; and the loss" "$(comm)" 8
plan 8 --set dp.size=8 --set dp.sync=allreduce --set train.micro_batch=1
share "of 8: 2 x 3 each" "$(comm)" 12
plan 4 --set dp.size=4 --set dp.sync=ring
share "a ring of shifts: 3 and 3; and the loss" "$(comm)" 10
plan 4 --set dp.size=4 --set dp.zero=1
share "reduce-scatter and all-gather: 3 each; the norm; the loss" "$(comm)" 14
plan 2 --set pp.size=2 --set model.tie_embeddings=no --set train.global_batch=2
share "stages: a message there, one back, and the norm's 2, beside which the loss goes in 1" "$(top step_seconds)" 4
machine node_latency=1 node_bandwidth=1e3
plan 4 --set dp.size=4 --set dp.sync=allreduce
share "bytes and latency: a ring, 2 x 3 and 3/2 of the gradients at 1 KB/s" "$(comm)" "$(difference 178.192 -0.008)"
plan 4 --set dp.size=4 --set dp.zero=1
# 28,672 gradients, padded: 3/4 of them each way; 8 bytes of the norm and 4 of the loss, twice, by trees
share "reduce-scatter, all-gather: 3 and 3/4 of them each" "$(comm)" "$(difference 186.032 -0.024)"

# -- which link.  3/2 of the gradients, and 6 bytes of the loss, go round; with two members on a node in two rings, each of which
# leaves it through another card
slow="network_bandwidth=1e3 network_latency=0"
for nodes in '8 0' '4 0' '2 84.099' '1 168.198'; do
	machine ranks_per_node=${nodes% *} $slow
	plan 4 --set dp.size=4 --set dp.sync=allreduce
	near "${nodes% *} ranks a node: an all-reduce of 4" "$(comm)" "${nodes#* }" 1e-9
done
machine ranks_per_node=2 $slow
plan 4 --set tp.size=2 --set dp.size=2 --set dp.sync=allreduce
share "tp 2 x dp 2, 2 ranks a node: tp stays within it" "$(comm)" "$(product "$(json "$said" network)" 1e-3)"
ok "and sends something there" [ "$(json "$said" node)" -gt 50000 ]
plan 4 --set dp.size=4 --set dp.sync=allreduce
is "what a rank sends is counted on the link that it takes" "$(json "$said" node) $(json "$said" network)" "84099 84099"
# All-to-alls between 4 members beside sums of gradients: whatever the nodes, each byte takes one link.
cp p.ini plain.ini
printf '[strategy cp]\nplugin = cp\nform = ulysses\nsize = 4\n' >>p.ini
for here in 4 2 1; do
	machine ranks_per_node=$here $slow
	plan 4
	echo $(($(json "$said" node) + $(json "$said" network)))
done >sent
mv plain.ini p.ini
is "all-to-alls: what a rank sends does not depend on where the others are" "$(sort -u sent | wc -l) $(sed -n 's/^[1-9][0-9]*$/a number/p;q' sent)" \
	"1 a number"

# Messages of 2 x 16 x 32 x 4 = 4,096 bytes, there and back, then the norm of two stages, 8 bytes, or of four, 12; the loss,
# 4 bytes, goes beside it.
stages() {			# RANKS: one micro-batch
	plan "$1" --set pp.size="$1" --set model.layers=4 --set model.tie_embeddings=no --set train.global_batch=2
}
machine ranks_per_node=1 network_bandwidth=1e3
stages 2
share "two stages on two nodes: at the network's rate" "$(top step_seconds)" 8.2
machine ranks_per_node=2 network_bandwidth=1e3
stages 2
near "on one node: nothing" "$(top step_seconds)" 0 1e-9
machine ranks_per_node=2 network_bandwidth=1e30 node_bandwidth=2e3
stages 2
share "at the node's rate" "$(top step_seconds)" 4.1
machine ranks_per_node=2 network_bandwidth=1e3
stages 4
share "four stages on two nodes: one message of three leaves them" "$(top step_seconds)" 8.198
machine ranks_per_node=2 network_bandwidth=1e30 node_bandwidth=1e3
stages 4
share "and two do not; half of the norm's 12 bytes neither, but its rings pass through the node whole" "$(top step_seconds)" 16.396
machine ranks_per_node=1 node_bandwidth=1e3
stages 2
share "no network_bandwidth: as within a node" "$(top step_seconds)" 8.2

# -- hardware that is not the same at every size
machine flops_fp32=1e9 sustained_clock=0.5
plan 1
share "a clock that halves under load: products twice" "$(difference "$(top step_seconds)" "$whole")" "$(product $flops 1e-9)"
# 2^18 and 2^20 FLOPs are a third and a half of the way from 2^16 to 2^22
machine flops_fp32=1e9 efficiency=65536:0.25,4194304:1
plan 1
curve=$(top step_seconds)
ok "a curve lies between its ends" awk -v c="$curve" -v w="$whole" 'BEGIN { exit !(c > 1.1 * w && c < 3.9 * w) }'
machine flops_fp32=1e9 efficiency=1e1:0.25,1e2:0.5
plan 1
share "behind its last point it stays" "$(difference "$(top step_seconds)" "$whole")" "$(product $flops 1e-9)"
# heads of 8: the products of attention, 7 x 2 x 16 x 32 / 2 FLOPs a token and layer; the others have 32 and more
machine flops_fp32=1e9 extent_efficiency=8:0.5,9:1
plan 1
share "products of a small extent: attention's alone, twice" "$(difference "$(top step_seconds)" "$whole")" \
	"$(product $((2 * 7 * 16 * 32 * 128)) 1e-9)"
# Experts: a product for each, of which no extent is the number of experts.  All have one of 8.
experts="--set model.embed=8 --set model.heads=1 --set model.mlp=32 --set model.experts=4 --set model.experts_per_token=2"
machine flops_fp32=1e9 extent_efficiency=1:0.5
plan 1 $experts
halved=$(top step_seconds)
machine flops_fp32=1e9 extent_efficiency=8:0.5,9:1
plan 1 $experts
share "products of experts are as small as one expert's" "$(top step_seconds)" "$halved"
machine memory_bandwidth=1e9 memory_efficiency=0.5
plan 1
share "memory at half its bandwidth" "$(top step_seconds)" "$(product "$adamw" 2e-9)"
machine node_bandwidth=1e6 ranks_per_node=8
plan 4 --set dp.size=4 --set dp.sync=allreduce
round=$(comm)
machine node_bandwidth=1e6 ranks_per_node=8 node_efficiency=1e3:0.25,1e4:0.5
plan 4 --set dp.size=4 --set dp.sync=allreduce
# 168,192 bytes at half the rate, 6 at a quarter
share "messages: large ones at half their bandwidth, the loss at a quarter" "$(difference "$(comm)" "$round")" .16821
machine ranks_per_node=2 cards=1 $slow
plan 4 --set dp.size=4 --set dp.sync=allreduce
near "a node's ranks share its card" "$(comm)" 168.198 1e-9
# 4 nodes of one: 1.5 times what a rank has, at half of a byte a second, and no faster with other numbers of nodes.
whole="--set dp.size=4 --set dp.sync=allreduce --set dp.bucket=1G"
machine ranks_per_node=1 node_bandwidth=1 network_bandwidth=1e30
plan 4 $whole
share "an all-reduce of whole nodes: at most at the node's bandwidth" "$(comm)" 168198
for shares in 0.5 4:0.5,8:0.1 2:0.9,4:0.5; do
	machine ranks_per_node=1 node_bandwidth=1 network_bandwidth=1e30 all_reduce_efficiency=$shares
	plan 4 $whole
	share "at $shares of it" "$(comm)" 336396
done
machine ranks_per_node=4 node_bandwidth=1 network_bandwidth=1e30 all_reduce_efficiency=0.5
plan 4 $whole
share "within a node: as without" "$(comm)" 168198
machine ranks_per_node=4 node_bandwidth=1e30 network_bandwidth=1e30 all_reduce_efficiency=1e-30
plan 8 $whole --set tp.size=2
near "of parts of nodes: as without" "$(comm)" 0 1e-20
machine ranks_per_node=1 $slow
plan 4 --set dp.size=4 --set dp.sync=server
one=$(comm)
machine ranks_per_node=1 $slow incast=0.5
plan 4 --set dp.size=4 --set dp.sync=server
ok "several that send to one card hinder each other" awk -v a="$one" -v b="$(comm)" 'BEGIN { exit !(b > 1.2 * a) }'
# -- beside kernels: a step whose gradients travel while it computes
busy="flops_fp32=1e9 node_bandwidth=3e7"
machine $busy
plan 4 --set dp.size=4 --set dp.sync=allreduce --set train.micro_batch=1 --set train.global_batch=4 --set dp.bucket=1K
free=$(top compute_seconds)
hidden=$(top comm_hidden_seconds)
machine $busy overlap_cost=0.5
plan 4 --set dp.size=4 --set dp.sync=allreduce --set train.micro_batch=1 --set train.global_batch=4 --set dp.bucket=1K
ok "something is hidden" awk -v h="$hidden" 'BEGIN { exit !(h > 0) }'
ok "kernels beside movements take longer, by at most what moves" \
	awk -v a="$free" -v b="$(top compute_seconds)" -v c="$(comm)" 'BEGIN { exit !(b > 1.01 * a && b - a <= c) }'
# -- memory besides the plan: of the device, of libraries, of each communicator of a rank (tp, dp, and both for the loss and norm)
machine
plan 4 --set tp.size=2 --set dp.size=2
bytes=$(top planned_peak_bytes)
machine context_memory=1M workspace_memory=2M communicator_memory=4M
plan 4 --set tp.size=2 --set dp.size=2
is "memory of the device, of libraries and of communicators" $((($(top planned_peak_bytes) - bytes) % 4194304)) 3145728
ok "two communicators at least" [ $((($(top planned_peak_bytes) - bytes) / 4194304)) -ge 2 ]
for wrong in efficiency=2 efficiency=1e3:0.5,1e2:0.5 efficiency=1e3:0.5,0.7 memory_efficiency=x extent_efficiency=1:0; do
	machine $wrong
	plan 1
	like "$wrong is refused by name" "$said" "machine.ini:[0-9]+: .machine. ${wrong%%=*}: .*(value|size|SIZE)"
done
done_testing
