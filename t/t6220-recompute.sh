#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Recomputation of activations.  If a recomputed value differed by one bit (another dropout mask, a sum in another
# order), recomputing to save memory would train a different model.  If recomputing saved no memory, that job would
# not start at all.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sed -e '/^\[strategy/,$d' -e 's/^steps = .*/steps = 2/' -e 's/^layers = .*/layers = 3/' \
	-e 's/^eval_batches.*/optimizer = sgd\nclip = 0/' -e 's/^train = text.txt/&\nvalid_fraction = 0/' tiny.ini >base.ini
printf '[checkpoint]\ngradients = yes\n' >>base.ini
tp='[strategy tp]\nplugin = tp\nsize = 2\n'
sp=$tp'sequence_parallel = yes\n'
pp='[strategy pp]\nplugin = pp\nsize = 2\n'
gpt2='--set model.dropout=0.2'
llama='--set model.family=llama --set model.kv_heads=2'

# same NAME RANKS SECTIONS ARGS...: checks that all modes of train.recompute give bit-identical gradients and losses.
same() {
	name=$1 ranks=$2
	{ cat base.ini; printf "$3"; } >layout.ini
	shift 3
	for how in none selective full; do
		rm -rf "$how" "$how.jsonl"; : >$how.jsonl
		heddle_mpi "$ranks" train layout.ini "$@" --set train.recompute=$how --set checkpoint.dir=$how \
			--set log.metrics=$how.jsonl >out 2>&1 || { tail -5 out | tap_comment; }
		sed 's/, "seconds.*//' "$how.jsonl" >"$how.losses"
	done
	for how in selective full; do
		ok "$name, recompute $how: the gradients are the same, bit for bit" \
			cmp none/step-00000002/heddle/gradients.safetensors $how/step-00000002/heddle/gradients.safetensors
		is "$name, recompute $how: the losses are the same" \
			"$(cat $how.losses)" "$(sed "s/^$/nothing ran/" none.losses)"
	done
}

same 'gpt2 with dropout, one rank' 1 '' $gpt2
same 'llama, one rank' 1 '' $llama
if whole_sweep; then # each part of these layouts is also in one of the others
same 'gpt2 with dropout, two stages, gpipe' 2 "${pp}schedule = gpipe\n" $gpt2
same 'gpt2 with dropout, tensor 2 x stages 2' 4 "$tp${pp}schedule = 1f1b\n" $gpt2
same 'llama, tensor 2, sequence parallel' 2 "$sp" $llama
fi
same 'gpt2 with dropout, tensor 2 x stages 2, sequence parallel, zero-bubble' 4 "$sp${pp}schedule = zb\n" $gpt2
same 'llama, tensor 2 x stages 2, interleaved' 4 "$tp${pp}schedule = interleaved\n" $llama
same 'mixtral, experts 2 x stages 2, gpipe' 4 "[strategy ep]\nplugin = ep\nsize = 2\n${pp}schedule = gpipe\n" \
	--set model.family=mixtral --set model.kv_heads=2 --set model.experts=4

# The memory that a stage needs within a step, in MB, for each recompute mode and for several numbers of micro-batches.
sed -e 's/^layers = .*/layers = 10/' -e 's/^micro_batch = .*/micro_batch = 2/' -e 's/^seq = .*/seq = 128/' \
	-e 's/^embed = .*/embed = 64/' -e 's/^train = .*/&\nvalid_fraction = 0/' -e '/^\[strategy/,$d' tiny.ini >big.ini
sed -i 's/^heads = .*/&\nvocab = 256/' big.ini
printf "$pp" | sed 's/size = 2/size = 4/' >>big.ini
within() { heddle check --all big.ini --set train.recompute=$1 --set pp.schedule=$2 --set train.global_batch=$((2 * $3)) $4 |
	sed -n "s/^rank $5 .*within a step \([0-9.]*\)[,)].*/\1/p"; }
bsh=$(awk 'BEGIN { print 2 * 128 * 64 * 4 / 1e6 }')

for how in none selective full; do
	eval "$how=$(within $how gpipe 16 '' 1)"
done
note "gpipe, 16 micro-batches, stage 1: $none, $selective, $full MB"
ok 'recompute selective needs less memory than none' awk "BEGIN { exit !($selective < $none - 16 * 2 * $bsh) }"
ok 'recompute full needs less than a third of the memory of selective' awk "BEGIN { exit !($full < $selective / 3) }"
# Stage 1 has three layers here, so it keeps three layer inputs per micro-batch and nothing else.
less=$(within full gpipe 8 '' 1)
near 'gpipe, recompute full: each further micro-batch costs the inputs of its layers' \
	"$(awk "BEGIN { print ($full - $less) / 8 / $bsh }")" 3 0.15
near '1f1b, recompute full: further micro-batches cost no memory once the pipeline is full' \
	"$(within full 1f1b 16 '' 1)" "$(within full 1f1b 8 '' 1)" 0

# A run saves as much memory as was planned.
peak() { heddle bench large.ini --set train.recompute=$1 --steps 1 --json 2>/dev/null | tail -1; }
sed -e 's/^layers = .*/layers = 12/' -e 's/^embed = .*/embed = 192/' -e 's/^heads = .*/heads = 4\nvocab = 256/' -e 's/^seq = .*/seq = 256/' \
	-e 's/^micro_batch = .*/micro_batch = 8/' -e '/^\[strategy/,$d' tiny.ini >large.ini
# the first run of each mode also times kernels, which needs memory of its own
peak none >/dev/null
peak full >/dev/null
kept=$(peak none)
again=$(peak full)
planned=$(awk "BEGIN { print ($(json "$kept" planned_peak_bytes) - $(json "$again" planned_peak_bytes)) / 1e6 }")
measured=$(awk "BEGIN { print ($(json "$kept" measured_peak_bytes) - $(json "$again" measured_peak_bytes)) / 1e6 }")
note "12 layers on one rank: planned $planned MB less, the high-water mark is $measured MB less"
ok 'recompute full saves more than a third of the planned memory' \
	awk "BEGIN { exit !($planned * 1e6 > $(json "$kept" planned_peak_bytes) / 3) }"
# the libraries take 49 to 66 MB, which varies from run to run
near 'the high-water mark falls by as much as planned' "$measured" "$planned" 35
done_testing
