#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle conform runs the ops of a plugin on memory of their own: what a kernel reads or writes beside its operands, leaves out
# where a size is odd, or keeps from run to run, is named with the op.  A model with such a kernel mostly trains, and computes
# something else.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
plugin=product only='ops keep to their operands, gpt2'
. "$src/t/lib/wrong.sh"

wrong -DRIGHT
says "a right op passes" ' [1-9][0-9]* passed, 0 failed' 0 --layouts 0 --no-runs
says "... on the devices that it has kernels for, and says which it has not" "^ok 3 - $only on cpu in bf16" 0 --only "$only"
fault "a read behind an operand" 'a crash: .*SIGSEGV\) in kernel product of \[x\]' '-DW_RUN=y[0] = x[n]'
fault "a read before it" 'a crash: .*SIGSEGV\) in kernel product of \[x\]' '-DW_RUN=y[0] = x[-1]'
fault "a write behind it" 'a crash: .*SIGSEGV\) in kernel product of \[x\]' '-DW_RUN=y[n] = 1'
fault "an input that is written" 'product of \(batch,seq,mlp\): it writes input 0' '-DW_RUN=((float *)(uintptr_t)x)[n - 1] = 3'
fault "what is left over by fours" 'product of .*: element [0-9]* of [0-9]* of output 0 is not written' '-DW_RUN=n = n / 4 * 4'
fault "results that are added to what is there" 'product of .*: element 0 .*It depends on what was in memory' \
	'-DW_RUN=for (int64_t i = 0; i < n; i++) y[i] += x[i]; return 0'
fault "a state of the kernel's own" 'product of .*: element 0 of .* when it runs again with the same inputs' '-DW_RUN=static int again' \
	'-DW_LAST=y[0] += again++'
fault "a result that may not stand in place of an input" 'product of .*: in place of input 0, as the op allows, element' -DW_PLACE=0 \
	'-DW_RUN=for (int64_t i = 0; i < n; i++) y[i] = x[i]; for (int64_t i = 0; i < n; i++) y[i] = x[n - 1 - i]; return 0'
fault "cpu computes something else than ref" 'product of .*: element 1 of .* on cpu, and .* on ref; rounding explains' '-DW_CPU=y[1] *= 1.01f'
fault "scratch that is read and was never written" 'product of .*: element 0 .*It depends on what was in memory' -DW_SCRATCH=64 \
	'-DW_LAST=y[0] += ((float *)a->scratch)[0]'
wrong -DW_SCRATCH=64 '-DW_LAST=((float *)a->scratch)[0] = 1; y[0] += 0 * ((float *)a->scratch)[0]'
says "... and was written first" ' [1-9][0-9]* passed, 0 failed' 0 --only "$only"
fault "a kernel that fails" 'product of .*: kernel product of \[x\] failed with code 3' '-DW_RUN=return 3'
fault "a kernel that is never launched" 'product of .*: element 0 of [0-9]* of output 0 is not written' '-DW_RECORD=return HD_OK'
fault "a result that depends on threads" 'product of .*: element 0 of .* with 1 thread, and .* with 2: results must not depend on the number of threads' \
	'-DW_LAST=y[0] += a->threads == 2'
wrong -DW_LINEAR=3
says "an op that is linear in each of its inputs" ' [1-9][0-9]* passed, 0 failed' 0 --only "$only"
fault "... and is not linear in all together" 'product of .*: its .linear is 0xf*, but output 0 is not linear in all inputs' '-DW_LINEAR=~0ull'
fault "... or not in one of them" 'product of .*: its .linear is 0x3, but output 0 is not linear in input 1: f\(a \+ b\) - f\(a\)' -DW_LINEAR=3 \
	'-DW_RUN=for (int64_t i = 0; i < n; i++) y[i] = x[i] * z[i] * z[i]; return 0'
fault "... because of the step" 'its results depend on the step' -DW_LINEAR=3 '-DW_LAST=y[0] += a->step->step'
fault "an op without outputs" '.*product: slot shape says 0 outputs' '-DW_NOUT=0'
wrong -DW_REF_ALONE
says "kernels for ref alone" '^#   it has no kernels for the cpu' 1 --only "keep to their operands, gpt2 on cpu"
fault "memory that each run keeps" 'product of .*: each run leaves [0-9]* more bytes allocated' '-DW_LAST=static void *volatile kept; kept = malloc(100)'
fault "memory that each prepare keeps" 'each time that its kernels are prepared and released, [0-9]* bytes stay' \
	'-DW_PREPARED=static void *volatile kept; kept = malloc(100000)'
wrong '-DW_LAST=static void *kept; kept = kept ? kept : malloc(100)'
says "what is made once is no leak" ' [1-9][0-9]* passed, 0 failed' 0 --only "$only"
fault "what a kernel prints" 'product of .*: its kernel prints to the standard output, which is the program.s: here' '-DW_LAST=printf("here\n")' \
	-include stdio.h
