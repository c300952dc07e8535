#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `heddle machine` measures this computer and writes a file that `plan` reads.  If this broke, nobody could tell how
# long a run takes before starting it.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

has() { grep -q "$@" here.ini; }
ok 'one rank measures and writes a file' heddle machine --quick --out here.ini
ok 'the file has the processor' has '^processor = .'
ok '... but no launch, as the one rank has all cores anyway' sh -c '! grep -q "^launch" here.ini'
ok '... and the build that measured' \
	has "^build = heddle $("$build/heddle" --version | sed 's/heddle \([^,]*\),.*/\1/')"
ok '... and says that the measurement was quick' has '^quick = yes'
ok '... which plan repeats' \
	sh -c '"$0" plan tiny.ini --ranks 1 --machine here.ini 2>&1 >/dev/null | grep -q "measured with --quick"' "$build/heddle"
ok 'the file has the number of cores' has '^cores = [1-9]'
for kind in forward backward weights; do
	ok "products have rates by shape: $kind" sh -c \
		"sed -n '/^\\[product $kind\\]/,/^\\[product\\|^\\[kernel/p' here.ini | grep -c '^[fb][pf][0-9]* = [0-9]*x[0-9]*x[0-9]*:' | grep -qx 2"
done
for kernel in attention attention_d norm adamw gelu_slope swiglu rope route embedding xent xent_both accumulate; do
	ok "kernel $kernel has a rate" has "^\[kernel $kernel\]"
done

# For the model of tiny.sh, the file predicts the times of its kernels, so twice the rates give half the time.
seconds() { "$build/heddle" plan tiny.ini --ranks "$2" --machine "$1" --json | sed -n 's/.*"step_seconds": *\([-0-9.e+]*\).*/\1/p'; }
scale() { # FILE FACTOR: prints the file with all measured rates times FACTOR
	awk -v by="$2" '/^\[/ { measured = $0 ~ /^\[(product|kernel)/ }
		measured && / = / { n = split($0, all, ", ")
			for (i = 1; i <= n; i++) { split(all[i], x, ":"); printf "%s%s:%g", (i > 1 ? ", " : ""), x[1], x[2] * by }
			print ""; next }
		{ print }' "$1"
}
sed -i '/^threads/d' tiny.ini
one=$(seconds here.ini 1)
ok 'plan accepts the file' test -n "$one"
scale here.ini 2 >twice.ini
near '... and uses its rates' "$(awk -v a="$one" -v b="$(seconds twice.ini 1)" 'BEGIN { print a / b }')" 2 0.02

# Work is divided among cores: with half as many, a rank takes longer.  It does not take twice as long, since each core
# works on larger parts.
sed 's/^cores = .*/cores = 2/; s/^threads = [0-9]*/threads = 2/' here.ini >two.ini
sed 's/^cores = .*/cores = 1/; s/^threads = [0-9]*/threads = 2/' here.ini >half.ini
by=$(awk -v a="$(seconds half.ini 1)" -v b="$(seconds two.ini 1)" 'BEGIN { print a / b }')
ok 'a step takes longer on half the cores' test "$(awk -v x="$by" 'BEGIN { print (x > 1.02) }')" = 1

# Threads of a rank read what other threads wrote.  So each launch takes the time `launch` more if a rank has more
# threads than those that measured.  Twice the key adds twice the time.
with() { # FILE KEY VALUE RANKS: prints the seconds of a step, on two cores measured by ranks of one thread
	sed "/^$2/d; s/^cores = .*/cores = 2/; s/^threads = [0-9]*.*/threads = 1\n$2 = $3/" "$1" >with.ini
	seconds with.ini "$4"
}
team() { with here.ini launch "$@"; } # LAUNCH RANKS
none=$(team 0 1)
ok 'launch: a rank with all cores takes longer' \
	test "$(awk -v a="$none" -v b="$(team 1e-3 1)" 'BEGIN { print (b > a + 0.02) }')" = 1
near 'launch: twice the key adds twice the time' \
	"$(awk -v a="$none" -v b="$(team 1e-3 1)" -v c="$(team 2e-3 1)" 'BEGIN { print (c - a) / (b - a) }')" 2 1e-6
near 'launch: two ranks of one thread do not take longer' \
	"$(awk -v a="$(team 0 2)" -v b="$(team 1e-3 2)" 'BEGIN { print b / a }')" 1 1e-9

