#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Parameter servers on ranks of their own give the bits of an all-reduce in rank order over every transport.
# Checkpoints can be resumed with and without servers, plan prices the server's link, and a dead server is named.  If
# this broke, a job with servers would train a different model, or wait forever for a dead server.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/trained.sh"

same="--set data.valid_fraction=0 --set train.clip=0.5 --set train.reduce=rank_order --set train.global_batch=12 --set train.micro_batch=2"

own="--set dp.sync=server --set dp.bucket=8K --set dp.size"

trained 3 sum --set dp.sync=allreduce
trained 4 one $own=3 --set dp.servers=1
same_bits "one server: the weights and states are those of an all-reduce" sum one
HD_TEST_COMM=mpi
export HD_TEST_COMM
trained 5 two $own=3 --set dp.servers=2
unset HD_TEST_COMM
same_bits "two servers on other hosts: the weights and states are the same" sum two
like "the run prints the layout with its servers" "$(cat two.out)" "dp 3 [+] 2 servers"

# Any number of workers and servers.
for n in $(whole_sweep && echo 1 2 3 8); do
	at="--set train.global_batch=24 --set train.micro_batch=1 --set dp.bucket=8K"
	trained $n sum$n $at --set dp.sync=allreduce
	for k in 1 2 4; do
		trained $((n + k)) own$n-$k $at $own=$n --set dp.servers=$k
		same_bits "$n workers, $k servers: the weights and states are those of an all-reduce" sum$n own$n-$k
	done
done

# Everything that reads parameters between steps sees those of the step: evaluations, samples, hashes, asynchronous
# saves and a ramp.
all="--set data.valid_fraction=0.2 --set train.eval_every=1 --set log.sample_every=2 --set log.sample=8 --set train.hash_every=1
	--set checkpoint.every=2 --set checkpoint.keep=9 --set checkpoint.async=yes --set train.global_batch_ramp=6,6,1K --set train.steps=6"
trained 3 sum-all $all --set dp.sync=allreduce
trained 5 two-all $all $own=3 --set dp.servers=2
for step in 2 4 6; do
	same_bits "with all work between steps: step $step has the bits of an all-reduce" sum-all two-all $step
done
is "... and the same evaluations" \
	"$(grep -o '"valid_loss[^,}]*' two-all.jsonl)" "$(grep -o '"valid_loss[^,}]*' sum-all.jsonl)"
is "... one a step" "$(grep -c valid_loss two-all.jsonl)" 6
samples() { grep -a -A2 '^sample:' "$1"; }
is "... and the same samples" "$(samples two-all.out)" "$(samples sum-all.out)"
is "... one every second step" "$(grep -c '^sample:' two-all.out)" 3
low="--set train.precision=bf16 --set data.valid_fraction=0.2 --set train.eval_every=1"
trained 2 sum-low $low --set dp.sync=allreduce
trained 3 one-low $low $own=2 --set dp.servers=1
same_bits "bf16: the weights and states are those of an all-reduce" sum-low one-low
is "bf16: ... and so are the evaluations" \
	"$(grep -o '"valid_loss[^,}]*' one-low.jsonl)" "$(grep -o '"valid_loss[^,}]*' sum-low.jsonl)"

# Gradients of 16 bits are the same over either transport.
trained 4 near $own=2 --set dp.servers=2 --set dp.wire=bf16
HD_TEST_COMM=mpi
export HD_TEST_COMM
trained 4 far $own=2 --set dp.servers=2 --set dp.wire=bf16
unset HD_TEST_COMM
same_bits "bf16 on the wire: the weights are the same between hosts" near far

# Runs resume with servers and without, from either kind of checkpoint.
for to in sum two; do
	cp -r one from-one-$to
done
more="--set checkpoint.resume=auto --set train.steps=5"
trained 3 from-one-sum $more --set dp.sync=allreduce
trained 5 from-one-two $more $own=3 --set dp.servers=2 --set train.hash_every=1
same_bits "resumed from a checkpoint with a server: without servers and with two, the weights are the same" \
	from-one-sum from-one-two 5
cp -r sum from-sum
trained 4 from-sum $more $own=3 --set dp.servers=1
same_bits "resumed with a server from a checkpoint without: the weights are the same" from-one-sum from-sum 5

