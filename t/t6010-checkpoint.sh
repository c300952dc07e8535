#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run that is stopped and resumed must compute the same as a run that is not stopped.  A checkpoint must not be tied
# to the number of ranks that wrote it.
. "${0%/*}/lib/tap.sh"
heddle=$build/heddle
[ -x "$heddle" ] || skip_all "heddle is not built"
seq 1 2000 >"$tmp/text.txt"
cd "$tmp" || exit 1

cat >run.ini <<-'EOT'
	[model]
	layers = 2
	heads = 2
	embed = 16
	dropout = 0.1
	[data]
	train = text.txt
	[train]
	seq = 16
	global_batch = 4
	micro_batch = 1
	steps = 7
	lr = 1e-2
	warmup = 2
	threads = 1
	[checkpoint]
	every = 3
	keep = 3
EOT
cp run.ini dp.ini
printf '\n[strategy dp]\nplugin = dp\nsize = auto\n' >>dp.ini

# Each run has an empty cache of timings, so that choices made by timing must come from the checkpoint.
fresh=0
train() {			# NAME INI [args...]: writes ./NAME and NAME.jsonl
	name=$1 ini=$2
	shift 2
	fresh=$((fresh + 1))
	XDG_CACHE_HOME=$tmp/cache$fresh "$heddle" train "$ini" --set "checkpoint.dir=$name" \
		--set "log.metrics=$name.jsonl" "$@"
}
train2() {
	name=$1 ini=$2
	shift 2
	fresh=$((fresh + 1))
	XDG_CACHE_HOME=$tmp/cache$fresh mpi 2 "$heddle" train "$ini" --set "checkpoint.dir=$name" \
		--set "log.metrics=$name.jsonl" "$@"
}

losses() {			# STEP FILE: prints step, loss and norm of the later steps
	sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([^,]*\), *"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$2" |
		awk -v after="$1" '$1 > after'
}
loss() { losses 0 "$2" | awk -v s="$1" '$1 == s { print $2 }'; }
files="config.json model.safetensors heddle/optimizer.safetensors heddle/gradients.safetensors"
same() {			# A B: two checkpoints have the same files
	for f in $files; do
		cmp "$1/$f" "$2/$f" || return 1
	done
}

# One rank.
ok "a run with checkpoints" train whole run.ini --set checkpoint.gradients=yes
is "latest names the last step" "$(cat whole/latest)" step-00000007
is "... and only three steps are kept" \
	"$(ls -A whole | tr '\n' ' ')" "latest step-00000003 step-00000006 step-00000007 "
ok "resumed from step 3" train rest run.ini --set checkpoint.resume=whole/step-00000003 --set checkpoint.gradients=yes
is "... it runs four more steps" "$(losses 0 rest.jsonl | wc -l | tr -d ' ')" 4
is "... with the same losses and norms" "$(losses 3 rest.jsonl)" "$(losses 3 whole.jsonl)"
ok "... and saves the same files, bit for bit" same whole/step-00000007 rest/step-00000007
ok "resume = auto in an empty directory starts at step 0" train auto run.ini --set checkpoint.resume=auto \
	--set train.steps=3 --set train.decay=7
ok "resume = auto continues a run that was stopped" \
	train auto run.ini --set checkpoint.resume=auto --set checkpoint.gradients=yes
is "... with the same losses" "$(losses 3 auto.jsonl)" "$(losses 3 whole.jsonl)"
ok "... and the same files" same whole/step-00000007 auto/step-00000007
rm auto/latest
ok "without the file latest, the newest step is resumed" \
	train auto run.ini --set checkpoint.resume=auto --set train.steps=8 \
	--set checkpoint.keep=1
is "keep = 1 keeps only the last step" "$(ls -A auto | tr '\n' ' ')" "latest step-00000008 "

