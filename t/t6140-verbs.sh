#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every verb once.  Scripts read what these print: a missing field, or a line that is not JSON, would break them
# silently.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/until.sh"

valid() {
	if command -v python3 >/dev/null; then python3 -c 'import json, sys; json.load(sys.stdin)'; else cat >/dev/null; fi
}
is_json() { printf '%s\n' "$2" | valid 2>"$tmp/.why"; tap_result $? "$1" || tap_comment <"$tmp/.why"; }

# train: progress, metrics, trace, a checkpoint.
out=$(heddle train tiny.ini --set log.metrics=m.jsonl --set log.trace=t.json --set train.steps=5 --set checkpoint.dir=c \
	--set train.eval_every=2 2>err)
is "train succeeds" $? 0
like "... it prints the model on stdout" "$out" '^gpt2, 34\.7 K parameters; 1 rank x [0-9]+ threads?: dp 1$'
like "... what a step consists of" "$out" '^8 sequences of 32 tokens a step: 4 micro-batches of 2 on each of 1 replica$'
like "... a line for each step" "$out" '^step 5/5  loss [0-9.]+  norm [0-9.]+  lr .* tokens/s .*ETA 0s$'
like "... with the time of a step, memory, tokens so far and elapsed time" "$out" \
	'^step 4/5  .*  [0-9]+ tokens/s  [0-9.]+ [mu]?s/step  [0-9]+% of matmul rate  memory [0-9.]+ MB  1\.0 K tokens  elapsed [0-9]+s  ETA [0-9]+s$'
is "log.every = 2 prints two lines for three steps" \
	"$(heddle train tiny.ini --set log.every=2 2>/dev/null | grep -c '^step [0-9]*/')" 2
like "train prints planned and measured memory" "$out" '^memory: planned [0-9.]+ MB, .* [0-9.]+ MB$'
is "... and the hash of the initial weights on stderr" "$(grep -c '^heddle: initial weights [0-9a-f]\{16\}$' err)" 1
is "metrics: five steps" "$(grep -c '"loss": ' m.jsonl)" 5
is "metrics: evaluations after steps 2 and 4, and the last" "$(grep -c '"valid_loss": ' m.jsonl)" 3
for key in step loss grad_norm lr tokens seconds tokens_per_second matmul_share time total_tokens; do
	is "metrics: $key" "$(grep '"loss"' m.jsonl | grep -c "\"$key\": ")" 5
done
# Numbers must agree with each other.  A token takes 3 (2 x 24 embed^2 + 2 embed vocab) FLOP in products, and 7 x 2 seq
# embed in attention.
token=$((3 * (2 * 24 * 32 * 32 + 2 * 32 * 256) + 2 * 7 * 32 * 32))
equal() {			# NAME GOT WANT [TOLERANCE]: relative; the default is for nine digits
	near "$1" "$2" "$3" "$(awk -v w="$3" -v t="${4:-1e-8}" 'BEGIN { print (w < 0 ? -w : w) * t }')"
}
product() { printf '%s\n' "$@" | awk 'BEGIN { p = 1 } { p *= $1 } END { printf "%.12g\n", p }'; }
last=$(grep '"loss"' m.jsonl | tail -n 1)
is "metrics: tokens of a step" "$(json "$last" tokens)" 256
equal "metrics: tokens, seconds and tokens a second" "$(product "$(json "$last" tokens_per_second)" "$(json "$last" seconds)")" 256
rate=$(printf '%s\n' "$out" | sed -n 's/^products: .*; matmul rate \([0-9.e+]*\) GFLOP\/s a rank$/\1/p')
equal "train prints the MFLOP of a token" \
	"$(printf '%s\n' "$out" | sed -n 's/^products: \([0-9.]*\) MFLOP a token; .*/\1/p')" "$(product $token 1e-6)" 5e-4
