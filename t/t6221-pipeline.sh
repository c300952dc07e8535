#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pipelines in real runs: messages far larger than a transport sends ahead, two stages that are neighbours in both
# directions, shared memory and MPI.  If this broke, a job would hang, send more than explain says, or need more memory
# than check says.  A user's order that deadlocks would run instead of being refused.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

tp='[strategy tp]\nplugin = tp\nsize = 2\n'
pp='[strategy pp]\nplugin = pp\nsize = 2\n'

# -- orders that are refused
printf '0,F,0,0\n0,B,0,0\n0,F,0,1\n0,B,0,1\n1,F,0,0\n1,F,0,1\n1,B,0,0\n1,B,0,1\n' >circle.csv
printf '0,F,0,0\n0,F,0,1\n0,B,0,0\n0,B,0,1\n1,F,0,0\n1,B,0,0\n1,F,0,1\n' >missing.csv
printf '0,F,0,0\n0,F,0,1\n0,B,0,0\n0,B,0,1\n1,F,0,0\n1,B,0,0\n1,F,0,1\n1,B,0,1\n' >good.csv
{ sed -e '/^\[strategy/,$d' -e 's/^micro_batch = .*/micro_batch = 4/' tiny.ini; printf "$pp"; } >two.ini
said=$(heddle check two.ini --ranks 2 --set pp.schedule=circle.csv 2>&1)
is "an order that deadlocks is refused" $? 1
like "... and the message shows the circle" \
	"$said" 'deadlock: stage 1 waits at F1 for stage 0, which waits at B0 for stage 1'
said=$(heddle check two.ini --ranks 2 --set pp.schedule=missing.csv 2>&1)
is "an order that lacks a unit is refused" $? 1
like "... and the message names the unit" "$said" 'stage 1 has no B1'
line=$(($(wc -l <two.ini) + 1))
for bad in circle missing; do
	{ cat two.ini; echo "schedule = $bad.csv"; } >bad.ini
	like "$bad.csv in the INI: the message names the line, the section and the key" \
		"$(heddle check bad.ini --ranks 2 2>&1)" \
		"^heddle: bad\\.ini:$line: \\[strategy pp\\] schedule: (deadlock: )?stage"
done
printf '0,F,0,0\n\000' >binary.csv
: >empty.csv
mkdir folder.csv
for bad in 'binary is not a text file: byte 8 is 0' 'empty contains no unit' 'folder cannot be read' 'none cannot be read'; do
	said=$(heddle check two.ini --ranks 2 --set "pp.schedule=${bad%% *}.csv" 2>&1)
	is "refused as an order: $bad" $? 1
	is "... and the message says so: $bad" "$said" "heddle: --set pp.schedule: ${bad%% *}.csv ${bad#* }"
done
# The embedding's gradient is the only weight gradient of stage 0.  Here it runs in another order than those of stage 1.
printf '0,F,0,0\n0,F,0,1\n0,B,0,0\n0,B,0,1\n0,W,0,1\n0,W,0,0\n1,F,0,0\n1,B,0,0\n1,F,0,1\n1,B,0,1\n1,W,0,0\n1,W,0,1\n' >late.csv
ok "weight gradients may run in another order than their backwards" \
	heddle check two.ini --ranks 2 --set pp.schedule=late.csv --set pp.split=0,2
ok "... and two ranks train with it" \
	heddle_mpi 2 train two.ini --set pp.schedule=late.csv --set pp.split=0,2 --set train.steps=2
ok "a valid order in a file is accepted" heddle check two.ini --ranks 2 --set pp.schedule=good.csv
mkdir elsewhere
ok "... also when the file is looked up next to the INI" \
	sh -c "cd elsewhere && '$build/heddle' check ../two.ini --ranks 2 --set pp.schedule=good.csv --set data.train=../text.txt"
ok "... and two ranks train with it" heddle_mpi 2 train two.ini --set pp.schedule=good.csv --set train.steps=2
said=$(heddle check two.ini --ranks 4 --set pp.size=4 --set model.layers=6 --set pp.schedule=interleaved --set train.global_batch=24 2>&1)
is "interleaved is refused if the micro-batches are not a multiple of the stages" $? 1
like "... and the message gives both numbers" \
	"$said" 'pp.schedule: interleaved: the 6 micro-batches of a step are not a multiple of the 4 stages'

