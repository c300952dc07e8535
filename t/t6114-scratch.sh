#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The scratch that kernels take for values of one launch must be known before any of them is prepared.  If this broke, a
# rank would take more than check, plan and refusals report: with long sequences as much as everything else.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# Prints the largest scratch of all stages, as check reports it.
planned() {
	heddle check --json "$@" 2>&1 | grep -o '"scratch_bytes": *[0-9]*' | sed 's/.*: *//' | sort -n | tail -n 1
}
# same NAME RANKS INI SETS: check plans the scratch that the kernels of a run have, on the rank with the most.
same() {
	name=$1 n=$2 conf=$3
	shift 3
	want=$(planned "$conf" --ranks "$n" --set train.threads=2 "$@")
	if [ "$n" = 1 ]; then
		said=$(heddle bench "$conf" --steps 1 --json --set train.threads=2 "$@" 2>err)
	else
		said=$(heddle_mpi "$n" bench "$conf" --steps 1 --json --set train.threads=2 "$@" 2>err)
	fi
	is "$name: a run has the scratch that check plans" \
		"$(json "$said" kernel_scratch_bytes)" "$want" || tap_comment <err
	ok "$name: it is not 0" test "${want:-0}" -gt 0
}

model() {	# FAMILY-LINES EMBED SEQ MICRO
	printf '[model]\n%blayers = 2\nembed = %s\nheads = 4\n[data]\ntrain = text.txt\nvalid_fraction = 0\n' "$1" "$2"
	printf '[train]\nseq = %s\nglobal_batch = 4\nmicro_batch = %s\nsteps = 1\n' "$3" "$4"
}
model 'family = gpt2\n' 64 96 2 >gpt2.ini
model 'family = llama\nkv_heads = 2\nmlp = 160\n' 64 100 1 >llama.ini
model 'family = mixtral\nkv_heads = 2\nmlp = 80\nexperts = 4\nexperts_per_token = 2\n' 64 64 2 >experts.ini

for precision in fp32 bf16; do
	for m in gpt2 llama experts; do
		same "$m in $precision" 1 $m.ini --set train.precision=$precision
	done
	same "deterministic products in $precision" \
		1 llama.ini --set train.precision=$precision --set train.deterministic=yes
done
same "experts without a limit, in bf16" 1 experts.ini --set train.precision=bf16 --set model.capacity_factor=0
same "full recomputation" 1 gpt2.ini --set train.recompute=full

layout() { cat "$1"; shift; printf '[strategy %s]\nplugin = %s\nsize = 2\n' "$1" "$1"; [ -z "$2" ] || printf '%b' "$2"; }
layout llama.ini tp >tp.ini
layout llama.ini pp >pp.ini
layout llama.ini cp 'form = ring\nbalance = zigzag\n' >ring.ini
layout llama.ini cp 'form = ulysses\n' >ulysses.ini
layout gpt2.ini dp 'zero = 2\n' >zero.ini
for l in tp pp ring ulysses zero; do
	same "$l, two ranks" 2 $l.ini
done
same "ring in bf16, two ranks" 2 ring.ini --set train.precision=bf16

# The scratch is part of what is planned, refused and printed.
all=$(heddle check --json gpt2.ini --set train.threads=2)
is "check counts the scratch" \
	"$(json "$all" memory_bytes)" $(($(json "$all" persistent_bytes) + $(json "$all" transient_bytes) + \
	$(json "$all" scratch_bytes)))
like "... and prints it" "$(heddle check gpt2.ini)" ', scratch of kernels [0-9.]+ [KM]B\)'
fails "--memory counts the scratch" \
	heddle check gpt2.ini --set train.threads=2 --memory $(($(json "$all" memory_bytes) - 1))
ok "... and no more" heddle check gpt2.ini --set train.threads=2 --memory "$(json "$all" memory_bytes)"
ran=$(heddle bench gpt2.ini --steps 1 --json --set train.threads=2 2>/dev/null)
near "a run plans the same memory, in whole pages" \
	"$(json "$ran" planned_peak_bytes)" "$(json "$all" memory_bytes)" 8192
more=$(json "$(heddle check --json gpt2.ini --set train.threads=4)" scratch_bytes)
ok "more threads take more scratch" test "$more" -gt "$(json "$all" scratch_bytes)"
is "the kernels of a GPU have theirs in its own memory" \
	"$(json "$(heddle check --json gpt2.ini --set train.device=cuda)" scratch_bytes)" 0
done_testing
