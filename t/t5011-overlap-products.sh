#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The gradient of a product's input moves while the gradient of its weight is computed.  If the two ran one
# after the other, backward would wait for every sum, and a step would take that much longer on a network.  With
# train.overlap_micro_batches every collective of a micro-batch moves while another micro-batch is computed.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

above() { awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > b) }'; tap_result $? "$1" || echo "# $2 is not above $3"; }

# -- the order, as explain --nodes prints it -------------------------------------------------------------------------
# For each all-reduce or reduce-scatter of backward, the node before it computes its operand (a block may stand
# between).  A product of the same gradient stands between it and its first reader.  The gradient is the first
# operand of the product before it and the second of the weight's.
cat >order.awk <<'END'
function result(line) { sub(/.* -> /, "", line); sub(/\(.*/, "", line); return line }
function operand(line, i,    a) {
	sub(/ -> .*/, "", line); sub(/^[^ ]+ +(layer [0-9]+|head|embed) +/, "", line); sub(/^(comm [a-z-]+ on [a-z]+|[a-z_]+)( \[[^]]*\])? /, "", line)
	gsub(/\([^)]*\)/, "", line); split(line, a, ", "); return a[i]
}
/^(backward|weight-gradient)/ { line[++n] = $0 }
END {
	for (i = 1; i <= n; i++) {
		if (line[i] !~ /^backward.* comm (all-reduce|reduce-scatter) /)
			continue
		moves++
		maker = line[i - 1] ~ / (block|view) / ? i - 2 : i - 1
		if (line[maker] !~ / einsum / || operand(line[i], 1) != result(line[i - 1]))
			print "not started when it is made: " line[i]
		gradient = operand(line[maker], 1)
		for (k = i + 1; k <= n && index(line[k], result(line[i]) "(") == 0; k++)
			if (line[k] ~ /^weight-gradient.* einsum / && operand(line[k], 2) == gradient)
				beside++
	}
	print moves + 0 " moves, " beside + 0 " beside"
}
END
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy tp]\nplugin = tp\n'
} >cut.ini
order() { heddle explain cut.ini --ranks 2 --nodes "$@" | awk -f order.awk; }
is "four sums of two layers and one of the head each overlap with their weight's gradient" "$(order)" \
	"5 moves, 5 beside"
is "... also with sequence parallelism" "$(order --set tp.sequence_parallel=yes)" "5 moves, 5 beside"
is "... and in llama, whose sums add several products" "$(order --set model.family=llama)" "5 moves, 5 beside"

# -- a run with a slow network --------------------------------------------------------------------------------------
. "$src/t/lib/beside.sh"
delay=2000		# microseconds for each movement
sed -e 's/^layers = .*/layers = 4/' -e 's/^embed = .*/embed = 128/' -e 's/^seq = .*/seq = 64/' -e 's/^micro_batch = .*/micro_batch = 8/' \
	-e 's/^steps = .*/steps = 4/' cut.ini >four.ini
for sequence in no yes; do
	rm -f trace.json
	HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=$delay heddle_mpi 2 train four.ini --set tp.sequence_parallel=$sequence \
		--set log.trace=trace.json >/dev/null 2>&1
	set -- $(beside trace.json 'einsum')
	note "sequence $sequence: $1 movements in three steps, $2 overlap with products"
	above "sequence $sequence: both sums of each of 4 layers overlap with a product" "$2" "$((3 * 4 * 2 - 1))"
done

# -- the numbers of both runs -----------------------------------------------------------------------------------------
losses() { rm -f m.jsonl; heddle_mpi "$@" --set log.metrics=m.jsonl >/dev/null 2>&1 && sed -n 's/.*"loss": \([^,]*\).*/\1/p' m.jsonl; }
for sequence in no yes; do
	layout="--set tp.sequence_parallel=$sequence --set train.steps=6 --set train.reduce=rank_order"
	is "sequence $sequence: the same losses on a slow network" \
		"$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=300 losses 2 train cut.ini $layout)" "$(losses 2 train cut.ini $layout)"
done

# -- two micro-batches at a time --------------------------------------------------------------------------------------
pairs="--set train.overlap_micro_batches=yes"
for sequence in no yes; do
	rm -f trace.json
	HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=$delay heddle_mpi 2 train four.ini --set tp.sequence_parallel=$sequence \
		--set train.micro_batch=2 --set log.trace=trace.json $pairs >/dev/null 2>&1
	set -- $(beside trace.json 'einsum')
	note "two at a time, sequence $sequence: $1 movements in three steps, $2 overlap with products"
	above "two at a time, sequence $sequence: there are many movements" "$1" $((3 * 4 * 4 * 4 - 1))
	above "two at a time, sequence $sequence: nearly all overlap with products" "$2" "$(($1 * 7 / 8))"
	is "... the trace has the busy time of each unit once: of 2 ranks, 3 steps, 4 micro-batches, F and B" \
		"$(grep -c '"busy":' trace.json)" 48
done
sed -e 's/^global_batch = .*/global_batch = 16/' -e 's/^micro_batch = .*/micro_batch = 2/' tiny.ini >all.ini
printf 'size = 2\n[strategy tp]\nplugin = tp\nsize = 2\n' >>all.ini
same() {	# RANKS WHAT SETS...: checks that two at a time train the same bits as one at a time, here and between hosts
	ranks=$1 what=$2
	shift 2
	one=$(losses "$ranks" train all.ini --set train.reduce=rank_order "$@")
	like "$what, one at a time: trains" "$one" '^[0-9.]+'
	is "$what: the same losses two at a time" "$(losses "$ranks" train all.ini --set train.reduce=rank_order $pairs "$@")" "$one"
	is "$what: also between hosts" \
		"$(HD_TEST_COMM=mpi HD_TEST_COMM_DELAY_US=300 losses "$ranks" train all.ini --set train.reduce=rank_order $pairs "$@")" "$one"
}
same 4 "tp 2 x dp 2"
same 4 "tp 2 x dp 2 with zero 3" --set dp.zero=3
same 4 "tp 2 x dp 2 with zero 1 in bf16" --set dp.zero=1 --set train.precision=bf16
printf '[strategy pp]\nplugin = pp\nsize = 2\n' >>all.ini
for schedule in 1f1b zb "interleaved --set pp.chunks=2 --set model.layers=4"; do
	same 4 "tp 2 x pp 2, ${schedule%% *}" --set dp.size=1 --set pp.schedule=$schedule
done
sed -i 's/^\[strategy tp\]/[strategy ep]/; s/^plugin = tp/plugin = ep/' all.ini
sed -i 's/^family = gpt2/family = mixtral\nexperts = 4/' all.ini
same 4 "ep 2 x dp 2" --set pp.size=1
no 'overlap_micro_batches: yes, but a replica has 3 micro-batches a step, which is odd' check four.ini --ranks 2 $pairs \
	--set train.micro_batch=2 --set train.global_batch=6
done_testing
