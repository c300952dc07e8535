#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Mistakes in what users type.  Whatever the number of ranks, each must give one message that names it, and a non-zero
# status.  A run that goes on with a guess costs days, and a page of messages hides the one that matters.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# mpirun takes a second and a half to end, so the short tiers repeat only every third refusal on two ranks.
refusals=0
is_drawn() {
	refusals=$((refusals + 1))
	whole_sweep || [ $((refusals % 3)) -eq 1 ]
}

# refused NAME PATTERN args of train...: one rank prints one message, and two ranks (unless $alone) print the same one.
refused() {
	name=$1 pattern=$2
	shift 2
	out=$(heddle train tiny.ini "$@" 2>&1)
	rc=$?
	said=$(printf '%s\n' "$out" | messages)
	[ $rc -gt 0 ] && [ $rc -lt 124 ] && [ "$(printf '%s\n' "$said" | wc -l)" -eq 1 ] &&
		printf '%s\n' "$said" | grep -Eq -e "$pattern"
	tap_result $? "refused: $name" || printf 'status %s\n%s\n want %s\n' $rc "$out" "$pattern" | tap_comment
	[ -z "$alone" ] && is_drawn || return
	out2=$(heddle_mpi 2 train tiny.ini "$@" 2>&1)
	rc=$?
	[ $rc -gt 0 ] && [ $rc -lt 124 ] && [ "$(printf '%s\n' "$out2" | messages)" = "$said" ]
	tap_result $? "refused on two ranks: $name" ||
		printf 'status %s\n%s\n want %s\n' $rc "$out2" "$said" | tap_comment
}

: >empty.txt
head -c 30 text.txt >short.txt

# Data.
refused "an empty text" 'train: empty\.txt: the file is empty' --set data.train=empty.txt
refused "a text shorter than a sequence" ' tokens without .* fewer than train\.seq \+ 1 = 33' --set data.train=short.txt
alone=yes
refused "a text that does not exist" 'data\.train: nowhere\.txt: No such file' --set data.train=nowhere.txt
refused "a sequence longer than the data" 'text\.txt|tokens .* fewer than train\.seq \+ 1 = 40001' --set train.seq=40000
refused "a context shorter than a sequence" 'model\.max_seq: 8 positions are fewer than train\.seq = 32' --set model.max_seq=8

# Sizes.
refused "heads that do not divide model.embed" 'model\.heads: 5 does not divide model\.embed = 32' --set model.heads=5
refused "an odd head size with rotary positions" \
	'model\.heads: model\.embed / heads = 32 / 32 is 1, which is odd, but the rotary positions .* rotate pairs' \
	--set model.family=llama --set model.heads=32
refused "an odd head_dim" 'model\.head_dim: 7 is odd' --set model.family=llama --set model.head_dim=7
refused "one file for two logs" 'log\.trace: x\.json is the file of log\.metrics too' --set log.metrics=x.json --set log.trace=x.json
unlike "check does not mention replicas for the same heads" \
	"$(heddle check tiny.ini --set model.family=llama --set model.heads=32 2>&1)" 'replica'
refused "dropout for a family without it" 'model\.dropout: the family llama has no dropout' --set model.family=llama \
	--set model.dropout=0.1
refused "fewer key heads for a family that does not support them" \
	'model\.kv_heads: 2, but the family gpt2 has as many as heads = 4' \
	--set model.kv_heads=2
refused "rope_theta for a family without rotary positions" \
	'model\.rope_theta: the family gpt2 has no rotary positions' \
	--set model.rope_theta=500000
refused "a batch that the micro-batches of the replicas do not divide" \
	'global_batch: 10 is not a multiple of micro_batch 4 x 1 replicas' \
	--set train.global_batch=10 --set train.micro_batch=4

# Settings of the optimizer that would divide by zero, or make the learning rate rise where it should fall.
refused "a minimum learning rate above the learning rate" \
	'train\.min_lr: 0\.1 is more than lr = 0\.003' --set train.min_lr=0.1
