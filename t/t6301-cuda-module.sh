#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The real module, on a machine without a GPU.  If this broke, the module would not load next to the program or would
# lack code for a GPU it was built for.  A run without a driver would not say what is missing.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

so=$build/heddle-cuda.so
[ -r "$so" ] || skip_all "heddle-cuda.so is not built: make heddle-cuda.so, where nvcc is"
is "the module exports one symbol" "$(nm -D --defined-only "$so" | sed 's/.* //')" "heddle_device"
is "... and needs no function of the engine" "$(nm -D --undefined-only "$so" | grep ' hd_')" ""
for a in $(sed -n 's/^CUDA_ARCH = //p' "$build/Makefile"); do
	ok "the module contains code for sm_$a" grep -q "sm_$a" "$so"
done

# The simulated device cannot show registers.  One kernel computed wrong gradients on a GPU, and nowhere else.
nvcc=$(sed -n 's/^NVCC = //p' "$build/Makefile")
if "$nvcc" --help 2>/dev/null | grep -q compute_90a; then
	n=0
	for f in "$src"/kernels/cuda/*/*_wgmma*.cu; do
		"$nvcc" -std=c++17 -O3 -I"$build" -I"$src" -I"$src/include" -DHD_CUDA_90A -arch=compute_90a -x cu -ptx "$f" -o $((n += 1)).ptx \
			>/dev/null 2>why || cat why
	done
	like "the registers of operands are not written while products run" \
		"$(perl "$src/t/lib/wgmma_operands.pl" *.ptx 2>&1)" \
		'^[1-9][0-9]* products, 0 writes'
	printf '%s\n' '.entry k(' 'wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%f1,%f2}, {%r1,%r2,%r3,%r4}, %rd1, p, 1, 1, 1;' \
		'wgmma.commit_group.sync.aligned;' 'cvt.rn.bf16x2.f32 %r3, %f3, %f4;' 'wgmma.wait_group.sync.aligned 0;' >wrong.ptx
	like "... and the check finds such a write" \
		"$(perl "$src/t/lib/wgmma_operands.pl" wrong.ptx)" '^1 products, 1 writes'
else
	skip "no nvcc for compute_90a"
fi
if [ -e /dev/nvidiactl ]; then
	skip "this machine has a driver; t/gpu/run-all tests it"
else
	heddle train tiny.ini --set train.device=cuda >out 2>&1
	like "without a driver cuda is refused" "$(cat out)" "train.device: cuda: this machine has no NVIDIA driver"
	is "... and auto uses the CPU without a message" \
		"$(heddle train tiny.ini --set train.device=auto 2>&1 | messages)" ""
fi
done_testing
