#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A tied embedding that two stages use moves between them only when it has changed.  If it moved for every token, nobody
# would see more than a slow generation.  If it did not move after an update, an evaluation would use old weights.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v mpicc >/dev/null || skip_all "mpicc is not there"

ok "a library that counts messages is built" \
	mpicc -O1 -g -fPIC -shared -DHD_COUNT_SENDS -o count.so "$src/t/lib/count_sends.c"
[ -f count.so ] || done_testing

# The embedding has 256 x 32 floats, 32 KB.  Other messages are smaller: a micro-batch of 1 x 32 x 32 floats has 4 KB.
sed -e '/^\[strategy/,$d' -e 's/^micro_batch = .*/micro_batch = 1/' -e 's/^eval_batches = .*/eval_every = 1/' tiny.ini >pp.ini
printf '[strategy pp]\nplugin = pp\n' >>pp.ini
sent() {			# args...: runs on two stages, and prints how many large messages were sent; output in ./out
	rm -f count
	HD_TEST_COMM=mpi HD_TEST_SECONDS=120 mpi 2 env LD_PRELOAD="$tmp/count.so" HD_COUNT_SENDS="$tmp/count" \
		HD_COUNT_SENDS_FROM=32768 "$build/heddle" "$@" >out 2>err || tap_comment <err
	awk '{ n += $1 } END { print n + 0 }' count 2>/dev/null || echo 0
}
mpi 2 "$build/heddle" train pp.ini --set checkpoint.dir=two --set log.metrics=two.jsonl >out 2>&1 || tap_comment <out

# -- how often
is "an evaluation of many batches sends the embedding once" "$(sent eval two --data text.txt --set data.train=text.txt)" 1
is "generation with a cache sends it for the prompt and for the first token" \
	"$(sent generate two --prompt light --tokens 12 --temperature 0)" 2
cp out cached
is "generation without a cache sends it once" "$(sent generate two --prompt light --tokens 12 --temperature 0 --no-cache)" 1
is "... and both write the same text" "$(cat out)" "$(cat cached)"

# -- after an update: the losses and the text are those of one rank
train() {			# RANKS: trains, and prints the validation losses and the texts
	rm -f m.jsonl
	mpi "$1" "$build/heddle" train pp.ini --set pp.size="$1" --set log.metrics=m.jsonl --set log.sample=8 --set log.sample_every=1 \
		--set train.lr=0.03 --set train.warmup=0 --set train.deterministic=yes >out 2>&1 || tap_comment <out
	sed -n 's/.*"valid_loss": *\([0-9]*\.[0-9]\{4\}\).*/\1/p' m.jsonl
	grep -A 1 '^sample:' out
}
one=$(train 1)
ok "three evaluations differ" [ "$(printf '%s\n' "$one" | grep '^[0-9]\.' | sort -u | wc -l)" = 3 ]
is "on two stages, all evaluations and texts during training are those of one rank" "$(train 2)" "$one"
done_testing
