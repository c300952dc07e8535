#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The order in which a checkpoint reaches the disk.  A kill does not reveal a wrong order, since the kernel keeps
# writing.  Only a machine that stops does: it leaves a name whose bytes were never written, or a `latest` that names a
# missing step.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

ok "a library that logs calls on files is built" \
	${CC:-cc} -O1 -g -fPIC -shared -DHD_LOG_FILES -o log.so "$src/t/lib/log_files.c" -ldl
[ -f log.so ] || done_testing
tmp=$(pwd -P)
logged() {			# RANKS args...: trains, and logs the calls on files below ./c in ./calls
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
	# looked at in a step: config.json, the weights, conf.ini, state.json, sums.json, states, gradients, both
	# directories; and latest
	is "np $n: everything is on disk before it gets its name" \
		"$(cat order)" "4 steps, 4 latest, $((4 - keep)) removed, 40 looked at"
	ok "np $n: all ranks have written" [ "$(grep -c '^write .*optimizer.safetensors' calls)" -ge $((4 * 10 * n)) ]
done
# The check itself notices when a call is missing, or when two calls are exchanged.
broken() {			# NAME AWK-PROGRAM PATTERN: checks the calls as changed by the program
	awk "$2" calls | awk -f "$src/t/lib/ordered.awk" >order
	like "the check notices $1" "$(cat order)" "$3"
}
broken "a file that is not synced" '!/^sync .*model.safetensors$/' 'model.safetensors is not on disk'
broken "a directory that is not synced" '!/^sync .*\.tmp\/heddle$/' 'heddle is not on disk'
broken "a directory of steps that is not synced" '!/^sync .*\/c$/' 'latest before the name of'
broken "a latest that is written too early" \
	'/^rename .*\/step-/ && !/removed/ { held = $0; next } { print } /^rename .*latest$/ { print held }' \
	'latest before'
broken "a removal that is too early" \
	'/^rename .*latest$/ { late = $0; next } { print } /^rename .*removed/ { print late }' 'latest names it'

# -- a disk that fails
rm -rf c
ok "one step is saved" logged 1 --set train.steps=1
before=$(cd c && find . -type f | sort | xargs cksum)
for on in "1 rename /step-00000002" "1 sync /optimizer.safetensors" "1 sync /.step-00000002.tmp" "1 sync /heddle" \
	"2 rename /step-00000002" "2 sync /model.safetensors"; do
	fail=${on#* }
	out=$(logged ${on%% *} --set train.steps=2 --set checkpoint.resume=auto)
	is "np ${on%% *}, $fail fails: the status is 1" $? 1
	said=$(printf '%s\n' "$out" | failures)
	is "... with one message" "$(printf '%s\n' "$said" | wc -l)" 1
	like "... that gives the path and the reason" "$said" "^heddle: $tmp/c/.*${fail##*/}.*: Input/output error\$"
	is "... the earlier files are unchanged, and nothing else is left" \
		"$(cd c && find . -type f | sort | xargs cksum)" "$before"
done
fail=
like "latest names the old step, which is complete" "$(heddle eval c --data text.txt 2>&1)" '^loss [0-9.]+ '

# If latest itself cannot be renamed, the new step, which nothing names, is removed, and the old one stays complete.
fail="rename /latest"
logged 1 --set train.steps=2 --set checkpoint.resume=auto >out
is "$fail fails: the status is 1" $? 1
is "... latest names the old step" "$(cat c/latest)" step-00000001
is "... the new step is gone" "$(ls c | tr '\n' ' ')" "latest step-00000001 "
for step in c/step-*; do
	like "... ${step#c/} is complete" "$(heddle eval "$step" --data text.txt 2>&1)" '^loss [0-9.]+ '
done
fail=
ok "the run is resumed" logged 1 --set train.steps=2 --set checkpoint.resume=auto
is "... and saves the step that failed before" "$(cat c/latest)" step-00000002
done_testing