limit=1
fault "a sleep without end" 'does not return in kernel product of \[x\]' '-DW_RUN=for (;;) pause()' -include unistd.h
limit=
fault "an exit" 'exit\(\) in kernel product of \[x\]: a plugin may not end the process' '-DW_RUN=exit(0)'
fault "what alloc gave is freed" 'abort\(\) in kernel product of \[x\]' '-DW_RELEASE=free(state)'

# What no layout makes right is no refusal.
mistake='plans or refuses, gpt2'
wrong -DW_BEYOND=2
says "a gradient behind the last input" '^#   .*product: gradient 2 is set, but there are 2 inputs \(slot vjp of plugin product\)' 1 --only "$mistake"
wrong -DW_BEYOND=40
says "... or far behind it" '^#   .*product: gradient 40 is set' 1 --only "$mistake"
wrong -DW_DIMS
says "a gradient of other dims" '^#   .*product: gradient 1 is \(batch\), but input 1 is' 1 --only "$mistake"
wrong -DW_SHAPE
says "a result of other dims" '^#   .*replace: ' 1 --only "$mistake"
wrong -DW_PLACE=7
says "a place that is no input" '^#   .*inplace of output 0 is 7, but there are 2 inputs' 1 --only "$mistake"
fails_in() { # NAME PATTERN -D...: each layout is refused, so it is a mistake of the plugin
	name=$1 pattern=$2
	shift 2
	wrong "$@"
	says "$name" "^#   .*$pattern" 1 --only "$mistake"
}
fails_in "a slot shape that fails without a text" 'product: slot shape failed with code -3 and no message \(slot shape of plugin product\)' -DW_SHAPED=-3
fails_in "a slot vjp that does" 'product: slot vjp failed with code -1 and no message \(slot vjp of plugin product\)' -DW_VJP_FAILS
fails_in "a slot vjp that is forgotten" '\[plugin x\]: product is not differentiable, but a gradient is needed' -DW_NO_VJP
says "... as the check against one rank says too" '^#   .*product is not differentiable' 1 --only 'equals one rank, gpt2: product, dp 2'
fails_in "a slot record that is" '\[plugin x\]: op product of \(batch,seq,mlp\) has no record and was not lowered' -DW_NO_RECORD
fails_in "an op that reads a later layer" 'layout:[0-9]*: \[plugin x\] .*product of \(batch,seq,mlp\) in layer 0 depends on its own result: a cycle' \
	-DW_LATER
# A [plugin] has no axes, whatever ends it.
fails_in "a crash in slot shape" 'a crash: .*SIGSEGV\) in slot shape of \[plugin x\]' '-DW_SHAPED=*(volatile int *)8'
fails_in "a slot rewrite that returns no status" 'slot rewrite returned 3, which is not a status' -DW_REWRITTEN=3
fails_in "... or fails without a text" 'slot rewrite failed with code -77 and no message' -DW_REWRITTEN=-77
wrong '-DW_VJP="a * b * 0.99"'
says "a gradient that is wrong in the second input alone" 'gradient of .* is .*; the finite difference of the loss is' 1 --only 'slopes of the loss, gpt2'
# Gradients of a router have its auxiliary losses, which the loss of a step has not.
wrong '-DW_KIND="norm"'
says "a right op in front of routers: slopes" ' 3 passed, 0 failed' 0 --only 'slopes of the loss'
wrong '-DW_KIND="norm"' '-DW_VJP="a * b * 0.9999"'
says "... and a wrong one" 'gradient of .* is .*; the finite difference of the loss is' 1 --only 'slopes of the loss, mixtral'
wrong '-DW_RECORD=if (getpid() % 2) return a->launch(r, "map", n->ins, 2, n->outs, 1, "a * b * 1.5")' -include unistd.h
for i in 1 2 3 4 5 6; do heddle conform ./product.so --only "$mistake" --no-runs; done >out 2>&1
like "a kernel that each process chooses for itself" "$(cat out)" 'slot record launches different kernels, or different attributes'

# In a run the process ends, and says whose kernel it was.
printf '[plugin product]\nfile = ./product.so\n' >>tiny.ini
wrong '-DW_RUN=*(volatile int *)8 = 1'
heddle train tiny.ini >out 2>&1
ok "a crash of a kernel ends the run" [ $? -gt 128 ]
like "... and is told" "$(cat out)" 'heddle: \[product\]: kernel product ended by signal SIGSEGV'
wrong '-DW_RUN=exit(0)'
fails "an exit of a kernel ends the run, with an error" heddle train tiny.ini
like "... and is told" "$(cat "$tmp/.ok")" 'heddle: \[product\]: kernel product called exit'
done_testing
