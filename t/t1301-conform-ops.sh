#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle conform runs a plugin's ops on guarded memory.  Accesses outside the operands, elements left out where a size
# is odd, and state kept from run to run are reported with the op.  A model with such a kernel usually trains,
# but computes something else.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
plugin=product only='ops keep to their operands, gpt2'
. "$src/t/lib/wrong.sh"

wrong -DRIGHT
says "a correct op passes" ' [1-9][0-9]* passed, 0 failed' 0 --layouts 0 --no-runs
says "... on each device that it has kernels for" "^ok 3 - $only on cpu in bf16" 0 --only "$only"
fault "a read past the end of an operand is found" 'a crash: .*SIGSEGV\) in kernel product of \[x\]' \
	'-DW_RUN=y[0] = x[n]'
fault "a read before an operand is found" 'a crash: .*SIGSEGV\) in kernel product of \[x\]' '-DW_RUN=y[0] = x[-1]'
fault "a write past the end of an operand is found" 'a crash: .*SIGSEGV\) in kernel product of \[x\]' '-DW_RUN=y[n] = 1'
fault "a write to an input is found" 'product of \(batch,seq,mlp\): it writes input 0' \
	'-DW_RUN=((float *)(uintptr_t)x)[n - 1] = 3'
fault "a missing tail of a vector loop is found" 'product of .*: element [0-9]* of [0-9]* of output 0 is not written' \
	'-DW_RUN=n = n / 4 * 4'
fault "results added to stale memory are found" 'product of .*: element 0 .*It depends on what was in memory' \
	'-DW_RUN=for (int64_t i = 0; i < n; i++) y[i] += x[i]; return 0'
fault "hidden state in a kernel is found" 'product of .*: element 0 of .* when it runs again with the same inputs' \
	'-DW_RUN=static int again' \
	'-DW_LAST=y[0] += again++'
fault "an op that wrongly allows in-place results is found" \
	'product of .*: in place of input 0, as the op allows, element' -DW_PLACE=0 \
	'-DW_RUN=for (int64_t i = 0; i < n; i++) y[i] = x[i]; for (int64_t i = 0; i < n; i++) y[i] = x[n - 1 - i]; return 0'
fault "a cpu kernel that differs from ref is found" \
	'product of .*: element 1 of .* on cpu, and .* on ref; rounding explains' '-DW_CPU=y[1] *= 1.01f'
fault "a cpu kernel that ignores where its shard begins is found" 'product of .*: element 0 of .* on cpu, and .* on ref; rounding explains' \
	'-DW_PREPARED=if (a->ins[0]->dtype == HD_DTYPE_F64 && a->ins[0]->first[2]) k->more = k' '-DW_LAST=y[0] += k->more != 0'
fault "a read of unwritten scratch memory is found" 'product of .*: element 0 .*It depends on what was in memory' \
	-DW_SCRATCH=64 \
	'-DW_LAST=y[0] += ((float *)a->scratch)[0]'
wrong -DW_SCRATCH=64 '-DW_LAST=((float *)a->scratch)[0] = 1; y[0] += 0 * ((float *)a->scratch)[0]'
says "... and one after a write passes" ' [1-9][0-9]* passed, 0 failed' 0 --only "$only"
fault "a write directly after scratch memory is found" 'product of .*: its kernel writes beyond the 60 bytes of its scratch' \
	-DW_SCRATCH=60 '-DW_LAST=((float *)a->scratch)[15] = 1'
more='-DW_PREPARED=k->more = a->alloc(a, 60)'
fault "... or after memory from alloc" 'product of .*: its kernel writes beyond the end of memory from alloc' "$more" \
	'-DW_LAST=((float *)k->more)[15] = 1'
fault "... or far after it" 'a crash: .*SIGSEGV\) in kernel product of \[x\]' "$more" '-DW_LAST=((float *)k->more)[99] = 1'
fault "a failing kernel is reported" 'product of .*: kernel product of \[x\] failed with code 3' '-DW_RUN=return 3'
fault "a kernel that is never launched is found" 'product of .*: element 0 of [0-9]* of output 0 is not written' \
	'-DW_RECORD=return HD_OK'
fault "a result that depends on the number of threads is found" \
	'product of .*: element 0 of .* with 1 thread, and .* with 2: results must not depend on the number of threads' \
	'-DW_LAST=y[0] += a->threads == 2'
wrong -DW_LINEAR=3
says "an op that is linear in each of its inputs passes" ' [1-9][0-9]* passed, 0 failed' 0 --only "$only"
fault "... and is found if it claims to be linear in all together" \
	'product of .*: its .linear is 0xf*, but output 0 is not linear in all inputs' '-DW_LINEAR=~0ull'
fault "... or in one input and is not" \
	'product of .*: its .linear is 0x3, but output 0 is not linear in input 1: f\(a \+ b\) - f\(a\)' -DW_LINEAR=3 \
	'-DW_RUN=for (int64_t i = 0; i < n; i++) y[i] = x[i] * z[i] * z[i]; return 0'
fault "... or depends on the step" 'its results depend on the step' -DW_LINEAR=3 '-DW_LAST=y[0] += a->step->step'
fault "an op without outputs is found" '.*product: slot shape says 0 outputs' '-DW_NOUT=0'
wrong -DW_REF_ALONE
says "missing kernels for the cpu are reported" '^#   it has no kernels for the cpu' 1 \
	--only "keep to their operands, gpt2 on cpu"
fault "memory leaked by each run is found" 'product of .*: each run leaves [0-9]* more bytes allocated' \
	'-DW_LAST=static void *volatile kept; kept = malloc(100)'
