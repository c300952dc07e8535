#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long a step takes on a machine that is not available.  If this broke, large jobs would be bought on wrong numbers.
. "${0%/*}/lib/tap.sh"
[ -x "$build/heddle" ] || skip_all 'heddle is not built'

cat >"$tmp/l.ini" <<'E'
[model]
layers = 8
embed = 256
heads = 4
vocab = 8
tie_embeddings = no
[data]
train = none
[train]
seq = 16
global_batch = 8
micro_batch = 1
steps = 1
precision = fp32
[strategy tp]
plugin = tp
size = 1
[strategy pp]
plugin = pp
size = 1
E
machine() {	# NAME lines: writes a machine of 1 GFLOP/s whose memory costs no time
	file=$1
	shift
	{ printf '[machine]\nname = %s\nflops_fp32 = 1e9\nmemory_bandwidth = 1e30\n' "$file"; printf '%s\n' "$@"; } >"$tmp/$file"
}
plan() {	# MACHINE RANKS SETS
	on=$1 ranks=$2
	shift 2
	said=$("$build/heddle" plan "$tmp/l.ini" --machine "$tmp/$on" --ranks "$ranks" --json "$@" 2>&1)
}
top() { printf '%s\n' "$said" | sed 's/"stages".*//' | sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p"; }
moved() { awk -v e="$(top comm_exposed_seconds)" -v h="$(top comm_hidden_seconds)" 'BEGIN { print e + h }'; }
over() { awk -v a="$1" -v b="$2" 'BEGIN { print a / b }'; }

machine free 'node_bandwidth = 1e30' 'ranks_per_node = 8'
plan free 1
near 'on one rank a step consists of kernels' "$(top step_seconds)" "$(top compute_seconds)" 1e-9
near '... which are almost only products' "$(top peak_share)" 1 0.02
one=$(top compute_seconds)

# The published bubbles, when links cost nothing and stages are equal (except for norms and a head of 8 columns).
for order in 'gpipe 0.375' '1f1b 0.375' 'interleaved 0.1875' 'zb 0.125'; do
	plan free 4 --set pp.size=4 --set pp.schedule="${order% *}"
	near "${order% *}: the idle ratio of 4 stages with 8 micro-batches is the published bubble" \
		"$(top idle_ratio)" "${order#* }" 0.02
	near "${order% *}: \"bubble\" is that of equal layers, as check prints it" "$(top bubble)" "${order#* }" 1e-9
done
plan free 4 --set pp.size=4 --set pp.schedule=1f1b
near '1f1b: a step takes a quarter of the work, and the bubble' "$(over "$(top step_seconds)" "$one")" 0.34375 0.01
# The machine is not a CPU: the memory that kernels of CPUs take is not part of it.
memory=$("$build/heddle" check --all "$tmp/l.ini" --ranks 4 --set pp.size=4 --set pp.schedule=1f1b |
	sed -n 's/.*(parameters and state \([0-9.]*\), within a step \([0-9.]*\).*/\1 \2/p' |
	awk '{ m = $1 + $2 > m ? $1 + $2 : m } END { print m }')
near 'the planned memory is that of check' "$(over "$(top planned_peak_bytes)" 1e6)" "$memory" 0.06

fits() { # --memory SIZE
	plan free 1 "$@"
	printf '%s\n' "$said" | sed 's/"stages".*//; s/.*"fits": *\([a-z]*\).*/\1/'
}
is 'JSON has whether the layout fits' "$(fits --memory 100G) $(fits --memory 1M)" 'true false'

# Links: how much is sent, over which link, and for how long.
machine slow 'node_bandwidth = 1e6' 'network_bandwidth = 1e6' 'ranks_per_node = 2'
machine twice 'node_bandwidth = 2e6' 'network_bandwidth = 2e6' 'ranks_per_node = 2'
machine alone 'node_bandwidth = 1e6' 'network_bandwidth = 5e5' 'ranks_per_node = 1'
machine late 'node_bandwidth = 1e30' 'node_latency = 0.5' 'ranks_per_node = 2'
plan slow 2 --set tp.size=2
sent=$("$build/heddle" explain "$tmp/l.ini" --ranks 2 --set tp.size=2 --json | sed 's/}, *{/\n/g' |
	awk '{ b = $0; sub(/.*"bytes": */, "", b); c = $0; sub(/.*"count": */, "", c); s += (b + 0) * (c + 0) } END { printf "%.0f\n", s }')
is 'plan and explain agree on the bytes sent' "$(top node)" "$sent"
is '... none of which leave the node' "$(top network)" 0
near '... and the time follows from the bandwidth' "$(over "$(moved)" "$(over "$sent" 1e6)")" 1 1e-3
slow=$(top comm_exposed_seconds)
ok '... some of which is exposed' awk -v e="$slow" 'BEGIN { exit !(e > 0) }'
plan twice 2 --set tp.size=2
ok 'with twice the bandwidth at most half the time is exposed' \
	awk -v e="$slow" -v f="$(top comm_exposed_seconds)" 'BEGIN { exit !(f <= e / 2) }'
plan alone 2 --set tp.size=2
is 'with one rank per node all bytes are sent over the network' "$(top network)" "$sent"
near '... at the rate of the network' "$(over "$(moved)" "$(over "$sent" 5e5)")" 1 1e-3

# A sum over four ranks goes up a tree of two levels and down again.  With two ranks a node, one level is within nodes.
machine far 'node_bandwidth = 1e30' 'network_bandwidth = 1e30' 'network_latency = 0.5' 'ranks_per_node = 1'
machine pairs 'node_bandwidth = 1e30' 'network_bandwidth = 1e30' 'network_latency = 0.5' 'ranks_per_node = 2'
plan far 4 --set tp.size=4
far=$(moved)
plan pairs 4 --set tp.size=4
near 'a level of a tree within nodes does not cost the latency of the network' "$(over "$(moved)" "$far")" 0.5 1e-3

# The message of forward, that of backward, and the all-reduce of the norm, which goes there and back.
plan late 2 --set pp.size=2 --set pp.schedule=gpipe --set train.global_batch=1
near 'each message has its latency' "$(awk -v a="$(top step_seconds)" -v b="$one" 'BEGIN { print a - b / 8 }')" 2 0.1

said=$("$build/heddle" plan "$tmp/l.ini" --ranks 1 2>&1)
is 'plan without a machine is refused' $? 1
like '... and the message says what is missing' "$said" 'machine FILE'
machine wrong 'node_bandwidth = 1e6' 'workspace_memory = 9223372036854775807'
like 'memory that no device has is refused' "$("$build/heddle" plan "$tmp/l.ini" --ranks 1 --machine "$tmp/wrong" 2>&1)" \
	'wrong:6: \[machine\] workspace_memory: 9223372036854775807 is too large'
machine wrong 'node_bandwith = 1e6'
said=$("$build/heddle" plan "$tmp/l.ini" --ranks 1 --machine "$tmp/wrong" 2>&1)
is 'an unknown key of a machine is refused' $? 1
like '... and the message proposes the nearest key' "$said" 'wrong:5: .*node_bandwith.*node_bandwidth'
# Curves.
while read -r curve pattern; do
	machine bent 'node_bandwidth = 1e9' "efficiency = $curve"
	like "efficiency = $curve is refused" \
		"$("$build/heddle" plan "$tmp/l.ini" --ranks 1 --machine "$tmp/bent" 2>&1)" "bent:6: \[machine\] efficiency: .*: $pattern\$"
done <<'END'
0.5,0.6 is a list, so each point is SIZE:VALUE
0:0.5,1e3:1 has a size that is not a positive number
x:0.5 has a size that is not a positive number
1e3:0.5,1e4:1.5 has a value that is not above 0 and at most 1
1e3:half has a value that is not above 0 and at most 1
1e4:0.5,1e3:1 has sizes that do not increase
, is empty
END
machine bent 'node_bandwidth = 1e9' "efficiency = $(awk 'BEGIN { for (i = 1; i < 40; i++) printf "%d:1,", i }')"
like "a curve of 39 points is refused" \
	"$("$build/heddle" plan "$tmp/l.ini" --ranks 1 --machine "$tmp/bent" 2>&1)" 'has too many points$'
for m in "$src"/conf/machines/*.ini; do
	ok "plan accepts $(basename "$m")" \
		"$build/heddle" plan "$tmp/l.ini" --ranks 4 --machine "$m" --set tp.size=2 --set pp.size=2
done

# A server has the states of all parameters.  Here it needs more than a worker.
plan free 3 --set d.plugin=dp --set d.sync=server --set d.servers=1 --set train.recompute=full --memory 100M
is 'a server that does not fit counts' "$(printf '%s\n' "$said" | grep -o '"fits": *[a-z]*')" '"fits": false'
is '... and the memory of a rank is the server'"'"'s' "$(top planned_peak_bytes)" \
	"$(printf '%s\n' "$said" | sed -n 's/.*"servers".*"memory_bytes": *\([0-9]*\).*/\1/p')"

# If train.precision is not given, the machine decides: bf16 on GPUs, whatever computer plans.  A search plans its
# candidates in the same precision.
sed '/^precision/d' "$tmp/l.ini" >"$tmp/p.ini"
precision() { # MACHINE OPTION...
	on=$1
	shift
	"$build/heddle" plan "$tmp/p.ini" --ranks 1 --machine "$on" --json "$@" 2>&1 | sed -n 's/.*"precision": *"\([a-z0-9]*\)".*/\1/p'
}
is 'without train.precision, GPUs use bf16' "$(precision dgx-a100)" bf16
is '... as with train.precision = auto' "$(precision dgx-a100 --set train.precision=auto)" bf16
is '... but not with train.precision = fp32' "$(precision dgx-a100 --set train.precision=fp32)" fp32
is '... and not with train.device = cpu' "$(precision dgx-a100 --set train.device=cpu)" fp32
is 'a search on GPUs uses bf16' "$(precision dgx-a100 --search --tries 1)" bf16
like 'the first line of plan has the precision' \
	"$("$build/heddle" plan "$tmp/p.ini" --ranks 1 --machine dgx-a100)" '^on DGX A100, 8 ranks a node, bf16$'
printf '[measured]\ndevice = cpu\nthreads = 1\ncores = 2\n' | cat "$tmp/free" - >"$tmp/cpus"
is 'on a machine that was measured as a CPU: fp32' "$(precision "$tmp/cpus")" fp32
like 'a message says that bf16 is counted at the peak of fp32' \
	"$("$build/heddle" plan "$tmp/p.ini" --ranks 1 --machine "$tmp/free" 2>&1)" \
	'^heddle: plan: free has no flops_bf16: bf16 is counted at the peak of fp32, 1.0 GFLOP/s$'
done_testing
