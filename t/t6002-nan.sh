#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A loss that is not a number.  It must end the run at once, with the step, the rank and the tensor it began in: found a
# day later, or only as "nan", it costs the run; and what is saved must not have been spoilt by it.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

spoil="--set train.lr=1e30 --set train.schedule=constant --set train.optimizer=sgd --set checkpoint.dir=c"
spoil="$spoil --set checkpoint.every=1 --set train.steps=5 --set log.metrics=m.jsonl --set dp.size=auto"
for n in 1 2; do
	rm -rf c m.jsonl
	if [ $n = 1 ]; then out=$(heddle train tiny.ini $spoil 2>&1); else out=$(heddle_mpi 2 train tiny.ini $spoil 2>&1); fi
	is "np $n: a status" $? 1
	said=$(printf '%s\n' "$out" | messages)
	is "np $n: one message" "$(printf '%s\n' "$said" | wc -l)" 1
	like "np $n: step and rank" "$said" '^heddle: step 2: loss .*, gradient norm .*; first on rank 0 \(dp 0\): '
	like "np $n: operation and tensor" "$said" ': [a-z_]+ .*(in|with) .* made a value of \(batch.* not finite, in micro-batch 0'
	unlike "np $n: nan has no sign" "$said" '-nan'
	is "np $n: the step before it is in the metrics" "$(grep -c '"step": 1, ' m.jsonl)" 1
	is "np $n: that step was no update" "$(cat c/latest)" step-00000001
	is "np $n: and its line is not there" "$(grep -c '"step": 2, ' m.jsonl)" 0
done

# Not finite on one rank alone: its neighbours agree, and rank and coordinate are right.
mesh=$build/t/plugins/.libs/mesh3.so
if [ -f "$mesh" ]; then
	{
		sed '/^\[strategy/,$d' tiny.ini
		printf '[strategy m]\nplugin = %s\na = 1\nb = 1\nc = 2\n' "$mesh"
	} >mesh.ini
	said=$(heddle_mpi 2 train mesh.ini --set train.lr=1e30 --set train.schedule=constant --set train.optimizer=sgd 2>&1 |
		messages)
	is "stages: one message" "$(printf '%s\n' "$said" | wc -l)" 1
	like "stages: the coordinate" "$said" 'step 2: .*; first on rank [01] \(m\.b 0, m\.a 0, m\.c [01]\): '
else
	skip "t/plugins is not built"
fi
done_testing
