#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tensor parallelism: a run must send what explain prints, and that must be what the published layer sends.  A layout
# that is not possible must be refused before anything is launched.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
. "$src/t/lib/explained.sh"

{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy tp]\nplugin = tp\n'
} >cut.ini


b=2 s=32 h=32 layers=2 micros=4
for model in gpt2 grouped $(whole_sweep && echo llama one); do
	case $model in
	gpt2) keys= ;;
	llama) keys='--set model.family=llama' ;;
	grouped) keys='--set model.family=llama --set model.kv_heads=2' ;;
	one) keys='--set model.family=llama --set model.kv_heads=1' ;;
	esac
	for t in 2 4; do
		for sequence in no yes; do
			what="$model on $t, sequence $sequence"
			json=$(heddle explain cut.ini $keys --set tp.sequence_parallel=$sequence --ranks $t --json)
			ran=$(heddle_mpi $t bench cut.ini $keys --set tp.sequence_parallel=$sequence --json --steps 1 2>/dev/null)
			is "$what: sent as explained" "$(json "$ran" bytes_counted)" "$(said .)"
			if [ $sequence = yes ]; then k=10; else k=8; fi
			# for the layers; embedding, head and position are not included
			is "$what: $k b s h (t - 1) / t elements a layer" "$(said '"reason": "[^"]* of layer [0-9]+ .*needed by [a-z_]+ of layer|"reason": "[^"]* of (embed|head) .*needed by (einsum|add) of layer' |
				cat)" "$((4 * k * b * s * h * (t - 1) / t * layers * micros))"
		done
	done
done

# Key heads that several ranks share show only in the sums of their gradients; the axis of all ranks has its section's
# name.
names() { heddle explain cut.ini --set model.family=llama --set model.kv_heads=$1 --set tp.sequence_parallel=yes --ranks 4 --json |
	tr '{' '\n' | sed -n 's/.*"axis": "\([^"]*\)".*"tensor": "\([^"]*\)".*/\1 \2/p' | sed 's/ grad:.*\.[kv]_proj\..*/ shared/; t; s/ .*//' | sort -u | tr '\n' ';'; }
is "the axes for two key heads on four ranks" "$(names 2)" "tp;tp.same_kv shared;"
is "the axes for one key head on four ranks" "$(names 1)" "tp;tp shared;"
is "the axes for four key heads on four ranks" "$(names 4)" "tp;"

# Between hosts the same bytes are sent.
is "between hosts: sent as explained" \
	"$(json "$(HD_TEST_COMM=mpi heddle_mpi 2 bench cut.ini --json --steps 1 2>/dev/null)" bytes_counted)" \
	"$(json=$(heddle explain cut.ini --ranks 2 --json); said .)"

# Refused by check, with both numbers and without a launch.
refused() {
	name=$1 pattern=$2
	shift 2
	out=$(heddle check cut.ini "$@" 2>&1)
	rc=$?
	[ $rc -gt 0 ] && [ $rc -lt 124 ] && [ "$(printf '%s\n' "$out" | messages | wc -l)" -eq 1 ] &&
		printf '%s\n' "$out" | messages | grep -Eq -e "$pattern"
	tap_result $? "refused: $name" || printf 'status %s\n%s\n want %s\n' $rc "$out" "$pattern" | tap_comment
}
refused "heads" '--set tp\.size: 3 does not divide model\.heads = 4$' --set tp.size=3
refused "heads, with a size of auto" '\[strategy tp\] size: 8 does not divide model\.heads = 4$' --ranks 8
refused "the feed-forward layer" '--set tp\.size: 4 does not divide model\.mlp = 66$' --set tp.size=4 --set model.mlp=66
refused "the sequence" '--set tp\.size: 4 does not divide train\.seq = 30$' --set tp.size=4 --set train.seq=30 \
	--set tp.sequence_parallel=yes
refused "the feed-forward layer over both axes of shared key heads" '--set tp\.size: 4 does not divide model\.mlp = 66$' \
	--set tp.size=4 --set model.family=llama --set model.kv_heads=2 --set model.mlp=66
ok "a sequence that is not sharded need not divide" heddle check cut.ini --set tp.size=4 --set train.seq=30
ok "... nor need the vocabulary" heddle check cut.ini --set tp.size=4 --set model.vocab=259 --set data.tokenizer=byte
done_testing