# A file that lacks some rates is used for those that it has.  Ranks share the cores, on one host or on several.
without() { awk -v what="$1" '/^\[/ { out = $0 ~ "^\\[" what } !out' here.ini >less.ini; }
for what in 'product forward' 'product backward' product kernel 'kernel norm'; do
	without "$what"
	ok "plan accepts a file without [$what]" test -n "$(seconds less.ini 1)"
done
sed '/^fp32/d' here.ini >less.ini
ok 'plan accepts a file without rates of fp32' test -n "$(seconds less.ini 1)"
sed '/^bf16/d' here.ini >less.ini
ok '... or without rates of bf16, for a run in bf16' \
	"$build/heddle" plan tiny.ini --ranks 1 --machine less.ini --set train.precision=bf16
sed 's/^cores = .*/cores = 8\nhosts = 2/; s/^hosts = 1$//' here.ini >hosts.ini
ok 'plan accepts several hosts' test -n "$(seconds hosts.ini 4)"
ok 'plan accepts more ranks than cores' \
	"$build/heddle" plan tiny.ini --ranks 8 --machine half.ini --set train.threads=4 --set train.global_batch=16
ok '... and pipeline stages on them' \
	"$build/heddle" plan tiny.ini --ranks 4 --machine half.ini --set train.threads=4 --set pp.plugin=pp --set pp.size=2
ok 'plan accepts --memory' "$build/heddle" plan tiny.ini --ranks 2 --machine here.ini --memory 1G

if [ -n "$(command -v mpirun)" ]; then
	ok 'two ranks measure the link between them' heddle_mpi 2 machine --quick --out both.ini
	for kind in all-reduce reduce-scatter all-gather all-to-all shift; do
		ok "$kind has rates" grep -q "^\[movement $kind\]" both.ini
	done
	ok '... and [machine] has no link that was not measured' sh -c '! grep -q "not measured" both.ini'
	ok 'plan accepts the file of two ranks' test -n "$(seconds both.ini 2)"
	ok 'the file has turn, the extra time of a movement if ranks share a core' \
		awk -v n="$(sed -n 's/^turn = \([-0-9.e+]*\).*/\1/p' both.ini)" \
		'BEGIN { exit !(n != "" && n > 0 && n < 0.01) }'
	# Ranks that share a core take turns in each movement, which takes the time `turn` more if ranks outnumber
	# cores.
	crowd() { with both.ini turn "$@"; } # TURN RANKS
	none=$(crowd 0 4)
	ok 'turn: ranks that share cores take longer' \
		test "$(awk -v a="$none" -v b="$(crowd 1e-3 4)" 'BEGIN { print (b > a + 0.002) }')" = 1
	near 'turn: twice the key adds twice the time' \
		"$(awk -v a="$none" -v b="$(crowd 1e-2 4)" -v c="$(crowd 2e-2 4)" 'BEGIN { print (c - a) / (b - a) }')" 2 1e-6
	near 'turn: ranks with a core each do not take longer' \
		"$(awk -v a="$(crowd 0 2)" -v b="$(crowd 1e-3 2)" 'BEGIN { print b / a }')" 1 1e-9
	# The search plans parts of a layout.  Their ranks must have the threads and the shares of cores that they have
	# in the full layout.  Small plans tell nothing if rates jump by a factor of 1000, as on a loaded machine, so
	# the file is a stored one.
	printf '[model]\nlayers = 2\nembed = 32\nheads = 2\nvocab = 64\n[data]\ntrain = none\n[train]\nseq = 16\nglobal_batch = 6\nsteps = 1\n' >small.ini
	best() { # MACHINE [--tries 0]
		heddle plan small.ini --ranks 2 --machine "$1" --search --json --top 1 $2 | sed -n 's/.*"step_seconds": *\([-0-9.e+]*\).*/\1/p'
	}
	for cores in 1 2; do
		sed "s/^cores = .*/cores = $cores/; s/^threads = [0-9]*.*/threads = 1/; s/^rate = .*/rate = 1e3:1e8, 1e5:2e9/" "$src/t/data/two-cores.ini" >few.ini
		all=$(HD_TEST_SEARCH_ALL=1 best few.ini '--tries 0')
		near "a search for 2 ranks finds the best of all layouts; cores: $cores" \
			"$(best few.ini '--tries 0')" "$all" 1e-9
		near "... also with small plans; cores: $cores" "$(best few.ini)" "$all" 1e-9
	done
	if [ "$(nproc)" -gt 1 ]; then
		ok 'the file has launch, the extra time of a launch if one rank has all cores' \
			awk -v n="$(sed -n 's/^launch = \([-0-9.e+]*\).*/\1/p' both.ini)" \
			'BEGIN { exit !(n != "" && n >= 0 && n < 0.01) }'
	else
		skip 'one core: no rank has more threads'
	fi
