# SPDX-License-Identifier: Apache-2.0
# t/lib/transformers.sh - for tests that compare with transformers, after tap.sh.  They have two halves: what it made of
# small models is kept in t/data and compared always; behind `with_torch' it runs beside, where Python has it.
#
#	$heddle, $python	$tmp, in which the test then stands: text.txt, lines of numbers; kept/, a copy of t/data
#	ours MODEL DATA [OPTION...]	the loss that eval prints
#	kept_model NAME MODEL	MODEL (a directory) has the loss and the logits that transformers has computed for kept/NAME
#	kept_saved NAME N [PLUGIN]	N ranks begin from kept/NAME and save it without a step, as saved-NAME; that is the same
#	kept_config NAME KEY...	the keys of config.json in saved-NAME are what they were, and with nothing but that file
#				and the weights the model is the same
#	kept_refused NAME SED REASON	kept/NAME with its config.json edited is refused, for that reason
#	with_torch		ends the test, with a skip, where Python does not have torch, transformers and safetensors
#
# What may differ is rounding in fp32: a logit by u sqrt(2 SUMS LAYERS TERMS) of its size (t/lib/layout_run.h), which is 4
# at most: 20 sums a layer, 3 layers, 30 terms: 1.5e-5.  The loss is a mean over 1196 tokens: 4e-6 x 6 / sqrt(1196).
heddle=$build/heddle
[ -x "$heddle" ] || skip_all "heddle is not built"
python=${PYTHON:-python3}
export XDG_CACHE_HOME="$tmp/cache" HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
seq 1 2000 >"$tmp/text.txt"
mkdir "$tmp/kept" && cp -R "$src"/t/data/[a-z]* "$tmp/kept" && chmod -R u+w "$tmp/kept"
cd "$tmp" || exit 1

ours() { dir=$1 data=$2; shift 2; "$heddle" eval "$dir" --data "$data" "$@" | sed -n 's/^loss \([^ ]*\).*/\1/p'; }

# The largest difference between the numbers of two lines.
apart() {
	printf '%s\n%s\n' "$1" "$2" | awk 'NR == 1 { n = split($0, a) }
		NR == 2 { if (split($0, b) != n || !n) { print "not as many"; exit }
			for (i = 1; i <= n; i++) { d = a[i] - b[i]; if (d < 0) d = -d; if (d > most) most = d }
			print most + 0 }'
}

kept_model() {
	near "$2: the loss that transformers has computed" "$(ours "$2" kept/ids-llmc.bin)" \
		"$(sed -n 's/^loss //p' "kept/$1/numbers.txt")" 1e-6
	for text in 0123456789ab z; do
		near "$2: its logits after $text" "$(apart "$(sed -n "s/^logits $text //p" "kept/$1/numbers.txt")" \
			"$("$heddle" generate "$2" --prompt $text --tokenizer byte --logits | sed -n 's/.*\[\(.*\)\].*/\1/p' | tr -d ,)")" 0 1.5e-5
	done
}

value() { sed -n "s/^ *\"$2\": \([^,]*\),*\$/\1/p" "$1"; }
kept_saved() {
	cd kept || exit 1
	{ cat one-sgd.ini; [ -z "$3" ] || printf '\n[strategy %s]\nplugin = %s\n' "$3" "$3"; } >saved.ini
	ok "$1: $2 ranks begin from it" mpi "$2" "$heddle" train saved.ini --set model.load="$1" --set train.steps=0 \
		--set checkpoint.dir="../saved-$1"
	cd ..
	kept_model "$1" "saved-$1"
}

kept_config() {
	name=$1 from=saved-$1/step-00000000
	shift
	for key; do
		near "$name: $key as it was" "$(value "$from/config.json" "$key")" "$(value "kept/$name/config.json" "$key")" 1e-15
	done
	mkdir "alone-$name" && cp "$from/config.json" "$from/model.safetensors" "alone-$name"
	kept_model "$name" "alone-$name"
}

kept_refused() {
	rm -rf edited && cp -R "kept/$1" edited && sed "$2" "kept/$1/config.json" >edited/config.json
	fails "$1 with a $3" "$heddle" eval edited --data kept/ids-llmc.bin
	like "is refused, with the reason" "$(cat .ok)" "edited/config\.json: (this )?$3"
}

with_torch() {
	"$python" -c 'import torch, transformers, safetensors' 2>/dev/null && return
	skip "python3 has no torch, transformers and safetensors"
	done_testing
}
