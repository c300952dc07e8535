#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# checkpoint.async: steps go on while a copy is written; what is written is what a save that is waited for writes, to the bit; one that
# is on its way when the run dies is absent; the end and a signal wait for it. Else it is either slow or not to be trusted.
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
ok "a slow disk" ${CC:-cc} -shared -fPIC -o slow.so slow.c -ldl

same() {			# A B [FILES]: two checkpoints
	for f in model.safetensors heddle/optimizer.safetensors heddle/state.json config.json $3; do
		cmp "$1/$f" "$2/$f" || return 1
	done
}
both() {			# NAME RANKS INI [args...]
	what=$1 n=$2 ini=$3
	shift 3
	ok "$what" heddle_mpi "$n" train "$ini.ini" --set checkpoint.dir="$what" "$@"
	ok "$what, beside the steps" heddle_mpi "$n" train "$ini.ini" --set checkpoint.dir="$what-async" \
		--set checkpoint.async=yes --set log.metrics="$what.jsonl" "$@"
	for s in 2 4 6; do
		ok "$what: step $s, bit by bit" same "$what/step-0000000$s" "$what-async/step-0000000$s" $more
	done
	is "$what: nothing else is there" "$(ls -A "$what-async" | tr '\n' ' ')" "latest step-00000002 step-00000004 step-00000006 "
}
more=heddle/gradients.safetensors
both gradients 1 one --set checkpoint.gradients=yes
more=
both zero 2 zero
both tp 2 tp
both pp 2 pp
both ramp 2 zero --set train.global_batch_ramp=4,4,512
like "what it took is in the metrics" "$(grep '"step": 4, "save' zero.jsonl)" \
	'"save_seconds": [0-9.e-]+, "save_bytes": [0-9]+, "save_bytes_per_second": [0-9.e+]+, "save_copy_seconds": [0-9.e-]+, "save_waited_seconds": [0-9.e-]+'
is "of each save" "$(grep -c save_seconds zero.jsonl)" 3
bytes=$(cat zero/step-00000004/model.safetensors zero/step-00000004/heddle/optimizer.safetensors | wc -c)
is "and its bytes" "$(json "$(grep '"step": 4, "save' zero.jsonl)" save_bytes)" "$bytes"

# Ranges that are long, and go past the page cache: the weights of one rank, whatever the layout.
big="--set model.embed=256 --set train.steps=0"
ok "larger parameters, one rank" heddle train one.ini $big --set checkpoint.dir=big
ok "larger parameters, two, beside the steps" heddle_mpi 2 train tp.ini $big --set checkpoint.dir=big-tp --set checkpoint.async=yes
ok "the same file" cmp big/step-00000000/model.safetensors big-tp/step-00000000/model.safetensors
ok "larger parameters, one, beside the steps" heddle train one.ini $big --set checkpoint.dir=big-one --set checkpoint.async=yes
ok "the same files" same big/step-00000000 big-one/step-00000000

# What check says of the memory: a copy of parameters and states, of what this rank writes; a 32th more.
json_memory() { "$build/heddle" check "$@" --json --set checkpoint.dir=none | sed 's/.*"memory_bytes": *\([0-9]*\).*"snapshot_bytes": *\([0-9]*\).*/\1 \2/'; }
without=$(json_memory zero.ini --ranks 2) with=$(json_memory zero.ini --ranks 2 --set checkpoint.async=yes)
is "check: no copy where none is made" "${without#* }" 0
is "check: the copy is counted" "${with% *}" $((${without% *} + ${with#* }))
# Rank 0 of two writes all 34,688 parameters and half of the two states.
near "check: its bytes" "${with#* }" $((34688 * 4 * 2 * 33 / 32)) 2000
like "check: says so" "$(heddle check zero.ini --ranks 2 --set checkpoint.async=yes --set checkpoint.dir=none)" 'copy during a save [0-9.]+ KB'

# Beside the steps: a save that takes seconds.
begin() {			# DIR [args...]: in the background, until its second step is there; $run and $shell are processes
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
is "steps are made while it is written" "$(ls slow)" ""
wait $shell
is "the end waits for it" "$? $(cat slow/latest)" "0 step-00000005"
like "and a save waits for the one before it, and says so" "$(cat out)" '^heddle: step 4: its checkpoint waits for that of step 2, which is still being written'
[ "$(json "$(grep '"step": 4, "save' m.jsonl)" save_waited_seconds | cut -d. -f1)" -ge 1 ]
tap_result $? "how long is in the metrics"

begin term --set train.steps=1000000 --set checkpoint.every=1000000
kill -TERM "$run"
wait $shell
is "a signal waits for it" "$?" 0
like "it is whole" "$(heddle eval term --data text.txt 2>&1)" perplexity

ok "a checkpoint, before a run dies" heddle train one.ini --set checkpoint.dir=dies --set train.steps=2
begin dies --set train.steps=1000000 --set checkpoint.resume=auto --set checkpoint.every=3
sleep 0.5
kill -KILL "$run"
wait $shell
is "one that was on its way is absent" "$(ls dies | tr '\n' ' ')" "latest step-00000002 "
is "and the last is named" "$(cat dies/latest)" step-00000002
ok "and gone on from" heddle train one.ini --set checkpoint.dir=dies --set checkpoint.resume=auto --set checkpoint.async=yes
is "what was half written is taken away" "$(find dies -name '.*' ! -name . | wc -l | tr -d ' ')" 0
ok "as if nothing had been" same tp/step-00000006 tp-async/step-00000006
heddle train one.ini --set checkpoint.dir=straight >/dev/null 2>&1
ok "the last step is that of a run that did not die" same straight/step-00000006 dies/step-00000006

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
	fails "no room" limited "$build/heddle" train one.ini --set checkpoint.dir=dies --set checkpoint.resume=auto --set checkpoint.async=yes --set train.steps=20
	like "is said" "$(cat .ok)" "^heddle: .*optimizer\.safetensors: no room for its $states bytes"
	is "and the run goes on until its last" "$(grep '^heddle: .*no room' .ok | grep -vc 'is not saved, and training goes on')" 1
	is "what was there is there" "$(ls dies | tr '\n' ' ')" "latest step-00000002 step-00000004 step-00000006 "
fi
done_testing
