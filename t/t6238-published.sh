#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Predictions are compared with published runs, and each key of a style has its effect.  If this broke, a change of the
# prices would move predictions away from what machines did.  Nobody would notice before a job is bought.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# -- t/data/published.tsv: the prediction of each run has the error written there, and each table is within its bound
table="$src/t/data/published.tsv"
tab=$(printf '\t')
: >errors
grep -v '^#' "$table" | grep -v '^bound\|^source' >rows
ok "published.tsv has more than 100 runs" [ "$(wc -l <rows)" -gt 100 ]
is "each table has a source" \
	"$(cut -f 2 rows | sort -u)" "$(sed -n "s/^source$tab\([^$tab]*\)$tab..*/\1/p" "$table" | sort)"
sed '/^context_memory/d; /^communicator_memory/d' "$src/conf/machines/dgx-a100.ini" >allocator.ini
while IFS="$tab" read -r in_check name run machine style ranks seconds gb published error memory keys; do
	[ "$in_check" = c ] || whole_sweep || continue
	[ "$memory" = - ] || [ "$machine" != dgx-a100 ] || machine=./allocator.ini	# as torch.cuda.max_memory_allocated counts
	set --
	for key in $keys; do
		set -- "$@" --set "$key"
	done
	said=$(heddle plan "$src/t/data/published.ini" --ranks "$ranks" --machine "$machine" --style "$style" --json "$@" 2>&1)
	said=$(printf '%s\n' "$said" | sed 's/"stages".*//')
	printf '%s\t%s\t%s\n' "$name" "$(json "$said" step_seconds)" "$seconds" >>errors
	near "$name, $run, $ranks ranks ($published): time is off by $error %" "$(awk -v p="$(json "$said" step_seconds)" \
		-v s="$seconds" 'BEGIN { print 100 * (p / s - 1) }')" "$error" 0.3
	[ "$memory" = - ] || near "$name, $run: memory is off by $memory %" \
		"$(awk -v p="$(json "$said" planned_peak_bytes)" -v g="$gb" \
		'BEGIN { print 100 * (p / g / 1e9 - 1) }')" "$memory" 0.3
done <rows
grep '^bound' "$table" >bounds
while IFS="$tab" read -r _ name mean worst; do
	awk -F'\t' -v t="$name" -v m="$mean" -v w="$worst" -v whole="$(whole_sweep && echo 1)" '
		function abs(x) { return x < 0 ? -x : x }
		$1 == t { e = 100 * abs($2 / $3 - 1); n++; sum += e; most = e > most ? e : most }
		END { exit !(!n && !whole || n && most <= w && (!whole || sum / n <= m)) }' errors
	tap_result $? "$name: at most $worst % off$(whole_sweep && echo ", $mean % in the mean")"
done <bounds

# -- the plan commands in comments of conf/, and the seconds written there
from_conf() { # INI NUMBER: prints the seconds that the plan command of that number predicts
	args=$(sed -n 's/^;   heddle plan //p' "$src/conf/$1" | sed -n "$2p")
	# shellcheck disable=SC2086
	(cd "$src" && heddle plan $args --json 2>&1) | sed 's/"stages".*//' | sed -n 's/.*"step_seconds": *\([0-9.]*\).*/\1/p'
}
near "conf/mt-nlg-530b.ini: seconds of a step on 2240 ranks" "$(from_conf mt-nlg-530b.ini 1)" 61.9 0.1
near "conf/ptd-p-1t.ini: seconds of a step" "$(from_conf ptd-p-1t.ini 1)" 100.1 0.1
if whole_sweep; then
	near "conf/mt-nlg-530b.ini: seconds of a step on 2800 ranks" "$(from_conf mt-nlg-530b.ini 2)" 51.0 0.1
	near "conf/mt-nlg-530b.ini: seconds of a step on 3360 ranks" "$(from_conf mt-nlg-530b.ini 3)" 43.8 0.1
fi

