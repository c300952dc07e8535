#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With train.hash_every, ranks check that their copies of parameters and states are bit-identical, in every layout. One
# changed bit ends the run before it is saved, and a message names the rank and the tensor. Otherwise silent corruption
# would be found weeks later, in all checkpoints.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sed '/^\[strategy/,$d; s/^steps.*/steps = 6\nhash_every = 1/; s/^global_batch.*/global_batch = 12/' tiny.ini >one.ini
layout() {			# NAME SECTIONS
	cp one.ini "$1.ini"
	printf "$2" >>"$1.ini"
}
layout dp '[strategy dp]\nplugin = dp\n'
layout zero '[strategy dp]\nplugin = dp\nzero = 1\n'
layout tp '[strategy tp]\nplugin = tp\nsequence_parallel = yes\n'
layout pp '[strategy pp]\nplugin = pp\nsize = 2\n'
layout tp+dp '[strategy tp]\nplugin = tp\nsize = 2\n[strategy dp]\nplugin = dp\nsync = hierarchical\nnode_size = 2\n'
layout ep+dp '[strategy ep]\nplugin = ep\nsize = 2\n[strategy dp]\nplugin = dp\n'

ok "one rank, which has no copies, trains" heddle train one.ini
for name in dp:2 zero:2 tp:2 pp:2; do
	ok "${name%:*}: copies do not drift apart" heddle_mpi "${name#*:}" train "${name%:*}.ini"
done
ok "tp x dp: copies do not drift apart" heddle_mpi 4 train tp+dp.ini --set dp.sync=allreduce
ok "ep x dp: copies do not drift apart" heddle_mpi 4 train ep+dp.ini --set model.experts=4 --set train.global_batch=16
ok "bf16: copies do not drift apart" heddle_mpi 2 train dp.ini --set train.precision=bf16

# flip RANK NP INI [args...]: trains while a bit of that rank changes after step 4.
flip() {
	who=$1
	shift
	n=$1 ini=$2
	shift 2
	HD_TEST_FLIP=$who,4 heddle_mpi "$n" train "$ini.ini" "$@" >out 2>&1
	rc=$?
	said=$(failures <out)
}
flip 1 2 dp --set checkpoint.dir=ck --set checkpoint.every=2
ok "a changed bit makes the run fail, with status $rc" [ $rc -gt 0 -a $rc -lt 124 ]
is "... with one message" "$(printf '%s\n' "$said" | grep -c .)" 1
like "... which names the step, the tensor and both ranks" \
	"$said" '^heddle: step 4: [a-z0-9_.]+ of rank 1 \(dp 1\) is not that of rank 0 \(dp 0\) \(hashes [0-9a-f]{16} and [0-9a-f]{16}\)'
is "... and the changed bit is not saved" "$(cat ck/latest)" step-00000002
HD_TEST_FLIP=1,0 heddle_mpi 2 train dp.ini --set train.hash_every=1000 >out 2>&1
like "initial copies are compared too" \
	"$? $(failures <out)" '^[1-9][0-9]* heddle: step 0: .* of rank 1 \(dp 1\) is not that of rank 0'
is "... before the first step" "$(grep -c '^step' out)" 0
flip 0 3 dp
like "of three copies, the one that differs is named" "$said" ' of rank 0 \(dp 0\) is not that of rank 1 \(dp 1\)'
flip 3 4 tp+dp --set dp.sync=allreduce
like "in a hybrid the rank is named too" "$said" 'step 4: .* of rank 3 \(.*\) is not that of rank [12] '

# Memory is flat, by the high-water mark in the progress line.
heddle_mpi 2 train dp.ini --set train.steps=400 --set train.eval_batches=1 >out 2>&1
memory() { sed -n "s|^step $1/400 .*  memory \([^ ]* [^ ]*\) .*|\1|p" out; }
is "memory is flat after step 10" "$(memory 400)" "$(memory 10)"
done_testing
