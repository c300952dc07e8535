#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Servers of their own, run by the program: the bits of an all-reduce in rank order, whatever carries them; checkpoints that go
# into and out of other layouts; the bytes of the server's link; and what is said when one is gone.  If this broke, a job that
# has them would train another model, or wait for ever for a server that is dead.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/trained.sh"

same="--set data.valid_fraction=0 --set train.clip=0.5 --set train.reduce=rank_order --set train.global_batch=12 --set train.micro_batch=2"

own="--set dp.sync=server --set dp.bucket=8K --set dp.size"

trained 3 sum --set dp.sync=allreduce
trained 4 one $own=3 --set dp.servers=1
same_bits "one server: weights and states of an all-reduce" sum one
HD_TEST_COMM=mpi
export HD_TEST_COMM
trained 5 two $own=3 --set dp.servers=2
unset HD_TEST_COMM
same_bits "two servers on other hosts: the same" sum two
like "the layout says so" "$(cat two.out)" "dp 3 [+] 2 servers"

# Any number of both.
for n in $(whole_sweep && echo 1 2 3 8); do
	at="--set train.global_batch=24 --set train.micro_batch=1 --set dp.bucket=8K"
	trained $n sum$n $at --set dp.sync=allreduce
	for k in 1 2 4; do
		trained $((n + k)) own$n-$k $at $own=$n --set dp.servers=$k
		same_bits "$n workers, $k servers" sum$n own$n-$k
	done
done

# What reads parameters between steps finds those of the step: evaluations, samples, hashes, saves beside the steps, a ramp.
all="--set data.valid_fraction=0.2 --set train.eval_every=1 --set log.sample_every=2 --set log.sample=8 --set train.hash_every=1
	--set checkpoint.every=2 --set checkpoint.keep=9 --set checkpoint.async=yes --set train.global_batch_ramp=6,6,1K --set train.steps=6"
trained 3 sum-all $all --set dp.sync=allreduce
trained 5 two-all $all $own=3 --set dp.servers=2
for step in 2 4 6; do
	same_bits "with all that happens between steps: step $step" sum-all two-all $step
done
is "and its evaluations" "$(grep -o '"valid_loss[^,}]*' two-all.jsonl)" "$(grep -o '"valid_loss[^,}]*' sum-all.jsonl)"
is "one a step" "$(grep -c valid_loss two-all.jsonl)" 6
samples() { grep -a -A2 '^sample:' "$1"; }
is "and its samples" "$(samples two-all.out)" "$(samples sum-all.out)"
is "one every second step" "$(grep -c '^sample:' two-all.out)" 3
low="--set train.precision=bf16 --set data.valid_fraction=0.2 --set train.eval_every=1"
trained 2 sum-low $low --set dp.sync=allreduce
trained 3 one-low $low $own=2 --set dp.servers=1
same_bits "bf16: the same" sum-low one-low
is "bf16: the same evaluations" "$(grep -o '"valid_loss[^,}]*' one-low.jsonl)" "$(grep -o '"valid_loss[^,}]*' sum-low.jsonl)"

# Gradients of 16 bits; the same by either transport.
trained 4 near $own=2 --set dp.servers=2 --set dp.wire=bf16
HD_TEST_COMM=mpi
export HD_TEST_COMM
trained 4 far $own=2 --set dp.servers=2 --set dp.wire=bf16
unset HD_TEST_COMM
same_bits "bf16 on the wire: the same bits between hosts" near far

# Into other layouts and out of them.
for to in sum two; do
	cp -r one from-one-$to
done
more="--set checkpoint.resume=auto --set train.steps=5"
trained 3 from-one-sum $more --set dp.sync=allreduce
trained 5 from-one-two $more $own=3 --set dp.servers=2 --set train.hash_every=1
same_bits "a server's checkpoint in two layouts: the same run" from-one-sum from-one-two 5
cp -r sum from-sum
trained 4 from-sum $more $own=3 --set dp.servers=1
same_bits "and a checkpoint without servers goes into one with them" from-one-sum from-sum 5

