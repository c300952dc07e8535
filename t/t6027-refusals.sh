#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files and values that verbs must refuse, each with one message that names it, and with a non-zero status.  Otherwise a
# verb would continue with half of what it was given, or end without a message.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

: >empty
printf '{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}' >t.json
printf '{"model":{"type":"BPE"}}' >none.json
ids=$src/t/data/ids-llmc.bin

# tokenize
no 'tokenize: --tokenizer DIR must be given' tokenize text.txt --out x
no 'tokenize: --out PREFIX must be given' tokenize text.txt --tokenizer t.json
no 'tokenize: which files\?' tokenize --tokenizer t.json --out x
for more in '--text text.txt' '--out x' 'text.txt'; do
	no 'tokenize: give one of --out PREFIX FILE\.\.\., --ids FILE and --text FILE' tokenize --tokenizer t.json --ids text.txt $more
done
no 'tokenize: give one of --out' tokenize --tokenizer t.json --text text.txt text.txt
no 'nowhere: No such file' tokenize --tokenizer t.json --ids nowhere
no 'nowhere: No such file' tokenize --tokenizer t.json --text nowhere
no 'nowhere: No such file' tokenize --tokenizer t.json --out x nowhere
no '/dev/null: neither a file nor a directory' tokenize --tokenizer t.json --out x /dev/null
no 'nowhere.json: No such file' tokenize --tokenizer nowhere.json --out x text.txt
no "tokenize: --append-eos: 'maybe' is not yes or no" tokenize --tokenizer t.json --out x text.txt --append-eos maybe
no 't\.json: which token ends a text\?' tokenize --tokenizer t.json --out x text.txt --append-eos yes

# Configurations.
printf '[model]\nlayers = 2\n\0\n' >zero.ini
no 'zero\.ini: not a text file \(byte 19 is zero\)' check zero.ini
no 'foo\.bar: no section \[foo\] or \[strategy foo\]; sections: model, .*; --set foo\.plugin=PLUGIN before it adds one$' check tiny.ini --set foo.bar=1
no 'model\.norm: the family gpt2 does not have it' check tiny.ini --set model.norm=after
{ cat tiny.ini; for i in $(seq 30); do printf '[strategy s%d]\nplugin = dp\nsize = 1\n' $i; done; } >many.ini
no 'more than 24 strategies and plugins' check many.ini
no 'blocks are already dealt to p' check tiny.ini --ranks 2 --set dp.size=1 --set p.plugin=pp --set p.size=2 --set q.plugin=pp --set q.size=1
no 'which [0-9]+ does not divide|is not a multiple of|does not divide' check tiny.ini --ranks 3 --set dp.size=1 --set cp.plugin=cp --set cp.size=3
no 'rank 2, a server, needs [0-9.]+ KB of memory, and --memory is 650\.0 KB\. This helps: ' check tiny.ini --ranks 3 --set dp.sync=server \
	--set dp.servers=1 --set train.micro_batch=1 --memory 650000
no '/nowhere/x\.json: No such file' train tiny.ini --set log.trace=/nowhere/x.json

sed 's/^\[data\]/&\nloss_on = all/' tiny.ini >later.ini
no 'later\.ini:8: \[data\] loss_on: this key is not supported yet$' check later.ini
no 'data\.mask_documents: this key is not supported yet$' check tiny.ini --set data.mask_documents=no

# Orders of units from a file.
pp='--set dp.size=1 --set pp.plugin=pp --set pp.size=2 --set pp.schedule=./s.csv'
for each in '9,F,0,0|rank 9; there are 2, counted from 0' '0,F,7,0|chunk 7; there are 1, counted from 0' '0,F,0,99|micro-batch 99; there are' \
	'0,F,0,-|line 2 of ./s.csv is .0,F,0,-., not rank,kind,chunk,micro' '0,X,0,0|, not rank,kind,chunk,micro' \
	'0 F 0 0|, not rank,kind,chunk,micro' '0,F 0,0|, not rank,kind,chunk,micro' '0,F,0,0,0|, not rank,kind,chunk,micro' \
	'-1,F,0,0|rank -1; there are 2'; do
	printf 'rank,kind,chunk,micro\n%s\n   ' "${each%|*}" >s.csv
	no "schedule: .*${each#*|}" check tiny.ini --ranks 2 $pp
