#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Output of verbs in forms that other tests do not cover: for people and as JSON, on one rank or several, and on a
# terminal.  Some layouts have servers, stages and copies in memory.  If a form broke, a number would be in the wrong
# line, or missing.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

pp='--set pp.plugin=pp --set pp.size=2'
servers='--set dp.size=2 --set dp.sync=server --set dp.servers=2'

# check: the bytes of each stage and of servers, and the memory of a copy.
like "check --all with servers" "$(heddle check tiny.ini --ranks 4 --all $servers 2>&1)" 'server'
like "check with servers and several stages" "$(heddle check tiny.ini --ranks 8 $servers $pp 2>&1)" 'server'
like "check --all with servers and several stages" "$(heddle check tiny.ini --ranks 8 --all $servers $pp 2>&1)" 'server'
like "check --all with asynchronous checkpoints" \
	"$(heddle check tiny.ini --ranks 2 --all --set checkpoint.async=yes --set checkpoint.dir=ck 2>&1)" '[0-9]'
like "check with asynchronous checkpoints" \
	"$(heddle check tiny.ini --ranks 2 --set checkpoint.async=yes --set checkpoint.dir=ck 2>&1)" '[0-9]'
fails "servers that need too much memory are refused" heddle check tiny.ini --ranks 4 $servers --memory 1K
out=$(heddle check tiny.ini --ranks 2 --memory 1K --json 2>err)
is "check --json with too little memory fails" $? 1
like "... and prints the layout with the limit" "$out" '^\{"ranks": 2,.*"memory_limit_bytes": 1024, "fits": false\}$'
like "... and says which rank" "$(cat err)" '^heddle: rank 0 needs [0-9.]+ KB of memory, and --memory is 1\.0 KB\. This helps: '
like "... and enough memory fits" \
	"$(heddle check tiny.ini --ranks 2 --memory 1G --json 2>&1)" '"memory_limit_bytes": 1073741824, "fits": true\}$'

# plan: a slow rank, and a limit of memory.
machine='--machine dgx-a100 --ranks 4 --set dp.size=2'
like "plan with a slow rank" "$(heddle plan tiny.ini $machine $pp --slow 3=4 2>&1)" 'slow|times as long|waits?'
like "plan with a slow rank of another stage" "$(heddle plan tiny.ini $machine $pp --slow 0=1 2>&1)" '[0-9]'
for slow in x 1 =2 1= 1=0.5 1=9e9 1=2x -1=2 4=2; do
	fails "--slow $slow is refused" heddle plan tiny.ini $machine $pp --slow $slow
done
like "... with what it must be" "$(cat "$tmp/.ok")" 'plan: --slow 4=2 is not RANK=FACTOR, with a rank from 0 to 3 and a factor of 1 or more'
like "plan with enough memory" "$(heddle plan tiny.ini --machine dgx-a100 --ranks 2 --memory 80G 2>&1)" ', fits'
like "... and with too little" "$(heddle plan tiny.ini --machine dgx-a100 --ranks 2 --memory 1K 2>&1)" 'memory'
like "... in bytes without a fraction, as check prints them" \
	"$(heddle plan tiny.ini --machine dgx-a100 --ranks 2 --memory 1K --json 2>&1)" '"memory_limit_bytes": 1024, "fits": false, '
fails "--times without --html is refused" heddle plan tiny.ini $machine --times t.json
like "... with what it needs" "$(cat "$tmp/.ok")" 'plan: --times needs --html and cannot be combined with --search'
fails "--times with --search is refused" heddle plan tiny.ini $machine --times t.json --html x.html --search
like "a search in which nothing fits" "$(heddle plan tiny.ini --machine dgx-a100 --ranks 4 --search --tries 4 --memory 1K 2>&1)" '[0-9]'
like "a search of one rank" "$(heddle plan tiny.ini --machine dgx-a100 --ranks 1 --search --tries 4 2>&1)" '[0-9]'
like "a search compared with a given layout" \
	"$(heddle plan tiny.ini $machine $pp --search --tries 4 --top 1 2>&1)" '[0-9]'