# -- the bubble that check prints for 4 stages: (p - 1) / m.  It is divided by v with v chunks per stage, and by 3 with
# weight gradients in units of their own.
bubble() { # SCHEDULE [OPTION...]
	order=$1
	shift
	heddle check two.ini --ranks 4 --set pp.size=4 --set model.layers=8 --set pp.schedule="$order" --set train.micro_batch=1 "$@" |
		sed -n 's/.*bubble \([0-9.]*\).*/\1/p'
}
is "the bubble of gpipe is 3/8" "$(bubble gpipe)" 0.375
is "the bubble of 1f1b is 3/8" "$(bubble 1f1b)" 0.375
is "the bubble of interleaved is 3/16" "$(bubble interleaved)" 0.188
is "the bubble of zb is 3/24" "$(bubble zb)" 0.125

# -- the bubble of unequal stages, where a unit takes as long as its layers.  The stage of 5 layers waits for a forward
# and a backward of the 3 other stages.  Its own units take 8 x 5 of both.
is "layers 1,1,1,5: the bubble of gpipe is 3 / (8 x 5)" "$(bubble gpipe --set pp.split=1,1,1,5)" 0.075
is "layers 1,1,1,5: the bubble of 1f1b is the same" "$(bubble 1f1b --set pp.split=1,1,1,5)" 0.075
is "layers 1,1,1,5: the bubble of zb is 3 / (3 x 8 x 5)" "$(bubble zb --set pp.split=1,1,1,5)" 0.025
like "the drawing shows how long units of unequal stages are" \
	"$(heddle explain two.ini --ranks 2 --set pp.split=1,3 --set model.layers=4 --schedule)" \
	'^stage 1   \|   F0------ B0--------------- F1------ '
like "... and its legend says that these lengths are not measured" \
	"$(heddle explain two.ini --ranks 2 --set pp.split=1,3 --set model.layers=4 --schedule)" \
	'not measured: of each layer a forward takes 1, a backward 2$'

said=$(heddle explain two.ini --ranks 3 --set pp.size=3 --set pp.split=0,1,0 --set model.layers=1 --schedule 2>/dev/null)
is "stages without a layer are drawn where they run" "$(printf '%s\n' "$said" | grep '^stage')" \
	'stage 0   |F0 F1                         B0---       B1---
stage 1   |   F0--- F1---    B0--------- B1---------
stage 2   |         F0 B0--- F1 B1---'
like "... and the legend says how wide" "$said" 'a backward 2; units without a layer, which count as 0, are drawn like half a layer$'