refused "a negative minimum learning rate" 'train\.min_lr: -2 is negative \(-1: lr/10\)' --set train.min_lr=-2
refused "a decay that ends within the warm-up" \
	'train\.decay: 5 is before the end of warmup = 9' --set train.decay=5 --set train.warmup=9
refused "an eps of 0" '--set train\.eps: 0 is too small, at least 1e-37$' --set train.eps=0
refused "a beta1 of 1" '--set train\.beta1: 1 is not in 0\.\.0\.999999$' --set train.beta1=1

# Unknown keys, sections and words.
alone=
refused "an unknown key" '--set model\.layer: unknown key; did you mean layers\?' --set model.layer=3
while read -r theirs ours; do
	refused "the name that other programs use for $ours" \
		"--set ${theirs%=*}: unknown key; did you mean $ours\\?\$" --set $theirs
done <<'END'
train.learning_rate=1 lr
train.batch_size=8 global_batch
train.gradient_accumulation_steps=2 micro_batch
train.epochs=1 steps
train.max_grad_norm=1 clip
model.hidden_size=64 embed
model.num_attention_heads=4 heads
checkpoint.path=x dir
checkpoint.interval=5 every
log.file=x metrics
dp.world_size=2 size
train.bf16=yes precision
train.recompute_activations=yes recompute
train.warmup_ratio=0.1 warmup
train.fsdp=yes \[strategy NAME\] zero = 3
train.tensor_model_parallel_size=2 \[strategy NAME\] size
train.pipeline_model_parallel_size=2 \[strategy NAME\] size
checkpoint.load=x resume, or \[model\] load
END
while read -r theirs why; do
	refused "a setting that has no key: $theirs" "--set ${theirs%=*}: unknown key; $why\$" --set $theirs
done <<'END'
checkpoint.dtype=bf16 checkpoints are in fp32
log.wandb=yes there is no counterpart; metrics and tensorboard are files
data.packing=yes there is no counterpart; texts are one stream, cut into sequences of train\.seq
END
for each in data.file=train data.path=train train.sequence=seq model.hidden=embed; do
	refused "the name ${each%=*} for ${each#*=}" "unknown key; did you mean ${each#*=}\\?\$" --set "${each%=*}=3"
