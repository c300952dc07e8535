#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A plugin changes the loss after the model's nll, in slot rewrite.  The gradient must be that of the loss that a step
# reports: its slope on one rank, and the same in each layout.  Where it cannot be derived, the plan is refused.
# heddle conform checks this for each plugin with slot rewrite, even without ops of its own.  If this broke, models
# would train on a loss that nobody sees.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
plugin=loss only=
. "$src/t/lib/wrong.sh"
slopes='gradients are slopes of the loss, gpt2'

follows() { # NAME -D...
	name=$1
	shift
	wrong "$@"
	says "$name: gradients are slopes of the loss" '^# loss 1.0: 1 passed, 0 failed' 0 --only "$slopes"
	for beside in 'tp 2' 'dp 2' 'pp 2'; do
		says "... and $beside equals one rank" '^# loss 1.0: 1 passed, 0 failed' 0 --only "equals one rank, gpt2: loss, $beside"
	done
}
follows "twice the loss of each token" '-DK="2"'
follows "a loss of 0" '-DK="0"'
follows "twice the sum of losses" '-DK="2"' -DW_SUM
follows "added squares of the logits" '-DK="0.01"' -DW_SQUARES
wrong '-DK="2"'
says "gradients are slopes with auxiliary losses of routers too" '^# loss 1.0: 1 passed, 0 failed' 0 \
	--only 'gradients are slopes of the loss, mixtral'

refused='\[plugin x\]: nll has only the gradient of cross entropy, .* which plugin loss made'
for where in TARGET LOGITS; do
	wrong "-DW_$where"
	says "a node between logits and nll ($where) is refused" "^#   .*$refused" 1 --only 'plans or refuses, gpt2'
done
wrong -DW_MAX
says "a loss that also uses a statistic of the logits is refused" \
	'^#   .*\[plugin x\]: xent is not differentiable, .* which plugin loss made' 1 \
	--only 'plans or refuses, gpt2'

# In a run the gradient's norm follows the printed loss, over micro-batches and replicas.
printf '[plugin loss]\nfile = ./loss.so\n' >>tiny.ini
run() { # prints loss and norm of the first step
	"$@" train tiny.ini --set train.clip=0 --set train.steps=1 --set train.precision=fp32 2>&1 |
		sed -n 's/^step 1\/1  loss \([0-9.]*\)  norm \([0-9.]*\) .*/\1 \2/p'
}
wrong '-DK="1"'
once=$(run heddle)
wrong '-DK="4"'
for by in heddle 'heddle_mpi 2'; do
	ok "four times the loss gives four times the gradient ($by)" awk -v a="$once" -v b="$(run $by)" 'BEGIN {
		split(a, x); split(b, y)
		for (i = 1; i <= 2; i++)
			if (!(x[i] > 0 && y[i] / x[i] > 3.99 && y[i] / x[i] < 4.01))
				exit 1
	}'
done
no 'train.loss_parts: 2: the loss cannot be computed in parts: slot rewrite of a plugin changed what follows nll' \
	check tiny.ini --set train.loss_parts=2
done_testing
