#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sequence_parallel shards tokens.  Where the ranks divide the number of sequences in a micro-batch, it shards
# complete sequences, and collectives need no copy.  Otherwise it shards each sequence.  Either way the numbers must
# be those of one rank.
. "${0%/*}/lib/tap.sh"
. "${0%/*}/lib/tiny.sh"

layout() { # FAMILY MICRO_BATCH AXIS:SIZE...
	printf '[model]\nfamily = %s\nlayers = 2\nembed = 48\nheads = 12\nvocab = 256\nmlp = 96\n' "$1"
	[ "$1" != mixtral ] || printf 'experts = 4\n'
	printf '[data]\ntrain = text.txt\n[train]\nmicro_batch = %s\nglobal_batch = 12\nseq = 24\nsteps = 2\nthreads = 1\n' "$2"
	shift 2
	for axis; do
		printf '[strategy %s]\nplugin = %s\nsize = %s\n' "${axis%:*}" "${axis%:*}" "${axis#*:}"
		[ "${axis%:*}" != tp ] || printf 'sequence_parallel = yes\n'
	done
}
sharded() { # RANKS args...: prints the dims along which tp shards the outputs of norms, and the number of copies
	ranks=$1
	shift
	heddle explain sp.ini --ranks "$ranks" --nodes "$@" >nodes
	sed -n 's/^forward .* norm .*-> .*embed) \([a-z]*\) sharded by tp.*/\1/p' nodes | sort -u | tr '\n' ' '
	grep -c -E ' (un)?block ' nodes
}

layout gpt2 4 tp:2 >sp.ini
is "2 ranks and 4 sequences: complete sequences are sharded, without a copy" "$(sharded 2)" "batch 0"
is "2 ranks and 3 sequences: each of them is sharded, with copies" \
	"$(sharded 2 --set train.micro_batch=3 | tr '0-9' '##')" "seq ##"
is "2 ranks and 1 sequence: it is sharded, without a copy" "$(sharded 2 --set train.micro_batch=1)" "seq 0"
is "a micro-batch that is not given: complete sequences are sharded" "$(sharded 2 --set train.micro_batch=0)" "batch 0"

same() { # RANKS FAMILY MICRO_BATCH AXIS:SIZE...
	ranks=$1
	shift
	layout "$@" >sp.ini
	ok "$* computes the same as one rank" heddle check sp.ini --ranks "$ranks" --against-one-rank
}
for sequences in 1 2 3 4; do
	same 2 gpt2 $sequences tp:2
	same 3 gpt2 $sequences tp:3
	same 4 llama $sequences tp:2 cp:2
	same 2 mixtral $sequences tp:2
done
same 6 gpt2 2 dp:3 tp:2
same 4 gpt2 2 tp:2 pp:2
same 4 llama 6 cp:2 tp:2
same 4 mixtral 2 tp:2 ep:2
same 4 mixtral 2 ep:2 tp:2
# Another section that shards the micro-batch, before and after it.  Where both together do not divide it, each sequence
# is sharded.
grid='[strategy b]\nplugin = tp\nsize = 2\nform = 2.5d\ndepth = 2\n'
for order in before behind; do
	{
		layout gpt2 2
		# shellcheck disable=SC2059
		[ $order = behind ] || printf "$grid"
		printf '[strategy a]\nplugin = tp\nsize = 2\nsequence_parallel = yes\n'
		# shellcheck disable=SC2059
		[ $order = before ] || printf "$grid"
	} >sp.ini
	ok "a section that shards the micro-batch $order it" heddle check sp.ini --ranks 4 --against-one-rank
done
# A grid of one rank is data parallelism, and 1d alone shards the products next to it.  On a larger grid it does not.
sed -i -e 's/^family.*/family = llama/' -e '/sequence_parallel/d' sp.ini
ok "2.5d with q = 1 next to 1d" heddle check sp.ini --ranks 4 --set model.kv_heads=6 --against-one-rank
ok "... with its logits in parts" heddle check sp.ini --ranks 4 --set model.kv_heads=6 --set train.loss_parts=2
no 'another section shards 1 of 3 matrices' check sp.ini --ranks 8 --set b.form=2d --set b.depth=1 --set b.size=4
done_testing
