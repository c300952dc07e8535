#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bytes.  A run must send what explain prints of a layout, or decisions rest on wrong numbers.  A ring must not send
# more than 2 (n - 1) / n of a bucket.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# explained KIND: prints the sum of bytes x count.
explained() {
	printf '%s\n' "$said" | tr '{' '\n' | awk -v kind="$1" '
		$0 ~ "\"collective\": \"" kind "\"" || (kind == "" && /"collective"/) {
			b = $0; sub(/.*"bytes": /, "", b)
			c = $0; sub(/.*"count": /, "", c)
			sum += (b + 0) * (c + 0)
		}
		END { printf "%d\n", sum }'
}

parameters=$(heddle check --all tiny.ini | sed -n 's/^rank 0.*: \([0-9]*\) parameters.*/\1/p')
like "check prints the number of parameters" "$parameters" '^[1-9][0-9]{4}$'
for sync in ring allreduce; do
	for n in 2 4; do
		layout="--set dp.sync=$sync --set train.micro_batch=1"
		said=$(heddle explain tiny.ini $layout --ranks $n --json)
		ran=$(heddle_mpi $n bench tiny.ini $layout --json --steps 2 2>/dev/null)
		planned=$(printf '%s\n' "$ran" | sed -n 's/.*"bytes": {"dp": \([0-9]*\)}.*/\1/p')
		is "$sync, $n ranks: bench prints what explain prints" "$planned" "$(explained '')"
		is "$sync, $n ranks: the run sends that" "$(json "$ran" bytes_counted)" "$planned"
		if [ $sync = ring ]; then kind='ring-[a-z-]*'; else kind=all-reduce; fi
		scalars=0		# the loss, which has an all-reduce of its own
		[ $sync = ring ] || scalars=$((4 * 2 * (n - 1) / n))
		is "$sync, $n ranks: it is 2 (n - 1) / n of the gradients" "$(explained $kind)" \
			"$((2 * (n - 1) * parameters * 4 / n + scalars))"
	done
done

# Many buckets, of sizes that n does not divide: each is padded to a multiple of n.
said=$(heddle explain tiny.ini --set dp.bucket=1K --set train.micro_batch=1 --ranks 4 --json)
ran=$(heddle_mpi 4 bench tiny.ini --set dp.bucket=1K --set train.micro_batch=1 --json --steps 2 2>/dev/null)
is "buckets of 1K: sent as explained" "$(json "$ran" bytes_counted)" "$(explained '')"
ok "buckets of 1K: there are many" [ "$(printf '%s\n' "$said" | tr '{' '\n' | grep -c '"ring-')" -gt 20 ]

# Between hosts it is the same.
HD_TEST_COMM=mpi
export HD_TEST_COMM
over=$(heddle_mpi 4 bench tiny.ini --set dp.bucket=1K --set train.micro_batch=1 --json --steps 2 2>/dev/null)
is "between hosts: the same bytes" "$(json "$over" bytes_counted)" "$(json "$ran" bytes_counted)"

# Axes of another kind, which reduce and move activations once a micro-batch.
unset HD_TEST_COMM
mesh=$build/t/plugins/.libs/mesh3.so
if [ -f "$mesh" ]; then
	{
		sed '/^\[strategy/,$d' tiny.ini
		printf '[strategy m]\nplugin = %s\na = 1\nb = 2\nc = 1\n' "$mesh"
	} >mesh.ini
	said=$(heddle explain mesh.ini --ranks 2 --json)
	ran=$(heddle_mpi 2 bench mesh.ini --json --steps 2 2>/dev/null)
	is "heads sharded in two: sent as explained" "$(json "$ran" bytes_counted)" "$(explained '')"
	ok "heads sharded in two: something is sent" [ "$(explained '')" -gt 0 ]
else
	skip "t/plugins is not built"
fi
# Experts with a capacity limit: the number of bytes does not depend on the tokens' choices.
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy ep]\nplugin = ep\nsize = 2\n'
} >experts.ini
said=$(heddle explain experts.ini --set model.experts=4 --ranks 2 --json)
ran=$(heddle_mpi 2 bench experts.ini --set model.experts=4 --json --steps 2 2>/dev/null)
is "experts on 2: sent as explained" "$(json "$ran" bytes_counted)" "$(explained '')"
# 2 forward and 2 backward, of 2 micro-batches.  4 experts x 2 samples x 2 x 32 / 4 places of 32 floats, half of them
# remote
is "experts on 2: four all-to-alls of places" "$(explained all-to-all)" $((4 * 2 * 4 * 2 * 16 * 32 * 4 / 2))
# Without a limit it depends on the choices, and is the same by both transports.  (Here all ranks have the same tokens,
# so the sum is that of equal choices.)
unset HD_TEST_COMM
said=$(heddle explain experts.ini --set model.experts=4 --set model.router=topk --ranks 2 --json)
ran=$(heddle_mpi 2 bench experts.ini --set model.experts=4 --set model.router=topk --json --steps 2 2>/dev/null)
is "no limit: four all-to-alls, if choices are equal" "$(explained all-to-all)" $((4 * 2 * 2 * 32 * 2 * 32 * 4 / 2))
printf '%s\n' "$said" | grep -q '"largest": 16384'
tap_result $? "no limit: the largest exchange has all rows of a rank"
HD_TEST_COMM=mpi
export HD_TEST_COMM
over=$(heddle_mpi 2 bench experts.ini --set model.experts=4 --set model.router=topk --json --steps 2 2>/dev/null)
is "no limit: sent as explained" "$(json "$ran" bytes_counted)" "$(explained "")"
is "no limit: the same bytes between hosts" "$(json "$over" bytes_counted)" "$(json "$ran" bytes_counted)"

# Along cp each member gathers a layer of experts' tokens and logits, and computes all of them (doc/ini.md): in 2
# micro-batches 2 (c - 1) T (embed + experts) / c elements, with T = 8 x 32 / 2 tokens.
sed 's/^\[strategy ep\]/[strategy cp]/; s/^plugin = ep/plugin = cp/' experts.ini >shared.ini
shared="--set model.experts=4 --set model.router=topk --set train.micro_batch=4"
said=$(heddle explain shared.ini $shared --ranks 2 --json)
is "cp: a layer of experts gathers its tokens and logits" "$(explained all-gather)" $((2 * 2 * 128 * (32 + 4) / 2 * 4))
flops() { heddle explain shared.ini $shared --work --json "$@" | tr '{' '\n' | sed -n 's/.*"product_flops": \([0-9.]*\).*/\1/p' | awk '{ s += $1 } END { print s }'; }
ok "cp: each member computes more than half of the work, as experts are not divided" \
	awk -v all="$(flops --ranks 1 --set cp.size=1)" -v one="$(flops --ranks 2)" 'BEGIN { exit !(one > 0.6 * all && one < all) }'
done_testing
