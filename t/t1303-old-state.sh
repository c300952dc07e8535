#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A state takes its new value at the end of the step (graph->assign): nodes that come behind the one that makes it read the old value.
# If this broke, an optimizer would compute with a value of the next step, by the order in which its author wrote two lines.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

losses() {			# args...: of five steps
	rm -f m.jsonl
	"$@" --set log.metrics=m.jsonl --set dp.size=1 --set train.steps=5 --set train.lr=0.1 --set train.weight_decay=0 >out 2>&1 || cat out >&2
	sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' m.jsonl
}
losses heddle train tiny.ini --set train.optimizer=sgd >sgd
is "plain descent takes five steps" "$(wc -l <sgd)" 5
{
	cat tiny.ini
	printf '[plugin counter]\nfile = ./counter.so\n'
} >counter.ini
for way in OLD_FIRST NEW_FIRST; do
	${CC:-cc} -std=gnu11 -O1 -Wall -fPIC -shared -fvisibility=hidden -D$way -I "$src/include" -o counter.so "$src/t/plugins/counter.c" ||
		exit 1
	losses heddle train counter.ini --set train.optimizer=counter >by_state
	ok "$way: the optimizer by a state is plain descent, within rounding" [ "$(paste sgd by_state | awk '
		$2 > 0 && $1 / $2 < 1.00001 && $2 / $1 < 1.00001' | wc -l)" -eq 5 ]
done
done_testing