done

# Data.
no 'data\.tokenizer: none\.json: no model\.vocab in it|none\.json: no model\.vocab in it' train tiny.ini --set data.train="$ids" --set data.tokenizer=none.json
no 'data\.train: some files are text, others are ids of a tokenizer' train tiny.ini --set data.train="text.txt,$ids" --set data.weights=1,1
no 'data\.valid: .*text, but train is ids of a tokenizer' train tiny.ini --set model.vocab=70000 --set data.train="$ids" --set data.valid=text.txt
no 'data\.valid: .*ids of a tokenizer, but train is text' train tiny.ini --set data.valid="$ids"
no 'data\.train: .*nowhere: No such file' train tiny.ini --set data.train="text.txt,nowhere" --set data.weights=1,1
perl -e 'print pack "l256", 20240520, 1, 0' >nothing.bin
no 'nothing\.bin.*no tokens' train tiny.ini --set data.train=nothing.bin
printf 'ab' >m.bin
perl -e 'print "MMIDIDX\0\0", pack "QCQQ", 2, 8, 0, 1' >m.idx
no 'm\.idx: version 2 of a Megatron index; only version 1 is known' train tiny.ini --set data.train=m.idx

# Checkpoints.
ok "a checkpoint is saved" heddle train tiny.ini --set checkpoint.dir=ck --set train.steps=1 --set log.metrics=m.jsonl
state=$(echo ck/step-*/heddle/state.json)
damaged() { # TEXT PATTERN
	printf '%s' "$1" >"$state"
	no "$2" train tiny.ini --set checkpoint.resume=ck
}
cp "$state" state.json
damaged '[1]' 'state\.json: is not a JSON object: something else'
damaged '{' 'state\.json: is not a JSON object: '
damaged '{}' 'state\.json: must have version, step, samples and seed'
damaged '{"version": 99, "step": 1, "samples": 8, "seed": 1}' 'state\.json: is version 99; this program reads version '
for each in '-1, "samples": 8' '1, "samples": -8' '9000000000000000000, "samples": 8' '1, "samples": 9000000000000000000'; do
	damaged "{\"version\": 1, \"step\": $each, \"seed\": 1}" 'state\.json: step -?[0-9]+, samples -?[0-9]+: each must be from 0 to '
done
cp state.json "$state"
mkdir alone
cp ck/step-*/model.safetensors alone
for each in '[]|is not a JSON object: something else' '{"model_type": "gpt2"}|has no n_positions' '{"model_type": "gpt3"}|model_type is gpt3; known: gpt2' \
	'{}|model_type is not given; known: gpt2' '{"model_type": "heddle", "family": "gpt9"}|config\.json'; do
	printf '%s' "${each%|*}" >alone/config.json
	no "alone/config\\.json: .*${each#*|}|alone/config\\.json" generate alone --prompt a
done
# What is wrong in config.json is in no line of the INI that is made of it.
echo '{"model_type": "llama", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
	"num_attention_heads": 2, "max_position_embeddings": 8, "rope_parameters": {"rope_type": "linear", "factor": 0.5}}' >alone/config.json
no '^heddle: alone/config\.json: \[model\] rope_factor: 0\.5 is too small, at least 1$' \
	generate alone --ids --prompt 1 --tokens 1

