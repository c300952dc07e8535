#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `eval` reads a file as, and how much of it.  A file of ids that is read as text, or an end that is left out, still gives a
# loss that nobody doubts.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# -- the format: of --set, else of the name, else of the checkpoint
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
like "the text itself" "$want" '^loss [0-9.]+ '
is "JSONL by the checkpoint's format, called .txt" "$(as jsonl --data docs.txt)" "$want"
is "... or by no ending" "$(as jsonl --data docs)" "$want"
is "... by --set" "$(as text --data docs.txt --set data.format=jsonl)" "$(as text --data plain.txt)"
is "... by its name" "$(as text --data docs.jsonl)" "$(as text --data plain.txt)"
gzip -c plain.txt >t.gz
is "compressed, under a name of one letter" "$(as text --data t.gz)" "$(as text --data plain.txt)"
ok "--set is before the name" [ "$(as text --data docs.jsonl --set data.format=text)" != "$(as text --data docs.jsonl)" ]
want=$(as uint16 --data plain.txt)
like "text, for a checkpoint of ids" "$want" '^loss [0-9.]+ '
is "ids by the checkpoint's format" "$(as uint16 --data ids.bin)" "$want"
is "... with an ending of no meaning" "$(as uint16 --data ids.u16)" "$want"
is "JSONL by its name, for a checkpoint of ids" "$(as uint16 --data docs.jsonl)" "$want"
like "of an unknown kind" "$(as text --data ids.bin)" 'For ids without a header, set \[data\] format = uint16 or uint32$'
is "... which --set says" "$(as text --data ids.bin --set data.format=uint16)" "$(as text --data plain.txt)"
done_testing
