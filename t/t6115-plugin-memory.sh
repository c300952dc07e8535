#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The memory of a plugin's kernels must be planned: what each launch keeps (alloc), and the scratch that all of them
# share (slot scratch).  Otherwise a plugin with large buffers would pass check, and die on the cluster.  The plugin is
# examples/squared-relu with both.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# built NAME FLAGS...: builds a kernel that keeps and writes KEPT bytes.  It also writes its scratch, a float for each
# element and thread, and BEYOND bytes more.
sed -e 's|a->alloc(a, sizeof(\*s));|a->alloc(a, sizeof(*s) + KEPT);|' -e 's|\.run = run_ \\|.run = run_, .scratch = scratch \\|' \
	-e 's|^\ta->state = s;|\tmemset(s + 1, 1, KEPT);\n&|' -e 's|^static int run_cpu.*|static int64_t scratch(struct hd_strategy *self, const struct hd_kernel_prepare *a)\n{\n\tint64_t n = a->threads;\n\n\t(void)self;\n\tfor (uint32_t d = 0; d < a->ins[0]->ndim; d++)\n\t\tn *= a->ins[0]->n[d];\n\treturn SCRATCH;\n}\n\n&|' \
	-e 's|^\tvoid \*out = a->outs\[0\];|&\n\n\tif (SCRATCH_USED)\n\t\tmemset(a->scratch, 1, (size_t)(s->n * 4 * a->threads) + BEYOND);|' "$src/examples/squared-relu/squared_relu.c" >changed.c
built() {
	to=$1
	shift
	mkdir -p "$to"
	"${CC:-cc}" -std=gnu11 -O1 -fopenmp -fPIC -shared -fvisibility=hidden -I"$src/include" -I"$src/examples/squared-relu" "$@" \
		-o "$to/squared_relu.so" changed.c
}
ok "a kernel that takes no memory is built" built none -DKEPT=0 -DSCRATCH='n*0' -DSCRATCH_USED=0 -DBEYOND=0
ok "a kernel that keeps memory is built" built kept -DKEPT=1000000 -DSCRATCH='n*0' -DSCRATCH_USED=0 -DBEYOND=0
ok "a kernel with scratch is built" built scratch -DKEPT=0 -DSCRATCH='n*4' -DSCRATCH_USED=1 -DBEYOND=0
ok "a kernel that writes beyond its scratch is built" built beyond -DKEPT=0 -DSCRATCH='n*4' -DSCRATCH_USED=1 -DBEYOND=1
ok "a kernel with scratch of a negative size is built" \
	built negative -DKEPT=0 -DSCRATCH='-5+0*n' -DSCRATCH_USED=0 -DBEYOND=0

printf '[model]\nfamily = gpt2\nlayers = 2\nembed = 32\nheads = 4\nmlp = 2048\n[data]\ntrain = text.txt\nvalid_fraction = 0\n' >model.ini
printf '[train]\nseq = 32\nglobal_batch = 4\nmicro_batch = 2\nsteps = 1\n[plugin relu]\n' >>model.ini
for p in none kept scratch beyond negative; do
	{ cat model.ini; echo "file = ./$p/squared_relu.so"; } >$p.ini
done
check() { heddle check "$1.ini" --json --set train.threads="$2"; }
bench() { heddle bench "$1.ini" --steps 1 --json --set train.threads="$2" 2>/dev/null; }

# Two layers, forward and backward: four launches, of 2 x 32 x 2048 elements.
n=$((2 * 32 * 2048))
for threads in 1 2; do
	base=$(check none $threads)
	is "what launches keep adds up, $threads threads" $(($(json "$(check kept $threads)" scratch_bytes) - $(json "$base" scratch_bytes))) 4000000
	is "scratch is planned once, for each of $threads threads" \
		$(($(json "$(check scratch $threads)" scratch_bytes) - $(json "$base" scratch_bytes))) $((n * 4 * threads))
done
is "what launches keep is part of the memory" \
	$(($(json "$(check kept 1)" memory_bytes) - $(json "$(check none 1)" memory_bytes))) 4000000
for p in kept scratch; do
	is "a run takes what is planned: $p" "$(json "$(bench $p 2)" kernel_scratch_bytes)" "$(json "$(check $p 2)" scratch_bytes)"
done
of() { json "$(bench "$1" 1)" "$2"; }
of none startup_seconds >/dev/null # the first run measures kernels
none=$(of none measured_own_peak_bytes)
kept=$(of kept measured_own_peak_bytes)
note "the process: $none bytes without, $kept with"
ok "the system counts what launches keep" test $((kept - none)) -gt 3500000
fails "--memory counts what launches keep" \
	heddle check kept.ini --set train.threads=1 --memory $(($(json "$(check kept 1)" memory_bytes) - 1))

# An evaluation has two launches of its own, forward only.
planned() {
	heddle train "$1.ini" --set data.valid_fraction=0.2 --set train.eval_batches=1 --set train.threads=1 2>&1 |
		sed -n 's/^memory: planned \([0-9.]*\) MB.*/\1/p'
}
near "training and evaluation keep their memory at the same time" \
	"$(awk -v a="$(planned kept)" -v b="$(planned none)" 'BEGIN { print a - b }')" 6 0.11

out=$(heddle train beyond.ini --set train.threads=1 2>&1)
ok "a kernel that writes beyond its scratch is stopped" test $? -ne 0
like "... and named" "$out" '\[relu\]: kernel squared_relu ended by signal SIGSEGV'
out=$(heddle check negative.ini 2>&1)
ok "a negative size is refused" test $? -ne 0
like "... with the kernel and the number" "$out" 'kernel squared_relu of \[relu\]: scratch returned -5 bytes'
done_testing
