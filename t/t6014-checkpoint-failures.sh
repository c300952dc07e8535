#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a crash, a full disk or a forbidden directory must never cost: the checkpoints that were there before.
. "${0%/*}/lib/tap.sh"
heddle=$build/heddle
[ -x "$heddle" ] || skip_all "heddle is not built"
export XDG_CACHE_HOME="$tmp/cache"
seq 1 2000 >"$tmp/text.txt"
cd "$tmp" || exit 1

cat >run.ini <<-'EOT'
	[model]
	layers = 2
	heads = 2
	embed = 16
	[data]
	train = text.txt
	[train]
	seq = 16
	global_batch = 4
	micro_batch = 1
	steps = 4
	schedule = constant
	threads = 1
	[checkpoint]
	every = 1
EOT
cp run.ini dp.ini
printf '\n[strategy dp]\nplugin = dp\nsize = 2\n' >>dp.ini
have_dp=no
[ -f "$build/plugins/dp/dp.la" ] && have_dp=yes

train() { dir=$1; shift; "$heddle" train run.ini --set "checkpoint.dir=$dir" "$@"; }

# whole DIR: latest names a checkpoint that can be read in full, and nothing below DIR that looks like one cannot.
whole() {
	[ -f "$1/$(cat "$1/latest")/heddle/state.json" ] || return 1
	for step in "$1"/step-*; do
		"$heddle" eval "$step" --data text.txt || return 1
	done
	train "$1" --set checkpoint.resume=auto --set train.steps=1
}

# Killed at any time.  A step takes less than its checkpoint, so most kills hit a save.
ok "a first checkpoint" train killed --set train.steps=1
for wait in 0.15 0.2 0.25 0.3 0.35 0.4; do
	"$heddle" train run.ini --set checkpoint.dir=killed --set checkpoint.resume=auto --set train.steps=1000000 \
		>killed.out 2>&1 &
	pid=$!
	sleep $wait
	kill -9 $pid
	wait $pid 2>/dev/null
	ok "killed after $wait s, at $(cat killed/latest): whole" whole killed
done
if [ $have_dp = yes ]; then
	mpi 2 "$heddle" train dp.ini --set checkpoint.dir=killed --set checkpoint.resume=auto \
		--set train.steps=1000000 >killed.out 2>&1 &
	sleep 2
	victim=$(ps -eo pid,args | awk -v h="$heddle train dp.ini" 'index($0, h) && !/awk|mpirun/ { print $1; exit }')
	[ -z "$victim" ] || kill -9 "$victim"
	wait
	ok "one of two ranks killed, at $(cat killed/latest): whole" whole killed
else
	skip "the plugin dp is not built: a rank of two killed"
fi
mkdir -p killed/.step-00000099.tmp/heddle
echo half >killed/.step-00000099.tmp/model.safetensors
last=$(cat killed/latest)
ok "the next run" train killed --set checkpoint.resume=auto --set train.steps=$((1${last#step-} - 99999999 + 1))
is "takes away what was half written" "$(find killed -name '.*' ! -name . | wc -l | tr -d ' ')" 0

# The step that does not fit on the disk.
states=$(wc -c <"killed/$(cat killed/latest)/heddle/optimizer.safetensors")
weights=$(wc -c <"killed/$(cat killed/latest)/model.safetensors")
ok "a checkpoint before the disk is full" train full --set train.steps=1
before=$(cd full && find . -type f | sort | xargs cksum)
limited() (			# files of at most the weights and half of the states
	trap '' XFSZ
	ulimit -f $(((weights + (states - weights) / 2) / 512))
	exec "$@"
)
fails "a file too large" limited "$heddle" train run.ini --set checkpoint.dir=full --set checkpoint.resume=auto
like "is named, with its size" "$(cat .ok)" "optimizer\.safetensors: no room for its $states bytes"
is "in one message" "$(grep -c '^heddle: .*optimizer' .ok)" 1
is "what was there is there, and nothing else" "$(cd full && find . -type f | sort | xargs cksum)" "$before"
ok "and whole" whole full

# A disk that says how much it has left: by a function of our own in place of the system's.
cat >room.c <<'EOF'
#include <stdlib.h>
#include <sys/statvfs.h>
int statvfs64(const char *path, struct statvfs *st) __attribute__((alias("statvfs")));
int statvfs(const char *path, struct statvfs *st)
{
	(void)path;
	*st = (struct statvfs){ .f_frsize = 1, .f_bavail = strtoull(getenv("ROOM"), NULL, 10) };
	return 0;
}
EOF
ok "a disk of our own" ${CC:-cc} -shared -fPIC -o room.so room.c
small_disk() { room=$1; shift; LD_PRELOAD="$tmp/room.so" ROOM="$room" "$heddle" train run.ini --set checkpoint.dir=room --set checkpoint.every=1 "$@"; }
each=$((weights + states))
fails "room for two of three" small_disk $((3 * each - 1))
like "both numbers are said" "$(cat .ok)" \
	'checkpoint\.dir: room: 3 checkpoints of [0-9.]+ KB .*checkpoint\.keep = 2.* need [0-9.]+ KB of disk, and [0-9.]+ KB is left'
is "before a step, and before anything is made" "$(grep -c '^step' .ok) $(ls room 2>/dev/null)" "0 "
fails "one is kept, room for one of two" small_disk $((2 * each - 1)) --set checkpoint.keep=1
fails "one save, and room for none" small_disk $((each - 1)) --set train.steps=1
ok "one save, and room for it" small_disk $each --set train.steps=1
fails "one is there: room for one of two" small_disk $((2 * each - 1)) --set checkpoint.resume=auto
ok "room for two" small_disk $((2 * each)) --set checkpoint.resume=auto
fails "three are there: room for none of one more" small_disk $((each - 1)) --set checkpoint.resume=auto --set train.steps=9
ok "nothing is to be done: no room is needed" small_disk 0 --set checkpoint.resume=auto
LD_PRELOAD="$tmp/room.so" ROOM=5000 "$heddle" tokenize --tokenizer "$src/t/data/tokenizers/gpt2" --out ids text.txt >.ok 2>&1
like "tokenize: the ids of a text" "$? $(cat .ok)" \
	'^1 heddle: ids\.bin: the ids of what is left of 0\.0 MB of text take about 0\.0 MB of disk, and 0\.0 MB are left'
is "nothing is written" "$(wc -c <ids.part.bin | tr -d ' ')" 0
ok "tokenize where there is room" env LD_PRELOAD="$tmp/room.so" ROOM=100000 "$heddle" tokenize --tokenizer "$src/t/data/tokenizers/gpt2" --out ids text.txt

# What can be found before step 1 is found before step 1.
fails "a directory that cannot be" train text.txt/ck
unlike "is refused before the first step" "$(cat .ok)" '^step'
like "by name" "$(cat .ok)" 'text\.txt.*[Nn]ot a directory'
mkdir closed
chmod 555 closed
if (: >closed/x) 2>/dev/null; then
	skip "this user may write everywhere: a directory without permission"
else
	fails "a directory without permission" train closed
	unlike "is refused before the first step" "$(cat .ok)" '^step'
fi
fails "a run from step 0 into a directory with later steps" train full
like "is told what to do" "$(cat .ok)" 'full already holds step [0-9]+.*resume=auto'
fails "resume = a path without checkpoints" train new --set checkpoint.resume=closed
like "is told why" "$(cat .ok)" 'closed: is not a checkpoint'
done_testing