fault "memory leaked by each prepare is found" \
	'each time that its kernels are prepared and released, [0-9]* bytes stay' \
	'-DW_PREPARED=static void *volatile kept; kept = malloc(100000)'
wrong '-DW_LAST=static void *kept; kept = kept ? kept : malloc(100)'
says "a single allocation is no leak" ' [1-9][0-9]* passed, 0 failed' 0 --only "$only"
fault "output of a kernel is found" \
	'product of .*: its kernel prints to the standard output, which is the program.s: here' \
	'-DW_LAST=printf("here\n")' \
	-include stdio.h
limit=1
fault "an endless sleep is found" 'does not return in kernel product of \[x\]' '-DW_RUN=for (;;) pause()' -include \
	unistd.h
limit=
fault "an exit is found" 'exit\(\) in kernel product of \[x\]: a plugin may not end the process' '-DW_RUN=exit(0)'
fault "freeing the engine's memory is found" 'abort\(\) in kernel product of \[x\]' '-DW_RELEASE=free(state)'

# A mistake that no layout makes right is an error, not a refusal.
mistake='plans or refuses, gpt2'
wrong -DW_BEYOND=2
says "a gradient after the last input is found" \
	'^#   .*product: gradient 2 is set, but there are 2 inputs \(slot vjp of plugin product\)' 1 --only "$mistake"
wrong -DW_BEYOND=40
says "... or far after it" '^#   .*product: gradient 40 is set' 1 --only "$mistake"
wrong -DW_DIMS
says "a gradient with wrong dims is found" '^#   .*product: gradient 1 is \(batch\), but input 1 is' 1 --only "$mistake"
wrong -DW_SHAPE
says "a result with wrong dims is found" '^#   .*replace: ' 1 --only "$mistake"
wrong -DW_PLACE=7
says "an in-place index that is no input is found" '^#   .*inplace of output 0 is 7, but there are 2 inputs' 1 \
	--only "$mistake"
fails_in() { # NAME PATTERN -D...: each layout is refused, so it is a mistake of the plugin
	name=$1 pattern=$2
	shift 2
	wrong "$@"
	says "$name" "^#   .*$pattern" 1 --only "$mistake"
}
fails_in "a slot shape that fails without a message is found" \
	'product: slot shape failed with code -3 and no message \(slot shape of plugin product\)' -DW_SHAPED=-3
fails_in "a slot vjp that fails without a message is found" \
	'product: slot vjp failed with code -1 and no message \(slot vjp of plugin product\)' -DW_VJP_FAILS
fails_in "a missing slot vjp is found" '\[plugin x\]: product is not differentiable, but a gradient is needed' \
	-DW_NO_VJP
says "... also by the comparison with one rank" '^#   .*product is not differentiable' 1 \
	--only 'equals one rank, gpt2: product, dp 2'
fails_in "a missing slot record is found" \
	'\[plugin x\]: op product of \(batch,seq,mlp\) has no record and was not lowered' -DW_NO_RECORD
fails_in "an op that reads a later layer is found" \
	'layout:[0-9]*: \[plugin x\] .*product of \(batch,seq,mlp\) in layer 0 depends on its own result: a cycle' \
	-DW_LATER
# This plugin has no axes, so a crash is reported for [plugin x], not [strategy x].
fails_in "a crash in slot shape is found" 'a crash: .*SIGSEGV\) in slot shape of \[plugin x\]' \
	'-DW_SHAPED=*(volatile int *)8'
fails_in "a slot rewrite that returns no status is found" 'slot rewrite returned 3, which is not a status' \
	-DW_REWRITTEN=3
fails_in "... or fails without a message" 'slot rewrite failed with code -77 and no message' -DW_REWRITTEN=-77
wrong '-DW_VJP="a * b * 0.99"'
says "a gradient that is wrong in the second input alone is found" \
	'gradient of .* is .*; the finite difference of the loss is' 1 --only 'slopes of the loss, gpt2'
# A router's gradients include its auxiliary losses, which a step's loss does not.
wrong '-DW_KIND="norm"'
says "slopes: a correct op in front of routers passes" ' 3 passed, 0 failed' 0 --only 'slopes of the loss'
wrong '-DW_KIND="norm"' '-DW_VJP="a * b * 0.9999"'
says "... and a wrong one is found" 'gradient of .* is .*; the finite difference of the loss is' 1 \
	--only 'slopes of the loss, mixtral'
wrong '-DW_RECORD=if (getpid() % 2) return a->launch(r, "map", n->ins, 2, n->outs, 1, "a * b * 1.5")' -include unistd.h
for i in 1 2 3 4 5 6; do heddle conform ./product.so --only "$mistake" --no-runs; done >out 2>&1
like "a kernel that each process chooses for itself is found" "$(cat out)" \
	'slot record launches different kernels, or different attributes'

# In a run the process ends with a message that names the kernel.
printf '[plugin product]\nfile = ./product.so\n' >>tiny.ini
wrong '-DW_RUN=*(volatile int *)8 = 1'
heddle train tiny.ini >out 2>&1
ok "a crash of a kernel ends the run" [ $? -gt 128 ]
like "... and the message names the kernel" "$(cat out)" 'heddle: \[product\]: kernel product ended by signal SIGSEGV'
wrong '-DW_RUN=exit(0)'
fails "an exit of a kernel ends the run, with an error" heddle train tiny.ini
like "... and the message names the kernel" "$(cat "$tmp/.ok")" 'heddle: \[product\]: kernel product called exit'
done_testing
