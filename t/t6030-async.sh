#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# checkpoint.async: steps continue while a copy is written, and the files are the same as without it, bit for bit.  A
# save in progress when the run dies is absent afterwards; the end of a run and a signal wait for it.  Otherwise it
# would be slow, or not to be trusted.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

sed '/^\[strategy/,$d; s/^steps.*/steps = 6\nschedule = constant\ndeterministic = yes/' tiny.ini >one.ini
printf '[checkpoint]\nevery = 2\nkeep = 3\n' >>one.ini
layout() {			# NAME SECTIONS
	cp one.ini "$1.ini"
	printf "$2" >>"$1.ini"
}
layout zero '[strategy dp]\nplugin = dp\nzero = 1\n'
layout tp '[strategy tp]\nplugin = tp\n'
layout pp '[strategy pp]\nplugin = pp\nsize = 2\n'

# A disk that takes two seconds for the states.
cat >slow.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int fsync(int fd)
{
	char link[32], path[4096] = "";
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "optimizer.safetensors"))
		sleep(2);
	return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
END
ok "a library that simulates a slow disk is built" ${CC:-cc} -shared -fPIC -o slow.so slow.c -ldl

same() {			# A B [FILES]: two checkpoints have the same files
	for f in model.safetensors heddle/optimizer.safetensors heddle/state.json config.json $3; do
		cmp "$1/$f" "$2/$f" || return 1
	done
}
both() {			# NAME RANKS INI [args...]
	what=$1 n=$2 ini=$3
	shift 3
	ok "$what: a run with synchronous saves" heddle_mpi "$n" train "$ini.ini" --set checkpoint.dir="$what" "$@"
	ok "$what: a run with asynchronous saves" heddle_mpi "$n" train "$ini.ini" --set checkpoint.dir="$what-async" \
		--set checkpoint.async=yes --set log.metrics="$what.jsonl" "$@"
	for s in 2 4 6; do
		ok "$what: step $s is the same, bit for bit" \
			same "$what/step-0000000$s" "$what-async/step-0000000$s" $more
	done
	is "$what: nothing else is left" \
		"$(ls -A "$what-async" | tr '\n' ' ')" "latest step-00000002 step-00000004 step-00000006 "
}
more=heddle/gradients.safetensors
both gradients 1 one --set checkpoint.gradients=yes
more=
both zero 2 zero
both tp 2 tp
both pp 2 pp
both ramp 2 zero --set train.global_batch_ramp=4,4,512
like "the metrics contain the times and the bytes of a save" "$(grep '"step": 4, "save' zero.jsonl)" \
	'"save_seconds": [0-9.e-]+, "save_bytes": [0-9]+, "save_bytes_per_second": [0-9.e+]+, "save_copy_seconds": [0-9.e-]+, "save_waited_seconds": [0-9.e-]+'
is "... of each save" "$(grep -c save_seconds zero.jsonl)" 3
bytes=$(cat zero/step-00000004/model.safetensors zero/step-00000004/heddle/optimizer.safetensors | wc -c)
is "... with the right number of bytes" "$(json "$(grep '"step": 4, "save' zero.jsonl)" save_bytes)" "$bytes"

# Long ranges, which bypass the page cache: the weights must be those of one rank, whatever the layout.
big="--set model.embed=256 --set train.steps=0"
ok "larger parameters, saved by one rank" heddle train one.ini $big --set checkpoint.dir=big
ok "larger parameters, saved by two ranks asynchronously" \
	heddle_mpi 2 train tp.ini $big --set checkpoint.dir=big-tp --set checkpoint.async=yes
ok "... give the same file" cmp big/step-00000000/model.safetensors big-tp/step-00000000/model.safetensors
ok "larger parameters, saved by one rank asynchronously" \
	heddle train one.ini $big --set checkpoint.dir=big-one --set checkpoint.async=yes
ok "... give the same files" same big/step-00000000 big-one/step-00000000

