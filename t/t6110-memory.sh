#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory.  What is planned is what a machine is chosen by: a run that takes more dies on the day it matters, and one that
# plans far more than it takes turns machines away.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# A model whose memory matters beside that of the libraries, and whose products are small beside it: 24 layers, 10.8 million
# parameters.  The library of products may copy operands and results: of the largest, 512 x 192 by 192 x 768, 2.5 MB, up to
# four times in what it was seen to choose; and the heap of two runs differs by as much.  MB:
sed -e 's/^layers = .*/layers = 24/' -e 's/^embed = .*/embed = 192/' -e 's/^heads = .*/heads = 6/' -e 's/^seq = .*/seq = 128/' \
	-e 's/^micro_batch = .*/micro_batch = 4/' -e 's/^steps = .*/steps = 2/' -e 's/^eval_batches.*//' tiny.ini |
	sed 's/^train = text.txt/&\nvalid_fraction = 0/' >large.ini
copies=20
# The same nodes and kernels with next to nothing in them: what the program and its libraries take.
small="--set model.embed=12 --set train.seq=8"

# mb TEXT: "1.23 GB" or "45.6 MB" as a number of MB.
mb() { printf '%s\n' "$1" | awk '{ print $2 == "GB" ? $1 * 1000 : $1 }'; }
within() { awk -v g="$2" -v lo="$3" -v hi="$4" 'BEGIN { exit !(g >= lo && g <= hi) }'; tap_result $? "$1" || echo "# $2 is not in $3..$4"; }

# MB of the high-water mark that are not planned.  Of a second run: the first measures kernels.
heddle train large.ini $small >/dev/null 2>&1
own=$(heddle train large.ini $small 2>/dev/null | sed -n 's/^memory: planned \([0-9.]*\) MB, .* mark \([0-9.]*\) MB$/\1 \2/p' |
	awk '{ print $2 - $1 }')
heddle train large.ini >/dev/null 2>&1
out=$(heddle train large.ini 2>/dev/null)
is "trains" $? 0
at_start=$(mb "$(printf '%s\n' "$out" | sed -n 's/^planned memory of this rank: \([0-9.]* .B\);.*/\1/p')")
planned=$(mb "$(printf '%s\n' "$out" | sed -n 's/^memory: planned \([0-9.]* .B\), .*/\1/p')")
peak=$(mb "$(printf '%s\n' "$out" | sed -n 's/^memory: .* mark \([0-9.]* .B\)$/\1/p')")
note "planned $planned MB, high-water mark $peak MB"
like "planned, at the start" "$at_start" '^[0-9]+'
is "and again at the end" "$planned" "$at_start"
within "planned: weights, gradient and two moments, and activations" "$planned" 170 1200
# All that is planned is written to.  Of its own pages a run may leave a quarter that the other touches.
within "the high-water mark is what was planned, and the program's own $own MB" "$peak" \
	"$(awk -v p="$planned" -v o="$own" 'BEGIN { print p + 0.75 * o }')" \
	"$(awk -v p="$planned" -v o="$own" -v c=$copies 'BEGIN { print p + o + c }')"
said=$(heddle check --all large.ini | sed -n 's/.*memory \([0-9.]*\) MB.*/\1/p')
near "check says the same" "$said" "$planned" 0.2

# The first run times the products; what it took for that is given back before the steps: it leaves no more than the program has.
first=$(json "$(XDG_CACHE_HOME="$tmp/fresh" heddle bench large.ini --steps 1 --json 2>/dev/null)" measured_peak_bytes)
again=$(json "$(XDG_CACHE_HOME="$tmp/fresh" heddle bench large.ini --steps 1 --json 2>/dev/null)" measured_peak_bytes)
within "a run that times the products" "$first" 0 "$(awk -v a="$again" -v o="$own" 'BEGIN { print a + o * 1e6 }')"

# What started the program is not counted: here a shell that held 100 MB before it became heddle.
alone=$(json "$(heddle bench tiny.ini --steps 1 --json 2>/dev/null)" measured_peak_bytes)
after=$(json "$(sh -c 'x=$(head -c 100000000 /dev/zero | tr "\0" x); exec "$@"' sh "$build/heddle" bench tiny.ini --steps 1 --json \
	2>/dev/null)" measured_peak_bytes)
within "a large program that became this one" "$after" 1000000 "$(awk -v a="$alone" 'BEGIN { print a + 20e6 }')"

# Ranks of one host read each other's gradients where they are: the system counts these pages for both.
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
ok "pages that both have are each half a rank's own" test "$o" -lt "$((m - gradient / 3))"
within "two ranks: and their neighbours' gradients" "$m" "$(awk -v p="$p" -v o=$own 'BEGIN { print p + 0.75 * o }')" \
	"$(awk -v p="$p" -v o=$own -v c=$copies -v g="$gradient" 'BEGIN { print p + o + c * 1e6 + g }')"

# What the C library keeps of freed buffers is no part of a step: runs of one layout take alike.  Buffers to time products with are
# of up to 16 MB here, and the library would keep twice the largest.
peaks=
for run in 1 2 3 4 5; do
	peaks="$peaks $(json "$(heddle_mpi 2 bench large.ini --steps 1 --json --set model.embed=384 --set model.layers=6 \
		--set train.seq=256 --set dp.size=2 --set dp.zero=3 2>/dev/null)" measured_own_peak_bytes)"
done
note "five runs of one layout:$peaks"
within "runs of one layout differ by less than 8 MB" "$(printf '%s\n' $peaks | sort -n | sed -n '1p;$p' | paste -sd ' ' |
	awk '{ print ($2 - $1) / 1e6 }')" 0 8

# A long context: attention keeps the keys and queries of a head in panels, which no plan of tensors has; in fp32 backward has 5 of
# keys and 3 of queries, each of 1,024 positions x head_dim floats.  They are planned besides.
printf '[model]\nfamily = llama\nlayers = 2\nembed = 128\nheads = 4\n[data]\ntrain = text.txt\nvalid_fraction = 0\n' >long.ini
printf '[train]\nseq = 8192\nglobal_batch = 1\nthreads = 1\nsteps = 1\n[strategy cp]\nplugin = cp\nsize = 4\n' >>long.ini
bench4() { heddle_mpi 4 bench long.ini --steps 1 --json "$@" 2>/dev/null; }
beside() { echo $(($(json "$1" measured_own_peak_bytes) - $(json "$1" planned_peak_bytes))); }
bench4 --set train.seq=64 >/dev/null
own=$(beside "$(bench4 --set train.seq=64)")
bench4 >/dev/null
ran=$(bench4)
note "8,192 tokens on 4 ranks: planned $(json "$ran" planned_peak_bytes), scratch $(json "$ran" kernel_scratch_bytes), own peak $(json "$ran" measured_own_peak_bytes), beside them $own at 64 tokens"
within "attention's panels are counted" "$(json "$ran" kernel_scratch_bytes)" $((8 * 1024 * 32 * 4)) $((8 * 1024 * 32 * 4 + copies * 1000000))
within "a long context takes what is planned, its kernels' scratch, and the program's own" "$(beside "$ran")" 0 $((own + copies * 1000000))
done_testing
