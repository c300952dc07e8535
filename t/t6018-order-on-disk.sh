#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The order in which a checkpoint comes to the disk.  A kill does not show it, since the kernel goes on writing; only a
# machine that stops does: a name whose bytes were never written, or `latest` of a step that is not there.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

ok "the log" ${CC:-cc} -O1 -g -fPIC -shared -DHD_LOG_FILES -o log.so "$src/t/lib/log_files.c" -ldl
[ -f log.so ] || done_testing
tmp=$(pwd -P)
logged() {			# RANKS args...: trains, with the calls below ./c in ./calls
	n=$1
	shift
	rm -f calls
	HD_TEST_SECONDS=60 mpi "$n" env LD_PRELOAD="$tmp/log.so" HD_LOG_FILES="$tmp/calls" HD_LOG_FILES_UNDER="$tmp/c" \
		HD_LOG_FILES_FAIL="$fail" "$build/heddle" train tiny.ini --set checkpoint.dir="$tmp/c" --set checkpoint.every=1 "$@" 2>&1
}
fail=
for n in 1 2; do
	rm -rf c
	keep=$((3 - n))
	ok "np $n: four checkpoints, keep = $keep" logged $n --set train.steps=4 --set checkpoint.gradients=yes \
		--set checkpoint.keep=$keep
	awk -f "$src/t/lib/ordered.awk" calls >order
	# of a step: config.json, the weights, conf.ini, state.json, sums.json, states, gradients, both directories; and latest
	is "np $n: everything is on disk before it has its name" "$(cat order)" "4 steps, 4 latest, $((4 - keep)) removed, 40 looked at"
	ok "np $n: all ranks have written" [ "$(grep -c '^write .*optimizer.safetensors' calls)" -ge $((4 * 10 * n)) ]
done
# The check itself: without one of the calls, or with two of them exchanged, it says so.
broken() {			# NAME AWK-PROGRAM: of the calls
	awk "$2" calls | awk -f "$src/t/lib/ordered.awk" >order
	like "it notices: $1" "$(cat order)" "$3"
}
broken "a file" '!/^sync .*model.safetensors$/' 'model.safetensors is not on disk'
broken "a directory" '!/^sync .*\.tmp\/heddle$/' 'heddle is not on disk'
broken "the directory of the steps" '!/^sync .*\/c$/' 'latest before the name of'
broken "latest too early" '/^rename .*\/step-/ && !/removed/ { held = $0; next } { print } /^rename .*latest$/ { print held }' \
	'latest before'
broken "a removal too early" '/^rename .*latest$/ { late = $0; next } { print } /^rename .*removed/ { print late }' 'latest names it'

# -- a disk that fails
rm -rf c
ok "one step" logged 1 --set train.steps=1
before=$(cd c && find . -type f | sort | xargs cksum)
for on in "1 rename /step-00000002" "1 sync /optimizer.safetensors" "1 sync /.step-00000002.tmp" "1 sync /heddle" \
	"2 rename /step-00000002" "2 sync /model.safetensors"; do
	fail=${on#* }
	out=$(logged ${on%% *} --set train.steps=2 --set checkpoint.resume=auto)
	is "np ${on%% *}, $fail fails: a status" $? 1
	said=$(printf '%s\n' "$out" | failures)
	is "one message" "$(printf '%s\n' "$said" | wc -l)" 1
	like "of the path and the reason" "$said" "^heddle: $tmp/c/.*${fail##*/}.*: Input/output error\$"
	is "what was there is there, and nothing else" "$(cd c && find . -type f | sort | xargs cksum)" "$before"
done
fail=
like "the old step is what latest names, and it is whole" "$(heddle eval c --data text.txt 2>&1)" '^loss [0-9.]+ '

# latest itself: the new step, which nothing names, is taken back, and the old one is whole.
fail="rename /latest"
logged 1 --set train.steps=2 --set checkpoint.resume=auto >out
is "$fail: a status" $? 1
is "the old one is named" "$(cat c/latest)" step-00000001
is "the new one is gone" "$(ls c | tr '\n' ' ')" "latest step-00000001 "
for step in c/step-*; do
	like "${step#c/} is whole" "$(heddle eval "$step" --data text.txt 2>&1)" '^loss [0-9.]+ '
done
fail=
ok "and the run goes on" logged 1 --set train.steps=2 --set checkpoint.resume=auto
is "to the step that it had" "$(cat c/latest)" step-00000002
done_testing