# Two ranks, and checkpoints that pass between one rank and two.
if [ -f "$build/plugins/dp/dp.la" ]; then
	ok "a run of two ranks with checkpoints" train2 two dp.ini --set checkpoint.gradients=yes
	ok "two ranks, resumed" train2 two-rest dp.ini --set checkpoint.resume=two/step-00000003 --set checkpoint.gradients=yes
	is "... it runs four more steps" "$(losses 0 two-rest.jsonl | wc -l | tr -d ' ')" 4
	is "... with the same losses and norms" "$(losses 3 two-rest.jsonl)" "$(losses 3 two.jsonl)"
	ok "... and saves the same files, bit for bit" same two/step-00000007 two-rest/step-00000007
	ok "one rank's checkpoint resumed by two" train2 to-two dp.ini --set checkpoint.resume=whole/step-00000003
	near "... its loss is that of one rank" "$(loss 7 to-two.jsonl)" "$(loss 7 whole.jsonl)" 2e-5
	ok "two ranks' checkpoint resumed by one" train to-one run.ini --set checkpoint.resume=two/step-00000003
	near "... its loss is that of two ranks" "$(loss 7 to-one.jsonl)" "$(loss 7 two.jsonl)" 2e-5
	is "a checkpoint of two ranks is evaluated by one" "$("$heddle" eval two --data text.txt | wc -l | tr -d ' ')" 1
else
	skip "the plugin dp is not built"
fi

# Gradients are saved after the update.  An optimizer of several ops (examples/muon) may not overwrite them before.
"${CC:-cc}" -std=gnu11 -O1 -fPIC -shared -fvisibility=hidden -I"$src/include" -o muon.so "$src/examples/muon/muon.c" -lm
sed 's/^dropout.*//' run.ini >made.ini
printf '\n[plugin muon]\nfile = ./muon.so\n' >>made.ini
made="--set checkpoint.gradients=yes --set train.steps=1 --set train.clip=0"
for o in adamw muon; do
	ok "a step of $o saves gradients" train of.$o made.ini $made --set train.optimizer=$o
done
ok "the optimizer of a plugin does not change them" \
	cmp of.adamw/step-00000001/heddle/gradients.safetensors of.muon/step-00000001/heddle/gradients.safetensors

# What a run has no place for, and what the device decides.
ok "a run of adamw resumes with sgd" train by-sgd run.ini --set train.optimizer=sgd --set checkpoint.resume=whole/step-00000003
like "... with a warning of the states that it does not read" "$(cat .ok)" \
	'^heddle: whole/step-00000003/heddle/optimizer[.]safetensors: this run has no place for [0-9]+ of its states, which stay unread: .*[.]m, .*, [.][.][.]$'
unlike "a run that reads all states warns of none" "$(train again run.ini --set checkpoint.resume=whole/step-00000003 2>&1)" \
	'unread|precision'
on_other_device() {		# a copy of whole as a device with another default would have saved it
	rm -rf device && cp -r whole/step-00000003 device && rm device/heddle/sums.json
	sed -i 's/"precision": "fp32"/"precision": "bf16"/' device/heddle/state.json
}
on_other_device
like "a change of the default precision is reported" \
	"$(train here run.ini --set checkpoint.resume=device 2>&1)" \
	'^heddle: device: was made with train[.]precision = bf16, but it is fp32 now, the default of this device$'
unlike "... and not the same precision, given or not" \
	"$(train given run.ini --set checkpoint.resume=device --set train.precision=bf16 2>&1)" 'precision ='

# The initial model, and a model that does not fit.
ok "steps = 0 writes the initial model" train zero run.ini --set train.steps=0
is "... as step 0" "$(cat zero/latest)" step-00000000
fails "... which another run from step 0 may not replace" train zero run.ini --set train.steps=0 --set train.seed=2
like "... and the message says what to do" "$(cat .ok)" 'zero already contains step 0, .*resume=auto'
ok "... but which a run continues" train zero run.ini --set train.steps=1 --set checkpoint.resume=auto
fails "a model of another size is refused" train wide run.ini --set model.embed=32 --set checkpoint.resume=whole
like "... with both numbers" "$(cat .ok)" 'n_embd is 16, but model.embed is 32'
fails "a model with more positions is refused" train long run.ini --set model.max_seq=64 --set checkpoint.resume=whole
like "... with the tensor, both shapes, and what to give" "$(cat .ok)" \
	'wpe\.weight is \[16, 16\] there, but \[64, 16\] in this model\. These are positions: give model\.max_seq = 16, whose default is train\.seq'
ok "a run with the optimizer sgd" train sgd run.ini --set train.optimizer=sgd --set train.steps=1
fails "a checkpoint without the states of adamw is refused" train no-states run.ini --set checkpoint.resume=sgd
like "... with the name of the missing tensor" "$(cat .ok)" 'has no tensor .*\.m: .*train\.optimizer'
is "... and one message" "$(grep -c 'has no tensor' .ok)" 1
done_testing
