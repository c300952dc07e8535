#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train.precision = bf16 as users meet it: checkpoints that know nothing of it, a run that goes on to the bit, half the bytes
# on the way and in memory where they should be half, the loss of fp32, and machines without instructions for it.
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
ok "fp32 begins" train begin32 1 one --set train.steps=0
ok "bf16 begins" train begin16 1 one $bf16 --set train.steps=0
ok "with the same weights, and states, bit by bit" same begin32/step-00000000 begin16/step-00000000
ok "fp32" train full 1 one
for layout in one:1 hybrid:8; do
	name=${layout%:*} n=${layout#*:}
	ok "$name" train "$name" "$n" "$name" $bf16 --set train.micro_batch=1
	ok "$name: resumed" train "$name-rest" "$n" "$name" $bf16 --set train.micro_batch=1 --set "checkpoint.resume=$name/step-00000002"
	is "$name: the same losses and norms" "$(numbers "$name-rest.jsonl")" "$(after "$name.jsonl" 2)"
	is "$name: two of them" "$(numbers "$name-rest.jsonl" | wc -l | tr -d ' ')" 2
	ok "$name: the same files, bit by bit" same "$name/step-00000004" "$name-rest/step-00000004"
	is "$name: names, shapes and types of fp32" "$(header "$name/step-00000004/model.safetensors")" \
		"$(header full/step-00000004/model.safetensors)"
	is "$name: of the optimizer too" "$(header "$name/step-00000004/heddle/optimizer.safetensors")" \
		"$(header full/step-00000004/heddle/optimizer.safetensors)"
done
# u sqrt(2 x 20 tensors x 5 blocks) / sqrt(256 tokens): t/t1250-bf16-layouts.c
close_to() {			# NAME A B FROM: losses within the bound
	after "$2" "$4" | cut -d' ' -f1,2 >.a
	after "$3" "$4" | cut -d' ' -f1,2 >.b
	[ -s .a ] && [ "$(wc -l <.a)" -eq "$(wc -l <.b)" ] && join .a .b | awk '{ d = $2 - $3; if (d < 0) d = -d
		print; if (!(d <= sqrt(200 / 256) / 256 * $2)) bad = 1 } END { exit bad }' >.why
	tap_result $? "$1" || tap_comment <.why
}
close_to "the losses of fp32" one.jsonl full.jsonl 0
close_to "the hybrid's too" hybrid.jsonl full.jsonl 0
ok "fp32 goes on with a checkpoint of bf16" train up 1 one --set checkpoint.resume=one/step-00000002
close_to "with its losses" up.jsonl one.jsonl 2
ok "and bf16 with one of fp32, in another layout" train down 2 tp $bf16 --set checkpoint.resume=full/step-00000002
close_to "with its losses too" down.jsonl full.jsonl 2
eval16=$(heddle eval one/step-00000004 --data text.txt)
like "a checkpoint is evaluated" "$eval16" 'loss [0-9.]+'
near "as it was in training" "$(printf '%s\n' "$eval16" | sed -n 's/.*loss \([0-9.]*\).*/\1/p' | head -1)" \
	"$(heddle eval full/step-00000004 --data text.txt | sed -n 's/.*loss \([0-9.]*\).*/\1/p' | head -1)" 0.02
text=$(heddle generate one/step-00000004 --prompt the --tokens 8 2>.ok)
is "and makes text" "$([ ${#text} -gt 4 ] && echo yes)" yes

