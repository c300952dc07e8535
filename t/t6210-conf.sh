#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# People start from the layouts in conf/. If this failed, a layout there would be refused, or would not train what one
# rank trains.
. "${0%/*}/lib/tap.sh"

[ -x "$build/heddle" ] || skip_all 'heddle is not built'
export XDG_CACHE_HOME="$tmp/cache"
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "In the beginning %d was the word %d.\n", i % 7, i % 11 }' > "$tmp/text"

losses() { sed -n 's/.*"step": *\([0-9]*\), "loss": *\([0-9.]*\).*/\1 \2/p' "$1"; }

# The tiers check and ci run only the layouts that differ most.
runs() { case " quickstart-hybrid ps 2.5d ptd-p dp+ep mt-nlg-530b-small " in *" $1 "*) ;; *) whole_sweep ;; esac; }
layout() {	# RANKS NAME
	rm -f "$tmp/m.jsonl"
	ok "$2: check accepts it for $1 ranks" "$build/heddle" check "$src/conf/$2.ini" --ranks "$1" --set data.train="$tmp/text"
	runs "$2" || return
	ok "$2: $1 ranks train" mpi "$1" "$build/heddle" train "$src/conf/$2.ini" --set data.train="$tmp/text" \
		--set data.valid_fraction=0 --set train.global_batch=16 --set train.steps=3 --set train.optimizer=sgd --set train.clip=0 \
		--set train.warmup=0 --set train.threads=1 --set log.sample=0 --set log.metrics="$tmp/m.jsonl"
	losses "$tmp/m.jsonl" > "$tmp/many"
	is "$2: the metrics have three steps" "$(wc -l < "$tmp/many" | tr -d ' ')" 3
	# sums of a few thousand fp32 terms, added in a different order
	ok "$2: the losses equal those of one rank" awk 'NR == FNR { want[$1] = $2; next }
		{ d = $2 / want[$1] - 1; if (d < 0) d = -d; if (!(d < 1e-5)) exit 1 }' "$tmp/one" "$tmp/many"
}

ok 'one rank trains quickstart.ini' "$build/heddle" train "$src/conf/quickstart.ini" --set data.train="$tmp/text" \
	--set dp.size=1 --set data.valid_fraction=0 --set train.global_batch=16 --set train.steps=3 \
	--set train.optimizer=sgd --set train.clip=0 --set train.warmup=0 --set train.threads=1 \
	--set log.sample=0 --set log.metrics="$tmp/m.jsonl"
losses "$tmp/m.jsonl" > "$tmp/one"
layout 2 quickstart
layout 4 quickstart
layout 4 quickstart-hybrid
layout 4 dp
layout 4 zero
layout 4 horovod
layout 4 ps
layout 4 megatron-tp
layout 4 2d
layout 8 2.5d
layout 8 3d
layout 4 gpipe
layout 4 1f1b
layout 8 ptd-p
# Layouts of other models are compared with one rank that trains the same model.
single() {	# NAME SETS
	runs "$1" || return
	rm -f "$tmp/m.jsonl"
	name=$1
	shift
	ok "$name: one rank trains" "$build/heddle" train "$src/conf/$name.ini" "$@" --set data.train="$tmp/text" \
		--set data.valid_fraction=0 --set train.global_batch=16 --set train.steps=3 --set train.optimizer=sgd --set train.clip=0 \
		--set train.warmup=0 --set train.threads=1 --set log.sample=0 --set log.metrics="$tmp/m.jsonl"
	losses "$tmp/m.jsonl" > "$tmp/one"
	said=$(choices)
}
# Prints what the routers chose and dropped in step 1. Its logits have the same bits on one rank and on many.
choices() { sed -n 's/.*"step": 1,.*\("dropped".*\), "time".*/\1/p' "$tmp/m.jsonl"; }
single interleaved --set pp.size=1
layout 4 interleaved
single dp+ep --set ep.size=1 --set dp.size=1
layout 4 dp+ep
is "dp+ep: the routers choose as on one rank" "$(choices)" "$said"
single mixtral-small --set ep.size=1
layout 4 mixtral-small
! whole_sweep || is "mixtral-small: the routers choose as on one rank" "$(choices)" "$said"
! whole_sweep || like "mixtral-small: the metrics contain dropped tokens and load" \
	"$said" '^"dropped": \[0.0, 0.0, 0.0, 0.0\], "load": \[[1-8]\.'
single mt-nlg-530b-small --set tp.size=1 --set pp.size=1
layout 12 mt-nlg-530b-small
single ep+tp+pp --set tp.size=1 --set ep.size=1 --set pp.size=1
layout 8 ep+tp+pp
ok 'char-small: check accepts it' "$build/heddle" check "$src/conf/char-small.ini" --set data.train="$tmp/text"
done_testing
