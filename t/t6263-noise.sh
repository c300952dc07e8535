#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random numbers that a plugin adds to forward depend on the sample, the token and the column, and not on micro-batches
# or the layout. If each micro-batch drew its own noise, every layout would train a different model.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

{ sed '/^\[strategy/,$d' tiny.ini; printf '[plugin noise]\nfile = %s\n' "$build/t/plugins/.libs/noise.so"; } >noise.ini
loss() { heddle train noise.ini --set train.steps=2 --set log.metrics=m.jsonl "$@" >out 2>err && sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' m.jsonl | tail -1; }

want=$(loss --set train.micro_batch=8)
for m in 1 2 4; do
	near "with micro-batches of $m the loss is the same" "$(loss --set train.micro_batch=$m)" "$want" 1e-5
done
ok "... and differs from the loss without noise" \
	awk -v a="$want" -v b="$(heddle train tiny.ini --set train.steps=2 --set log.metrics=m.jsonl \
	>/dev/null 2>&1; sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' m.jsonl | tail -1)" 'BEGIN { d = a - b; exit !(d > 1e-4 || d < -1e-4) }'
for layout in 'dp size=2' 'tp size=2' 'cp size=2 form=ring' 'cp size=2 form=ring balance=none' 'cp size=2 form=ulysses'; do
	{ cat noise.ini; echo "[strategy ${layout%% *}]"; printf '%s\n' plugin="$layout" | tr ' ' '\n'; } >layout.ini
	ok "$layout trains what one rank trains" heddle check layout.ini --ranks 2 --against-one-rank
done
done_testing