# Traces that are damaged.
for trace in '[]' '{}' '{"traceEvents": [{}]}' '{"traceEvents": [{"name": "F", "ph": "M"}, {"name": 1, "ph": "X"}, {"name": "F", "ph": 1}]}' \
	'{"traceEvents": [{"name": "F", "ph": "X", "tid": 1}, {"name": "F", "ph": "X", "tid": 0, "dur": -1, "args": {"step": 1}}]}' \
	'{"traceEvents": [{"name": "F", "ph": "X", "tid": 0, "dur": 1, "args": {"step": -1}}, {"name": "F", "ph": "X", "tid": 0, "dur": 1, "args": {"step": 1e16}}]}' \
	'{"traceEvents": ['; do
	printf '%s' "$trace" >trace.json
	fails "plan refuses the trace $trace" heddle plan tiny.ini $machine --html x.html --times trace.json
	fails "... and so does explain" \
		heddle explain tiny.ini --ranks 2 $pp --set dp.size=1 --schedule --times trace.json
done
fails "a trace that does not exist is refused" heddle plan tiny.ini $machine --html x.html --times nowhere.json

# explain
like "explain --saved of one stage of two" "$(heddle explain tiny.ini --ranks 2 --set dp.size=1 $pp --saved 2>&1)" '[0-9]'
like "... and of the other" "$(heddle explain tiny.ini --ranks 2 --set dp.size=1 $pp --saved --rank 1 2>&1)" '[0-9]'
is "--kept is --saved" "$(heddle explain tiny.ini --kept)" "$(heddle explain tiny.ini --saved)"
fails "a pass that does not exist is refused" heddle explain tiny.ini --after nothing
like "explain --after list prints the passes" "$(heddle explain tiny.ini --after list)" '^place$'

# bench: for people
like "bench --generate for people" "$(heddle bench tiny.ini --generate --steps 2 2>&1)" '^fp32, 1 text: prompt [0-9]+ tokens/s, generation'
like "... in bf16, several texts" "$(heddle bench tiny.ini --generate --steps 2 --batch 2 --set train.precision=bf16 2>&1)" '2 texts: prompt'
like "... of a long sequence" "$(heddle bench tiny.ini --generate --steps 2 --set train.seq=300 --json 2>&1)" '"precision": *"fp32"'
like "bench --bound of two ranks" "$(heddle_mpi 2 bench tiny.ini --bound --steps 1 2>&1)" 'tokens/s'
like "bench --profile of two ranks" "$(heddle_mpi 2 bench tiny.ini --profile --steps 1 2>&1)" 'ms'

# generate
ok "a checkpoint is saved" heddle train tiny.ini --set checkpoint.dir=ck --set train.steps=2 --set checkpoint.every=1
for ids in x '1 x' -1 256 '1 2 999'; do
	fails "invalid ids are refused: $ids" heddle generate ck --ids --prompt "$ids" --tokens 1
done
like "--top-k may exceed the vocabulary" "$(heddle generate ck --ids --prompt '1 2' --tokens 2 --top-k 9999)" '[0-9]'

# Pages: for one rank, for more stages than are drawn, and for layouts that fit or do not.
page() { heddle plan tiny.ini --machine dgx-a100 --html x.html "$@" >/dev/null 2>&1 && grep -q '</html>' x.html; }
ok "a page of one rank" page --ranks 1 --set dp.size=1
for n in 14 40; do
	ok "a page of $n stages" page --ranks $n --set dp.size=1 --set pp.plugin=pp --set pp.size=$n --set model.layers=$n
done
ok "a page of many axes" page --ranks 32 --set dp.size=2 --set pp.plugin=pp --set pp.size=2 --set tp.plugin=tp --set tp.size=2 \
	--set ep.plugin=ep --set ep.size=2 --set model.experts=2 --set cp.plugin=cp --set cp.size=2
printf '[strategy dp]\nplugin = dp\nchoose = zero=0, zero=1, zero=2\n[vary train.recompute]\nvalues = full, none\n' >space.ini
for memory in 100K 600K 10M; do
	heddle plan tiny.ini --machine dgx-a100 --ranks 4 --search --space space.ini --memory $memory --html x.html >out 2>&1
	like "a page of a search in $memory" "$(cat out)" 'layouts?'
