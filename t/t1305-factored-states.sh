#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An optimizer's states may have some of a parameter's dims (Adafactor's rows and columns).  They live where they are
# read: in the pieces of tensor parallelism, padded like the parameter, and ZeRO shards the rest.  If this broke,
# layouts would train differently.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
plugin=factored only=
. "$src/t/lib/wrong.sh"
wrong

layout() { # FILE VOCAB SECTIONS...: each NAME:KEYS of a strategy
	file=$1
	printf '[model]\nfamily = llama\nlayers = 2\nembed = 24\nheads = 6\nkv_heads = 2\nvocab = %s\n' "$2" >"$file"
	printf '[data]\ntrain = text.txt\ntokenizer = byte\n[train]\nseq = 8\nglobal_batch = 6\nsteps = 4\n' >>"$file"
	printf 'lr = 3e-2\nwarmup = 0\neval_batches = 0\nthreads = 1\nprecision = fp32\noptimizer = f\n[log]\nmetrics = metrics\n' >>"$file"
	printf '[plugin f]\nfile = ./factored.so\n' >>"$file"
	shift 2
	for section; do
		printf '[strategy %s]\nplugin = %s\n' "${section%%:*}" "${section%%:*}" >>"$file"
		printf '%s\n' "${section#*:}" | tr ' ' '\n' >>"$file"
	done
}
last() { # the loss of the last step
	sed -n 's/.*"step": *4,.*"loss": *\([0-9.]*\).*/\1/p' metrics | head -1
}
layout one.ini 257
heddle train one.ini >out 2>&1
one=$(last)
ok "one rank trains" test -n "$one" || tap_comment <out
same() { # RANKS SECTIONS...
	ranks=$1
	shift
	layout l.ini 257 "$@"
	rm -f metrics
	heddle_mpi "$ranks" train l.ini >out 2>&1
	near "$* trains as one rank" "$(last)" "$one" 3e-5 || messages <out | tap_comment
}
same 2 'tp:size=2'
same 4 'tp:size=2' 'dp:size=2 zero=1'
same 4 'dp:size=2 zero=3' 'tp:size=2'
same 3 'dp:size=3 zero=1'
same 4 'pp:size=2' 'tp:size=2'

# In double, with a padded vocabulary of 33
for beside in 'tp 2' 'dp 2 (zero = 3)'; do
	says "in double the updates are one rank's, $beside" '^# factored 1.0: [1-9] passed, 0 failed, 0 skipped' 0 \
		--only "its optimizer makes the same of a model, gpt2: factored, $beside"
done

# Only sizes are checked
for vocab in 50257 1021; do
	layout l.ini $vocab 'tp:size=2' 'dp:size=3 zero=1'
	ok "tp 2 and dp 3 with a vocabulary of $vocab are accepted" heddle check l.ini
done
done_testing