# check counts the memory of a copy: the parameters and states that this rank writes, and a 32nd more.
json_memory() { "$build/heddle" check "$@" --json --set checkpoint.dir=none | sed 's/.*"memory_bytes": *\([0-9]*\).*"snapshot_bytes": *\([0-9]*\).*/\1 \2/'; }
without=$(json_memory zero.ini --ranks 2) with=$(json_memory zero.ini --ranks 2 --set checkpoint.async=yes)
is "check: without async, no copy is counted" "${without#* }" 0
is "check: the copy is counted" "${with% *}" $((${without% *} + ${with#* }))
# Rank 0 of two writes all 34,688 parameters and half of the two states.
near "check: the copy has the bytes that the rank writes" "${with#* }" $((34688 * 4 * 2 * 33 / 32)) 2000
like "check: the copy is printed" \
	"$(heddle check zero.ini --ranks 2 --set checkpoint.async=yes --set checkpoint.dir=none)" 'copy during a save [0-9.]+ KB'

# A save that takes seconds while steps continue.
begin() {			# DIR [args...]: starts a run and waits for step 3; $run and $shell are processes
	dir=$1
	shift
	rm -f m.jsonl
	LD_PRELOAD="$tmp/slow.so" timeout -k 5 $((40 * $(patience))) "$build/heddle" train one.ini --set "checkpoint.dir=$dir" \
		--set checkpoint.async=yes --set log.metrics=m.jsonl --set train.eval_batches=1 "$@" </dev/null >out 2>&1 &
	shell=$!
	for i in $(seq 400); do
		[ "$(grep -c '"loss"' m.jsonl 2>/dev/null)" -ge 3 ] 2>/dev/null && break
		sleep 0.05
	done
	run=$(ps -o pid= --ppid $shell | tr -d ' ')
}
begin slow --set train.steps=5 --set checkpoint.every=2
is "steps continue while it is written" "$(ls slow)" ""
wait $shell
is "the end of the run waits for it" "$? $(cat slow/latest)" "0 step-00000005"
like "a save waits for the one before it, and says so" \
	"$(cat out)" '^heddle: step 4: its checkpoint waits for that of step 2, which is still being written'
[ "$(json "$(grep '"step": 4, "save' m.jsonl)" save_waited_seconds | cut -d. -f1)" -ge 1 ]
tap_result $? "... the metrics contain how long"

begin term --set train.steps=1000000 --set checkpoint.every=1000000
kill -TERM "$run"
wait $shell
is "a run that is asked to end waits for its save" "$?" 0
like "... which is complete" "$(heddle eval term --data text.txt 2>&1)" perplexity

ok "a checkpoint is saved before a run dies" heddle train one.ini --set checkpoint.dir=dies --set train.steps=2
begin dies --set train.steps=1000000 --set checkpoint.resume=auto --set checkpoint.every=3
sleep 0.5
kill -KILL "$run"
wait $shell
is "a save that was in progress is absent" "$(ls dies | tr '\n' ' ')" "latest step-00000002 "
is "... and latest names the last complete one" "$(cat dies/latest)" step-00000002
ok "... from which a run is resumed" \
	heddle train one.ini --set checkpoint.dir=dies --set checkpoint.resume=auto --set checkpoint.async=yes
is "... what was half written is removed" "$(find dies -name '.*' ! -name . | wc -l | tr -d ' ')" 0
ok "... other checkpoints are unaffected" same tp/step-00000006 tp-async/step-00000006
heddle train one.ini --set checkpoint.dir=straight >/dev/null 2>&1
ok "... the last step is that of a run that did not die" same straight/step-00000006 dies/step-00000006

# A file that cannot be written.
states=$(wc -c <dies/step-00000006/heddle/optimizer.safetensors)
limited() (
	trap '' XFSZ
	ulimit -f $((states * 3 / 4 / 512))
	exec "$@"
)
if [ -n "$TSAN_OPTIONS" ]; then
	skip "the thread sanitizer maps a file of its own, which the limit cuts short"
else
	fails "a run without room for its states fails" \
		limited "$build/heddle" \
			train one.ini --set checkpoint.dir=dies --set checkpoint.resume=auto --set checkpoint.async=yes --set train.steps=20
	like "... with a message" "$(cat .ok)" "^heddle: .*optimizer\.safetensors: no room for its $states bytes"
	is "... and continues until its last save" \
		"$(grep '^heddle: .*no room' .ok | grep -vc 'is not saved, and training goes on')" 1
	is "... the earlier checkpoints are kept" \
		"$(ls dies | tr '\n' ' ')" "latest step-00000002 step-00000004 step-00000006 "
fi
done_testing
