#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# NCCL on the simulated device: a library of that name, whose communicators are those of MPI, is found and opened like
# the real one.  If this broke, a communicator would move data in a different order or size than on the CPU.  Kernels
# would not wait for it (the simulation follows streams and events), or a missing or old library would not be reported.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sim=$build/heddle-cuda-sim.so
[ -r "$sim" ] || skip_all "no C++ compiler was there, so there is no simulated cuda device"
command -v mpicc >/dev/null || skip_all "mpicc is not there"
mkdir -p "$tmp/nccl/lib"
ok "the library is built" \
	mpicc -O1 -shared -fPIC -x c -I "$src" -o "$tmp/nccl/lib/libheddle-fake-nccl.so.2" "$src/t/lib/fake_nccl.c.in"
export NCCL_HOME="$tmp/nccl" HD_TEST_SHARE_GPU=1
small="--set model.embed=16 --set model.layers=2 --set train.seq=8 --set train.steps=2 --set train.optimizer=sgd
	--set train.threads=1 --set train.eval_batches=1 --set train.precision=fp32"

losses() {	# prints nothing if there is no file
	[ -r "$1" ] || return
	sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' "$1"
}
alike() {		# compares the losses of cpu.json and cuda.json, up to the rounding of reordered fp32 sums
	losses cpu.json >a.loss; losses cuda.json >b.loss
	paste -d ' ' a.loss b.loss | awk '
		{ d = $1 - $2; d = d < 0 ? -d : d; n += NF == 2 && d <= 2e-6 * $1 }
		END { if (n != NR || n < 2) print n + 0 " of " NR " losses are alike" }'
}
cuda() {		# RANKS INI ARGS...
	n=$1 of=$2; shift 2
	rm -f cuda.json
	HD_TEST_CUDA_MODULE=$sim heddle_mpi "$n" train "$of" $small --set train.device=${device:-cuda} --set log.metrics=cuda.json "$@" >cuda.out 2>&1 ||
		cat cuda.out
	grep '^simulation: ' cuda.out
}
layout() {		# WHAT RANKS CPU-RANKS INI ARGS...
	what=$1 ranks=$2 cpus=$3 of=$4; shift 4
	rm -f cpu.json
	heddle_mpi "$cpus" train "$of" $small --set train.device=cpu --set log.metrics=cpu.json "$@" >cpu.out 2>&1 || cat cpu.out
	FAKE_NCCL_SAYS=1 cuda "$ranks" "$of" --set train.comm=nccl "$@" >why
	alike >>why
	is "$what: the losses are those of the CPU" "$(cat why)" ""
	[ "$ranks" = 1 ] || like "$what: NCCL moves the data" "$(cat cuda.out)" "fake NCCL: [1-9][0-9]* calls"
	checked=$(heddle check "$of" --ranks "$ranks" $small --set train.device=cuda "$@" --json)
	used=$(sed -n 's/.* calls over \([0-9]*\) communicators.*/\1/p' cuda.out | sort -n | tail -1)
	[ "$ranks" = 1 ] && used=0 # nothing is communicated
	is "$what: check counts the communicators that are used" \
		"$(json "$checked" communicator_bytes)" "$((used * 200 << 20))"
}

sed 's/^\[strategy dp\]/[strategy tp]/; s/^plugin = dp/plugin = tp\nsize = 2/' tiny.ini >cut.ini
sed 's/^\[strategy dp\]/[strategy ep]/; s/^plugin = dp/plugin = ep\nsize = 2/' tiny.ini >experts.ini
sed "s|^plugin = dp|plugin = $build/t/plugins/.libs/permute.so\nsize = 2|; s/^\[strategy dp\]/[strategy r]/" tiny.ini >turned.ini
# Training with pipeline stages is not tested: the simulation runs work when it is enqueued.  A receive posted early would
# wait for a send that comes after it.  Evaluation receives nothing early.
layout "one rank" 1 1 tiny.ini
layout "two replicas" 2 1 tiny.ini
device=auto
layout "two replicas on the devices that are found" 2 1 tiny.ini
layout "two replicas on them, summed in order" 2 1 tiny.ini --set dp.sync=server
unset device
layout "two replicas, sharded states" 2 1 tiny.ini --set dp.zero=1
layout "layers sharded over two ranks" 2 2 cut.ini
layout "members that change places" 2 2 turned.ini
layout "experts on two ranks" 2 2 experts.ini --set model.family=llama --set model.experts=4 --set model.experts_per_token=2
layout "experts without a capacity" 2 2 experts.ini --set model.family=mixtral --set model.experts=4 \
	--set model.capacity_factor=0

# Two members connect at their first message, for which the host of each waits.  Within a step a stage could wait so for
# another one that waits for it.
heddle train tiny.ini $small --set train.device=cpu --set checkpoint.dir=cpu.d >cpu.out 2>&1 || tap_comment <cpu.out
head -c 200 text.txt >short.txt
evaluated() {	# RANKS ARGS...: prints the loss of the checkpoint
	of=$1
	shift
	HD_TEST_CUDA_MODULE=$sim FAKE_NCCL_SAYS=1 heddle_mpi "$of" eval cpu.d/step-00000002 --data short.txt \
		--set train.micro_batch=1 "$@" >ran.out 2>&1
	sed -n 's/.*loss \([0-9.]*\).*/\1/p' ran.out | tail -1
}
want=$(evaluated 1 --set train.device=cpu)
near "stages evaluate like one rank" "$(evaluated 2 --set train.device=cuda --set train.comm=nccl --set pp.plugin=pp \
	--set pp.size=2)" "$want" 1e-4