# -- styles
cat >s.ini <<'E2'
[model]
layers = 4
embed = 256
heads = 4
vocab = 1024
[data]
train = none
[train]
seq = 256
global_batch = 16
micro_batch = 2
recompute = full
precision = bf16
steps = 1
[strategy tp]
plugin = tp
size = 2
[strategy dp]
plugin = dp
size = 2
[strategy pp]
plugin = pp
size = 2
E2
sed '/strategy tp/,+2d' s.ini >alone.ini		# without tp, products add residuals themselves
under() {			# STYLE args...: plans, and sets $seconds, $bytes and $flops
	style=$1
	shift
	said=$(heddle plan "${ini:-s.ini}" --ranks 8 --machine dgx-a100 --style "$style" --json "$@" 2>&1)
	seconds=$(json "$(printf '%s\n' "$said" | sed 's/"stages".*//')" step_seconds)
	bytes=$(json "$(printf '%s\n' "$said" | sed 's/"stages".*//')" planned_peak_bytes)
	flops=$(json "$said" job_flops)
}
under heddle
plain=$seconds memory=$bytes
work=$(awk -v a="$flops" -v b="$seconds" 'BEGIN { print a * b }')
is "without --style, plan uses the style heddle" \
	"$(heddle plan s.ini --ranks 8 --machine dgx-a100)" "$(heddle plan s.ini --ranks 8 --machine dgx-a100 --style heddle)"
for key in attention=scores norms=twice dropout=yes gradients=apart residuals=apart loss=twice loss=apart optimizer=apart recompute=layer \
	collectives=wait messages=wait sync=late scatter=wait; do
	printf '[style]\n%s\n' "$key" >one.style
	set --
	ini=s.ini
	[ "$key" != residuals=apart ] && [ "$key" != loss=twice ] || { ini=alone.ini; set -- --set dp.size=4; }
	[ "$key" != sync=late ] || set -- --set pp.size=1 --set dp.size=4 --set train.micro_batch=4
	[ "$key" != scatter=wait ] || set -- --set pp.size=1 --set dp.size=4 --set dp.zero=2
	under heddle "$@"
	plain=$seconds
	under ./one.style "$@"
	ok "$key takes longer" awk -v a="$plain" -v b="$seconds" 'BEGIN { exit !(b > a * 1.0001) }'
	is "$key does not change the memory" "$bytes" "$(under heddle "$@"; echo "$bytes")"
done
# 4 layers and 16 x 256 tokens.  With attention = scores, forward's two products, computed twice, and backward's four
# read all 256 keys.  Heddle's two, computed twice, and five read half of them.  With recompute = layer, the last
# product of each MLP, 2 x 256 x 1024, is recomputed too; Heddle does not need it.
ini=s.ini
printf '[style]\nattention = scores\n' >one.style
under ./one.style
near "attention = scores adds the FLOPs of all scores" \
	"$(awk -v a="$flops" -v b="$seconds" -v w="$work" 'BEGIN { printf "%.0f", a * b - w }')" \
	$((4 * 16 * 256 * (16 - 9) * 256 * 256)) 1e6
printf '[style]\nrecompute = layer\n' >one.style
under ./one.style
ok "recompute = layer adds the FLOPs of complete layers" \
	awk -v a="$flops" -v b="$seconds" -v w="$work" -v least=$((4 * 16 * 256 * 2 * 256 * 1024)) \
	'BEGIN { more = a * b - w; exit !(more > 0.999 * least && more < 1.3 * least) }'