# -- bytes
said() {			# PATTERN: bytes x count of explain's JSON, of the lines that match
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
	is "$name: half the bytes of activations" "$(($(said "$activations") * 2))" "$full"
	is "$name: gradients as in fp32" "$(said '"unit": "(sync|update)')" "$all"
	is "$name: half the bytes of weights that another stage reads" "$(($(said '"unit": "gather') * 2))" "$weights"
	ran=$(heddle_mpi "$n" bench "$name.ini" --set train.micro_batch=1 $bf16 --json --steps 1 2>/dev/null)
	[ "$name" = pp ] || [ "$name" = hybrid ] || is "$name: sent as explained" "$(json "$ran" bytes_counted)" "$(said .)"
	like "$name: bench says the precision" "$ran" '"precision": "bf16"'
done

# Between hosts: what is reduced in bf16 is added in fp32 there too, so sums in the order of the members are the same bits.
# Two runs of their own: what timing chooses would differ.
order="$bf16 --set train.reduce=rank_order --set train.deterministic=yes"
ok "tp on one host" train shm 2 tp $order
HD_TEST_COMM=mpi
export HD_TEST_COMM
ok "tp between hosts" train net 2 tp $order
json=$(heddle explain tp.ini --json $bf16)
is "between hosts: sent as explained" "$(json "$(heddle_mpi 2 bench tp.ini $bf16 --json --steps 1 2>/dev/null)" bytes_counted)" "$(said .)"
unset HD_TEST_COMM
is "between hosts: the same losses and norms" "$(numbers net.jsonl)" "$(numbers shm.jsonl)"

# Experts: rows and places, over ranks that hold some of them each.
sections ep.ini ep
for kind in "rows:--set model.family=mixtral" "places:--set model.moe_every=2"; do
	keys="${kind#*:} --set model.experts=4" kind=${kind%%:*}
	json=$(heddle explain ep.ini $keys --json)
	full=$(said '"collective": "all-to-all')
	json=$(heddle explain ep.ini $keys --json $bf16)
	is "experts, $kind: half the bytes of tokens" "$(($(said '"collective": "all-to-all') * 2))" "$full"
	ok "experts, $kind: something is sent" [ "$full" -gt 0 ]
	ok "experts, $kind" train "ep-$kind" 2 ep $bf16 $keys
	ok "experts, $kind: resumed" train "ep-$kind-rest" 2 ep $bf16 $keys --set "checkpoint.resume=ep-$kind/step-00000002"
	ok "experts, $kind: the same files, bit by bit" same "ep-$kind/step-00000004" "ep-$kind-rest/step-00000004"
done

# -- a strategy that cuts the optimizer's state, and nothing else: masters go with it, updates run there, and what comes back
# is bf16.  Of the weights that divide, the update sends half of each.
{
	cat one.ini
	printf '[strategy m]\nplugin = %s\naxes = a:2\nrules = batch>a\n' "$build/t/plugins/.libs/rules.so"
} >plain.ini
{ cat plain.ini; echo 'states = a'; } >states.ini
memory() { heddle check --all "$1" $2 | sed -n 's/^rank 0.*parameters and state \([0-9.]*\),.*/\1/p'; }
params=$(heddle check --all plain.ini | sed -n 's/^rank 0.*: \([0-9]*\) parameters.*/\1/p')
norms=$(((2 * 4 + 1) * 2 * 32))
near "cut states: 2 bytes a parameter, and half of 12" "$(memory states.ini "$bf16")" \
	"$(awk -v p="$params" -v n=$norms 'BEGIN { print (8 * p) / 1e6 }')" 0.06
json=$(heddle explain states.ini --json)
back=$(said '"unit": "update')
json=$(heddle explain states.ini --json $bf16)
near "cut states: half the bytes come back" "$(said '"unit": "update')" "$(awk -v b="$back" -v n=$norms 'BEGIN { print b / 2 + n }')" \
	$((norms + 64))
alone="$bf16 --set train.deterministic=yes"
ok "cut states: trains" train states 2 states $alone
ok "and with states as they are" train plain 2 plain $alone
is "cut states: the same losses" "$(numbers states.jsonl | cut -d' ' -f1,2)" "$(numbers plain.jsonl | cut -d' ' -f1,2)"
ok "cut states: the same files, bit by bit" same states/step-00000004 plain/step-00000004

# -- memory: 2 (parameter) + 4 + 4 + 4 bytes, for norms 12
sed -e 's/^layers = .*/layers = 6/' -e 's/^embed = .*/embed = 384/' -e 's/^heads = .*/heads = 6/' -e 's/^seq = .*/seq = 256/' \
	-e 's/^micro_batch = .*/micro_batch = 8/' -e 's/^steps = .*/steps = 2/' -e 's/^eval_batches.*//' -e '/^\[strategy/,$d' \
	-e 's/^train = text.txt/&\nvalid_fraction = 0/' tiny.ini >large.ini
state() { sed -n 's/.*parameters and state \([0-9.]*\),.*/\1/p'; }
step() { sed -n 's/.*within a step \([0-9.]*\)[,)].*/\1/p'; }
c32=$(heddle check --all large.ini) c16=$(heddle check --all large.ini $bf16)
params=$(printf '%s\n' "$c16" | sed -n 's/^rank 0.*: \([0-9]*\) parameters.*/\1/p')
norms=$(((2 * 6 + 1) * 2 * 384))
near "parameters, masters and states" "$(printf '%s\n' "$c16" | state)" \
	"$(awk -v p="$params" -v n=$norms 'BEGIN { print (14 * p - 2 * n) / 1e6 }')" 0.3
near "fp32" "$(printf '%s\n' "$c32" | state)" "$(awk -v p="$params" 'BEGIN { print 12 * p / 1e6 }')" 0.3
# With one micro-batch most is in use at the end of forward, where no gradient is there yet: activations, and the statistics
# of norms, attention and loss, which stay fp32: 2 of 384, 1 of 64 and 6 of 256 elements that are beside them.
near "activations are half" "$(printf '%s\n' "$c16" | step)" "$(printf '%s\n' "$c32" | step | awk '{ print $1 / 2 }')" \
	"$(printf '%s\n' "$c32" | step | awk '{ print $1 / 2 * (1 / 192 + 1 / 64 + 6 / 256) }')"
# Beyond the plan: the program's own memory, as of the same nodes with next to nothing in them, and what the library of products
# copies: of operands and results, the largest of which is 2048 x 1536 in fp32, 12.6 MB, up to four times.  Of second runs: the
# first ones measure kernels.
small="--set model.embed=12 --set train.seq=8"
heddle bench large.ini $bf16 $small --steps 1 --json >/dev/null 2>&1
ran=$(heddle bench large.ini $bf16 $small --steps 1 --json 2>/dev/null)
own=$(($(json "$ran" measured_peak_bytes) - $(json "$ran" planned_peak_bytes)))
heddle bench large.ini $bf16 --steps 1 --json >/dev/null 2>&1
ran=$(heddle bench large.ini $bf16 --steps 1 --json 2>/dev/null)
p=$(json "$ran" planned_peak_bytes) m=$(json "$ran" measured_peak_bytes)
note "planned $p, measured $m, of the program itself $own"
awk -v p="$p" -v m="$m" -v o="$own" 'BEGIN { exit !(m >= p && m <= p + o + 4 * 2048 * 1536 * 4) }'
tap_result $? "the high-water mark is all that was planned, and the libraries" || echo "# $m for $p"

# -- machines without instructions for it: the numbers are the same within the bound, and check says that it is slow
like "check says what is bf16" "$c16" '^precision bf16'
unlike "and nothing in fp32" "$c32" 'bf16'
like "that a machine has none" "$(DNNL_MAX_CPU_ISA=AVX2 heddle check large.ini $bf16)" '^note: this processor has no instructions for bf16'
DNNL_MAX_CPU_ISA=AVX2 heddle train one.ini $bf16 --set log.metrics=avx2.jsonl >/dev/null 2>.ok
is "it trains there" $? 0
close_to "with the losses of fp32" avx2.jsonl full.jsonl 0

# -- auto: what is measured is measured once, and a run that goes on keeps it
auto="--set train.precision=auto"
picked() { sed -n 's/.*precision\.auto \([a-z0-9]*\).*/\1/p' "$1/heddle/state.json"; }
said=$(train auto 2 dp $auto 2>&1)
is "auto" $? 0
like "auto: the run says what it computes in" "$said" '^precision (bf16|fp32): measured as the faster'
like "auto: rank 0 has measured, and says what" "$(picked auto/step-00000002)" '^(bf16|fp32)$'
case $(picked auto/step-00000002) in bf16) other=fp32 ;; *) other=bf16 ;; esac
sed "s/precision\.auto [a-z0-9]*/precision.auto $other/" auto/step-00000002/heddle/state.json >.state
cp .state auto/step-00000002/heddle/state.json
ok "auto: resumed" train auto-rest 2 dp $auto --set checkpoint.resume=auto/step-00000002
is "auto: with what the checkpoint says" "$(picked auto-rest/step-00000004)" "$other"
ok "auto: as if it had been said" train said 2 dp --set train.precision=$other --set checkpoint.resume=auto/step-00000002
is "auto: and it is" "$(numbers auto-rest.jsonl)" "$(numbers said.jsonl)"
like "auto: check says that it is fp32 there" "$(heddle check dp.ini $auto)" '^note: train.precision = auto'
like "cuda: bf16 unless it is said" "$(heddle check one.ini --set train.device=cuda)" '^precision bf16'
unlike "cuda: fp32 if it is said" "$(heddle check one.ini --set train.device=cuda --set train.precision=fp32)" 'bf16'

# -- the end of a longer run.  The direction of each step is off by at most e = u sqrt(2 x 20 x 5) of its length, so to first
# order the way down is off by that share, and the loss itself by what a single evaluation is.
last() { numbers "$1" | tail -1 | cut -d' ' -f2; }
for p in fp32 bf16; do
	heddle train one.ini --set train.steps=80 --set train.precision=$p --set log.metrics=long-$p.jsonl >/dev/null 2>&1
done
from=$(numbers long-fp32.jsonl | head -1 | cut -d' ' -f2) to=$(last long-fp32.jsonl)
near "80 steps end where fp32 ends" "$(last long-bf16.jsonl)" "$to" "$(awk -v a="$from" -v b="$to" \
	'BEGIN { u = 1 / 256; print u * sqrt(200) * (a - b) + u * sqrt(200 / 256) * b }')"
note "from $from: fp32 $to, bf16 $(last long-bf16.jsonl)"
awk -v a="$from" -v b="$to" 'BEGIN { exit !(b < a / 2) }'
tap_result $? "which is far down"
done_testing
