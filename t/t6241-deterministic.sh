#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train.deterministic: the same INI makes the same bits from a cold cache of timings, from one that says otherwise, and with
# any number of threads; in several layouts and both precisions. Otherwise nobody can tell a defect from a slow moment.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# Rows and columns of more than one piece, sums long enough to be cut among threads.
sed -e '/^\[strategy/,$d' -e 's/^embed.*/embed = 96\ndropout = 0.1/' -e 's/^seq.*/seq = 96/' -e 's/^micro_batch.*/micro_batch = 4/' \
	-e '/^threads/d' tiny.ini >one.ini
printf 'deterministic = yes\n' >>one.ini
with() {			# NAME SECTIONS
	cp one.ini "$1.ini"
	printf "$2" >>"$1.ini"
}
sed '/^dropout/d; s/^family.*/family = mixtral\nexperts = 4\nkv_heads = 2/' one.ini >moe.ini
with dp '[strategy dp]\nplugin = dp\nzero = 1\n'
with hybrid '[strategy tp]\nplugin = tp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 2\n'
with server '[strategy dp]\nplugin = dp\nsync = server\n'

# train TO N INI CACHE [args...]
train() {
	to=$1 n=$2 ini=$3 cache=$4
	shift 4
	XDG_CACHE_HOME=$tmp/caches/$cache heddle_mpi "$n" train "$ini.ini" --set checkpoint.dir="$to" --set log.metrics="$to.jsonl" "$@"
}
# What a run computed, without what it took: losses, norms, weights, states.
bits() {
	sed 's/"lr".*//; s/"time": [0-9.]*, //' "$1.jsonl" && (cd "$1/step-00000003" && cksum model.safetensors heddle/optimizer.safetensors)
}
# Of each product another implementation than was fastest: whoever reads this cache computes other bits.
doctor() {
	for f in "$1"/heddle/*; do
		awk -v says="$2" '/^product:/ { $2 = $2 ~ /gemm:jit/ ? "ab/brg:avx512_core" : "ab/gemm:jit" } /^precision.auto / { $2 = says } { print }' "$f" >.doctored
		mv .doctored "$f"
	done
}

# same NAME N INI [args...]
same() {
	name=$1 n=$2 ini=$3
	shift 3
	ok "$name: trains" train first "$n" "$ini" "cold-$name" --set train.threads=1 "$@"
	want=$(bits first)
	for threads in $(whole_sweep && echo 2) 3; do
		rm -rf again again.jsonl
		ok "$name: again, $threads threads" train again "$n" "$ini" "cold$threads-$name" --set train.threads="$threads" "$@"
		is "$name: the same bits" "$(bits again)" "$want"
	done
	rm -rf first first.jsonl
}

for precision in fp32 bf16; do
	p="--set train.precision=$precision"
	same "one rank, $precision" 1 one $p
	same "experts, $precision" 1 moe $p
	same "zero, $precision" 2 dp $p
	same "tp and pp, $precision" 4 hybrid $p
done
same "server" 3 server --set train.global_batch=12 --set train.micro_batch=2
same "sums between hosts" 2 dp --set train.reduce=rank_order

# A cache that was filled without the key, and then says what no timing would.
for precision in fp32 bf16; do
	p="--set train.precision=$precision --set train.threads=1"
	ok "$precision: fills a cache" train filler 1 one warm --set train.deterministic=no $p
	ok "$precision: cold" train cold 1 one cold $p
	ok "$precision: warm" train warm 1 one warm $p
	is "$precision: a warm cache, the bits of a cold one" "$(bits warm)" "$(bits cold)"
	like "$precision: the cache has choices" "$(cat caches/warm/heddle/*)" '^product:.* ab/'
	doctor caches/warm fp32
	rm -rf warm warm.jsonl filler filler.jsonl
	ok "$precision: from the doctored cache" train warm 1 one warm $p
	is "$precision: the same bits" "$(bits warm)" "$(bits cold)"
	ok "$precision: without the key" train filler 1 one warm --set train.deterministic=no $p
	# A control of what is above: of some products all implementations here have the same bits.
	[ "$(bits filler)" != "$(bits cold)" ] || note "$precision: implementations do not differ in bits here, without the key either"
	rm -rf warm warm.jsonl cold cold.jsonl filler filler.jsonl caches
done

# The precision, by what the processor has and not by a cache that says the other.
ok "auto: cold" train cold 1 one cold --set train.precision=auto
for says in fp32 bf16; do
	train filler 1 one says --set train.precision=auto --set train.deterministic=no >/dev/null 2>&1
	doctor caches/says $says
	rm -rf warm warm.jsonl
	ok "auto: from a cache that says $says" train warm 1 one says --set train.precision=auto
	is "auto: the same bits" "$(bits warm)" "$(bits cold)"
	rm -rf filler filler.jsonl
done
done_testing
