# SPDX-License-Identifier: Apache-2.0
# t/lib/resumed.sh - runs that end in a checkpoint and resume from it; after tiny.sh.

# train NAME N INI [args...]: trains into ./NAME and NAME.jsonl.  Each run has a new cache of timings, so that a resumed
# run must take the chosen implementations from the checkpoint.  Therefore two independent runs have the same bits only
# with --set train.deterministic=yes.
fresh=0
train() {
	to=$1 n=$2 ini=$3
	shift 3
	fresh=$((fresh + 1))
	XDG_CACHE_HOME=$tmp/cache$fresh heddle_mpi "$n" train "$ini.ini" --set "checkpoint.dir=$to" \
		--set "log.metrics=$to.jsonl" "$@"
}
numbers() { sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([^,]*\), *"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1"; }
after() { numbers "$1" | awk -v s="$2" '$1 > s'; }
same() {			# A B
	for f in config.json model.safetensors heddle/optimizer.safetensors; do
		cmp "$1/$f" "$2/$f" || return 1
	done
}
header() {			# FILE: prints names, shapes, types and positions of all tensors
	n=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
	tail -c +9 "$1" | head -c "$n"
}