# generate, eval, report, bench
no 'nowhere: No such file' generate ck --prompts nowhere
no 'empty: it contains no prompt' generate ck --prompts empty
no 'nowhere: No such file' eval ck --choices nowhere
no 'empty: it contains no question' eval ck --choices empty
for each in '{"prompt": 1}|no text .prompt.' '{"prompt": "a"}|no list .choices.' '{"prompt": "a", "choices": ["b"]}|.answer. is not the index of a choice' \
	'{"prompt": "a", "choices": ["b"], "answer": 1}|.answer. is not the index' '{"prompt": "a", "choices": ["b"], "answer": -1}|.answer. is not' \
	'{"prompt": "a", "choices": [1], "answer": 0}|a choice is not a string' '{"prompt": |q\.jsonl:1: '; do
	printf '%s\n' "${each%|*}" >q.jsonl
	no "q\\.jsonl:1: .*${each#*|}|q\\.jsonl:1: " eval ck --choices q.jsonl
done
# Files that are not text, or that never end.
mkdir folder
printf 'a\0b\n' >zero.txt
no 'generate: zero\.txt:1: the prompt has a byte 0x00: this is not a text file' generate ck --prompts zero.txt
for none in 'folder|Is a directory' '/dev/zero|byte 0x00: this is not a text file'; do
	no "${none%|*}: ${none#*|}" generate ck --prompts "${none%|*}"
	no "${none%|*}: ${none#*|}" eval ck --choices "${none%|*}"
	no "${none%|*}: ${none#*|}" report "${none%|*}"
done
no '^heddle: folder: Is a directory' explain tiny.ini --schedule --times folder
no '^heddle: /dev/zero:1: .*a trace' explain tiny.ini --schedule --times /dev/zero
no '^heddle: /dev/zero: not a text file' check /dev/zero
no '^heddle: /dev/zero: not a text file' plan tiny.ini --machine /dev/zero
# With several threads the program executes itself again, and must not repeat its messages.
for option in '--seed 2' '--top-k 3' '--top-p 0.5'; do
	is "--temperature 0 with $option: one message" \
		"$(OMP_NUM_THREADS=2 "$build/heddle" generate ck --prompt a --tokens 1 --temperature 0 $option 2>&1 >/dev/null)" \
		"heddle: generate: ${option% *} does nothing with --temperature 0"
done
no '/nowhere/x\.html: cannot be written: No such file' report m.jsonl --out /nowhere/x.html
no '/dev/full: cannot be written: No space left' report m.jsonl --out /dev/full
no "^heddle: --set data\.format: 'x' is not a choice" bench tiny.ini --set data.format=x
for verb in check bench; do
	no "^heddle: --set train\.lr: 'x' is not a number" $verb tiny.ini --set data.format=x --set model.embed=x --set train.lr=x
done
no 'bench: train\.seq = 2 leaves no room for a prompt' bench tiny.ini --generate --set train.seq=2

# check refuses what a run would refuse.
no 'comm: nccl needs GPUs, and the device is cpu' check tiny.ini --set train.comm=nccl --set train.device=cpu
no 'reduce: rank_order: nccl adds in an order of its own' check tiny.ini --set train.comm=nccl --set train.reduce=rank_order
no '1000000000 sequences are 500000000 micro-batches of 2 on each of 1 replicas, but a step has at most 100000' \
	check tiny.ini --set train.global_batch=1000000000 --set train.micro_batch=2
no '/nowhere/tokenizer\.json: No such file' check tiny.ini --set data.tokenizer=/nowhere --set model.vocab=256
ok "where the data do not exist, check does not look for the tokenizer" \
	heddle check tiny.ini --set data.train=nowhere.txt \
	--set data.tokenizer=/nowhere --set model.vocab=256
is "... and check says so" "$(grep '^note: data' "$tmp/.ok")" "note: data.train = nowhere.txt does not exist here, so no file of the run is checked"
no 'train\.micro_batch: 1 is not a multiple of 2: .* do not divide batch = 1 \(micro_batch x replicas\), which they shard in targets' check tiny.ini --ranks 4 \
	--set train.micro_batch=1 --set tp.plugin=tp --set tp.size=4 --set tp.form=2d
no 'check: --memory: 0 is too small, at least 1' check tiny.ini --memory 0

for both in '--saved --schedule' '--kept --nodes' '--work --all' '--saved --work'; do
	no "explain: ${both% *} and ${both#* }: give one of the two" explain tiny.ini $both
done

