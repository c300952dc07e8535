#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a layer keeps for backward decides which model fits.  doc/activation-memory.md lists it op by op.  If the page
# were wrong, or a change of the engine kept one more tensor, no loss would show it.
. "${0%/*}/lib/tap.sh"
[ -x "$build/heddle" ] || skip_all "heddle is not built"
cd "$src" || exit 1
page=doc/activation-memory.md
heddle() { timeout 60 "$build/heddle" "$@" </dev/null; }

# Runs each command of the page and compares its output.
awk -v out="$tmp/block" '/^```/ { in_block = !in_block; if (in_block) n++; next }
	in_block { print > (out "." n) }' $page
for block in "$tmp"/block.*; do
	command=$(sed -n '1s/^\$ //p' "$block")
	sed 1d "$block" >"$tmp/want"
	(eval "$command") >"$tmp/got" 2>&1
	ok "$command" diff "$tmp/want" "$tmp/got"
done
is "the page has eight commands" "$(ls "$tmp"/block.* | wc -l | tr -d ' ')" 8

# The page's formulas for other sizes, in bytes of fp32.
cat >"$tmp/run.ini" <<'END'
[model]
layers = 3
embed = 192
heads = 8
vocab = 97
[data]
train = none
[train]
seq = 48
global_batch = 8
micro_batch = 2
steps = 1
[strategy tp]
plugin = tp
END
layer() { heddle explain "$tmp/run.ini" --saved "$@" | sed -n 's/^layer 1  *together *\([0-9]*\) bytes/\1/p'; }
b=2 s=48 h=192 a=8
for t in 1 2 4 8; do
	is "a layer of GPT-2 on $t ranks" "$(layer --ranks $t)" $((4 * b * s * (2 * h + 12 * h / t + 4 + a / t)))
	is "a layer of GPT-2 on $t ranks with dropout" \
		"$(layer --ranks $t --set model.dropout=0.2)" $((4 * b * s * (2 * h + 12 * h / t + 4 + a / t)))
	is "a layer of GPT-2 on $t ranks with selective recomputation" \
		"$(layer --ranks $t --set train.recompute=selective)" $((4 * b * s * (2 * h + 7 * h / t + 4)))
	is "a layer of GPT-2 on $t ranks with sequence parallelism" \
		"$(layer --ranks $t --set tp.sequence_parallel=yes)" \
		$((4 * b * s * (14 * h + 4 + a) / t))
	is "a layer of Llama on $t ranks" "$(layer --ranks $t --set model.family=llama --set model.mlp=256)" \
		$((4 * b * s * (2 * h + (4 * h + 2 * 256 + a) / t + 2)))
	kv=2
	if [ $t -gt 2 ]; then cut=2; else cut=$t; fi
	is "a layer of Llama on $t ranks with two key heads" \
		"$(layer --ranks $t --set model.family=llama --set model.mlp=256 --set model.kv_heads=$kv)" \
		$((4 * b * s * (2 * h + (2 * h + 2 * 256 + a) / t + 2 * kv * (h / a) / cut + 2)))
done

# What is kept is in the plan.  The part that lives within a step is at least that of the layers, and each
# micro-batch in flight adds its own (GPipe keeps all).
planned() { heddle check --all "$tmp/run.ini" "$@" | sed -n 's/^rank 0.*within a step \([0-9.]*\)[,)].*/\1/p'; }
{
	cat "$tmp/run.ini"
	printf 'size = 1\n[strategy pp]\nplugin = pp\nsize = 1\nschedule = gpipe\n'
} >"$tmp/gpipe.ini"
flight() { heddle check --all "$tmp/gpipe.ini" --set train.global_batch=$1 | sed -n 's/^rank 0.*within a step \([0-9.]*\)[,)].*/\1/p'; }
kept=$(heddle explain "$tmp/run.ini" --saved --ranks 1 | sed -n 's/.*together *\([0-9]*\) bytes/\1/p' | awk '{ n += $1 } END { print n }')
ok "the plan has room for what the layers keep" \
	awk -v kept="$kept" -v planned="$(planned --ranks 1)" 'BEGIN { exit !(planned * 1e6 > kept) }'
near "... and for each micro-batch in flight" "$(awk -v a="$(flight 8)" -v b="$(flight 16)" 'BEGIN { print b - a }')" \
	"$(awk -v kept="$kept" 'BEGIN { print 4 * kept / 1e6 }')" 0.5
lines=$(heddle explain "$tmp/run.ini" --saved --ranks 2 --json | tr '{' '\n' | grep -c '"block": "layer 1"')
is "--json has an entry for each buffer" \
	"$lines" "$(heddle explain "$tmp/run.ini" --saved --ranks 2 | grep '^layer 1' | grep -vc together)"
done_testing