else
	skip 'no mpirun: links'
fi

# Ranks share the memory of the host, in a search too.  Each of four ranks has half the memory of each of the two that
# measured.
printf '[model]\nlayers = 2\nembed = 32\nheads = 4\nvocab = 64\n[data]\ntrain = none\n[train]\nseq = 16\nglobal_batch = 8\nsteps = 1\n' >four.ini
search4() { heddle plan four.ini --ranks 4 --search --tries 5 --machine "$@" 2>&1; }
least=$(search4 "$src/t/data/two-cores.ini" --json | tr '{' '\n' | sed -n 's/.*"memory_bytes": *\([0-9]*\).*/\1/p' | sort -n | head -1)
for share in 180 1000; do
	sed "s/^memory = .*/memory = $((least * share / 100))/" "$src/t/data/two-cores.ini" >little.ini
	search4 little.ini --json --out four-best.ini --html four.html >four.json
	if [ $share = 180 ]; then
		ok 'a search fails if four ranks do not have the memory' grep -q 'no layout fits into' four.json
	else
		ok '... and succeeds if they have it' grep -q '"reason": "the best"' four.json
		ok '... and its page has the memory of each of the four' \
			grep -qF "A rank has $(awk -v n="$least" 'BEGIN { printf "%.1f MB", n * 10 / 2 / 1e6 }')" four.html
	fi
done

# A run prints predicted times next to measured ones.
heddle train tiny.ini --set train.steps=4 --set log.machine=here.ini --set log.metrics=m.jsonl >run.txt 2>&1
for kind in products attention elementwise optimizer step; do
	ok "train prints the predicted and the measured time: $kind" \
		grep -Eq "^$kind +[0-9.]+ [mun]?s +[0-9.]+ [mun]?s" run.txt
done
ok 'train names the largest difference' grep -Eq '^largest difference: [a-z ]+, [0-9.]+ [mun]?s$' run.txt
near 'train predicts the same step as plan' \
	"$(sed -n 's/.*"kind": "step", "predicted_seconds": \([-0-9.e+]*\).*/\1/p' m.jsonl)" "$one" 1e-6
heddle report m.jsonl --out page.html
ok 'report has the times of products' grep -q '<td>products</td><td>' page.html
ok '... and the largest difference' grep -q 'largest difference: ' page.html
# The file claims that cores were ten thousand times as far from each other when it was measured.  If both are busy, one
# may not answer the other in time, so the run is repeated.
if [ "$(nproc)" -gt 1 ]; then
	sed '/^exchange/d; s/^threads = [0-9]*.*/&\nexchange = 1e-3/' here.ini >far.ini
	for _ in 1 2 3 4 5 6 7 8; do
		heddle train tiny.ini --set train.steps=4 --set train.threads=2 --set log.machine=far.ini >run.txt 2>&1
		! grep -q 'moved the cores' run.txt || break
	done
	ok 'a message says that cores were elsewhere when the file was measured' \
		grep -Eq "far.ini: handing a cache line from one core to another took 1000000 ns .* takes [0-9]+ ns now.* less long than predicted" run.txt
else
	skip 'one core: no distance between cores'
fi
# Ranks that share cores take longer in their work; without pipeline stages, no rank waits for a stage.
if [ -n "$(command -v mpirun)" ]; then
	sed 's/^cores = .*/cores = 1/; s/^threads = [0-9]*.*/threads = 1/' "$src/t/data/two-cores.ini" >one.ini
	heddle_mpi 2 train tiny.ini --set train.steps=2 --set dp.size=2 --set train.threads=1 --set log.machine=one.ini --set log.metrics=one.jsonl >run.txt 2>&1
	ok 'two ranks on one core: the table has no row for waiting for stages' \
		sh -c 'grep -q "^communication" run.txt && ! grep -q "waiting for stages" run.txt'
	near '... and the parts add up to the step' \
		"$(sed -n 's/.*"parts": \[\(.*\)\], "timeline".*/\1/p' one.jsonl | tr '{' '\n' |
		awk -F'"predicted_seconds": ' 'NF > 1 { v = $2 + 0; if (/"kind": "step"/) step = v; else sum += v } END { print sum / step }')" 1 1e-3
fi
heddle train tiny.ini --set train.steps=4 >run.txt 2>&1
ok 'without the file a run prints no prediction' sh -c '! grep -q predicted run.txt'

