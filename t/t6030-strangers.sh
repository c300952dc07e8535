#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A checkpoint from a stranger.  Its links must not lead to other files, and nothing in it may run as code.  A pipe
# in it must not block, and numbers in it must not take memory.  Otherwise whoever tries a model from the net must trust
# the person who packed it.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sed '/^\[strategy/,$d' tiny.ini >base.ini
ok "a checkpoint is saved" heddle train base.ini --set checkpoint.dir=made --set train.steps=1
step=made/step-00000001
fresh() { rm -rf theirs && cp -r $step theirs; }
refused() { # NAME PATTERN args...
	name=$1 pattern=$2
	shift 2
	out=$(HD_TEST_SECONDS=20 heddle "$@" 2>&1)
	is "$name: the status is 1" $? 1
	like "$name: the message gives the reason" "$out" "$pattern"
}
evaluates() { heddle eval theirs --data text.txt; }

fresh
ok "its unchanged copy is read" evaluates

# Links.  Those within the folder, and those of Hugging Face's cache, are allowed.
mkdir elsewhere
for file in config.json model.safetensors heddle/conf.ini; do
	fresh
	mv theirs/$file elsewhere/secret
	ln -s "$tmp/elsewhere/secret" theirs/$file
	refused "a link from $file" "theirs/$file: leads to .*/elsewhere/secret, which is outside theirs" eval theirs --data text.txt
done
fresh
mv theirs/model.safetensors theirs/heddle/weights
ln -s heddle/weights theirs/model.safetensors
ok "a link inside is followed" evaluates
mkdir -p hub/blobs hub/snapshots
rm -rf theirs && cp -r $step hub/snapshots/main
mv hub/snapshots/main/model.safetensors hub/blobs/0123
ln -s ../../blobs/0123 hub/snapshots/main/model.safetensors
ok "a link into the blobs of a cache is followed" heddle eval hub/snapshots/main --data text.txt
fresh
mkdir theirs/sub && mv theirs/model.safetensors theirs/sub
echo '{"weight_map": {"wte.weight": "sub/model.safetensors"}}' >theirs/model.safetensors.index.json
refused "a file of another folder in the index" 'model.safetensors.index.json: wte.weight: is not in any file of this directory' eval theirs --data text.txt
fresh
rm theirs/model.safetensors
mkfifo theirs/model.safetensors
refused "a pipe" 'theirs/model.safetensors: is not a regular file' eval theirs --data text.txt

# The files of a tokenizer's folder are copied into checkpoints, and so may be given away.
mkdir tokenizer
cp "$src/t/data/tokenizers/gpt2/tokenizer.json" tokenizer
echo '{"secret": 1}' >elsewhere/secret
ln -s "$tmp/elsewhere/secret" tokenizer/tokenizer_config.json
echo '{"add_prefix_space": false}' >tokenizer/special_tokens_map.json
out=$(heddle train base.ini --set data.tokenizer=tokenizer --set checkpoint.dir=shared --set train.steps=1 2>&1)
is "a link next to a tokenizer: the run continues" $? 0
like "... a message says that it is not copied" \
	"$out" 'tokenizer/tokenizer_config.json: leads to .*elsewhere/secret.*not copied'
is "... and the other files are copied" \
	"$(ls shared/step-00000001 | grep -c -e tokenizer_config -e special_tokens_map -e tokenizer.json)" 2

# Code.  heddle/x.so would be found, since paths in a configuration are relative to it.
fresh
cp "$build/plugins/dp/.libs/dp.so" theirs/heddle/x.so
printf '\n[plugin x]\nfile = x.so\n' >>theirs/heddle/conf.ini
refused "a plugin that came with the checkpoint" \
	'\[plugin x\] file: x.so is a path, .*--set x.file=x.so' eval theirs --data text.txt
refused "such a plugin given by the user, which is then checked" \
	'theirs/heddle/x.so|is a strategy' eval theirs --data text.txt --set x.file=./theirs/heddle/x.so
fresh
rm -r theirs/heddle
sed 's/^{/{"heddle": {"family": "gpt2", "layers": "2\\n[plugin x]\\nfile = x.so"},/' $step/config.json >theirs/config.json
refused "lines in a value of config.json" 'heddle.layers must be one line of text' eval theirs --data text.txt

# Numbers.
fresh
sed -i 's/^layers = .*/layers = 100000/' theirs/heddle/conf.ini
refused "more layers than tensors" 'theirs: claims 100000 layers, but its files have [0-9]+ tensors' eval theirs --data text.txt
rm -rf theirs && cp -r made theirs
sed -i 's/"step": 1/"step": -1/' theirs/step-00000001/heddle/state.json
refused "steps below 0" 'state.json: step -1, samples 8: each must be from 0 to 9007199254740992' train base.ini \
	--set checkpoint.dir=theirs --set checkpoint.resume=auto
done_testing
