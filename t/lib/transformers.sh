# SPDX-License-Identifier: Apache-2.0
# t/lib/transformers.sh - for tests that compare with transformers, after tap.sh.  They have two parts: results of
# transformers for small models are kept in t/data and always compared; after `with_torch' the test runs transformers
# itself, if Python has it.
#
#	$heddle, $python	the programs; the test runs in $tmp, with text.txt (lines of numbers) and kept/ (copy of
#				t/data)
#	ours MODEL DATA [OPTION...]	prints the loss of eval
#	kept_model NAME MODEL	MODEL (a directory) has the loss and the logits that transformers computed for kept/NAME
#	kept_saved NAME N [PLUGIN]	N ranks load kept/NAME and save it without a step as saved-NAME, the same model
#	kept_config NAME KEY...	the keys of config.json in saved-NAME have their old values, and that file and the
#				weights alone give the same model
#	kept_refused NAME SED REASON	kept/NAME with its config.json edited is refused, for that reason
#	with_torch		ends the test with a skip if Python does not have torch, transformers and safetensors
#
# Results differ only by rounding in fp32: a logit by u sqrt(2 SUMS LAYERS TERMS) of its size (t/lib/layout_run.h),
# which is at most 4.  With 20 sums per layer, 3 layers and 30 terms that is 1.5e-5.  The loss is a mean over 1196
# tokens: 4e-6 x 6 / sqrt(1196).
heddle=$build/heddle
[ -x "$heddle" ] || skip_all "heddle is not built"
python=${PYTHON:-python3}
export XDG_CACHE_HOME="$tmp/cache" HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
seq 1 2000 >"$tmp/text.txt"
mkdir "$tmp/kept" && cp -R "$src"/t/data/[a-z]* "$tmp/kept" && chmod -R u+w "$tmp/kept"
cd "$tmp" || exit 1

ours() { dir=$1 data=$2; shift 2; "$heddle" eval "$dir" --data "$data" "$@" | sed -n 's/^loss \([^ ]*\).*/\1/p'; }

# Prints the largest difference between the numbers of two lines.
apart() {
	printf '%s\n%s\n' "$1" "$2" | awk 'NR == 1 { n = split($0, a) }
		NR == 2 { if (split($0, b) != n || !n) { print "not as many"; exit }
			for (i = 1; i <= n; i++) { d = a[i] - b[i]; if (d < 0) d = -d; if (d > most) most = d }
			print most + 0 }'
}

kept_model() {
	near "$2 has the loss that transformers computed" "$(ours "$2" kept/ids-llmc.bin)" \
		"$(sed -n 's/^loss //p' "kept/$1/numbers.txt")" 1e-6
	for text in 0123456789ab z; do
		near "$2 has the logits after $text that transformers computed" \
			"$(apart "$(sed -n "s/^logits $text //p" "kept/$1/numbers.txt")" \
			"$("$heddle" generate "$2" --prompt $text --tokenizer byte --logits | sed -n 's/.*\[\(.*\)\].*/\1/p' | tr -d ,)")" 0 1.5e-5
	done
}

value() { sed -n "s/^ *\"$2\": \([^,]*\),*\$/\1/p" "$1"; }
kept_saved() {
	cd kept || exit 1
	{ cat one-sgd.ini; [ -z "$3" ] || printf '\n[strategy %s]\nplugin = %s\n' "$3" "$3"; } >saved.ini
	ok "$1 is loaded by $2 ranks" mpi "$2" "$heddle" train saved.ini --set model.load="$1" --set train.steps=0 \
		--set checkpoint.dir="../saved-$1"
	cd ..
	kept_model "$1" "saved-$1"
}

kept_config() {
	name=$1 from=saved-$1/step-00000000
	shift
	for key; do
		near "$name: $key has its old value" \
			"$(value "$from/config.json" "$key")" "$(value "kept/$name/config.json" "$key")" 1e-15
	done
	mkdir "alone-$name" && cp "$from/config.json" "$from/model.safetensors" "alone-$name"
	kept_model "$name" "alone-$name"
}

kept_refused() {
	rm -rf edited && cp -R "kept/$1" edited && sed "$2" "kept/$1/config.json" >edited/config.json
	fails "$1 with a $3 is refused" "$heddle" eval edited --data kept/ids-llmc.bin
	like "... with the reason" "$(cat .ok)" "edited/config\.json: (this )?$3"
}

with_torch() {
	"$python" -c 'import torch, transformers, safetensors' 2>/dev/null && return
	skip "python3 has no torch, transformers and safetensors"
	done_testing
}
