# SPDX-License-Identifier: Apache-2.0
# t/lib/trained.sh - trains layouts of tiny.ini and compares their checkpoints bit by bit; after tiny.sh.
#
#	$same	options that all runs share, set by the test

trained() {	# RANKS DIR SETS...: trains; DIR gets the checkpoints, DIR.jsonl the metrics, DIR.out the output
	trained_n=$1 trained_dir=$2
	shift 2
	rm -f "$trained_dir.jsonl"
	heddle_mpi "$trained_n" train tiny.ini $same --set checkpoint.dir="$trained_dir" --set log.metrics="$trained_dir.jsonl" "$@" \
		>"$trained_dir.out" 2>&1 || tap_comment <"$trained_dir.out"
}
same_bits() {	# WHAT DIR DIR [STEP]: compares weights, and states if the optimizer has some; of step 3 by default
	trained_a=$2/step-0000000${4:-3} trained_b=$3/step-0000000${4:-3} f=heddle/optimizer.safetensors
	cmp -s "$trained_a/model.safetensors" "$trained_b/model.safetensors" &&
		{ [ ! -e "$trained_a/$f" -a ! -e "$trained_b/$f" ] || cmp -s "$trained_a/$f" "$trained_b/$f"; }
	tap_result $? "$1"
}
same_step() {	# WHAT DIR DIR [STEP]: compares weights, states and gradients; of step 3 by default
	for f in model.safetensors heddle/optimizer.safetensors heddle/gradients.safetensors; do
		cmp -s "$2/step-0000000${4:-3}/$f" "$3/step-0000000${4:-3}/$f"
		tap_result $? "$1: $f"
	done
}
