#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train.precision = bf16 as users see it.  Checkpoints do not depend on it, a resumed run has the same bits, and the
# loss is that of fp32.  Messages and memory take half the bytes where they should, and processors without bf16
# instructions train too.  If this broke, users would pay for bf16 with wrong models or gain nothing.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/resumed.sh"

sed '/^\[strategy/,$d' tiny.ini | sed 's/^layers.*/layers = 4/; s/^steps.*/steps = 4/' >one.ini
printf '[checkpoint]\nevery = 2\nkeep = 3\n' >>one.ini
sections() {			# INI PLUGIN...
	cp one.ini "$1"
	to=$1
	shift
	for s; do printf '[strategy %s]\nplugin = %s\nsize = 2\n' "$s" "$s" >>"$to"; done
}
sections tp.ini tp
sections pp.ini pp
sections dp.ini dp
sections hybrid.ini tp dp pp
bf16="--set train.precision=bf16"

# -- checkpoints
ok "fp32 writes its initial checkpoint" train begin32 1 one --set train.steps=0
ok "bf16 writes its initial checkpoint" train begin16 1 one $bf16 --set train.steps=0
ok "... with the same weights and states, bit by bit" same begin32/step-00000000 begin16/step-00000000
ok "one rank trains in fp32" train full 1 one
for layout in one:1 hybrid:8; do
	name=${layout%:*} n=${layout#*:}
	ok "$name: trains in bf16" train "$name" "$n" "$name" $bf16 --set train.micro_batch=1
	ok "$name: resumes from step 2" \
		train "$name-rest" "$n" "$name" $bf16 --set train.micro_batch=1 --set "checkpoint.resume=$name/step-00000002"
	is "$name: ... with the same losses and norms" "$(numbers "$name-rest.jsonl")" "$(after "$name.jsonl" 2)"
	is "$name: ... of two steps" "$(numbers "$name-rest.jsonl" | wc -l | tr -d ' ')" 2
	ok "$name: ... and the same files, bit by bit" same "$name/step-00000004" "$name-rest/step-00000004"
	is "$name: the saved weights have the names, shapes and types of fp32" \
		"$(header "$name/step-00000004/model.safetensors")" \
		"$(header full/step-00000004/model.safetensors)"
	is "$name: ... and so have the optimizer's states" \
		"$(header "$name/step-00000004/heddle/optimizer.safetensors")" \
		"$(header full/step-00000004/heddle/optimizer.safetensors)"
done
# The bound is u sqrt(2 x 20 tensors x 5 blocks) / sqrt(256 tokens), as in t/t1250-bf16-layouts.c.
close_to() {			# NAME A B FROM: after step FROM, losses differ by at most the bound
	after "$2" "$4" | cut -d' ' -f1,2 >.a
	after "$3" "$4" | cut -d' ' -f1,2 >.b
	[ -s .a ] && [ "$(wc -l <.a)" -eq "$(wc -l <.b)" ] && join .a .b | awk '{ d = $2 - $3; if (d < 0) d = -d
		print; if (!(d <= sqrt(200 / 256) / 256 * $2)) bad = 1 } END { exit bad }' >.why
	tap_result $? "$1" || tap_comment <.why
}
close_to "one rank: the losses are close to those of fp32" one.jsonl full.jsonl 0
close_to "hybrid: the losses are close to those of fp32" hybrid.jsonl full.jsonl 0
ok "fp32 resumes from a checkpoint of bf16" train up 1 one --set checkpoint.resume=one/step-00000002
close_to "... with losses close to those of bf16" up.jsonl one.jsonl 2
ok "bf16 resumes from a checkpoint of fp32 in a different layout" \
	train down 2 tp $bf16 --set checkpoint.resume=full/step-00000002
close_to "... with losses close to those of fp32" down.jsonl full.jsonl 2
eval16=$(heddle eval one/step-00000004 --data text.txt)
like "eval prints the loss of a checkpoint of bf16" "$eval16" 'loss [0-9.]+'
near "... which is close to that of fp32" \
	"$(printf '%s\n' "$eval16" | sed -n 's/.*loss \([0-9.]*\).*/\1/p' | head -1)" \
	"$(heddle eval full/step-00000004 --data text.txt | sed -n 's/.*loss \([0-9.]*\).*/\1/p' | head -1)" 0.02
