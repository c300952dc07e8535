#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# t/gpu/run-all on a build tree of scripts.  Half an hour on a GPU must not end at the first step that fails or hangs.
# A step with status 0 must not hide a failed check.
. "${0%/*}/lib/tap.sh"

tree=$tmp/tree
mkdir -p "$tree/t/cuda"
: >"$tree/heddle-cuda-sim.so"
script() { cat >"$tree/$1" && chmod +x "$tree/$1"; }
script heddle <<'END'
#!/bin/sh
echo "the module is $HD_TEST_CUDA_MODULE${HEDDLE_WGMMA:+ by mma.sync}"
case "$*" in
*log.metrics=*) for a; do case $a in log.metrics=*) echo "{\"step\": 1, \"loss\": ${LOSS:-2.5}}" >"${a#log.metrics=}" ;; esac; done ;;
esac
[ "$1" != machine ] || for to; do :; done
[ "$1" != machine ] || : >"$to"
[ -z "$PROFILE" ] || cat "$PROFILE"
[ -z "$REMARK" ] || echo "heddle: cuda: cuBLASLt cannot compute 1 of the products: they run in plain loops, which are slow"
END
script t/cuda/a.t <<END
#!/bin/sh
(while :; do echo x >>"$tmp/alive"; sleep 0.2; done) &
echo "ok 1 - before it hangs"
wait
END
script t/cuda/b.t <<'END'
#!/bin/sh
echo "ok 1 - fine"
echo "not ok 2 - told, and ended well"
END
script t/cuda/c.t <<'END'
#!/bin/sh
echo "ok 1 - fine"
echo "ok 2 # SKIP not here"
END
run_all() { HD_BUILD=$tree sh "$src/t/gpu/run-all" --simulated "$@"; }

run_all --only kernels --limit 2 "$tmp/out" >out
is "run-all fails if a step does" "$?" 1
like "a step that hangs is killed" "$(cat out)" "^not ok - kernels a.t \(1 checks, [2-9] s\), status 124, killed after 2 s"
like "the next step runs, and fails by its output although its status is 0" \
	"$(cat out)" "^not ok - kernels b.t \(1 checks, .*status 0, it says so"
like "skipped checks of a step are not counted" "$(cat out)" "^ok - kernels c.t \(1 checks"
cp "$tmp/alive" before; sleep 1
is "no process that the killed step started is left" "$(cmp before "$tmp/alive")" ""
is "failures.txt has the output of the failed steps" \
	"$(grep -c '^==== kernels' "$tmp/out/failures.txt") $(grep -c 'told, and ended well' "$tmp/out/failures.txt")" "2 1"
is "output.txt has the output of all steps" "$(grep -c '^==== kernels' "$tmp/out/output.txt")" 3
is "run-all leaves three files" "$(ls "$tmp/out" | tr '\n' ' ')" "failures.txt output.txt results.md "
like "the table has a line for each step" "$(cat "$tmp/out/results.md")" '^\| kernels a.t \| not ok \| 1 \|'

run_all --only kernels --seconds 6 "$tmp/out2" >out
like "a step after the time limit is not begun, and reported" \
	"$(cat out)" "^not begun - kernels [bc].t .*: 6 s are over"
ok "losses equal to those of the CPU pass" run_all --only losses "$tmp/out3"
: >"$tmp/mended.so"
run_all --only losses --module "$tmp/mended.so" "$tmp/out6" >out
is "all steps run the module given with --module" "$(grep -c "^the module is $tmp/mended.so" "$tmp/out6/output.txt")" \
	"$(grep -c "^the module is" "$tmp/out6/output.txt")"
is "exactly one step runs the kernels of other GPUs" \
	"$(grep -c '^the module is .* by mma.sync' "$tmp/out6/output.txt")" 1
is "a profile without kernels fails" "$(run_all --only speed "$tmp/out7" | grep -cE '^not ok - speed of [0-9.MB]+ (by mma.sync )?\(')" 4
cat >"$tmp/profile" <<'END'
kernel                     ms  share  calls      GFLOP        GB   GFLOP/s     GB/s
einsum                 20.000  80.0%     13   8000.000    4.0000  400000.0   200.00
add                     5.000  20.0%      2      0.000    1.0000       0.0   200.00
all                    25.000
{"tokens_per_second": 1000, "step_seconds": 0.025, "flops_per_second": 3.2e14}
END
is "a profile with kernels passes" \
	"$(PROFILE=$tmp/profile run_all --only speed "$tmp/out8" | grep -c '^ok - speed of')" 6
like "the table has the rates of kernels" \
	"$(cat "$tmp/out8/results.md")" '^\| einsum \| 13 \| 20.000 \| 80.0 % \| 4.0000 \| 8000.000 \| 200 \| 400.0 \|'
like "... and of the step" "$(cat "$tmp/out8/results.md")" '^\| GPT-2 1.3B, mma.sync \| 1000 \| 25.0 \| 320.0 \|'
is "foresight prints predicted and measured times" \
	"$(PROFILE=$tmp/profile run_all --only foresight "$tmp/out9" | grep -c '^ok - foresight of .* 25.0 ms predicted, 25.0 measured, +0.0 %')" 8
like "... also in the table" "$(cat "$tmp/out9/results.md")" '^\| llama, 1B \| 25.0 \| 25.0 \| \+0.0 % \|'
is "the file of the machine is kept" "$(ls "$tmp/out9" | tr '\n' ' ')" "machine.ini output.txt results.md "
REMARK=1 run_all --only losses "$tmp/out4" >out
like "products in plain loops fail a step" "$(cat out)" "^not ok - quick in fp32 beside the cpu .*in plain loops"
script heddle <<'END'
#!/bin/sh
case "$*" in *device=cpu*) LOSS=2.5 ;; *) LOSS=2.6 ;; esac
for a; do case $a in log.metrics=*) echo "{\"step\": 1, \"loss\": $LOSS}" >"${a#log.metrics=}" ;; esac; done
END
run_all --only losses "$tmp/out5" >out
is "losses that differ from those of the CPU fail each of five steps" "$(grep -c '^not ok - .* beside the cpu' out)" 5
done_testing
