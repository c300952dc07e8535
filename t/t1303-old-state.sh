#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A state takes its new value at the end of the step (graph->assign); until then all nodes read the old value.
# If this broke, the order of two source lines would decide whether an optimizer reads the next step's value.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

losses() {			# args...: prints the losses of five steps
	rm -f m.jsonl
	"$@" --set log.metrics=m.jsonl --set dp.size=1 --set train.steps=5 --set train.lr=0.1 --set train.weight_decay=0 >out 2>&1 || cat out >&2
	sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' m.jsonl
}
losses heddle train tiny.ini --set train.optimizer=sgd >sgd
is "plain descent prints five losses" "$(wc -l <sgd)" 5
{
	cat tiny.ini
	printf '[plugin counter]\nfile = ./counter.so\n'
} >counter.ini
for way in OLD_FIRST NEW_FIRST; do
	${CC:-cc} -std=gnu11 -O1 -Wall -fPIC -shared -fvisibility=hidden -D$way -I "$src/include" -o counter.so "$src/t/plugins/counter.c" ||
		exit 1
	losses heddle train counter.ini --set train.optimizer=counter >by_state
	ok "$way: an optimizer that uses a state equals plain descent, within rounding" [ "$(paste sgd by_state | awk '
		$2 > 0 && $1 / $2 < 1.00001 && $2 / $1 < 1.00001' | wc -l)" -eq 5 ]
done
done_testing