equal "metrics: the share is of the rate that is printed" "$(product "$(json "$last" matmul_share)" "$rate" 1e9)" \
	"$(product "$(json "$last" tokens_per_second)" $token)" 1e-3
pair=$(heddle_mpi 2 train tiny.ini --set train.steps=1 --set log.metrics=pair.jsonl 2>/dev/null |
	sed -n 's/^products: .*; matmul rate \([0-9.e+]*\) GFLOP\/s a rank$/\1/p')
two=$(head -n 1 pair.jsonl)
equal "two ranks: the share is of the rate of both" "$(product 2 "$(json "$two" matmul_share)" "$pair" 1e9)" \
	"$(product "$(json "$two" tokens_per_second)" $token)" 1e-3
is "the line of a step has the numbers of the metrics" \
	"$(printf '%s\n' "$out" | sed -n 's/^step 5\/5  \(loss .*  norm .*  lr [^ ]*\)  \([0-9]*\) tokens.*/\1 \2/p')" \
	"$(printf 'loss %.4f  norm %.3f  lr %.2e %.0f' "$(json "$last" loss)" "$(json "$last" grad_norm)" "$(json "$last" lr)" \
	"$(json "$last" tokens_per_second)")"
valid=$(sed -n 's/.*"valid_loss": \([0-9.]*\)}/\1/p' m.jsonl | tail -n 1)
is "... and so does the line of an evaluation" "$(printf '%s\n' "$out" | sed -n 's/^step 5  valid_loss \(.*\)/\1/p')" \
	"$(awk -v l="$valid" 'BEGIN { printf "%.4f  (perplexity %.3f, 256 tokens)", l, exp(l) }')"
like "metrics: nine digits or more" "$(head -1 m.jsonl)" '"loss": [0-9]\.[0-9]{8,}'
is "metrics: each line is JSON" "$(while read -r l; do printf '%s\n' "$l" | valid 2>&1 || echo "not: $l"; done <m.jsonl)" ""
is_json "trace: is JSON" "$(cat t.json)"
is "trace: steps 2 to 4" "$(grep -c '"name":"F0","ph":"X"' t.json)" 3
is "train saves a checkpoint" "$(cat c/latest)" step-00000005
like "... whose config has numbers in short form" "$(cat c/step-00000005/config.json)" '"layer_norm_epsilon": 1e-0?5,'

# check
for conf in char-small quickstart; do
	like "check $conf.ini" "$(heddle check "$src/conf/$conf.ini" --set data.train=text.txt --set model.vocab=256)" \
		'^rank 0.*: [0-9.]+ [KM] parameters, memory [0-9.]+ MB \(parameters and state [0-9.]+ MB, within a step [0-9.]+ [KM]B, scratch of kernels [0-9.]+ [KM]B\)$'
done
out=$(heddle check tiny.ini --ranks 4 --set train.micro_batch=1)
like "check: the layout" "$out" '^4 ranks = dp 4 \(1 apart\)$'
like "check: what a replica does" "$out" '^4 replicas x 2 micro-batches of 1 sequence of 32 tokens; bubble 0\.000$'
pipe="--set dp.size=1 --set pp.plugin=pp --set pp.size=2"
like "check: micro-batches that leave stages idle" "$(heddle check tiny.ini $pipe --set train.micro_batch=8)" \
	'^hint: 1 micro-batch for 2 stages: some are idle; train\.micro_batch = 4 makes 2$'
like "... train gives the same hint" \
	"$(heddle_mpi 2 train tiny.ini $pipe --set train.micro_batch=8 --set train.steps=0)" \
	'^hint: 1 micro-batch for 2 stages: some are idle; train\.micro_batch = 4 makes 2$'
like "... and so does plan" \
	"$(heddle plan tiny.ini $pipe --ranks 2 --machine dgx-a100 --set train.global_batch=1 --set train.micro_batch=1)" \
	'^hint: 1 micro-batch for 2 stages: some are idle; train\.global_batch = 2 with train\.micro_batch = 1 makes 2$'