done

# Metrics of other programs, or of runs that ended at once.
cat >odd.jsonl <<'E'
{"step": 0, "time": -1, "run": 7, "foresight": 3}
{"step": 1, "time": "noon", "loss": "none", "run": {"layout": "", "ranks": 1, "threads": 1}, "foresight": {"parts": [{"kind": "a"}, {"kind": "b", "measured_seconds": 1}], "timeline": {}}}
{"step": 2, "time": 1e30, "loss": 0, "load": [1, 2], "lossy": 3, "loss.0": 4, "run": {"layout": "dp 2", "ranks": 2, "threads": 2}, "foresight": {"timeline": {"stages": [], "seconds": 1}}}
{"step": 3, "loss": -1, "loadings": 1, "foresight": {"timeline": {"stages": [{}], "seconds": 0}}}
{"step": 4, "loss": 1, "foresight": {"timeline": {"stages": [{"predicted": "odd", "measured": "odd"}], "seconds": 2}}}
E
ok "a run with metrics" heddle train tiny.ini --set log.metrics=plain.jsonl --set train.eval_every=1

ok "a report of odd lines" heddle report odd.jsonl --out x.html
ok "... together with a run" heddle report odd.jsonl,plain.jsonl --out x.html
ok "... contains its curves" grep -q '<svg' x.html

# train: events without metrics, no place for a cache, a terminal
ok "events without metrics" heddle train tiny.ini --set log.tensorboard=events --set checkpoint.dir=ck2 --set checkpoint.async=yes
ok "... are written" test -s "$(echo events/*)"
ok "a run whose cache is in the home directory" \
	env -u XDG_CACHE_HOME HOME="$tmp/home" "$build/heddle" train tiny.ini --set train.steps=1
ok "a run without a home directory" env -u XDG_CACHE_HOME -u HOME "$build/heddle" train tiny.ini --set train.steps=1
# A matmul rate that was measured while the cores had other work is exceeded by steps, and replaced.
rates() { sed -n 's/^rate\.fp32\.\([0-9]*\)\/.*/\1/p' rated/heddle/* | sort | uniq -c | tr -s ' \n' ' '; }
rated() { XDG_CACHE_HOME=$tmp/rated "$build/heddle" train tiny.ini --set train.steps=2 --set train.threads=1 --set train.precision=fp32 "$@" 2>&1; }
rated >said
unlike "a rate that steps do not reach is kept" "$(cat said)" 'of the matmul rate of'
sed -i 's/^\(rate\.[^ ]* \).*/\11e3/' rated/heddle/*
like "a rate that a step exceeds is reported" "$(rated)" 'a step reached [0-9]+% of the matmul rate of 1e-06 GFLOP/s'
is "... and replaced by a higher one" "$(rates)$(awk '/^rate/ { print ($2 > 1e6) }' rated/heddle/*)" " 1 1 1"
XDG_CACHE_HOME=$tmp/rated heddle_mpi 2 train tiny.ini --set train.steps=1 --set train.threads=1 --set dp.size=2 >said 2>&1
is "two ranks on these cores have another rate" "$(rates)" " 1 1 1 2 "
ok "a run whose cache and home have empty names" \
	env XDG_CACHE_HOME= HOME= "$build/heddle" train tiny.ini --set train.steps=1
for more in '--set train.schedule=linear --set train.decay=3' '--set train.optimizer=adamw --set train.seed=3' '--set train.lr=1e-3'; do
	ok "a run that is resumed with other settings: $more" \
		heddle train tiny.ini --set checkpoint.resume=ck --set train.steps=3 $more
done
if command -v script >/dev/null; then
	script -qec "$build/heddle train tiny.ini --set train.steps=3 --set train.eval_every=1" /dev/null </dev/null >terminal 2>/dev/null
	like "on a terminal, train overwrites its line" "$(tr '\r' '\n' <terminal)" 'step +3|3/3'
	script -qec "$build/heddle eval ck --data text.txt" /dev/null </dev/null >terminal 2>/dev/null
	like "... and so does eval" "$(tr '\r' '\n' <terminal)" 'loss'
else
	skip "no script"
fi
done_testing
