#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle conform checks what all optimizers must obey: the learning rate, clipping, the same parameters in each layout
# and state in checkpoints.  If it missed a fault, models would train worse without a message.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
plugin=descent only='its optimizer'
. "$src/t/lib/wrong.sh"

wrong -DRIGHT
says "a correct optimizer passes" ' [1-9][0-9]* passed, 0 failed' 0 --layouts 0 --no-runs
says "... also where its states are sharded" '^ok [0-9]* - its optimizer makes the same of a model, gpt2: descent, dp 2 \(zero = 3\)$' 0 --only "$only"
fault "an ignored learning rate is found" 'with a learning rate of 0, .* changes by ' '-DW_VALUE="a - 0.01 * e"'
fault "a step uphill is found" \
	'a step with a learning rate of 1e-4 does not reduce the loss of its own samples: from ' '-DW_VALUE="a + d * e"'
fault "an optimizer that updates nothing is found" 'it freezes all parameters' '-DW_SKIP=""'
wrong '-DW_SKIP="ln_f"'
says "a frozen parameter passes" ' [1-9][0-9]* passed, 0 failed' 0 --layouts 0 --no-runs
fault "a copy of the old value is found" 'the new value of ln_f.* does not read the factor of clipping' \
	'-DW_SKIP="ln_f"' -DW_COPY
fault "an update without effect is found" 'with a learning rate of 1e-4, .* does not change' '-DW_VALUE="a - 0 * d * e"'
fault "gradients that are not clipped are found" 'the new value of .* does not read the factor of clipping' \
	-DW_UNCLIPPED
fault "a value that is not finite is found" 'with a learning rate of 0, .* changes by inf' \
	'-DW_VALUE="a - d * e / (b - b)"'
fault "a clipping factor that is read but not used is found" \
	'.* after step 3 depends on the scale of the loss, though gradients are clipped' \
	'-DW_MEAN="0.9 * e + b + 0 * c"'
fault "an ignored weight decay is found" 'train\.weight_decay = 0\.1 is accepted but does nothing' \
	'-DW_VALUE="a - d * e"'
wrong '-DW_VALUE="a - d * e"' -DW_REFUSES
says "... and a refused weight decay passes" '^ok 1 - its optimizer uses weight_decay or refuses it, gpt2$' 0 \
	--only 'weight_decay'
fault "0 / 0 in fp32 alone is found" '.* is not finite after step 1 in fp32, but it is in double' \
	'-DW_MEAN="0.9 * e + b * c * ((b * b * 1e-45) / (b * b * 1e-45 + 1e-300))"'
fault "a result that only double can hold is found" '.* after step 3 differs, in fp32, from the result in double' \
	'-DW_MEAN="0.9 * e + (b * c + 1e6 - 1e6)"'
like "... also with bf16" "$(cat out)" '#   .* differs, in bf16 with fp32 masters, from the result in double'
fault "a state of a fixed dtype is found" \
	'.*\[plugin x\]: map: the output is f32, it must be f64 \(of a node that plugin descent made, with .*mean' \
	-DW_DTYPE=HD_DTYPE_F32
fault "a missing new value is found" '.*update of .*: the new value is missing \(slot update of plugin descent\)' \
	-DW_NULL
fault "a failure without a message is found" '.*slot update failed with code -3 and no message' -DW_UPDATED=-3
fault "a state that is never assigned is found" '.*mean\..* is read but never assigned' -DW_UNASSIGNED
done_testing