# -- no deadlock: boundary tensors have 512 KB; transports send ahead 4 KB in shared memory, 64 KB on a network
{
	sed -e '/^\[strategy/,$d' -e 's/^embed = .*/embed = 256/' -e 's/^seq = .*/seq = 256/' -e 's/^layers = .*/layers = 4/' \
		-e 's/^steps = .*/steps = 2/' -e 's/^eval_batches.*/optimizer = sgd\nclip = 0/' -e 's/^train = .*/&\nvalid_fraction = 0/' tiny.ini
	printf "$pp"
} >large.ini
losses() { sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$1"; }
near_one() {	# NAME: checks that the losses in m.jsonl are those of one rank
	losses m.jsonl >many
	ok "$1" awk 'NR == FNR { want[NR] = $1; n++; next } { d = $1 / want[FNR] - 1; if (d < 0) d = -d; if (!(d < 1e-5)) exit 1; k++ }
		END { exit !(n == 2 && k == n) }' one many
}
heddle train large.ini --set pp.size=1 --set log.metrics=one.jsonl >/dev/null 2>&1
losses one.jsonl >one
# With two chunks a rank sends activations and gradients to the same other rank.  Here rank 0 sends the result of F1 of
# chunk 1 before that of B0 of chunk 1, and rank 1 receives the latter first.
echo 0,F,0,0 0,F,0,1 0,F,1,0 0,F,1,1 0,B,1,0 0,B,0,0 0,B,1,1 0,B,0,1 \
	1,F,0,0 1,F,0,1 1,F,1,0 1,B,1,0 1,B,0,0 1,F,1,1 1,B,1,1 1,B,0,1 | tr ' ' '\n' >crossing.csv
heddle train large.ini --set pp.size=1 --set train.global_batch=4 --set log.metrics=few.jsonl >/dev/null 2>&1
for how in shared mpi; do
	[ $how = shared ] || export HD_TEST_COMM=mpi
	orders='gpipe 1f1b interleaved zb'
	whole_sweep || orders='interleaved zb'
	[ $how = shared ] || whole_sweep || orders= # the programs are the same over another transport
	for order in $orders; do
		rm -f m.jsonl
		heddle_mpi 2 train large.ini --set pp.schedule=$order --set log.metrics=m.jsonl >out 2>&1 || tail -3 out | tap_comment
		near_one "two stages, $order, $how: the losses equal those of one rank"
	done
	losses few.jsonl >one
	rm -f m.jsonl
	heddle_mpi 2 train large.ini --set pp.schedule=crossing.csv --set pp.chunks=2 --set train.global_batch=4 \
		--set log.metrics=m.jsonl >out 2>&1 || tail -3 out | tap_comment
	near_one "messages that cross, $how: the losses equal those of one rank"
	losses one.jsonl >one
done
unset HD_TEST_COMM

# -- scatter/gather: the tensor-parallel ranks each send a piece of what crosses a link between stages
{ sed -e '/^\[strategy/,$d' -e 's/^family = .*/family = llama/' -e 's/^layers = .*/layers = 4/' tiny.ini; printf "$tp$pp"; } >four.ini
explained() {	# RANK AXIS KIND ARGS...: prints the sum of bytes x count
	rank=$1 axis=$2 kind=$3
	shift 3
	heddle explain four.ini --ranks 4 --rank "$rank" --json "$@" | tr '{' '\n' | awk -v axis="$axis" -v kind="$kind" '
		(axis == "" || index($0, "\"axis\": \"" axis "\"")) && (kind == "" || index($0, "\"collective\": \"" kind "\"")) {
			b = $0; sub(/.*"bytes": /, "", b); c = $0; sub(/.*"count": /, "", c); sum += (b + 0) * (c + 0)
		}
		END { printf "%d\n", sum }'
}
for order in 1f1b interleaved; do
	whole=$(explained 0 pp send --set pp.schedule=$order)
	pieces=$(explained 0 pp send --set pp.schedule=$order --set pp.scatter_gather=yes)
	is "$order: scatter_gather halves the bytes between stages" "$((2 * pieces))" "$whole"
	ok "$order: ... and those are more than 0" [ "$pieces" -gt 0 ]
	for scatter in no yes; do
		ran=$(heddle_mpi 4 bench four.ini --set pp.schedule=$order --set pp.scatter_gather=$scatter --steps 1 --json 2>/dev/null)
		most=0
		for r in 0 1 2 3; do
			n=$(explained $r '' '' --set pp.schedule=$order --set pp.scatter_gather=$scatter)
			[ "$n" -le "$most" ] || most=$n
		done
		is "$order, scatter_gather $scatter: a run sends the bytes that explain prints" \
			"$(json "$ran" bytes_counted)" "$most"
	done
done
sp="--set tp.sequence_parallel=yes"
is "with sequence_parallel, scatter_gather changes nothing" \
	"$(explained 0 pp send $sp --set pp.scatter_gather=yes)" "$(explained 0 pp send $sp)"
is "... since the bytes are halved already" "$((2 * $(explained 0 pp send $sp --set pp.schedule=interleaved)))" "$whole"

cut="--ranks 6 --set tp.size=3 --set model.heads=3 --set model.head_dim=8 --set model.mlp=66 --set model.vocab=256 --set pp.scatter_gather=yes
	--set train.micro_batch=1"
like "scatter_gather without a dim to cut: a warning names the dims and the number" "$(heddle check four.ini $cut 2>&1)" \
	'^heddle: .*scatter_gather = yes does nothing: no dim of \(batch,seq,embed\) on a rank is a multiple of tp = 3$'

# -- memory: as planned, and as measured in a run
{
	sed -e '/^\[strategy/,$d' -e 's/^embed = .*/embed = 192\nvocab = 256/' -e 's/^seq = .*/seq = 256/' -e 's/^layers = .*/layers = 6/' \
		-e 's/^micro_batch = .*/micro_batch = 4/' tiny.ini
	printf "$pp"
} >memory.ini
bench() { heddle_mpi 2 bench memory.ini --set pp.schedule=$1 --set train.global_batch=$((4 * $2)) --steps 1 --json 2>/dev/null; }
bench gpipe 4 >bench.out # times the products; the first run needs memory of its own for that
for order in gpipe 1f1b; do
	few=$(bench $order 4)
	many=$(bench $order 10)
	planned=$(($(json "$many" planned_peak_bytes) - $(json "$few" planned_peak_bytes)))
	measured=$(($(json "$many" measured_peak_bytes) - $(json "$few" measured_peak_bytes)))
	note "$order, 10 micro-batches instead of 4: planned $planned bytes more, measured $measured"
	if [ $order = gpipe ]; then
		ok "gpipe: more micro-batches need more memory" [ "$planned" -gt 50000000 ]
	else
		ok "1f1b: more micro-batches need no more memory" [ "$planned" -lt 1000000 ]
	fi
	# the memory of the libraries varies by 17 MB from run to run
	if [ -n "$TSAN_OPTIONS" ]; then
		skip "the measured memory includes that of the thread sanitizer"
	else
		near "$order: the memory of a run grows by as much as planned" \
			"$((measured / 1000000))" "$((planned / 1000000))" 35
	fi
done
done_testing