# Bytes.  For a model of S bytes a worker pushes S, and the server sends S to each worker.
wide="--set model.vocab=256 --set model.embed=64 --set train.micro_batch=1"
sent() {	# RANK KIND SETS...: prints the bytes that explain lists
	rank=$1 kind=$2
	shift 2
	heddle explain tiny.ini --ranks $((4 + k)) $wide --set dp.sync=server --set dp.size=4 --set dp.servers=$k --rank "$rank" --json "$@" | tr '{' '\n' |
		awk -v kind="$kind" '$0 ~ "\"collective\": \"" kind "\"" {
			b = $0; sub(/.*"bytes": /, "", b)
			sum += b + 0
		}
		END { printf "%d\n", sum }'
}
S=$((4 * $(heddle check --all tiny.ini $wide --ranks 4 | sed -n 's/^rank 0.*: \([0-9]*\) parameters.*/\1/p')))
k=1
is "a worker pushes the model" "$(sent 0 push)" $S
is "the server pushes nothing" "$(sent 4 push)" 0
is "the server sends the model to each worker" "$(sent 4 pull)" $((4 * S))
is "dp.wire = bf16: a worker pushes half the bytes" "$(sent 0 push --set dp.wire=bf16)" $((S / 2))
k=2
one=$(sent 4 pull) other=$(sent 5 pull)
is "two servers together send as much as one" $((one + other)) $((4 * S))
[ $((one - other)) -lt $((4 * S / 8)) ] && [ $((other - one)) -lt $((4 * S / 8)) ]
tap_result $? "two servers send about the same: $one and $other bytes"
ran=$(heddle_mpi 6 bench tiny.ini $wide --set dp.sync=server --set dp.size=4 --set dp.servers=2 --json --steps 2 2>/dev/null)
most=$(heddle explain tiny.ini --ranks 6 $wide --set dp.sync=server --set dp.size=4 --set dp.servers=2 --rank 4 --json | tr '{' '\n' |
	awk '/"collective"/ { b = $0; sub(/.*"bytes": /, "", b); sum += b + 0 } END { printf "%d\n", sum }')
is "a run sends the bytes that explain prints" "$(json "$ran" bytes_counted)" "$most"

# A server keeps masters and states; within a step it holds only gradients and what it sends.
said=$(heddle check tiny.ini $wide --ranks 5 --set dp.sync=server --set dp.size=4 --set dp.servers=1 --json)
like "check prints the states that a server keeps" "$said" "\"state_bytes\": $((3 * S))"
of_all() { "$build/heddle" "$@" --ranks 20 $wide --set train.micro_batch=1 --set dp.sync=server --set dp.size=4 --set dp.servers=1 \
	--set tp.plugin=tp --set tp.size=2 --set pp.plugin=pp --set pp.size=2 2>/dev/null; }
is "check counts all servers, those of other coordinates too" "$(of_all check tiny.ini | sed -n 's/ server rank.*//p')" 4
like "... in JSON too" "$(of_all check tiny.ini --json)" '"servers": {"ranks": 4,'
is "... and so does plan" "$(of_all plan tiny.ini --machine dgx-a100 | sed -n 's/ server rank.*//p')" 4

# On a machine that is not available: the server's link receives four pushes and sends four pulls, and a slow worker
# delays all.
planned() {	# WORKERS SETS...: prints the plan
	n=$1
	shift
	heddle plan tiny.ini $wide --ranks $((n + ${servers:-1})) --machine dgx-a100 --set dp.sync=server --set dp.servers="${servers:-1}" \
		--set dp.size="$n" --json "$@"
}
four=$(planned 4)
large="--set model.embed=512" # bytes dominate the time, not latencies
served() { echo "$1" | sed 's/.*"servers": //; s/.*"'"$2"'": \([0-9.e-]*\).*/\1/'; }
least() { awk -v a="$1" -v b="$2" -v by="$3" 'BEGIN { print (a >= by * b ? "yes" : a " and " b) }'; }
is "plan: a server sends the model and a norm to each worker" "$(least $((4 * S + 64)) "$(served "$four" node)" 1)" yes
is "plan: the server's link takes longer for more workers" \
	"$(least "$(served "$(planned 4 $large)" link_seconds)" "$(served "$(planned 2 $large)" link_seconds)" 1.5)" yes
is "plan: two servers share the time of the link" \
	"$(least "$(served "$(planned 4 $large)" link_seconds)" "$(served "$(servers=2 && planned 4 $large)" link_seconds)" 1.5)" yes