# A file that is written must not be one that is read, nor one that is also written for another purpose.
spared() { # FILE PATTERN args...: the command is refused, and the file is unchanged
	spared=$1
	pattern=$2
	shift 2
	cp "$spared" before
	no "$pattern" "$@"
	ok "... and $spared is unchanged" cmp "$spared" before
}
mkdir corpus tok
cp text.txt corpus/a.txt
cp t.json tok/tokenizer.json
cp tiny.ini x.ini
cp text.txt one.txt
cp "$src/conf/machines/dgx-a100.ini" mine.ini
printf '{"eos_token": "a"}' >tok/tokenizer_config.json
{ echo rank,kind,chunk,micro; for r in 0 1; do for k in F B; do for m in 0 1 2 3; do echo $r,$k,0,$m; done; done; done; } >s.csv
ln one.txt hard.txt
ln -s one.txt soft.txt
ln -s later.json link.json
for key in metrics trace; do
	for name in one.txt ./one.txt soft.txt hard.txt "$tmp/one.txt"; do
		spared one.txt "^heddle: --set log\.$key: $name is read as data\.train too" train x.ini --set data.train=one.txt --set log.$key="$name"
	done
	spared x.ini "log\.$key: \./x\.ini is the INI too" train x.ini --set log.$key=./x.ini
	spared one.txt "log\.$key: one\.txt is read as data\.valid too" train x.ini --set data.valid=one.txt --set log.$key=one.txt
	spared corpus/a.txt "log\.$key: corpus/a\.txt is read as data\.train too" train x.ini --set data.train=corpus --set log.$key=corpus/a.txt
	spared corpus/a.txt "log\.$key: corpus/a\.txt is read as data\.train too" train x.ini --set "data.train=text.txt, corpus/*.txt" \
		--set log.$key=corpus/a.txt
	for name in tokenizer.json tokenizer_config.json; do
		spared tok/$name "log\.$key: tok/$name is read as data\.tokenizer too" train x.ini --set data.tokenizer=tok \
			--set data.train="$ids" --set model.vocab=70000 --set log.$key=tok/$name
	done
	spared mine.ini "log\.$key: mine\.ini is read as log\.machine too" train x.ini --set log.machine=mine.ini --set log.$key=mine.ini
done
printf '\n[log]\ntrace = text.txt\n' >>x.ini
spared text.txt '^heddle: x\.ini:[0-9]+: \[log\] trace: text\.txt is read as data\.train too' check x.ini
no 'log\.metrics: later\.json is written as|log\.trace: link\.json is written as log\.metrics too' train tiny.ini --set log.metrics=later.json \
	--set log.trace=link.json
no 'checkpoint\.dir: new is written as log\.metrics too' train tiny.ini --set log.metrics=new --set checkpoint.dir=new
fails "... and no file is created" test -e later.json -o -e new
spared s.csv "log\.trace: s\.csv is read as pp\.schedule too" check tiny.ini --ranks 2 $pp --set log.trace=s.csv
mkdir beside
cp "$build/plugins/dp/.libs/dp.so" beside/mine.so
sed 's,plugin = dp,plugin = ./mine.so,' tiny.ini >beside/y.ini
spared beside/mine.so 'log\.trace: beside/mine\.so is read as dp\.plugin too' train beside/y.ini --set log.trace=beside/mine.so
ok "a bare word is the name of a schedule or a plugin, not a file" \
	heddle check tiny.ini --ranks 2 --set dp.size=1 --set pp.plugin=pp \
	--set pp.size=2 --set pp.schedule=gpipe --set log.trace=gpipe --set log.metrics=pp
heddle train tiny.ini --set checkpoint.dir=saved --set train.steps=1 >/dev/null 2>&1
step=$(echo saved/step-*)
for name in model.safetensors config.json heddle/state.json heddle/optimizer.safetensors; do
	spared "$step/$name" "log\.trace: .* is a file of model\.load too" train tiny.ini --set model.load="$step" --set log.trace="$step/$name"
	spared "$step/$name" "log\.trace: .* is a file of checkpoint\.resume too" train tiny.ini --set checkpoint.resume=saved --set log.trace="$step/$name"
	spared "$step/$name" "log\.trace: .* is a file of checkpoint\.dir too" train tiny.ini --set checkpoint.dir=saved --set checkpoint.resume=auto \
		--set log.trace="$step/$name"
