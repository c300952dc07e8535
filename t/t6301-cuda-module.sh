#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The real module, on a machine without a GPU: that it is one file that loads beside the program, exports one name, has code
# for the architectures it was built for, and that a run says what is missing.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

so=$build/heddle-cuda.so
[ -r "$so" ] || skip_all "heddle-cuda.so is not built: make heddle-cuda.so, where nvcc is"
is "one symbol is exported" "$(nm -D --defined-only "$so" | sed 's/.* //')" "heddle_device"
is "nothing of the engine is missing in it" "$(nm -D --undefined-only "$so" | grep ' hd_')" ""
for a in $(sed -n 's/^CUDA_ARCH = //p' "$build/Makefile"); do
	ok "code for sm_$a" grep -q "sm_$a" "$so"
done
if [ -e /dev/nvidiactl ]; then
	skip "this machine has a driver: t/gpu/run-all"
else
	heddle train tiny.ini --set train.device=cuda >out 2>&1
	like "without a driver cuda is refused" "$(cat out)" "train.device: cuda: this machine has no NVIDIA driver"
	is "and auto is the cpu, without a word" "$(heddle train tiny.ini --set train.device=auto 2>&1 | messages)" ""
fi
done_testing
