#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Data larger than memory: files are mapped and never read as a whole.  Memory is counted by the system: a process may have
# 1 GB of its own (RLIMIT_DATA), and the files have 24 GB, nearly all of them holes.  A copy of a file, of an index of its
# windows, or a permutation that is made as a list would need more.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sed '/^\[strategy/,$d' tiny.ini | sed -e 's/^train = .*/train = ids.bin\nformat = uint16\nvalid_fraction = 0.5/' \
	-e 's/^\[model\]/&\nvocab = 300/' >large.ini
truncate -s 12G ids.bin || skip_all "no files with holes here"
limited() { (ulimit -d 1000000 && heddle "$@"); }

# what is looked for lies at the far end: 299 as the last id but one of the training half's last window
printf '\053\001' | dd of=ids.bin bs=2 seek=$(((3 * 1024 * 1024 * 1024 - 1) / 32 * 32 - 1)) conv=notrunc 2>/dev/null
ok "a batch, drawn from all over 6 G ids" limited data large.ini --step 1000000
is "of zeros" "$(limited data large.ini --step 1000000 | tr ' ' '\n' | sort -u)" 0
steps=$(((3 * 1024 * 1024 * 1024 - 1) / 32 / 8))
like "in order: the last windows of the training half have what is written there" \
	"$(limited data large.ini --step $steps --set data.order=sequential | tail -1) $(limited data large.ini --step $((steps + 1)) --set data.order=sequential)" 299
ok "training" limited train large.ini --set train.steps=2
like "sees zeros alone, and learns that" "$(cat .ok)" '^step 2/2 '

# text whose bytes are tokens, and several of them with weights
truncate -s 12G text.bin
ok "bytes, mixed with them" limited data large.ini --step 7 --set data.train=text.bin,text.bin --set data.weights=2,1 --set data.format=text \
	--set data.tokenizer=byte
fails "the limit is one" sh -c 'ulimit -d 1000000 && perl -e "my \$x = q(x) x 2e9"'
done_testing