done
no 'checkpoint\.dir: saved/step-00000001 is itself a model, with a config\.json' train tiny.ini --set checkpoint.dir=saved/step-00000001
spared saved/latest "log\.trace: saved/latest is a file of checkpoint\.dir too" train tiny.ini --set checkpoint.dir=saved --set checkpoint.resume=auto \
	--set log.trace=saved/latest
ok "the metrics of a run may be in the directory of its checkpoints" \
	heddle train tiny.ini --set checkpoint.dir=saved --set checkpoint.resume=auto \
	--set train.steps=2 --set log.metrics=saved/m.jsonl --set log.trace=saved/t.json

# Only files of metrics are renamed to make room.
printf 'a letter\n' >letter
printf '{"text": "a"}\n' >lines
for name in letter lines t.json; do
	spared $name "log\.metrics: $name does not contain the metrics of a run" train tiny.ini --set log.metrics=$name
	fails "... and $name is not renamed" test -e $name.1
done
: >none
ok "an empty file is used for metrics" heddle train tiny.ini --set train.steps=1 --set log.metrics=none
ok "a file of metrics is renamed" heddle train tiny.ini --set train.steps=1 --set log.metrics=none
is "... to the next name" "$(head -1 none.1 | grep -c '"step": 1,')" 1

# An old trace is kept when no step is traced.
echo old >old.json
ok "a run may trace none of its steps" heddle train tiny.ini --set log.trace=old.json --set log.trace_steps=9-10
like "... a message says so" \
	"$(cat "$tmp/.ok")" 'old\.json: no step is traced; log\.trace_steps is 9-10, but this run has steps 1 to 3'
is "... and the old trace is kept" "$(cat old.json)" old

# Files of other subcommands.
spared none 'report: --out: \./none is read as metrics too' report none --out ./none
spared none 'report: --out: none is read as metrics too' report m.jsonl,none --out none
cp text.txt src.bin
cp text.txt src.idx
cp t.json src.part.json
cp text.txt corpus/b.bin
spared src.bin 'tokenize: --out src: src\.bin is read as text too' tokenize --tokenizer t.json src.bin --out src
spared src.idx 'tokenize: --out \./src: \./src\.idx is read as text too' tokenize --tokenizer t.json text.txt src.idx --out ./src
spared src.part.json 'tokenize: --out src: src\.part\.json is read as the tokenizer too' tokenize --tokenizer src.part.json text.txt --out src
spared corpus/b.bin 'tokenize: --out corpus/b: corpus/b\.bin is read as text too' tokenize --tokenizer t.json corpus --out corpus/b
spared corpus/b.bin 'tokenize: --out corpus/b: corpus/b\.bin is read as text too' tokenize --tokenizer t.json 'corpus/*.bin' --out corpus/b
best="plan tiny.ini --ranks 2 --search"
no 'plan: --html: \./p\.html is written as --out too' $best --machine mine.ini --out p.html --html ./p.html
fails "... and it is not created" test -e p.html
for option in --out --html; do
	spared tiny.ini "plan: $option: tiny\.ini is the INI too" $best --machine mine.ini $option tiny.ini
	spared mine.ini "plan: $option: mine\.ini is read as --machine too" $best --machine mine.ini $option mine.ini
done
spared t.json 'plan: --html: t\.json is read as --times too' plan tiny.ini --ranks 1 --machine mine.ini --times t.json --html t.json
ok "a file may have the name of an installed machine" heddle $best --machine dgx-a100 --out dgx-a100
rm -f dgx-a100

# Numbers that a double cannot represent.
for number in 1e999 1e-400 -1e-400; do
	no "train\.lr: '$number' is not a number" check tiny.ini --set train.lr=$number
done

