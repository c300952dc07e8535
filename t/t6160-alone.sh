#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The engine knows no strategy.  Without any plugin one rank must train, and a layout that names a plugin must be
# refused by name.
. "${0%/*}/lib/tap.sh"

[ -x "$build/heddle" ] || skip_all 'heddle is not built'
mkdir "$tmp/alone"
cp "$build/heddle" "$tmp/alone/heddle"
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "In the beginning %d was the word %d.\n", i % 7, i % 11 }' > "$tmp/text"
cat > "$tmp/x.ini" <<END
[model]
layers = 1
embed = 32
heads = 2
[data]
train = $tmp/text
[train]
seq = 32
global_batch = 8
steps = 20
lr = 3e-3
[log]
metrics = $tmp/m.jsonl
END
ok 'one rank trains without any plugin' "$tmp/alone/heddle" train "$tmp/x.ini"
first=$(sed -n '1s/.*"loss": *\([0-9.]*\).*/\1/p' "$tmp/m.jsonl")
last=$(sed -n '20s/.*"loss": *\([0-9.]*\).*/\1/p' "$tmp/m.jsonl")
ok '... and the loss falls' awk "BEGIN { exit !($last < $first - 0.5) }"
printf '[strategy d]\nplugin = no-such-strategy\n' >> "$tmp/x.ini"
text=$("$tmp/alone/heddle" train "$tmp/x.ini" 2>&1)
like 'a strategy that does not exist is named' "$text" 'x.ini:[0-9]*: \[strategy d\] plugin: .*no-such-strategy'
is '... in one message' "$(echo "$text" | grep -c '^heddle:')" 1
done_testing