unlike "... but as many micro-batches as stages give no hint" \
	"$(heddle check tiny.ini $pipe --set train.micro_batch=4)" hint
like "plan: too little memory: both numbers, and what helps" "$(heddle plan tiny.ini --machine dgx-a100 --memory 100K)" \
	'^memory of a rank: [0-9.]+ KB, more than its 102\.4 KB\. This helps: .*train\.recompute = full, .*more hosts'
ok "check: enough memory" heddle check tiny.ini --memory 1G
like "check: too little memory" "$(heddle check tiny.ini --memory 100K 2>&1)" \
	'^heddle: rank 0 needs [0-9.]+ KB of memory, and --memory is 102\.4 KB\. This helps: .*train\.recompute = full, .*more hosts, in a layout that shards the model$'
ok "check: with vocab the data need not exist" heddle check tiny.ini --set data.train=none --set model.vocab=256
like "check: otherwise they must" "$(heddle check tiny.ini --set data.train=none 2>&1)" '^heddle: .*none: No such file'

# explain
out=$(heddle explain tiny.ini --ranks 2)
like "explain: a movement" "$out" '^sync +dp +ring-reduce-scatter +[0-9.]+ KB x1 '
like "explain: the reason of a movement" "$out" 'partial sum on dp.*, needed by'
out=$(heddle explain tiny.ini --ranks 2 --json)
is_json "explain --json" "$out"
for key in axis collective tensor dtype bytes count unit reason; do
	like "explain --json: $key" "$out" "\"$key\": "
done
like "explain: names what is moved, not the tensor that it was packed into" \
	"$(heddle explain tiny.ini --ranks 2 --set dp.plugin=ep --set model.experts=4)" 'all-to-all .* dispatch \(expert,batch,slot,embed\)'
like "explain --schedule" "$(heddle explain tiny.ini --ranks 2 --schedule)" '^stage 0.*F0.*B0.*F1.*B1'
like "... with a legend" "$(heddle explain tiny.ini --ranks 2 --schedule)" \
	'^units: F0: forward of micro-batch 0, B its backward; time runs to the right, .*: a forward takes 1, a backward 2$'
is "explain: one rank moves nothing" "$(heddle explain tiny.ini --ranks 1 --json)" "[]"
for flag in schedule nodes; do
	is "explain --$flag: JSON lists the movements" \
		"$(heddle explain tiny.ini --ranks 2 --json --$flag)" "$(heddle explain tiny.ini --ranks 2 --json)"
done

# experts without a limit: the memory of the largest case
moe='--ranks 2 --set dp.plugin=ep --set dp.size=2 --set model.experts=4 --set model.router=topk'
for verb in 'check tiny.ini' 'plan tiny.ini --machine dgx-h100'; do
	like "${verb%% *}: memory of the largest case" "$(heddle $verb $moe)" '^memory is that of the largest case, .* model\.capacity_factor limits it$'
	like "... in JSON" "$(heddle $verb $moe --json)" '"memory_case": "largest"'
	unlike "... and with a limit it is not" "$(heddle $verb $moe --set model.capacity_factor=1)" 'largest case'
done

# bench
begin=$(date +%s%N)
out=$(heddle bench tiny.ini --json --steps 3 2>err)
end=$(date +%s%N)
is_json "bench --json" "$out"
is "bench: one line" "$(printf '%s\n' "$out" | wc -l)" 1
equal "bench: tokens of a step" "$(product "$(json "$out" tokens_per_second)" "$(json "$out" step_seconds)")" 256
equal "bench: FLOPs of a step" "$(product "$(json "$out" flops_per_second)" "$(json "$out" step_seconds)")" "$(product 256 $token)"
equal "bench: the share of the matmul rate" "$(product "$(json "$out" matmul_share)" "$(json "$out" matmul_rate)")" \
	"$(json "$out" flops_per_second)"