no 'rope_beta_fast: 1 is less than rope_beta_slow = 2' check tiny.ini --set model.family=llama --set model.rope_scaling=yarn \
	--set model.rope_factor=2 --set model.rope_beta_fast=1 --set model.rope_beta_slow=2

# Options given twice, of which one would be ignored.
no 'check: --ranks is given twice: 2 and 4' check tiny.ini --ranks 2 --ranks=4
no 'plan: --slow is given twice: 0=2 and 1=3' plan tiny.ini --machine dgx-a100 --ranks 2 --slow 0=2 --slow 1=3

# Spaces of a search.
search='plan tiny.ini --machine dgx-a100 --ranks 4 --search --space'
for size in 0 a 4..b ..4; do
	printf '[strategy dp]\nplugin = dp\nsize = %s\n' $size >space.ini
	no "size: $size is not LEAST\\.\\.MOST" $search space.ini
done
for i in $(seq 9); do printf '[strategy s%d]\nplugin = dp\nsize = 1..\n' $i; done >space.ini
no 'plugin: more than 8 strategies' $search space.ini
for i in $(seq 9); do printf '[vary train.k%d]\nvalues = 1\n' $i; done >space.ini
no 'values: more than 8 keys' $search space.ini
no 'nowhere\.ini: there is no such file' $search nowhere.ini

# Of two runs with one directory, the second is refused and the first continues.  A run that was killed does not block
# the next.
heddle train tiny.ini --set train.steps=1000000 --set checkpoint.dir=both --set checkpoint.every=1000 >first 2>&1 &
shell=$!
for i in $(seq 100); do [ -s both/.lock ] && break; sleep 0.1; done
first=$(sed 's/^process \([0-9]*\) on .*/\1/' both/.lock)
no "both: another run writes there \\(process $first on .+\\)" train tiny.ini --set checkpoint.dir=both --set checkpoint.resume=auto
ok "the first run continues" kill -0 "$first"
kill -KILL "$first"
wait $shell 2>/dev/null
rm -rf both/step-* both/latest
ok "a run that was killed does not block the next" heddle train tiny.ini --set train.steps=1 --set checkpoint.dir=both
is "... which leaves no lock" "$(ls -A both | tr '\n' ' ')" "latest step-00000001 "

# A run that is refused creates no directory.  One that has nothing to train creates it, for the checkpoint that it
# resumes.
no 'nowhere: no such directory' train tiny.ini --set checkpoint.dir=made --set checkpoint.resume=nowhere
no 'config\.json: n_embd is 32, but model\.embed is 64' train tiny.ini --set checkpoint.dir=made --set checkpoint.resume=both --set model.embed=64
is "runs that are refused create no directory" "$(ls -d made 2>/dev/null)" ""
ok "a run with nothing to train is accepted" \
	heddle train tiny.ini --set checkpoint.dir=made --set checkpoint.resume=both --set train.steps=1
is "... and its directory contains the checkpoint" "$(ls made | tr '\n' ' ')" "latest step-00000001 "
# Tasks of srun that MPI does not connect would each train the whole layout, and write to the files of the others.  One
# of them prints a message.  A task has no terminal; whoever runs this test may have one.
heddle() { timeout -k 5 "${HD_TEST_SECONDS:-180}" setsid -w "$build/heddle" "$@" </dev/null; }
export SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4
no '^heddle: srun has started 4 tasks, but MPI connects none of them\. Start them with srun --mpi=pmix, ' train tiny.ini
SLURM_PROCID=1
is "the other tasks print nothing" "$(heddle train tiny.ini 2>&1)" ""
SLURM_PROCID=0
ok "check, which needs only one process, still works" heddle check tiny.ini
ok "... and so do the runs that conform starts" heddle conform dp --only resum --layouts 1
ok "a single rank of mpirun trains, whatever started its daemon" heddle_mpi 1 train tiny.ini
SLURM_STEP_NUM_TASKS=1
ok "a single task trains" heddle train tiny.ini
unset SLURM_PROCID SLURM_STEP_NUM_TASKS
done_testing
