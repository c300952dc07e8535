#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory.  Machines are chosen by the planned memory.  A run that takes more dies on the day it matters, and a plan of
# far more than the run takes rules out machines.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# A model whose memory is large compared with that of the libraries, and whose products are small: 24 layers, 10.8
# million parameters.  The matmul library may copy operands and results.  Those of the largest product, 512 x 192 by 192
# x 768, have 2.5 MB, which it was seen to copy up to four times.  The heaps of two runs differ by as much.  In MB:
sed -e 's/^layers = .*/layers = 24/' -e 's/^embed = .*/embed = 192/' -e 's/^heads = .*/heads = 6/' -e 's/^seq = .*/seq = 128/' \
	-e 's/^micro_batch = .*/micro_batch = 4/' -e 's/^steps = .*/steps = 2/' -e 's/^eval_batches.*//' tiny.ini |
	sed 's/^train = text.txt/&\nvalid_fraction = 0/' >large.ini
copies=20
# The same nodes and kernels with tiny tensors show what the program and its libraries take.
small="--set model.embed=12 --set train.seq=8"

# mb TEXT: "1.23 GB" or "45.6 MB" as a number of MB.
mb() { printf '%s\n' "$1" | awk '{ print $2 == "GB" ? $1 * 1000 : $1 }'; }
within() { awk -v g="$2" -v lo="$3" -v hi="$4" 'BEGIN { exit !(g >= lo && g <= hi) }'; tap_result $? "$1" || echo "# $2 is not in $3..$4"; }

# MB of the high-water mark that are not planned, in a second run, since the first measures kernels.
heddle train large.ini $small >/dev/null 2>&1
own=$(heddle train large.ini $small 2>/dev/null | sed -n 's/^memory: planned \([0-9.]*\) MB, .* mark \([0-9.]*\) MB$/\1 \2/p' |
	awk '{ print $2 - $1 }')
heddle train large.ini >/dev/null 2>&1
out=$(heddle train large.ini 2>/dev/null)
is "the large model trains" $? 0
at_start=$(mb "$(printf '%s\n' "$out" | sed -n 's/^planned memory of this rank: \([0-9.]* .B\);.*/\1/p')")
planned=$(mb "$(printf '%s\n' "$out" | sed -n 's/^memory: planned \([0-9.]* .B\), .*/\1/p')")
peak=$(mb "$(printf '%s\n' "$out" | sed -n 's/^memory: .* mark \([0-9.]* .B\)$/\1/p')")
note "planned $planned MB, high-water mark $peak MB"
like "the planned memory is printed at the start" "$at_start" '^[0-9]+'
is "... and again at the end" "$planned" "$at_start"
within "the plan has weights, gradient, two moments and activations" "$planned" 170 1200
# All planned memory is written to.  Of the program's own pages, a run may leave a quarter untouched that the other
# touches.
within "the high-water mark is the planned memory and the program's own $own MB" "$peak" \
	"$(awk -v p="$planned" -v o="$own" 'BEGIN { print p + 0.75 * o }')" \
	"$(awk -v p="$planned" -v o="$own" -v c=$copies 'BEGIN { print p + o + c }')"
said=$(heddle check --all large.ini | sed -n 's/.*memory \([0-9.]*\) MB.*/\1/p')
near "check prints the same plan" "$said" "$planned" 0.2

# The first run times the products, and gives that memory back before the steps, except for as much as the program's
# own.
first=$(json "$(XDG_CACHE_HOME="$tmp/fresh" heddle bench large.ini --steps 1 --json 2>/dev/null)" measured_peak_bytes)
again=$(json "$(XDG_CACHE_HOME="$tmp/fresh" heddle bench large.ini --steps 1 --json 2>/dev/null)" measured_peak_bytes)
within "a run that times the products gives the memory back" \
	"$first" 0 "$(awk -v a="$again" -v o="$own" 'BEGIN { print a + o * 1e6 }')"