ok "bench: start and steps take no longer than the command" \
	awk -v a="$begin" -v b="$end" -v s="$(json "$out" startup_seconds)" \
	-v t="$(json "$out" step_seconds)" 'BEGIN { exit !(s > 0 && t > 0 && s + 2 * t < (b - a) / 1e9) }'	# 2 of 3 steps take the median or more
is "bench: one rank waits for nothing" \
	"$(json "$out" comm_hidden_seconds) $(json "$out" comm_exposed_seconds) $(json "$out" bubble)" \
	"0.0 0.0 0.0"
near "bench: the planned memory is that of check" "$(product "$(json "$out" planned_peak_bytes)" 1e-6)" \
	"$(heddle check --all tiny.ini | sed -n 's/.*memory \([0-9.]*\) MB.*/\1/p')" 0.06
ok "bench: ... which is less than the process had" \
	[ "$(json "$out" measured_peak_bytes)" -gt "$(json "$out" planned_peak_bytes)" ]
is "bench: one line with a profile too" "$(heddle bench tiny.ini --json --steps 1 --profile 2>err | wc -l)" 1
like "... whose products have the FLOPs that explain --work counts" "$(sed 's/  */ /g' err)" \
	"^einsum [0-9.]+ [0-9.]+% [0-9]+ $(heddle explain tiny.ini --work --json | tr '{' '\n' | awk -F'[:,]' '/"einsum"/ { f += $8 } END { printf "%.3f", f / 1e9 }') "
near "... and whose shares sum to 100%" "$(awk '$3 ~ /%$/ { s += $3 } END { print s }' err)" 100 \
	"$(awk '$3 ~ /%$/ { n++ } END { print n * 0.05 }' err)"	# each is rounded by 0.05 at most
like "... with what is left to win" "$(cat err)" 'bound ms +to win ms'
like "... and without --json it is on stdout" \
	"$(heddle bench tiny.ini --steps 1 --profile 2>/dev/null)" 'bound ms +to win ms'
like "bench prints the model that it times" \
	"$(heddle bench tiny.ini --steps 1)" "$(heddle train tiny.ini --set train.steps=1 2>/dev/null |
	sed -n 's/^\(gpt2, .* parameters; \).*/\1/p')"
# bench has the vocabulary of training, from a tokenizer or from files of ids, without reading the ids.
vocabs() { # --set ...: prints 1 if bench plans the memory that check prints
	v=$(heddle check --all tiny.ini --ranks 1 "$@" 2>/dev/null | sed -n 's/.*memory \([0-9.]*\) MB.*/\1/p' | head -1)
	echo "$(json "$(heddle bench tiny.ini --json --steps 1 "$@" 2>/dev/null)" planned_peak_bytes) $v" |
		awk '{ printf "%d", $1 / 1e6 - $2 < 0.06 && $2 - $1 / 1e6 < 0.06 }'
}
is "bench: the vocabulary of a tokenizer" "$(vocabs --set "data.tokenizer=$src/t/data/tokenizers/gpt2")" 1
is "bench: the vocabulary of files of ids" \
	"$(vocabs --set "data.train=$src/t/data/ids-llmc.bin" --set data.format=llmc)" 1
echo '{"text": "light"}' >lines.jsonl
XDG_CACHE_HOME=$tmp/empty heddle bench tiny.ini --steps 1 --set data.train=lines.jsonl >/dev/null
is "bench: text is not tokenized" "$(find "$tmp/empty" -name 'tokens-*' | wc -l)" 0
out=$(heddle bench tiny.ini --json --steps 1 --bound)
ok "bench --bound: the step takes longer than its products at their best, in any layout too" awk \
	-v a="$(json "$out" bound_share)" -v b="$(json "$out" bound_any_layout_share)" 'BEGIN { exit !(a < 1 && b > 0 && b <= a) }'
