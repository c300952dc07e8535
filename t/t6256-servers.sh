#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Servers of their own, run by the program: the bits of an all-reduce in rank order, whatever carries them; checkpoints that go
# into and out of other layouts; the bytes of the server's link; and what is said when one is gone.  If this broke, a job that
# has them would train another model, or wait for ever for a server that is dead.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

same="--set data.valid_fraction=0 --set train.clip=0.5 --set train.reduce=rank_order --set train.global_batch=12 --set train.micro_batch=2"

trained() {	# RANKS DIR SETS...
	n=$1 dir=$2
	shift 2
	[ -d "$dir" ] || mkdir "$dir"
	heddle_mpi "$n" train tiny.ini $same --set checkpoint.dir="$dir" "$@" >"$dir.out" 2>&1 || tap_comment <"$dir.out"
}
same_bits() {	# WHAT STEP DIR DIR
	for f in model.safetensors heddle/optimizer.safetensors; do
		cmp -s "$3/step-0000000$2/$f" "$4/step-0000000$2/$f" || { tap_result 1 "$1"; return; }
	done
	tap_result 0 "$1"
}
own="--set dp.sync=server --set dp.bucket=8K --set dp.size"

trained 3 sum --set dp.sync=allreduce
trained 4 one $own=3 --set dp.servers=1
same_bits "one server: weights and states of an all-reduce" 3 sum one
HD_TEST_COMM=mpi
export HD_TEST_COMM
trained 5 two $own=3 --set dp.servers=2
unset HD_TEST_COMM
same_bits "two servers on other hosts: the same" 3 sum two
like "the layout says so" "$(cat two.out)" "dp 3 [+] 2 servers"

# Gradients of 16 bits; the same by either transport.
trained 4 near $own=2 --set dp.servers=2 --set dp.wire=bf16
HD_TEST_COMM=mpi
export HD_TEST_COMM
trained 4 far $own=2 --set dp.servers=2 --set dp.wire=bf16
unset HD_TEST_COMM
same_bits "bf16 on the wire: the same bits between hosts" 3 near far

# Into other layouts and out of them.
for to in sum two; do
	cp -r one from-one-$to
done
more="--set checkpoint.resume=auto --set train.steps=5"
trained 3 from-one-sum $more --set dp.sync=allreduce
trained 5 from-one-two $more $own=3 --set dp.servers=2 --set train.hash_every=1
same_bits "a server's checkpoint in two layouts: the same run" 5 from-one-sum from-one-two
cp -r sum from-sum
trained 4 from-sum $more $own=3 --set dp.servers=1
same_bits "and a checkpoint without servers goes into one with them" 5 from-one-sum from-sum

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
refused 'zero: 1, and servers = 1' --set dp.sync=server --set dp.servers=1 --set dp.zero=1
refused 'servers: 5, and there are 5 ranks' --set dp.sync=server --set dp.servers=5
refused 'the layout needs 7 ranks, and there are 5' --set dp.sync=server --set dp.servers=3 --set dp.size=4

# A dead server is named.
heddle_mpi 3 train tiny.ini $same $own=2 --set dp.servers=1 --set train.steps=100000 >dead.out 2>&1 &
run=$!
for i in $(seq 100); do
	grep -q "^step" dead.out && break
	sleep 0.1
done
for p in $(pgrep -f "train tiny.ini.*--set train.steps=100000"); do
	if tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -q "^OMPI_COMM_WORLD_RANK=2$" && [ "$(readlink "/proc/$p/cwd")" = "$PWD" ]; then
		kill -9 "$p"
	fi
done
wait $run
is "a run without its server ends" "$([ $? -ne 0 ] && echo yes)" yes
like "and says which" "$(grep heddle: dead.out)" "rank 2 [(]dp server 0[)] is gone"
done_testing