# Bytes: of a model of S bytes a worker pushes S, and the server sends S to each worker.
wide="--set model.vocab=256 --set model.embed=64 --set train.micro_batch=1"
sent() {	# RANK KIND SETS...
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
is "it sends the model to each worker" "$(sent 4 pull)" $((4 * S))
is "16 bits: half of the push" "$(sent 0 push --set dp.wire=bf16)" $((S / 2))
k=2
one=$(sent 4 pull) other=$(sent 5 pull)
is "two servers: together as much" $((one + other)) $((4 * S))
[ $((one - other)) -lt $((4 * S / 8)) ] && [ $((other - one)) -lt $((4 * S / 8)) ]
tap_result $? "dealt alike: $one and $other"
ran=$(heddle_mpi 6 bench tiny.ini $wide --set dp.sync=server --set dp.size=4 --set dp.servers=2 --json --steps 2 2>/dev/null)
most=$(heddle explain tiny.ini --ranks 6 $wide --set dp.sync=server --set dp.size=4 --set dp.servers=2 --rank 4 --json | tr '{' '\n' |
	awk '/"collective"/ { b = $0; sub(/.*"bytes": /, "", b); sum += b + 0 } END { printf "%d\n", sum }')
is "sent as explained" "$(json "$ran" bytes_counted)" "$most"

# A server holds masters and states, and of a step no more than gradients and what it sends.
said=$(heddle check tiny.ini $wide --ranks 5 --set dp.sync=server --set dp.size=4 --set dp.servers=1 --json)
like "check says what it holds" "$said" "\"state_bytes\": $((3 * S))"

# On a machine that is not at hand: the server's link has four pushes to take and four pulls to give, and a slow worker holds all.
planned() {	# WORKERS SETS...
	n=$1
	shift
	heddle plan tiny.ini $wide --ranks $((n + ${servers:-1})) --machine dgx-a100 --set dp.sync=server --set dp.servers="${servers:-1}" \
		--set dp.size="$n" --json "$@"
}
four=$(planned 4)
large="--set model.embed=512" # the time is that of bytes, not of latencies
served() { echo "$1" | sed 's/.*"servers": //; s/.*"'"$2"'": \([0-9.e-]*\).*/\1/'; }
least() { awk -v a="$1" -v b="$2" -v by="$3" 'BEGIN { print (a >= by * b ? "yes" : a " and " b) }'; }
is "plan: a server sends the model to each worker, and a norm" "$(least $((4 * S + 64)) "$(served "$four" node)" 1)" yes
is "plan: in the time that this takes, twice as much for twice as many" \
	"$(least "$(served "$(planned 4 $large)" link_seconds)" "$(served "$(planned 2 $large)" link_seconds)" 1.5)" yes
is "plan: two servers share it" "$(least "$(served "$(planned 4 $large)" link_seconds)" "$(served "$(servers=2 && planned 4 $large)" link_seconds)" 1.5)" yes
# Where a forward takes longer than all pulls, and a backward longer than all pushes, the first pull and the last push show.
cat >machine.ini <<END
[machine]
flops_fp32 = FLOPS
memory_bandwidth = 1e30
node_bandwidth = 1e6
END
exposed() {	# FLOPS
	sed -i "s/^flops_fp32.*/flops_fp32 = $1/" machine.ini
	json "$(heddle plan tiny.ini --ranks 3 --machine machine.ini --set model.layers=12 --set dp.sync=server --set dp.servers=1 --set dp.size=2 \
		--set dp.bucket=1K --set train.micro_batch=4 --json)" comm_exposed_seconds
}
is "plan: pulls under forward, pushes under backward" "$(least "$(exposed 1e30)" "$(exposed 1e5)" 4)" yes
slow=$(planned 4 --slow 2=3)
is "plan: one slow worker, and all wait" "$(least "$(json "$slow" step_seconds)" "$(json "$four" step_seconds)" 1.5)" yes
out=$(heddle plan tiny.ini $wide --ranks 4 --machine dgx-a100 --slow 4=3 2>&1)
is "a slow rank that is none is refused" $? 1
like "why" "$out" "rank from 0 to 3"

# Refused, with the reason.
refused() {	# TEXT SETS...
	text=$1
	shift
	out=$(heddle check tiny.ini --ranks 5 "$@" 2>&1)
	is "refused: $*" $? 1
	like "why" "$out" "$text"
}
refused 'zero: 1, but servers = 1' --set dp.sync=server --set dp.servers=1 --set dp.zero=1
refused 'servers: 5, but there are 5 ranks' --set dp.sync=server --set dp.servers=5
refused 'the layout needs 7 ranks, but there are 5' --set dp.sync=server --set dp.servers=3 --set dp.size=4

${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$src/include" -o muon.so "$src/examples/muon/muon.c" -lm || exit 1
printf '[plugin muon]\nfile = ./muon.so\n' | cat tiny.ini - >muon.ini
out=$(heddle check muon.ini --ranks 3 --set train.optimizer=muon $own=2 --set dp.servers=1 2>&1)
is "refused: an optimizer of a plugin" $? 1
like "why" "$out" "has 1 servers, but train.optimizer = muon comes from a plugin: servers update with adamw or sgd"
out=$(heddle check muon.ini --ranks 2 --set train.optimizer=muon --set dp.offload=states 2>&1)
is "refused: its states in host memory" $? 1
like "why" "$out" 'dp.: storage: states in host memory are updated by adamw or sgd, but train.optimizer = muon comes from a plugin'

# A worker that stands still holds all: while it is stopped rank 0 may end the step that it is in, and no other.
rank_of_run() {	# RANK STEPS: its process
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
ok "a worker stands still, and all wait: $((now - was)) more steps" [ $now -le $((was + 2)) ]
for i in $(seq 300); do
	[ "$(wc -l <held.jsonl)" -gt $((now + 2)) ] && break
	sleep 0.1
done
ok "it goes on, and all go on" [ "$(wc -l <held.jsonl)" -gt $((now + 2)) ]
kill -TERM $(rank_of_run 0 90000) # not the shell that waits for mpirun: the run would go on
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
if open_mpi 5 && [ -z "$said" ]; then	# on a busy machine it ends the others before they have seen it
	like "and mpirun says which" "$(tr -d '\0' <dead.out)" "process rank 2 with PID"
else
	like "and says which" "$said" "rank 2 [(]dp server 0[)] is gone"
fi
done_testing