equal "bench --bound: tokens of the bound" "$(product "$(json "$out" bound_tokens_per_second)" "$(json "$out" bound_seconds)")" 256
like "bench: the bytes of an axis" "$out" '"bytes": \{"dp": 0\}'
like "bench --bound: a product whose rows are only known in a run has no bound" \
	"$(heddle bench tiny.ini --steps 1 --bound --set model.family=mixtral --set model.experts=4 2>&1)" 'cannot tell how long einsum of layer [0-9]+ needs'
out=$(heddle_mpi 2 bench tiny.ini --json --steps 1 2>/dev/null)
equal "bench, two ranks: the share of the rate of both" "$(product 2 "$(json "$out" matmul_share)" "$(json "$out" matmul_rate)")" \
	"$(json "$out" flops_per_second)"
is "bench, two ranks: the bytes are half of 34,688 gradients there and half back, and the loss" \
	"$(json "$out" dp)" $((34688 * 4 + 4))
near "bench, two stages and four micro-batches: the bubble" \
	"$(json "$(heddle_mpi 2 bench tiny.ini --json --steps 1 --set pp.plugin=pp \
	--set pp.size=2 2>/dev/null)" bubble)" 0.25 1e-9
like "bench for people" "$(heddle bench tiny.ini --steps 1)" 'tokens/s, [0-9.]+ s a step'

# bench --generate: what a rank must read for a token
reads() { # RANKS OPTIONS...
	n=$1
	shift
	json "$(heddle_mpi "$n" bench tiny.ini --generate --json --steps 4 --set model.vocab=2000 "$@" 2>/dev/null)" bytes_per_token
}
whole=$(reads 1)
near "bench --generate counts weights that are gathered from other ranks" \
	"$(reads 2 --set dp.zero=3)" "$whole" "$((${whole%.*} / 20))"
tied=$(reads 2 --set dp.plugin=pp --set dp.size=2 --set model.tie_embeddings=yes)
ok "... and a tied embedding that another stage sends" [ "${tied%.*}" -ge $((2000 * 32 * 4)) ]

# eval
out=$(heddle eval c --data text.txt)
like "eval prints loss, perplexity and tokens" "$out" '^loss [0-9.]+  perplexity [0-9.]+  tokens [0-9]+$'
equal "eval: perplexity is e^loss" "$(echo "$out" | awk '{ print $4 }')" "$(echo "$out" | awk '{ printf "%.12g", exp($2) }')"
is "eval: all complete samples of the file count" \
	"$(echo "$out" | awk '{ print $6 }')" $((($(wc -c <text.txt) - 1) / 32 * 32))
out2=$(heddle_mpi 2 eval c --data text.txt --json 2>/dev/null)
near "eval: the same on two ranks" "$(json "$out2" loss)" "$(echo "$out" | awk '{ print $2 }')" 1e-5
like "eval without data is refused" "$(heddle eval c 2>&1)" '^heddle: eval: --data'

# generate
like "generate starts with the prompt" "$(heddle generate c --prompt 'and god' --tokens 8 --temperature 0)" '^and god'
is "generate: the number of tokens is as given" \
	"$(heddle generate c --prompt 'and god' --tokens 40 | wc -c)" $((7 + 40 + 1))
greedy() { heddle generate c --prompt 'and god' --tokens 40 --temperature 0 | cksum; }
drawn() { heddle generate c --prompt 'and god' --tokens 40 --temperature 1 "$@" | cksum; }
is "greedy needs no seed" "$(greedy)" "$(greedy)"
is "a seed gives one text" "$(drawn --seed 5)" "$(drawn --seed 5)"
ok "another seed gives another text" [ "$(drawn --seed 5)" != "$(drawn --seed 6)" ]
is "top-k 1 is greedy" "$(drawn --top-k 1)" "$(greedy)"
like "a temperature below 0 is refused" \
	"$(heddle generate c --prompt a --temperature -1 2>&1)" '^heddle: generate: --temperature: -1 is too small'