printf '[style]\nattention = scores\nsaved = all\n' >one.style
under ./one.style --set train.recompute=none
all=$bytes
under heddle --set train.recompute=none
ok "saved = all needs at least 5 bytes more for each score" [ $((all - bytes)) -gt $((2 * 2 * 2 * 256 * 256 * 5)) ]
# For eight sequences of 2048 tokens on a GPU, logits are computed in two parts of 8192 tokens.
large="--set train.recompute=none --set tp.size=1 --set dp.size=4 --set model.vocab=65536 --set train.seq=2048 --set train.micro_batch=8 --set train.global_batch=32"
printf '[style]\nlogits = whole\n' >one.style
under heddle $large
parts=$bytes
under ./one.style $large
ok "logits = whole needs half of the logits more, less the gradient of their weight" \
	[ $((bytes - parts)) -ge $((16384 * 65536 - 65536 * 256 * 4)) ]
whole=$bytes
under ./one.style $large --set train.loss_parts=2
is "... unless the layout asks for two parts" "$bytes" "$parts"
under heddle $large --set train.loss_parts=1
is "... as a layout with train.loss_parts = 1 does" "$bytes" "$whole"

# The rates of kernels in a style, on one rank: the time at 1 % of the peak less that at 2 %.  Attention has two
# products in forward and five in backward, of half of 256 x 256 scores, 4 layers and 16 sequences.  A machine with
# older_instructions = 0.5 takes twice as long.
ini=alone.ini
seconds_of() {			# LINES MACHINE [args...]: prints the seconds of a step on one rank
	printf '[style]\n%b' "$1" >one.style
	machine=$2
	shift 2
	said=$(heddle plan alone.ini --ranks 1 --machine "$machine" --style ./one.style --json --set dp.size=1 --set pp.size=1 \
		--set train.recompute=none "$@" 2>&1)
	json "$(printf '%s\n' "$said" | sed 's/"stages".*//')" step_seconds
}
less() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.9g", a - b }'; }
sed 's/^flops_bf16.*/&\nolder_instructions = 0.5/' "$src/conf/machines/dgx-a100.ini" >older.ini
one=$((4 * 16 * 256 * 256 * 256))
for way in forward backward; do
	case $way in forward) flops=$((2 * one)) ;; *) flops=$((5 * one)) ;; esac
	took=$(less "$(seconds_of "attention_$way = 0.01\n" dgx-a100)" "$(seconds_of "attention_$way = 0.02\n" dgx-a100)")
	near "attention_$way is a share of the peak" \
		"$took" "$(awk -v f="$flops" 'BEGIN { print f * (100 - 50) / 312e12 }')" 1e-9
	took=$(less "$(seconds_of "attention_$way = 0.01\n" ./older.ini)" "$(seconds_of "attention_$way = 0.01\n" dgx-a100)")
	near "attention_$way: ... of older instructions, where the machine gives them" \
		"$took" "$(awk -v f="$flops" 'BEGIN { print f * 100 / 312e12 }')" 1e-9
done
is "older_instructions does not affect other kinds of attention" \
	"$(seconds_of '' ./older.ini)" "$(seconds_of '' dgx-a100)"
own=$(seconds_of 'elementwise = own\n' dgx-a100)
is "elementwise = own takes as long as its bytes" "$own" "$(seconds_of '' dgx-a100)"
twice=$(seconds_of 'elementwise = own\nkernels = 2\n' dgx-a100)
thrice=$(seconds_of 'elementwise = own\nkernels = 3\n' dgx-a100)
ok "kernels = 2: kernels without products take longer" awk -v a="$own" -v b="$twice" 'BEGIN { exit !(b > a * 1.01) }'
ok "kernels = 3: they take longer by the same amount again" \
	awk -v a="$own" -v b="$twice" -v c="$thrice" 'BEGIN { exit !(c - b >= (b - a) * 0.999) }'
