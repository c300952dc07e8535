#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With train.deterministic, an INI gives the same bits from a cold cache of timings and from one with different choices.
# The same holds for any number of threads, in several layouts and both precisions. Otherwise nobody could tell a defect
# from the effect of timing.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# Rows and columns have more than one piece, and sums are long enough to be divided among threads.
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
# Prints what a run computed, without times: losses, norms, weights, states.
bits() {
	sed 's/"lr".*//; s/"time": [0-9.]*, //' "$1.jsonl" && (cd "$1/step-00000003" && cksum model.safetensors heddle/optimizer.safetensors)
}
# Replaces the implementation chosen for each product by a different one: a run that reads this cache computes other
# bits.
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
	ok "$name: trains with 1 thread" train first "$n" "$ini" "cold-$name" --set train.threads=1 "$@"
	want=$(bits first)
	for threads in $(whole_sweep && echo 2) 3; do
		rm -rf again again.jsonl
		ok "$name: trains with $threads threads" \
			train again "$n" "$ini" "cold$threads-$name" --set train.threads="$threads" "$@"
		is "$name: $threads threads compute the bits of 1" "$(bits again)" "$want"
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

# A cache that was filled without the key, and then changed to choices that no timing would make.
for precision in fp32 bf16; do
	p="--set train.precision=$precision --set train.threads=1"
	ok "$precision: a run without the key fills a cache" train filler 1 one warm --set train.deterministic=no $p
	ok "$precision: trains with a cold cache" train cold 1 one cold $p
	ok "$precision: trains with a warm cache" train warm 1 one warm $p
	is "$precision: a warm cache gives the bits of a cold one" "$(bits warm)" "$(bits cold)"
	like "$precision: the cache contains choices" "$(cat caches/warm/heddle/*)" '^product:.* ab/'
	doctor caches/warm fp32
	rm -rf warm warm.jsonl filler filler.jsonl
	ok "$precision: trains with the doctored cache" train warm 1 one warm $p
	is "$precision: ... which gives the same bits" "$(bits warm)" "$(bits cold)"
	ok "$precision: trains with the doctored cache and without the key" \
		train filler 1 one warm --set train.deterministic=no $p
	# A control of the checks above.  For some products, all implementations on this computer have the same bits.
	[ "$(bits filler)" != "$(bits cold)" ] || note "$precision: the same bits without the key, since implementations do not differ here"
	rm -rf warm warm.jsonl cold cold.jsonl filler filler.jsonl caches
done

# precision = auto depends on the processor, and not on a cache with the other precision.
ok "auto: trains with a cold cache" train cold 1 one cold --set train.precision=auto
for says in fp32 bf16; do
	train filler 1 one says --set train.precision=auto --set train.deterministic=no >/dev/null 2>&1
	doctor caches/says $says
	rm -rf warm warm.jsonl
	ok "auto: trains with a cache that says $says" train warm 1 one says --set train.precision=auto
	is "auto: ... which gives the bits of a cold cache ($says)" "$(bits warm)" "$(bits cold)"
	rm -rf filler filler.jsonl
done
done_testing