like "a temperature above 100 is refused" \
	"$(heddle generate c --prompt a --temperature 101 2>&1)" '^heddle: generate: --temperature: 101 is too large'
is "two ranks generate the same text" \
	"$(heddle_mpi 2 generate c --prompt 'and god' --tokens 40 --temperature 1 --seed 5 2>/dev/null |
	tr -d '\r' | cksum)" "$(drawn --seed 5)"

# config.json has the width of experts, even where the INI leaves it to mlp.
heddle train tiny.ini --set model.family=qwen3_moe --set model.experts=4 --set train.steps=0 --set checkpoint.dir=experts >/dev/null 2>&1
like "the default width of experts is in config.json" \
	"$(cat experts/step-00000000/config.json)" '"moe_intermediate_size": 128,'

# check --against-one-rank
like "one rank against itself: of equal differences the first is named" \
	"$(heddle check tiny.ini --ranks 1 --against-one-rank)" \
	'^worst of 6 losses and norms: loss of step 1, off by 0, '
head -c 8000 /dev/zero >zeros.bin
ok "losses and gradients that are 0 on both sides are equal" \
	heddle check tiny.ini --ranks 1 --against-one-rank --set data.train=zeros.bin \
	--set data.format=uint16 --set model.vocab=1
ok "sections that need two ranks are left out of the run on one" \
	heddle check tiny.ini --ranks 2 --set tp.plugin=tp --set tp.size=2 --against-one-rank
ok "a wire that rounds is left out of the comparison" \
	heddle check tiny.ini --ranks 2 --set dp.wire=bf16 --against-one-rank
like "... and a message says so" \
	"$(cat "$tmp/.ok")" '^not compared: dp\.wire = bf16, which rounds; the layout runs with fp32$'
heddle_mpi 2 check tiny.ini --against-one-rank >out 2>&1
is "under mpirun, without --ranks: as many ranks as it has started" "$? $(grep -o '^against one rank: 2 ranks' out)" "0 against one rank: 2 ranks"
heddle_mpi 2 check tiny.ini --ranks 4 --against-one-rank >out 2>&1
is "under mpirun, with other ranks: refused" "$? $(messages <out)" "1 heddle: --against-one-rank: the launcher has started 2 ranks, and --ranks is 4. Start check without a launcher, or leave --ranks out"
heddle_mpi 2 check tiny.ini --ranks 2 --against-one-rank >out 2>&1
is "a launcher that started check is not taken for the launcher of the runs" \
	"$? $(grep -c '^worst of [0-9]* gradients' out)" "0 1"
is_json "with --json: one line, of the layout" "$(heddle check tiny.ini --ranks 1 --against-one-rank --json 2>/dev/null)"
# This mpirun ends only by a signal, and records which one.
mkdir bin scratch
cat >bin/mpirun <<'END'
#!/bin/sh
for s in TERM INT HUP; do trap "echo $s >>'$PWD/heard'; exit 1" $s; done
sleep 60 &
echo $$ >mpirun.pid
wait
END
chmod +x bin/mpirun
for s in TERM HUP; do
	rm -f mpirun.pid heard
	PATH="$tmp/bin:$PATH" TMPDIR="$tmp/scratch" "$build/heddle" check tiny.ini --ranks 2 --against-one-rank >out 2>&1 &
	job=$!
	until_true test -s mpirun.pid
	kill -$s $job
	wait $job
	is "SIG$s ends the check, and before it the run that it has started" "$(kill -l $?) $(cat heard)" "$s $s"
	is "... which leaves no process and no file" "$(kill -0 "$(cat mpirun.pid)" 2>/dev/null && echo process; ls scratch)" ""
done

# data
out=$(heddle data tiny.ini --step 2 --json)
is_json "data --json" "$out"
is "data --json: the ids of a sequence are those without --json" \
	"$(printf '%s\n' "$out" | sed 's/.*\[\[//; s/\].*//; s/,//g')" \
	"$(heddle data tiny.ini --step 2 | head -1)"
