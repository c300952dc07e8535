#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Graphs that the plugin headers allow, and that no model of the engine has, train alike in every layout.  If this broke,
# an author's plugin would be right on one rank and wrong on several, or lose a gradient, without any message.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

plugin=$build/t/plugins/.libs/graphs.so
[ -r "$plugin" ] || skip_all "the plugins for tests are not built"
{ sed '/^\[strategy/,$d' tiny.ini; printf '[plugin g]\nfile = %s\n' "$plugin"; } >one.ini
sed -i 's/^\[model\]/&\ninit_std = 0.2/' one.ini
layout() { printf '[strategy a]\nplugin = %s\nsize = 2\n%s\n' "$1" "$2" | cat one.ini - >two.ini; }
alike() { # WHAT ARGS...: two ranks compute what one rank computes
	what=$1
	shift
	ok "what = $what" heddle check two.ini --ranks 2 --against-one-rank --set g.what="$what" "$@"
}
losses() { # ARGS...: the losses and norms of three steps
	rm -f m.jsonl
	heddle train one.ini --set log.metrics=m.jsonl "$@" >out 2>&1 || tap_comment <out
	sed -n 's/.*"loss": *\([-0-9.e]*\).*"grad_norm": *\([-0-9.e]*\).*/\1 \2/p' m.jsonl
}

layout tp
alike product
alike iota
alike noise
layout cp 'form = ring'
alike iota
layout dp
alike noise --set train.micro_batch=1
is "noise over (seq, batch) does not depend on the micro-batch" \
	"$(losses --set g.what=noise --set train.micro_batch=1 | cut -c1-6)" "$(losses --set g.what=noise --set train.micro_batch=4 | cut -c1-6)"
unlike "... and is not zero" "$(losses --set g.what=none | head -1 | cut -c1-8)" "$(losses --set g.what=noise | head -1 | cut -c1-8)"

# In bf16 both orders build the same arithmetic; a lost gradient changes the norm by far more than its rounding.
early=$(losses --set g.what=early --set train.precision=bf16) late=$(losses --set g.what=late --set train.precision=bf16)
ok "a cast after its reader loses no gradient" awk -v a="$(echo "$early" | sed -n '1s/.* //p')" -v b="$(echo "$late" | sed -n '1s/.* //p')" \
	'BEGIN { d = a / b - 1; exit !(a > 0 && (d < 0 ? -d : d) < 0.01) }'

ok "a walk finds nodes that were wrapped" heddle check one.ini --set g.what=wrapped
no 'norm: the loss depends on output 1 \(batch,seq\), but only output 0 has a gradient' check one.ini --set g.what=statistics
no 'chunk may be called in slot lower only, not in rewrite' check one.ini --set g.what=pieces

# A cached run computes one token: positions, or noise by position, would begin at 0 in each.
heddle train one.ini --set g.what=iota --set train.steps=1 --set checkpoint.dir=kept >out 2>&1 || tap_comment <out
written() { heddle generate kept --set g.file="$plugin" --ids --prompt "$(seq -s ' ' 9)" --tokens 4 --temperature 0 "$@" 2>err; }
want=$(written --no-cache)
is "a graph that reads positions generates as it does without a cache" "$(written)" "$want"
ok "... and says that it has none" grep -q 'without a cache, because an op iota' err
like "... and generates ids" "$want" "^1 2 3 4 5 6 7 8 9 [0-9]"

# An optimizer that ends with every(2): the next parameter starts with every step again.
sgd="--set train.optimizer=sgd --set train.clip=0 --set train.weight_decay=0 --set train.schedule=constant --set train.steps=4"
is "an optimizer whose last nodes run every second step updates all parameters in each" \
	"$(losses $sgd --set train.optimizer=g | cut -c1-8)" "$(losses $sgd | cut -c1-8)"
layout dp 'zero = 2'
rm -f m.jsonl
ok "... also where gradients and states are sharded" heddle_mpi 2 train two.ini $sgd --set train.optimizer=g --set log.metrics=m.jsonl
is "... with the same losses" "$(sed -n 's/.*"loss": *\([-0-9.e]*\).*/\1/p' m.jsonl | cut -c1-7)" "$(losses $sgd | cut -c1-7)"
done_testing