done
for each in 'train.heads=[model] heads' 'model.lr=[train] lr' 'model.seq=[train] seq' 'model.context=[train] seq' 'dp.seq=[train] seq' \
	'dp.micro_batch=[train] micro_batch' 'train.dir=[checkpoint] dir' 'data.every=[checkpoint] every or [log] every'; do
	refused "a key in the wrong section: ${each%%=*}" \
		"unknown key; did you mean $(printf '%s' "${each#*=}" | sed 's/[][]/\\&/g')\\?\$" --set "${each%%=*}=3"
done
refused "a key of a section that does not exist" \
	'--set tp\.size: no section \[tp\] or \[strategy tp\]; did you mean dp\? --set tp\.plugin=PLUGIN before it adds one$' --set tp.size=2
refused "a key that resembles no other" \
	'--set train\.colour: unknown key; .heddle keys train. prints all$' --set train.colour=1
alone=yes
refused "an unknown key of a plugin" '--set dp\.buckett: unknown key; did you mean bucket\?' --set dp.buckett=1K
refused "an unknown section" '--set modell\.layers: no section .*did you mean model\?' --set modell.layers=3
refused "a word where a number belongs" "--set model\.layers: 'two' is not a whole number" --set model.layers=two
refused "a misspelt choice" \
	"--set train\.schedule: 'cosin' is not a choice; did you mean cosine\?" --set train.schedule=cosin
refused "an unknown family" 'model\.family: there is no family bert; known: gpt2, llama' --set model.family=bert
refused "a misspelt family" 'model\.family: there is no family lama; did you mean llama\?' --set model.family=lama
refused "a sequence of 0 tokens" '--set train\.seq: 0 is too small, at least 1' --set train.seq=0
refused "a size of 0" "--set dp\.size: 0 is not a number of ranks" --set dp.size=0
alone=
refused "a --set without a value" '--set layers: write section\.key=value' --set layers

# The same mistakes in the INI file: the message says where.
sed 's/^layers/layerz/' tiny.ini >bad.ini
like "the message gives the file and the line of an unknown key" "$(heddle train bad.ini 2>&1)" \
	'^heddle: bad\.ini:3: \[model\] layerz: unknown key; did you mean layers\?$'
sed 's/^\[train\]/[trian]/' tiny.ini >bad.ini
like "... of an unknown section" "$(heddle train bad.ini 2>&1)" '^heddle: bad\.ini:10: .*trian.*did you mean .train.\?$'
sed 's/^heads = 4/heads 4/' tiny.ini >bad.ini
like "... of a line that is not a setting" "$(heddle train bad.ini 2>&1)" '^heddle: bad\.ini:5: '
sed 's/^\[strategy dp\]/[strategy model]/' tiny.ini >bad.ini
like "a strategy may not have the name of a section" "$(heddle check bad.ini 2>&1)" \
	'^heddle: bad\.ini:[0-9]+: \[strategy model\]: there is a section \[model\]: --set model\.size would set its key$'
sed 's/^\[strategy dp\]/[strategy d.p]/' tiny.ini >bad.ini
like "... nor a name with a dot" \
	"$(heddle check bad.ini 2>&1)" 'bad\.ini:[0-9]+: \[strategy d\.p\]: a name has letters, digits, _ and -, not \.$'
grep -v '^seq' tiny.ini >bad.ini
like "a required key that is missing is named" "$(heddle check bad.ini 2>&1)" '^heddle: bad\.ini.*\[train\].*seq'
for key in layers embed heads; do
	grep -v "^$key" tiny.ini >bad.ini
	like "a missing size of the model is named: $key" \
		"$(heddle check bad.ini 2>&1)" "^heddle: bad\\.ini:[0-9]+: \\[model\\] $key: missing; it has no default$"
done
like "train without an INI file is refused" "$(heddle train 2>&1)" '^heddle: train: '
out=$(heddle_mpi 2 train nowhere.ini 2>&1)
is "an INI file that does not exist: one message on two ranks" "$(printf '%s\n' "$out" | messages)" \
	"heddle: nowhere.ini: No such file or directory"

# Files that cannot be written are detected before the first step.
: >occupied
refused "metrics that cannot be written" '--set log\.metrics: nowhere/m\.jsonl: No such file' --set log.metrics=nowhere/m.jsonl
alone=yes
refused "a trace that cannot be written" '--set log\.trace: occupied/t\.json: Not a directory' --set log.trace=occupied/t.json
alone=
refused "checkpoints that cannot be written" '--set checkpoint\.dir: occupied' --set checkpoint.dir=occupied/here
unlike "... before the first step" "$out" '^step '
refused "resume = yes" '--set checkpoint\.resume: yes: write auto to resume from the newest checkpoint in dir' --set checkpoint.resume=yes
sed 's/^layers = .*/layers = 2 # two/' tiny.ini >slip.ini
like "a comment that begins with # is explained" "$(heddle check slip.ini 2>&1)" \
	"slip\.ini:3: \[model\] layers: '2 # two' is not a whole number \(K, M or G may follow it\) \(a comment after a value begins with ;\)\$"
sed 's/^family = .*/family = "gpt2"/' tiny.ini >slip.ini
like "a value in quotes is explained" \
	"$(heddle check slip.ini 2>&1)" 'slip\.ini:2: \[model\] family: .*\(values are written without quotes\)$'
sed 's/^train = .*/train = "text.txt"/' tiny.ini >slip.ini
like "a file name in quotes is explained" \
	"$(heddle check slip.ini 2>&1)" 'slip\.ini:8: \[data\] train: .*\(values are written without quotes\)$'
refused "the same validation set twice" '--set data\.valid: text\.txt is given twice' --set data.valid=text.txt,text.txt
refused "a gate_scale of 0" '--set model\.gate_scale: 0 is not in 1e-30..1e30' --set model.gate_scale=0
refused "a rope_theta that is too large for fp32" \
	'--set model\.rope_theta: 1e31 is not in' --set model.family=llama --set model.rope_theta=1e31
refused "a model to load that is not a checkpoint" \
	'--set model\.load: occupied: is not a checkpoint' --set model.load=occupied
refused "a checkpoint to resume that is not one" \
	'--set checkpoint\.resume: occupied: is not a checkpoint' --set checkpoint.resume=occupied

# check refuses the same files with the same messages, and creates none of them.
for set in data.train=empty.txt log.metrics=nowhere/m.jsonl log.metrics=. log.trace=occupied/t.json checkpoint.dir=occupied/here \
	checkpoint.resume=occupied checkpoint.resume=auto; do
	out=$(heddle check tiny.ini --set model.vocab=256 --set $set 2>&1)
	is "check refuses $set with status 1" $? 1
	is "... and with the message of train" \
		"$(printf '%s\n' "$out" | messages)" "$(heddle train tiny.ini --set model.vocab=256 --set $set 2>&1 | messages)"
done
ok "check accepts files that can be written" \
	heddle check tiny.ini --set log.metrics=m.jsonl --set log.trace=t.json --set checkpoint.dir=new/deep
ok "... and does not create them" test ! -e m.jsonl -a ! -e t.json -a ! -e new
ok "check accepts the layout of a run on another machine, whose files do not exist here" \
	heddle check tiny.ini --set model.vocab=256 --set data.train=there --set log.metrics=nowhere/m
ok "train creates its files" heddle train tiny.ini --set log.metrics=m.jsonl --set checkpoint.dir=new/deep
out=$(heddle check tiny.ini --set checkpoint.dir=new/deep 2>&1)
is "check refuses a directory that contains a later step" $? 1
like "... and names the step" "$out" 'checkpoint\.dir: new/deep already contains step 3'
out=$(heddle check tiny.ini --set checkpoint.resume=new/deep --set model.mlp=64 2>&1)
is "check refuses a checkpoint of another model" $? 1
like "... and names the checkpoint and its size" "$out" 'new/deep/step-00000003.*128'

# More mistakes that are refused, mostly by check, with one message each.
wrong() {			# NAME PATTERN args...
	name=$1 pattern=$2
	shift 2
	out=$(heddle "$@" 2>&1)
	rc=$?
	[ $rc -gt 0 ] && [ $rc -lt 124 ] && [ "$(printf '%s\n' "$out" | messages | wc -l)" -eq 1 ] &&
		printf '%s\n' "$out" | messages | grep -Eq -e "$pattern"
	tap_result $? "refused: $name" || printf 'status %s\n%s\n want %s\n' $rc "$out" "$pattern" | tap_comment
}
long=$(printf '%0100d' 0)
wrong "a --set with an empty key" '--set x\.=3: write section\.key=value$' check tiny.ini --set x.=3
wrong "a --set with an empty section" '--set \.x=3: write section\.key=value$' check tiny.ini --set .x=3
wrong "a --set with a blank in the key" '--set x\.a b=3: write section\.key=value$' check tiny.ini --set 'x.a b=3'
wrong "a --set with a key that is too long" '--set x\.0+=3: write section\.key=value$' check tiny.ini --set "x.$long=3"
wrong "a --set with a blank in the section" '--set a b\.plugin: no section' check tiny.ini --set 'a b.plugin=dp'
wrong "a plugin file that does not exist" \
	'--set more\.file: no plugin file \./nothing\.so' check tiny.ini --set more.file=./nothing.so
wrong "a --set of a section with a long name" "--set a$long\.plugin: no section" check tiny.ini --set "a$long.plugin=dp"
wrong "a control character in a value" '--set data\.train: a value cannot hold a control character' check tiny.ini --set "data.train=a$(printf '\001')b"
wrong "a size that is a word" '--set dp\.size: two is not a number of ranks' check tiny.ini --set dp.size=two
wrong "a tie_embeddings that is neither yes, no nor auto" \
	'--set model\.tie_embeddings: maybe is neither yes, no nor auto$' check tiny.ini --set model.tie_embeddings=maybe
wrong "key heads that do not divide the heads" '--set model\.kv_heads: 3 does not divide model\.heads = 4$' check tiny.ini --set model.family=llama \
	--set model.kv_heads=3
wrong "chunks for a schedule without chunks" \
	'--set pp\.chunks: 2 need schedule = interleaved or a file$' check tiny.ini --set pp.plugin=pp --set pp.size=2 \
	--set pp.chunks=2 --set pp.schedule=gpipe
for ramp in x,2,3 0,2,3 2,3; do
	wrong "a ramp of $ramp" 'global_batch_ramp: must be START,STEP,TOKENS: .*, all positive$' check tiny.ini --set train.global_batch_ramp=$ramp
done
wrong "a ramp that begins above its end" 'from 16 in steps of 2 the ramp does not reach global_batch = 8$' check tiny.ini --set train.global_batch_ramp=16,2,3
for steps in +1-3 '1 -3' 5-3 x; do
	wrong "steps of a trace: $steps" "trace_steps: '.*' is neither a step \(from 1\) nor FIRST-LAST\$" check tiny.ini --set log.trace=t.json \
		--set "log.trace_steps=$steps"
done
# Settings of decoders.  A line gives a pattern of the message and the keys.
while read -r pattern keys; do
	set --
	for k in $keys; do set -- "$@" --set "model.$k"; done
	wrong "$keys" "^heddle: --set model\.$pattern" check tiny.ini --set model.family=llama "$@"
done <<'END'
window_layers:.*must.be.letters.w window_layers=wx
rotary_fraction:.0\.4.of.head_dim.8.is.3,.which.is.odd rotary_fraction=0.4
rope_high:.1.is.not.more.than.rope_low.=.4 rope_scaling=llama3 rope_low=4 rope_high=1
rope_scaling:.dynamic.needs.more.than.2.rotated.dims rope_scaling=dynamic rotary_fraction=0.25
rope_short:.'1,x'.must.be.numbers.above.0 rope_scaling=longrope rope_short=1,x
rope_short:.3.factors,.but.4.pairs rope_scaling=longrope rope_short=1,1,1
rope_long:.5.factors,.but.4.pairs rope_scaling=longrope rope_short=1,1,1,1 rope_long=1,1,1,1,1
rope_long:.'0'.must.be.numbers.above.0 rope_scaling=longrope rope_short=1,1,1,1 rope_long=0
rope_original:.20\.5.is.not.a.whole.number.of.positions rope_scaling=yarn rope_original=20.5
rope_original:.1,.but.*number.of.positions rope_scaling=longrope rope_short=1,1,1,1 rope_long=1,1,1,1 rope_original=1
END
# Options and keys that exclude each other, and values that do not exist.  A line gives a pattern of the message, and
# the command.
: >empty.csv
while IFS='|' read -r pattern command; do
	# shellcheck disable=SC2086 # words
	wrong "$command" "^heddle: $pattern" $command
done <<'END'
--set dp.zero: 1, but servers = 1 already have|check tiny.ini --ranks 3 --set dp.sync=server --set dp.servers=1 --set dp.zero=1
--set dp.zero_size: 3 does not divide 4 replicas|check tiny.ini --ranks 4 --set train.micro_batch=1 --set dp.zero=1 --set dp.zero_size=3
--set dp.zero_size: 8 does not divide 4 replicas|check tiny.ini --ranks 4 --set train.micro_batch=1 --set dp.zero=1 --set dp.zero_size=8
--set dp.servers: 2, but there are 2 ranks|check tiny.ini --ranks 2 --set dp.sync=server --set dp.servers=2
--set pp.schedule: ./empty.csv contains no unit|check tiny.ini --set dp.size=1 --set pp.plugin=pp --set pp.size=2 --set pp.schedule=./empty.csv
--set data.valid: nowhere.txt: No such file|check tiny.ini --set data.valid=nowhere.txt
--set data.weights: 'x' is not a number above 0|check tiny.ini --set data.weights=x
--set data.weights: '0' is not a number above 0|check tiny.ini --set data.weights=0
--set data.weights: '1e7' is not a number above 0|check tiny.ini --set data.weights=1e7
--set data.weights: 1e-12 has more than 9 digits|check tiny.ini --set data.weights=1e-12
--set data.weights: 2 numbers, but train has 1|check tiny.ini --set data.weights=1,2
bench: --generate cannot be combined with|bench tiny.ini --generate --profile
bench: --generate cannot be combined with|bench tiny.ini --generate --products
bench: --generate cannot be combined with|bench tiny.ini --generate --bound
plan: --times needs --html|plan tiny.ini --machine dgx-a100 --times t.json
plan: --slow x is not RANK=FACTOR|plan tiny.ini --machine dgx-a100 --slow x
plan: --slow 9=2 is not RANK=FACTOR|plan tiny.ini --machine dgx-a100 --slow 9=2
plan: --slow 0=0.5 is not RANK=FACTOR|plan tiny.ini --machine dgx-a100 --slow 0=0.5
plan: --slow 0=2x is not RANK=FACTOR|plan tiny.ini --machine dgx-a100 --slow 0=2x
plan: --space needs --search|plan tiny.ini --machine dgx-a100 --space x.ini
nosuch: there is no such file, and no such name; .*dgx-a100|plan tiny.ini --machine nosuch
nosuch: there is no such file, and no such name; .*megatron|plan tiny.ini --machine dgx-a100 --style nosuch
--after nothing: there is no such pass|explain tiny.ini --after nothing
generate: --prompt and --prompts: give one of the two|generate nowhere --prompt a --prompts b
generate: --tokenizer does nothing with --ids: no text is read|generate nowhere --prompt 1 --ids --tokenizer t
nowhere: no such directory|eval nowhere --data text.txt
END
wrong "a head_dim that differs from embed / heads, where the family fixes it" \
	'model\.head_dim: 4, but the family gpt2 has embed / heads = 8$' check tiny.ini --set model.head_dim=4
printf '\n[%s]\n' "$long$long" | cat tiny.ini - >bad.ini
wrong "a section in the file with a long name" '^heddle: bad\.ini:[0-9]+: \[0+' check bad.ini
sed 's/^\[strategy dp\]/[strategy d_p-x]/' tiny.ini >odd.ini
printf '%s = 1\n' "$long" | cat tiny.ini - >bad.ini
wrong "a key with a long name" '^heddle: bad\.ini:[0-9]+: 0+\.\.\.: a key of more than 90 characters$' check bad.ini
ok "the name of a strategy may contain _ and -" heddle check odd.ini
like "-h prints the help, like --help" "$(heddle check tiny.ini -h)" '^heddle check '
wrong "a plugin that does not exist" 'no plugin "nosuch" .*; there: .*dp' plugins nosuch

# Verbs that need no MPI print only once, even when mpirun starts them.
is "a verb without MPI, started on three ranks: one message" \
	"$(heddle_mpi 3 explain tiny.ini --rank 9 2>&1 | messages)" \
	"heddle: explain: --rank: 9 is too large, at most 0"
is "... and one result" "$(heddle_mpi 3 data tiny.ini --step 2 --json)" "$(heddle data tiny.ini --step 2 --json)"
done_testing
