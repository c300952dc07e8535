#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How `eval` chooses the format of a file, and how much of it is read.  A file of ids that is read as text, or an end
# that is left out, would still give a loss that nobody doubts.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# -- the format comes from --set, else from the name, else from the checkpoint
awk 'BEGIN { for (i = 0; i < 40; i++) printf "{\"id\": %d, \"text\": \"and god said let there be light number %d\"}\n", i, i }' >docs.txt
sed 's/.*"text": "\(.*\)"}/\1/' docs.txt | tr -d '\n' >plain.txt
cp docs.txt docs.jsonl
cp docs.txt docs
trained() {
	dir=$1
	shift
	heddle train tiny.ini --set "checkpoint.dir=$dir" --set train.steps=2 --set data.valid_fraction=0 "$@" >out 2>&1 || tap_comment <out
}
trained text
trained jsonl --set data.train=docs.txt --set data.format=jsonl
perl -e 'print pack("v*", unpack("C*", join("", <STDIN>)))' <plain.txt >ids.bin
cp ids.bin ids.u16
trained uint16 --set data.train=ids.bin --set data.format=uint16 --set model.vocab=256
as() { heddle eval "$@" 2>err || cat err; }

want=$(as jsonl --data plain.txt --set data.format=text)
like "the text is evaluated" "$want" '^loss [0-9.]+ '
is "JSONL named .txt is read in the checkpoint's format" "$(as jsonl --data docs.txt)" "$want"
is "... and so is a name without an ending" "$(as jsonl --data docs)" "$want"
is "... or as --set says" "$(as text --data docs.txt --set data.format=jsonl)" "$(as text --data plain.txt)"
is "... or as its name says" "$(as text --data docs.jsonl)" "$(as text --data plain.txt)"
gzip -c plain.txt >t.gz
is "a compressed text under a name of one letter" "$(as text --data t.gz)" "$(as text --data plain.txt)"
ok "--set takes precedence over the name" \
	[ "$(as text --data docs.jsonl --set data.format=text)" != "$(as text --data docs.jsonl)" ]
want=$(as uint16 --data plain.txt)
like "text is evaluated for a checkpoint of ids" "$want" '^loss [0-9.]+ '
is "ids are read in the checkpoint's format" "$(as uint16 --data ids.bin)" "$want"
is "... even with an unknown ending" "$(as uint16 --data ids.u16)" "$want"
is "JSONL is read as its name says for a checkpoint of ids" "$(as uint16 --data docs.jsonl)" "$want"
like "a file of an unknown format is refused" \
	"$(as text --data ids.bin)" 'For ids without a header, set \[data\] format = uint16 or uint32$'
is "... unless --set gives the format" \
	"$(as text --data ids.bin --set data.format=uint16)" "$(as text --data plain.txt)"
done_testing