text=$(heddle generate one/step-00000004 --prompt the --tokens 8 2>.ok)
is "generate writes text from a checkpoint of bf16" "$([ ${#text} -gt 4 ] && echo yes)" yes

# -- bytes
said() {			# PATTERN: prints bytes x count, summed over the lines of explain's JSON that match
	printf '%s\n' "$json" | tr '{' '\n' | grep '"collective"' | grep -E -e "$1" | awk '{
		b = $0; sub(/.*"bytes": /, "", b)
		c = $0; sub(/.*"count": /, "", c)
		sum += (b + 0) * (c + 0)
	} END { printf "%d\n", sum }'
}
activations='"unit": "(forward|backward|weight-gradient) layer'
for layout in tp:2 pp:2 dp:2 hybrid:8; do
	name=${layout%:*} n=${layout#*:}
	json=$(heddle explain "$name.ini" --set train.micro_batch=1 --json)
	full=$(said "$activations") all=$(said '"unit": "(sync|update)') weights=$(said '"unit": "gather')
	json=$(heddle explain "$name.ini" --set train.micro_batch=1 --json $bf16)
	is "$name: activations have half the bytes" "$(($(said "$activations") * 2))" "$full"
	is "$name: gradients have the bytes of fp32" "$(said '"unit": "(sync|update)')" "$all"
	is "$name: weights that a different stage reads have half the bytes" \
		"$(($(said '"unit": "gather') * 2))" "$weights"
	ran=$(heddle_mpi "$n" bench "$name.ini" --set train.micro_batch=1 $bf16 --json --steps 1 2>/dev/null)
	[ "$name" = pp ] || [ "$name" = hybrid ] || is "$name: a run sends the bytes that explain prints" \
		"$(json "$ran" bytes_counted)" "$(said .)"
	like "$name: bench prints the precision" "$ran" '"precision": "bf16"'
done

# Between hosts, bf16 terms are added in fp32 too, so sums in the order of the members have the same bits.  Both runs
# are deterministic, since timing would choose different kernels.
order="$bf16 --set train.reduce=rank_order --set train.deterministic=yes"
ok "tp trains on one host" train shm 2 tp $order
HD_TEST_COMM=mpi
export HD_TEST_COMM
ok "tp trains between hosts" train net 2 tp $order
json=$(heddle explain tp.ini --json $bf16)
is "between hosts: a run sends the bytes that explain prints" \
	"$(json "$(heddle_mpi 2 bench tp.ini $bf16 --json --steps 1 2>/dev/null)" bytes_counted)" "$(said .)"
unset HD_TEST_COMM
is "between hosts: the losses and norms are those of one host" "$(numbers net.jsonl)" "$(numbers shm.jsonl)"

# Experts with rows and with places; each rank holds some of them.
sections ep.ini ep
for kind in "rows:--set model.family=mixtral" "places:--set model.moe_every=2"; do
	keys="${kind#*:} --set model.experts=4" kind=${kind%%:*}
	json=$(heddle explain ep.ini $keys --json)
	full=$(said '"collective": "all-to-all')
	json=$(heddle explain ep.ini $keys --json $bf16)
	is "experts, $kind: tokens have half the bytes" "$(($(said '"collective": "all-to-all') * 2))" "$full"
	ok "experts, $kind: ... which are more than 0" [ "$full" -gt 0 ]
	ok "experts, $kind: trains" train "ep-$kind" 2 ep $bf16 $keys
	ok "experts, $kind: resumes from step 2" \
		train "ep-$kind-rest" 2 ep $bf16 $keys --set "checkpoint.resume=ep-$kind/step-00000002"
	ok "experts, $kind: ... with the same files, bit by bit" \
		same "ep-$kind/step-00000004" "ep-$kind-rest/step-00000004"
done

# -- a strategy that shards only the optimizer's state.  Masters are sharded with it, updates run on the shards, and the
# result is sent back in bf16.  The update sends half of each weight that can be divided.
{
	cat one.ini
	printf '[strategy m]\nplugin = %s\naxes = a:2\nrules = batch>a\n' "$build/t/plugins/.libs/rules.so"
} >plain.ini
{ cat plain.ini; echo 'states = a'; } >states.ini
memory() { heddle check --all "$1" $2 | sed -n 's/^rank 0.*parameters and state \([0-9.]*\),.*/\1/p'; }
params=$(heddle check --all plain.ini | sed -n 's/^rank 0.*: \([0-9]*\) parameters.*/\1/p')
norms=$(((2 * 4 + 1) * 2 * 32))
near "sharded states: 2 bytes a parameter, and half of 12" "$(memory states.ini "$bf16")" \
	"$(awk -v p="$params" -v n=$norms 'BEGIN { print (8 * p) / 1e6 }')" 0.06
json=$(heddle explain states.ini --json)
back=$(said '"unit": "update')
json=$(heddle explain states.ini --json $bf16)
near "sharded states: half the bytes are sent back" \
	"$(said '"unit": "update')" "$(awk -v b="$back" -v n=$norms 'BEGIN { print b / 2 + n }')" \
	$((norms + 64))
alone="$bf16 --set train.deterministic=yes"
ok "sharded states: trains" train states 2 states $alone
ok "replicated states: trains" train plain 2 plain $alone
is "sharded states: the losses are those of replicated states" \
	"$(numbers states.jsonl | cut -d' ' -f1,2)" "$(numbers plain.jsonl | cut -d' ' -f1,2)"
ok "sharded states: the files are the same, bit by bit" same states/step-00000004 plain/step-00000004

# -- memory of a parameter: 2 bytes for itself + 4 + 4 + 4 bytes; 12 bytes for parameters of norms
sed -e 's/^layers = .*/layers = 6/' -e 's/^embed = .*/embed = 384/' -e 's/^heads = .*/heads = 6/' -e 's/^seq = .*/seq = 256/' \
	-e 's/^micro_batch = .*/micro_batch = 8/' -e 's/^steps = .*/steps = 2/' -e 's/^eval_batches.*//' -e '/^\[strategy/,$d' \
	-e 's/^train = text.txt/&\nvalid_fraction = 0/' tiny.ini >large.ini
state() { sed -n 's/.*parameters and state \([0-9.]*\),.*/\1/p'; }
step() { sed -n 's/.*within a step \([0-9.]*\)[,)].*/\1/p'; }
c32=$(heddle check --all large.ini) c16=$(heddle check --all large.ini $bf16)
params=$(printf '%s\n' "$c16" | sed -n 's/^rank 0.*: \([0-9]*\) parameters.*/\1/p')
norms=$(((2 * 6 + 1) * 2 * 384))
near "bf16: 14 bytes a parameter, 12 for those of norms" "$(printf '%s\n' "$c16" | state)" \
	"$(awk -v p="$params" -v n=$norms 'BEGIN { print (14 * p - 2 * n) / 1e6 }')" 0.3
near "fp32: 12 bytes a parameter" \
	"$(printf '%s\n' "$c32" | state)" "$(awk -v p="$params" 'BEGIN { print 12 * p / 1e6 }')" 0.3
# With one micro-batch, memory peaks at the end of forward, before any gradient exists.  It contains activations, and
# the statistics of norms, attention and loss, which stay fp32.  These are 2 for each 384, 1 for 64 and 6 for 256
# elements.
near "activations take half the memory" \
	"$(printf '%s\n' "$c16" | step)" "$(printf '%s\n' "$c32" | step | awk '{ print $1 / 2 }')" \
	"$(printf '%s\n' "$c32" | step | awk '{ print $1 / 2 * (1 / 192 + 1 / 64 + 6 / 256) }')"
# A run needs more than the plan: the program's own memory, measured with the same nodes and almost empty tensors.  The
# library of products also copies operands and results, up to four times; the largest is 2048 x 1536 in fp32, 12.6 MB.
# Second runs are measured, since first ones time kernels.
small="--set model.embed=12 --set train.seq=8"
heddle bench large.ini $bf16 $small --steps 1 --json >/dev/null 2>&1
ran=$(heddle bench large.ini $bf16 $small --steps 1 --json 2>/dev/null)
own=$(($(json "$ran" measured_peak_bytes) - $(json "$ran" planned_peak_bytes)))
heddle bench large.ini $bf16 --steps 1 --json >/dev/null 2>&1
ran=$(heddle bench large.ini $bf16 --steps 1 --json 2>/dev/null)
p=$(json "$ran" planned_peak_bytes) m=$(json "$ran" measured_peak_bytes)
note "planned $p, measured $m, of the program itself $own"
awk -v p="$p" -v m="$m" -v o="$own" 'BEGIN { exit !(m >= p && m <= p + o + 4 * 2048 * 1536 * 4) }'
tap_result $? "the high-water mark is at least the plan, and at most that plus the libraries' memory" \
	|| echo "# $m for $p"

# -- processors without bf16 instructions: the losses are the same within the bound, and check says that bf16 is slow
like "check prints that bf16 is used" "$c16" '^precision bf16'
unlike "... and does not mention it for fp32" "$c32" 'bf16'
like "check notes that a processor has no bf16 instructions" \
	"$(DNNL_MAX_CPU_ISA=AVX2 heddle check large.ini $bf16)" '^note: this processor has no instructions for bf16'
DNNL_MAX_CPU_ISA=AVX2 heddle train one.ini $bf16 --set log.metrics=avx2.jsonl >/dev/null 2>.ok
is "such a processor trains in bf16" $? 0
close_to "... and its losses are close to those of fp32" avx2.jsonl full.jsonl 0

# -- auto: the precision is measured once, and a resumed run keeps it
auto="--set train.precision=auto"
picked() { sed -n 's/.*precision\.auto \([a-z0-9]*\).*/\1/p' "$1/heddle/state.json"; }
said=$(train auto 2 dp $auto 2>&1)
is "auto: trains" $? 0
like "auto: the run prints the precision that it chose" "$said" '^precision (bf16|fp32): measured as the faster'
like "auto: the checkpoint contains the precision that rank 0 measured as faster" \
	"$(picked auto/step-00000002)" '^(bf16|fp32)$'
case $(picked auto/step-00000002) in bf16) other=fp32 ;; *) other=bf16 ;; esac
sed "s/precision\.auto [a-z0-9]*/precision.auto $other/" auto/step-00000002/heddle/state.json >.state
cp .state auto/step-00000002/heddle/state.json
rm auto/step-00000002/heddle/sums.json
ok "auto: resumes from a checkpoint with the other precision" \
	train auto-rest 2 dp $auto --set checkpoint.resume=auto/step-00000002