# If forward takes longer than all pulls, and backward longer than all pushes, only the first pull and the last push are
# exposed.
cat >machine.ini <<END
[machine]
flops_fp32 = FLOPS
memory_bandwidth = 1e30
node_bandwidth = 1e6
END
exposed() {	# FLOPS: prints the exposed time of communication
	sed -i "s/^flops_fp32.*/flops_fp32 = $1/" machine.ini
	json "$(heddle plan tiny.ini --ranks 3 --machine machine.ini --set model.layers=12 --set dp.sync=server --set dp.servers=1 --set dp.size=2 \
		--set dp.bucket=1K --set train.micro_batch=4 --json)" comm_exposed_seconds
}
is "plan: forward hides pulls, and backward hides pushes" "$(least "$(exposed 1e30)" "$(exposed 1e5)" 4)" yes
slow=$(planned 4 --slow 2=3)
is "plan: all workers wait for a slow one" \
	"$(least "$(json "$slow" step_seconds)" "$(json "$four" step_seconds)" 1.5)" yes
out=$(heddle plan tiny.ini $wide --ranks 4 --machine dgx-a100 --slow 4=3 2>&1)
is "a slow rank that does not exist is refused" $? 1
like "... and the message names the range of ranks" "$out" "rank from 0 to 3"

# Layouts that are refused, with the reason.
refused() {	# TEXT SETS...
	text=$1
	shift
	out=$(heddle check tiny.ini --ranks 5 "$@" 2>&1)
	is "refused: $*" $? 1
	like "... with the reason: $*" "$out" "$text"
}
refused 'zero: 1, but servers = 1' --set dp.sync=server --set dp.servers=1 --set dp.zero=1
refused 'servers: 5, but there are 5 ranks' --set dp.sync=server --set dp.servers=5
refused 'the layout needs 7 ranks, but there are 5' --set dp.sync=server --set dp.servers=3 --set dp.size=4

${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$src/include" -o muon.so "$src/examples/muon/muon.c" -lm || exit 1
printf '[plugin muon]\nfile = ./muon.so\n' | cat tiny.ini - >muon.ini
out=$(heddle check muon.ini --ranks 3 --set train.optimizer=muon $own=2 --set dp.servers=1 2>&1)
is "servers with an optimizer of a plugin are refused" $? 1
like "... with the reason: servers" \
	"$out" "has 1 servers, but train.optimizer = muon comes from a plugin: servers update with adamw or sgd"
out=$(heddle check muon.ini --ranks 2 --set train.optimizer=muon --set dp.offload=states 2>&1)
is "states in host memory with an optimizer of a plugin are refused" $? 1
like "... with the reason: storage" \
	"$out" 'dp.: storage: states in host memory are updated by adamw or sgd, but train.optimizer = muon comes from a plugin'

# A worker that is stopped delays all: meanwhile rank 0 may finish its current step, and no further one.
rank_of_run() {	# RANK STEPS: prints the process of that rank
	for p in $(pgrep -f "train tiny.ini.*--set train.steps=$2"); do
		if tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -q "^OMPI_COMM_WORLD_RANK=$1$" &&
			[ "$(readlink "/proc/$p/cwd")" = "$PWD" ]; then
			echo "$p"
		fi
	done
}
heddle_mpi 3 train tiny.ini $same $own=2 --set dp.servers=1 --set log.metrics=held.jsonl --set train.steps=90000 >held.out 2>&1 &
run=$!
for i in $(seq 100); do
	[ -s held.jsonl ] && break
	sleep 0.1
done
p=$(rank_of_run 1 90000)
kill -STOP $p
was=$(wc -l <held.jsonl)
sleep 1
now=$(wc -l <held.jsonl)
kill -CONT $p
ok "all wait while a worker is stopped: $((now - was)) more steps" [ $now -le $((was + 2)) ]
for i in $(seq 300); do
	[ "$(wc -l <held.jsonl)" -gt $((now + 2)) ] && break
	sleep 0.1
done
ok "when it continues, all continue" [ "$(wc -l <held.jsonl)" -gt $((now + 2)) ]
kill -TERM $(rank_of_run 0 90000) # not the shell that waits for mpirun, or the run would continue
wait $run

# A dead server is named.
heddle_mpi 3 train tiny.ini $same $own=2 --set dp.servers=1 --set train.steps=100000 >dead.out 2>&1 &
run=$!
for i in $(seq 100); do
	grep -q "^step" dead.out && break
	sleep 0.1
done
kill -9 $(rank_of_run 2 100000)
wait $run
is "a run without its server ends" "$([ $? -ne 0 ] && echo yes)" yes
said=$(messages <dead.out | grep gone)
if open_mpi 5 && [ -z "$said" ]; then	# on a busy machine mpirun ends the others before they notice
	like "... and mpirun names the server" "$(tr -d '\0' <dead.out)" "process rank 2 with PID"
else
	like "... and names the server" "$said" "rank 2 [(]dp server 0[)] is gone"
fi
done_testing