like "data: the step" "$out" '^\{"step": 2, "tokens": \[\['
is "data: sequences of a step" "$(heddle data tiny.ini --step 2 | wc -l)" 8
is "data: ids of a sequence" "$(heddle data tiny.ini --step 2 | head -1 | wc -w)" 33
is "data: whatever the layout" "$(heddle data tiny.ini --step 2 --json --set dp.size=2 --set train.micro_batch=1)" "$out"
ok "data: another seed gives other data" [ "$(heddle data tiny.ini --step 2 --json --set train.seed=2)" != "$out" ]
is "data: sequential data are in the order of the file" \
	"$(heddle data tiny.ini --step 1 --set data.order=sequential | head -1)" \
	"$(head -c 33 text.txt | od -An -v -tu1 | tr -s ' \n' ' ' | sed 's/^ //; s/ $//')"
# Training uses these: a file that contains only one printed sequence gives the loss of that step.
one="--set train.global_batch=1 --set train.micro_batch=1 --set data.valid_fraction=0 --set train.steps=1"
heddle data tiny.ini $one --step 1 | awk '{ for (i = 1; i <= NF; i++) printf "%c", $i + 0 }' >one.txt
heddle train tiny.ini $one --set log.metrics=a.jsonl >/dev/null 2>&1
heddle train tiny.ini $one --set log.metrics=b.jsonl --set data.train=one.txt >/dev/null 2>&1
is "data: training uses the printed sequences" "$(json "$(cat b.jsonl)" loss)" "$(json "$(cat a.jsonl)" loss)"

# plugins
like "plugins" "$(heddle plugins)" '^dp +[0-9.]+ +[0-9.]+ +accepted +/.*dp\.so$'
like "plugins dp" "$(heddle plugins dp)" '^bucket +bytes +25M '
is_json "plugins --json" "$(heddle plugins --json)"
is_json "plugins dp --json" "$(heddle plugins dp --json)"

# help
for verb in train check explain bench eval generate data plugins; do
	like "$verb --help" "$(heddle $verb --help)" "^heddle $verb "
done
like "--help" "$(heddle --help)" '^  train CONF  '
like "a missing verb is explained" "$(heddle 2>&1)" '^heddle: no verb; see heddle --help$'
fails "... and the status is not 0" heddle
like "an unknown verb is explained" \
	"$(heddle trian tiny.ini 2>&1)" '^heddle: trian: unknown verb; did you mean train\?$'
like "an unknown option is explained" \
	"$(heddle bench tiny.ini --jsn 2>&1)" '^heddle: bench: .*--jsn.*did you mean --json'
# The work of a rank: matmuls of 4 x 16 tokens, 2 layers of embed 16 and mlp 64, and a head of 256.
sed '/^\[strategy/,$d' tiny.ini >work.ini
sizes="--set model.family=gpt2 --set model.layers=2 --set model.heads=2 --set model.embed=16 --set model.mlp=64 --set model.vocab=256
	--set train.seq=16 --set train.global_batch=4 --set train.micro_batch=2 --set train.recompute=none"
flops=$((2 * 4 * 16 * (2 * (4 * 16 * 16 + 2 * 16 * 64) + 16 * 256)))
work() { heddle explain work.ini --ranks 1 $sizes --work --json | tr '{' '\n' |
	sed -n "s/.*\"unit\": \"$1\", \"kernel\": \"einsum\".*product_flops\": \([0-9]*\).*/\1/p"; }
is "explain --work: forward matmuls" "$(work forward)" $flops
is "... and twice as many backward" "$(($(work backward) + $(work weight-gradient)))" $((2 * flops))
like "... for people" "$(heddle explain work.ini --ranks 1 $sizes --work)" '^forward +einsum +26 nodes +0\.001 GFLOP'
done_testing