# A layer's parameters are gathered together: the 63 links of a ring are passed once, not once for each bucket, with the
# same bytes.
sharded() {			# LINES [args...]
	printf '[style]\n%b' "$1" >one.style
	shift
	said=$(heddle plan alone.ini --ranks 64 --machine dgx-a100 --style ./one.style --json --set dp.size=64 --set pp.size=1 \
		--set train.global_batch=128 --set dp.bucket=1M "$@" 2>&1)
}
for stage in 2 3; do
	sharded 'gather = tensor\n' --set dp.zero=$stage
	tensors=$(json "$(printf '%s\n' "$said" | sed 's/"stages".*//')" step_seconds) sent=$(printf '%s\n' "$said" | grep -o '"bytes".*')
	sharded 'gather = layer\n' --set dp.zero=$stage
	layers=$(json "$(printf '%s\n' "$said" | sed 's/"stages".*//')" step_seconds)
	ok "zero = $stage, gather = layer: latencies are paid once per layer" \
		awk -v a="$tensors" -v b="$layers" 'BEGIN { exit !(b < a * 0.8) }'
	is "zero = $stage, gather = layer: the bytes are the same" \
		"$(printf '%s\n' "$said" | grep -o '"bytes".*' | sed 's/}.*//')" "${sent%%\}*}"
done
# If weight gradients have units of their own, tensors that only backward reads are freed before those units.
printf '[style]\nattention = scores\nsaved = all\n' >one.style
ini=s.ini
under ./one.style --set train.recompute=none --set pp.schedule=1f1b
late=$bytes
under heddle --set train.recompute=none --set pp.schedule=1f1b
late=$((late - bytes))
under ./one.style --set train.recompute=none --set pp.schedule=zb
early=$bytes
under heddle --set train.recompute=none --set pp.schedule=zb
ok "zb: scores are not kept for weight gradients" [ $((early - bytes)) -le "$late" ]
printf '[style]\nattention = scores\nkernels = 2\n' >one.style
under ./one.style
twice=$seconds
printf '[style]\nattention = scores\n' >one.style
under ./one.style
ok "attention = scores, kernels = 2: the style's own kernels take longer" \
	awk -v a="$seconds" -v b="$twice" 'BEGIN { exit !(b > a * 1.001) }'
# One rank passes 4 layers for 8 micro-batches: in forward and in backward, and with recompute in forward again.
passed() {			# RECOMPUTE: prints the milliseconds that pass = 1e-3 adds
	took=$(less "$(seconds_of 'pass = 1e-3\n' dgx-a100 --set train.recompute="$1")" "$(seconds_of '' dgx-a100 --set train.recompute="$1")")
	awk -v s="$took" 'BEGIN { printf "%.3f", 1000 * s }'
}
is "pass: its time is added for each layer and micro-batch, in forward and backward" "$(passed none)" 64.000
is "pass: ... and for each recomputed layer" "$(passed full)" 96.000
# Ranks 0 and 1 are a tensor group, on one node or on two.  Replicas and stages are on several nodes in both cases.
sed 's/^ranks_per_node.*/ranks_per_node = 1/' "$src/conf/machines/dgx-a100.ini" >apart.ini
sed 's/^ranks_per_node.*/ranks_per_node = 2/' "$src/conf/machines/dgx-a100.ini" >pairs.ini
stepped() {			# MACHINE: prints the milliseconds that step = 0.25 adds
	printf '[style]\n' >one.style
	without=$(heddle plan s.ini --ranks 8 --machine "$1" --style ./one.style --json | sed 's/"stages".*//')
	printf '[style]\nstep = 0.25\n' >one.style
	with=$(heddle plan s.ini --ranks 8 --machine "$1" --style ./one.style --json | sed 's/"stages".*//')
	awk -v a="$(json "$with" step_seconds)" -v b="$(json "$without" step_seconds)" 'BEGIN { printf "%.3f", 1000 * (a - b) }'
}
is "step: its time is added once if tensor groups span two nodes" "$(stepped ./apart.ini)" 250.000
is "step: ... but not if they are within a node" "$(stepped ./pairs.ini)" 0.000
under megatron-2020
like "an unknown style is refused, and the message lists the known ones" "$said" 'megatron-2020: .*megatron-202'
printf '[style]\nattention = sparse\n' >one.style
under ./one.style
like "an unknown value of a key is refused" "$said" 'one.style:2: .*attention: .sparse.'
done_testing
