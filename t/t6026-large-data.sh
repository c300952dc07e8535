#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Data larger than memory: files must be mapped and never read completely.  The system limits memory: a process may
# have 1 GB of its own (RLIMIT_DATA), but the files have 24 GB, nearly all holes.  A copy of a file, an index of
# its windows, or a permutation that is stored as a list would need more.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sed '/^\[strategy/,$d' tiny.ini | sed -e 's/^train = .*/train = ids.bin\nformat = uint16\nvalid_fraction = 0.5/' \
	-e 's/^\[model\]/&\nvocab = 300/' >large.ini
truncate -s 12G ids.bin || skip_all "no files with holes here"
limited() { (ulimit -d 1000000 && heddle "$@"); }

# The id to find, 299, is at the far end: the last but one of the training half's last window.
printf '\053\001' | dd of=ids.bin bs=2 seek=$(((3 * 1024 * 1024 * 1024 - 1) / 32 * 32 - 1)) conv=notrunc 2>/dev/null
ok "a batch is drawn from all of 6 G ids" limited data large.ini --step 1000000
is "... which are zeros" "$(limited data large.ini --step 1000000 | tr ' ' '\n' | sort -u)" 0
steps=$(((3 * 1024 * 1024 * 1024 - 1) / 32 / 8))
like "in sequential order, the last windows of the training half contain that id" \
	"$(limited data large.ini --step $steps --set data.order=sequential | tail -1) $(limited data large.ini --step $((steps + 1)) --set data.order=sequential)" 299
ok "training stays within the limit" limited train large.ini --set train.steps=2
like "... and takes its steps" "$(cat .ok)" '^step 2/2 '

# texts whose bytes are tokens, mixed with weights
truncate -s 12G text.bin
ok "a mixture of texts stays within the limit" \
	limited data large.ini --step 7 --set data.train=text.bin,text.bin --set data.weights=2,1 --set data.format=text \
	--set data.tokenizer=byte
fails "a program that needs more memory exceeds the limit" sh -c 'ulimit -d 1000000 && perl -e "my \$x = q(x) x 2e9"'
done_testing