# Memory of what started the program is not counted, here of a shell that held 100 MB before it became heddle.
alone=$(json "$(heddle bench tiny.ini --steps 1 --json 2>/dev/null)" measured_peak_bytes)
after=$(json "$(sh -c 'x=$(head -c 100000000 /dev/zero | tr "\0" x); exec "$@"' sh "$build/heddle" bench tiny.ini --steps 1 --json \
	2>/dev/null)" measured_peak_bytes)
within "the memory of a shell that became the program is not counted" \
	"$after" 1000000 "$(awk -v a="$alone" 'BEGIN { print a + 20e6 }')"

# Ranks of one host read each other's gradients in place, and the system counts these pages for both.
bench2() { heddle_mpi 2 bench large.ini --steps 1 --json "$@" 2>/dev/null; }
bench2 $small >/dev/null
ran=$(bench2 $small)
own=$(($(json "$ran" measured_peak_bytes) - $(json "$ran" planned_peak_bytes)))
bench2 >/dev/null
ran=$(bench2)
p=$(json "$ran" planned_peak_bytes)
m=$(json "$ran" measured_peak_bytes)
gradient=$(heddle check --all large.ini | sed -n 's/^rank 0.*: \([0-9]*\) parameters.*/\1/p' | awk '{ print 4 * $1 }')
note "two ranks: planned $p, measured $m"
o=$(json "$ran" measured_own_peak_bytes)
ok "pages that two ranks share count half for each" test "$o" -lt "$((m - gradient / 3))"
within "two ranks: the high-water mark includes the neighbour's gradients" \
	"$m" "$(awk -v p="$p" -v o=$own 'BEGIN { print p + 0.75 * o }')" \
	"$(awk -v p="$p" -v o=$own -v c=$copies -v g="$gradient" 'BEGIN { print p + o + c * 1e6 + g }')"

# Freed buffers that the C library keeps must not count for a step, so that runs of one layout take the same memory.
# The buffers for timing products have up to 16 MB here, and the library would keep twice the largest.
peaks= runs="1 2 3"
! whole_sweep || runs="$runs 4 5"
for run in $runs; do
	peaks="$peaks $(json "$(heddle_mpi 2 bench large.ini --steps 1 --json --set model.embed=384 --set model.layers=3 \
		--set train.seq=256 --set dp.size=2 --set dp.zero=3 2>/dev/null)" measured_own_peak_bytes)"
done
note "runs of one layout:$peaks"
within "runs of one layout differ by less than 8 MB" "$(printf '%s\n' $peaks | sort -n | sed -n '1p;$p' | paste -sd ' ' |
	awk '{ print ($2 - $1) / 1e6 }')" 0 8

# A long context: attention keeps the keys and queries of a head in panels, which are not tensors of the plan.  In fp32,
# backward has 5 of keys and 3 of queries, each of 512 positions x head_dim floats.  They are planned in addition.
printf '[model]\nfamily = llama\nlayers = 2\nembed = 128\nheads = 4\n[data]\ntrain = text.txt\nvalid_fraction = 0\n' >long.ini
printf '[train]\nseq = 4096\nglobal_batch = 1\nthreads = 1\nsteps = 1\n[strategy cp]\nplugin = cp\nsize = 4\n' >>long.ini
bench4() { heddle_mpi 4 bench long.ini --steps 1 --json "$@" 2>/dev/null; }
beside() { echo $(($(json "$1" measured_own_peak_bytes) - $(json "$1" planned_peak_bytes))); }
bench4 --set train.seq=64 >/dev/null
own=$(beside "$(bench4 --set train.seq=64)")
bench4 >/dev/null
ran=$(bench4)
note "4,096 tokens on 4 ranks: planned $(json "$ran" planned_peak_bytes), scratch $(json "$ran" kernel_scratch_bytes), own peak $(json "$ran" measured_own_peak_bytes), the program's own $own at 64 tokens"
within "attention's panels are counted" "$(json "$ran" kernel_scratch_bytes)" $((8 * 512 * 32 * 4)) $((8 * 512 * 32 * 4 + copies * 1000000))
within "a long context takes the planned memory, its kernels' scratch and the program's own" \
	"$(beside "$ran")" 0 $((own + copies * 1000000))
done_testing