refused() { # NAME TEXT SED
	sed "$3" here.ini >bad.ini
	said=$("$build/heddle" plan tiny.ini --ranks 1 --machine bad.ini 2>&1) && said="accepted: $said"
	ok "$1" sh -c 'case $1 in *"$2"*) ;; *) echo "$1"; exit 1;; esac' - "$said" "$2"
}
refused 'an unknown kind of product is refused' \
	'a product is forward, backward or weights' 's/^\[product weights\]/[product sideways]/'
refused 'a point without a colon is refused' \
	"'12' is not a point SIZE:RATE" '/^\[kernel adamw\]/,$ { s/^fp32 = .*/fp32 = 12/ }'
refused 'points that do not increase are refused' \
	"'4000:1e9' is not a point SIZE:RATE with a size above the last one's" \
	'/^\[kernel adamw\]/,$ { s/^fp32 = .*/fp32 = 4000:2e9, 4000:1e9/ }'
refused 'a file without cores is refused' 'cores' '/^cores = /d'
# For a device with its own memory, launches are timed by themselves and the file has that memory.  Its kernels, such as
# products with a fused gelu, are those of the plan.
if [ -r "$build/heddle-cuda-sim.so" ]; then
	HD_TEST_CUDA_MODULE="$build/heddle-cuda-sim.so" "$build/heddle" machine --quick --out gpu.ini 2>said.txt
	is 'a simulated GPU is measured' \
		"$? $(sed -n 's/^device = //p; s/^memory = //p' gpu.ini | tr '\n' ' ')" "0 4096M cuda "
	is '... with its products in fp32 and bf16' \
		"$(sed -n '/^\[product/,/^\[kernel/p' gpu.ini | grep -c '^[fb][pf][0-9]* = [0-9]*x[0-9]*x[0-9]*:')" 6
	ok '... and its fused kernels, such as the update' grep -q '^\[kernel adamw\]' gpu.ini
	said=$("$build/heddle" plan tiny.ini --ranks 1 --machine gpu.ini --json | sed -n 's/.*"step_seconds": *\([-0-9.e+]*\).*/\1/p')
	ok 'plan accepts the file of the GPU' test -n "$said"
	scale gpu.ini 2 >gpu2.ini
	sed -i 's/^step = .*/step = 0/' gpu.ini gpu2.ini
	kernels=$(seconds gpu.ini 1)
	near '... and uses the rates of the GPU' \
		"$(awk -v a="$kernels" -v b="$(seconds gpu2.ini 1)" 'BEGIN { print a / b }')" 2 0.02
	ok 'the file has sustained_clock, the share of the speed under load' \
		awk '/^sustained_clock = / { x = $3 } END { exit !(x > 0 && x <= 1) }' gpu.ini
	sed 's/^sustained_clock = .*/sustained_clock = 0.25/' gpu.ini >slow.ini
	ok 'a lower sustained_clock slows down products only' \
		awk -v a="$kernels" -v b="$(seconds slow.ini 1)" 'BEGIN { exit !(b > 1.2 * a && b < 4 * a) }'
	sed 's/^step = .*/step = 0.5/' gpu.ini >slow.ini
	near 'step: the time of the host is added to each step' \
		"$(seconds slow.ini 1)" "$(awk -v a="$kernels" 'BEGIN { printf "%.12g", a + 0.5 }')" 1e-6
	ok '... and is not idle time' \
		sh -c '"$1" plan tiny.ini --ranks 1 --machine slow.ini | grep -q "idle .*(0.000 of its busy time)" && "$1" plan tiny.ini --ranks 1 --machine slow.ini | grep -q "waits for its end: 500"' - "$build/heddle"
	# The marks of the simulated clock are all a millisecond apart, so only the time of a complete pass can make the
	# sum
# right.
	HD_TEST_CUDA_MODULE="$build/heddle-cuda-sim.so" "$build/heddle" bench tiny.ini --set train.device=cuda --steps 3 --profile --json >profile.txt 2>&1
	ok 'bench --profile: the times of launches add up to the step' \
		awk -v step="$(sed -n 's/.*"step_seconds": *\([-0-9.e+]*\).*/\1/p' profile.txt)" \
		'$1 == "all" { all = $2 / 1e3 } END { print "# " all " of " step; exit !(all > step / 2 && all < 2 * step) }' profile.txt
else
	skip 'no C++ compiler was there, so there is no simulated GPU'
fi
said=$("$build/heddle" machine --quick --out /nonexistent/x.ini 2>&1)
ok 'a file that cannot be written is refused at once' sh -c 'case $1 in *nonexistent*) ;; *) exit 1;; esac' - "$said"
done_testing
