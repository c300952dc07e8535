# SPDX-License-Identifier: Apache-2.0
# t/gpu/models.sh - the models of t/gpu/run-all, which are trained on the cpu beforehand and on the GPU.
#
#	write_models DIR SIMULATED	writes text.txt, quick.ini, gpt2-loss.ini, gpt2-124M.ini, gpt2-1.3B.ini
#	on_cpu MODEL DIR SIMULATED	trains it on the cpu; its losses are in DIR/cpu/MODEL.json
#	train_args MODEL SIMULATED	prints the options for training it on either

gpt2() {		# TEXT LAYERS EMBED HEADS VOCAB SEQ BATCH
	printf '[model]\nfamily = gpt2\nlayers = %s\nembed = %s\nheads = %s\nvocab = %s\n\n' "$2" "$3" "$4" "$5"
	printf '[data]\ntrain = %s\ntokenizer = byte\n\n[train]\nseq = %s\nglobal_batch = %s\nmicro_batch = %s\nsteps = 10\n' "$1" "$6" "$7" "$7"
}

write_models() {	# DIR SIMULATED
	awk 'BEGIN {
		n = split("and god said let there be light the waters under heaven were gathered together unto one place", w)
		for (x = 1; i < 40000; i++) { x = (x * 16807) % 2147483647; printf "%s%s", w[x % n + 1], i % 12 == 11 ? "\n" : " " }
	}' >"$1/text.txt"
	sed "s|^train = .*|train = $1/text.txt|" "$src/conf/quickstart.ini" >"$1/quick.ini"
	if [ "$2" = 0 ]; then
		gpt2 "$1/text.txt" 12 768 12 50304 256 2 >"$1/gpt2-loss.ini"
		gpt2 "$1/text.txt" 12 768 12 50304 1024 16 >"$1/gpt2-124M.ini"
		gpt2 "$1/text.txt" 24 2048 16 50304 2048 4 >"$1/gpt2-1.3B.ini"
		return
	fi
	for size in loss 124M 1.3B; do
		gpt2 "$1/text.txt" 1 32 2 256 16 1 >"$1/gpt2-$size.ini"
	done
	sed 's/^layers = .*/layers = 1/; s/^embed = .*/embed = 32/; s/^seq = .*/seq = 16/; s/^global_batch = .*/global_batch = 2/' \
		"$1/quick.ini" >"$1/quick.new" && mv "$1/quick.new" "$1/quick.ini"
}

train_args() {		# MODEL SIMULATED: prints options with the number of steps on which cpu and GPU are compared
	common="--set train.eval_batches=1 --set log.sample=0 --set log.every=1"
	case $1$2 in
	quick0) echo "$common --set train.steps=20" ;;
	quick1) echo "$common --set train.steps=2" ;;
	*0) echo "$common --set train.steps=3 --set train.lr=1e-4" ;;
	*) echo "$common --set train.steps=1 --set train.lr=1e-4" ;;
	esac
}

on_cpu() {		# MODEL DIR SIMULATED
	mkdir -p "$2/cpu" && rm -f "$2/cpu/$1.json"
	# shellcheck disable=SC2046	# words
	"$build/heddle" train "$2/$1.ini" $(train_args "$1" "$3") --set train.device=cpu --set log.metrics="$2/cpu/$1.json"
}