like "... over NCCL" "$(cat ran.out)" "fake NCCL: [1-9][0-9]* calls"
unlike "... and are connected before the first step" "$(cat ran.out)" "waits to connect"

# A wait by the device alone would not end if another rank were gone, so errors are looked for before it.  The host first
# waits in the middle of a layer, for the numbers of rows.
FAKE_NCCL_FAILS=1 FAKE_NCCL_SAYS=1 cuda 2 experts.ini --set train.comm=nccl --set model.family=mixtral --set model.experts=4 \
	--set model.capacity_factor=0 >out
like "an error that NCCL reports late ends the run" "$(cat out)" "nccl: invalid usage: of the fake library"
calls=$(sed -n 's/.*aborted after \([0-9]*\) calls.*/\1/p' out | sort -n | tail -1)
ok "... before the host waits for numbers of rows (${calls:-no} calls)" [ "${calls:-99}" -le 4 ]

# -- a GPU for each rank -----------------------------------------------------------------------------------------------
mine() {		# VARIABLES: runs two ranks that may not share a GPU
	(unset HD_TEST_SHARE_GPU
	HD_TEST_CUDA_MODULE=$sim mpi 2 sh -c "$1 exec $build/heddle train tiny.ini $(echo $small) --set train.device=cuda --set train.comm=mpi" 2>&1)
}
like "two ranks that see the same GPU are refused" "$(mine '')" "2 ranks of this host may use only 1 GPU: each needs its own"
# As with srun --gpus-per-task=1, where each rank sees only one GPU, and each a different one.
unlike "ranks that each see a GPU of their own run" "$(mine 'HD_TEST_SIM_GPU=$$')" "may use only|ERROR"
like "... to the last step" "$(mine 'HD_TEST_SIM_GPU=$$')" "step +2/2"

# -- missing or old libraries ------------------------------------------------------------------------------------------
FAKE_NCCL_VERSION=22809 cuda 2 tiny.ini --set train.comm=nccl >out
like "an NCCL that does not let ranks share a GPU is reported" "$(cat out)" \
	"nccl: ranks share GPU 0, which NCCL 2.28 does not allow \(2.30 does\): train.comm = mpi"
FAKE_NCCL_VERSION=21701 cuda 1 tiny.ini --set train.comm=nccl >out
like "an NCCL that is too old is reported" "$(cat out)" "is NCCL 2.17, at least 2.18 is needed"
NCCL_MULTI_RANK_GPU_ENABLE=0 cuda 2 tiny.ini --set train.comm=nccl >out
like "the user's setting for shared GPUs is kept" "$(cat out)" "nccl: the ranks cannot connect: invalid usage"
NCCL_HOME=$tmp/none cuda 1 tiny.ini --set train.comm=nccl >out
like "a missing library is reported with the place searched" \
	"$(cat out)" "libheddle-fake-nccl.so.2 cannot be opened \(.*/none: no such file there.*: set NCCL_HOME"
NCCL_HOME=$tmp/none cuda 2 tiny.ini >out
is "with comm = auto a run without the library succeeds" "$(cat out)" ""
like "... and says that it communicates through host memory" \
	"$(cat cuda.out)" "cannot be opened .*: GPUs communicate through host memory"

# -- a module that needs a library which only a Python wheel has -------------------------------------------------------
mkdir -p apart venv/lib/python3.12/site-packages/nvidia/cu13/lib
echo 'int needed(void) { return 0; }' >needed.c && echo 'int needed(void); int user(void) { return needed(); }' >user.c
ok "the module and its library are built" \
	sh -c "mpicc -shared -fPIC -Wl,-soname,libneeded.so.7 -o apart/libneeded.so.7 needed.c &&
	mpicc -shared -fPIC -o user.so user.c -Wl,--no-as-needed apart/libneeded.so.7"
mv apart/libneeded.so.7 .
HD_TEST_CUDA_MODULE=$tmp/user.so heddle train tiny.ini --set train.device=cuda >out 2>&1
like "a message names a missing library" "$(cat out)" "user.so does not load: .*libneeded.so.7: cannot open"
mv libneeded.so.7 venv/lib/python3.12/site-packages/nvidia/cu13/lib
VIRTUAL_ENV=$tmp/venv HD_TEST_CUDA_MODULE=$tmp/user.so heddle train tiny.ini --set train.device=cuda >out 2>&1
like "the library is found in the wheel, and the module loads" "$(cat out)" "user.so is not a heddle device"

# -- calls that a library or a capture refuses -------------------------------------------------------------------------
heddle train tiny.ini $small --set train.device=cpu --set log.metrics=cpu.json >cpu.out 2>&1
HD_TEST_LT_REFUSES=1 cuda 1 tiny.ini >why
alike >>why
is "products that cuBLASLt refuses are computed all the same" "$(cat why)" ""
like "... and a message counts them" \
	"$(cat cuda.out)" "cuBLASLt cannot compute [0-9]+ of the products, .*: they run in plain loops"
cuda 1 tiny.ini >why
unlike "if cuBLASLt refuses none, no message is printed" "$(cat cuda.out)" "plain loops"
HD_TEST_CAPTURE_FAILS=1 cuda 1 tiny.ini --set train.steps=3 >why
like "a capture that fails does not fail the step" "$(cat cuda.out why)" "step +3"
unlike "... and is not reported" "$(cat cuda.out why)" "ERROR|cuda: .*captur"
like "the module asks for 32 queues (CUDA_DEVICE_MAX_CONNECTIONS)" \
	"$(grep -c CUDA_DEVICE_MAX_CONNECTIONS "$sim")" "[1-9]"
done_testing