is "auto: ... and keeps the precision of the checkpoint" "$(picked auto-rest/step-00000004)" "$other"
ok "auto: a run that gives this precision resumes too" \
	train said 2 dp --set train.precision=$other --set checkpoint.resume=auto/step-00000002
is "auto: ... with the same losses and norms" "$(numbers auto-rest.jsonl)" "$(numbers said.jsonl)"
like "auto: check notes that a run measures it" "$(heddle check dp.ini $auto)" '^note: train.precision = auto'
like "cuda: bf16 is the default" "$(heddle check one.ini --set train.device=cuda)" '^precision bf16'
unlike "cuda: ... unless fp32 is given" \
	"$(heddle check one.ini --set train.device=cuda --set train.precision=fp32)" 'bf16'

# -- the end of a longer run.  The direction of each step is off by at most e = u sqrt(2 x 20 x 5) of its length.  So to
# first order the decrease of the loss is off by that share, and the loss itself by the error of a single evaluation.
last() { numbers "$1" | tail -1 | cut -d' ' -f2; }
for p in fp32 bf16; do
	heddle train one.ini --set train.steps=80 --set train.precision=$p --set log.metrics=long-$p.jsonl >/dev/null 2>&1
done
from=$(numbers long-fp32.jsonl | head -1 | cut -d' ' -f2) to=$(last long-fp32.jsonl)
near "the loss after 80 steps is close to that of fp32" "$(last long-bf16.jsonl)" "$to" "$(awk -v a="$from" -v b="$to" \
	'BEGIN { u = 1 / 256; print u * sqrt(200) * (a - b) + u * sqrt(200 / 256) * b }')"
note "from $from: fp32 $to, bf16 $(last long-bf16.jsonl)"
awk -v a="$from" -v b="$to" 'BEGIN { exit !(b < a / 2) }'
tap_result $? "... which is less than half of the initial loss"
done_testing
