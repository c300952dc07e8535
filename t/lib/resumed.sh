# SPDX-License-Identifier: Apache-2.0
# t/lib/resumed.sh - runs that end in a checkpoint and go on from it; after tiny.sh.

# train NAME N INI [args...]: into ./NAME and NAME.jsonl.  Timing is asked anew in each run: what it chose once must come from
# the checkpoint.  So two runs of which neither is the other's continuation have the same bits only with
# --set train.deterministic=yes.
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
header() {			# FILE: names, shapes, types and places of all tensors
	n=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
	tail -c +9 "$1" | head -c "$n"
}
