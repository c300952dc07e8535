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
	victim=$(ps -eo pid,args | awk -v h="$heddle train dp.ini" 'index($0, h) && !/awk|mpirun|prterun/ { print $1; exit }')
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
	ulimit -f $(((weights + (states - weights) / 2) / 512))
	exec "$@"
)
fails "a file too large" limited "$heddle" train run.ini --set checkpoint.dir=full --set checkpoint.resume=auto
like "is named, with its size" "$(cat .ok)" "optimizer\.safetensors: no room for its $states bytes"
like "in the way of a full disk" "$(cat .ok)" 'step [0-9]+ is not saved, and training goes on: .*optimizer\.safetensors: no room for .*: File too large'
is "in one message for each save" "$(grep -c '^heddle: .*optimizer' .ok)" 3
is "what was there is there, and nothing else" "$(cd full && find . -type f | sort | xargs cksum)" "$before"
ok "and whole" whole full

# shellcheck disable=SC2016
sh -c 'ulimit -f 1; exec "$1" keys >keys.out' sh "$heddle" 2>keys.err
is "another verb: no signal ends it" $? 1
like "and it says why" "$(cat keys.err)" '^heddle: .*File too large'

# A save that fails, and one behind it that does not: by functions of our own in place of the system's. The file is rank 0's; each rank
# writes its part.
cat >fills.c <<'EOF'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int is_full(int fd, const char *rank)
{
	const char *steps = getenv("FULL_AT"), *of = getenv("OMPI_COMM_WORLD_RANK");
	char link[32], path[4096] = "", *at;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (strcmp(getenv("FULL_RANK"), rank) || strcmp(of ? of : "0", rank) || readlink(link, path, sizeof(path) - 1) < 0)
		return 0;
	at = strstr(path, ".step-0000000");
	if (!at || !strchr(steps, at[13]))
		return 0;
	errno = ENOSPC;
	return 1;
}
#define AS(name) ((int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, name))
#define WRITES(name) ((ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, name))
int fallocate(int fd, int mode, off_t at, off_t n) { return is_full(fd, "0") ? -1 : AS("fallocate")(fd, mode, at, n); }
int fallocate64(int fd, int mode, off_t at, off_t n) { return is_full(fd, "0") ? -1 : AS("fallocate64")(fd, mode, at, n); }
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return is_full(fd, "1") ? -1 : WRITES("pwrite")(fd, p, n, at); }
ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) { return is_full(fd, "1") ? -1 : WRITES("pwrite64")(fd, p, n, at); }
EOF
ok "a disk that is full at times" ${CC:-cc} -w -shared -fPIC -o fills.so fills.c -ldl
goes_on() {			# NAME RANKS INI FULL_RANK ASYNC: steps 2 and 3 of 4 are not saved
	rm -rf fills
	rank=$4 async=$5 ini=$3 n=$2
	what=$1
	full_at() { FULL_AT=$1 FULL_RANK=$rank LD_PRELOAD="$tmp/fills.so" mpi "$n" "$heddle" train "$ini.ini" --set checkpoint.dir=fills --set "checkpoint.async=$async"; }
	ok "$what: a save that fails is not the last" full_at 23
	like "$what: it is said" "$(cat .ok)" \
		"heddle: step 2 is not saved, and training goes on: .*fills/\.step-00000002\.tmp/.*No space left on device.*; the newest checkpoint is that of step 1"
	is "$what: once for each" "$(grep -c 'is not saved' .ok)" 2
	is "$what: the others are there" "$(ls -A fills | tr '\n' ' ')" "latest step-00000001 step-00000004 "
	ok "$what: whole" whole fills
	rm -rf fills
	fails "$what: the last one" full_at 34
	like "$what: is said" "$(tail -20 .ok)" '^heddle: .*\.step-00000004\.tmp/.*No space left on device'
	is "$what: once" "$(grep -c '^heddle: .*\.step-00000004' .ok)" 1
	is "$what: what was there is there" "$(cat fills/latest; ls -A fills | tr '\n' ' ')" "step-00000002
latest step-00000001 step-00000002 "
	ok "$what: and whole" whole fills
}
goes_on "one rank" 1 run 0 no
goes_on "one rank, beside the steps" 1 run 0 yes
if [ $have_dp = yes ]; then
	sed 's/^size = 2/&\nzero = 1/' dp.ini >zero.ini
	goes_on "the second of two" 2 zero 1 no
	goes_on "the second of two, beside the steps" 2 zero 1 yes
else
	skip "the plugin dp is not built: a rank of two that cannot write"
fi

# A disk that says how much it has left: by a function of our own in place of the system's.
cat >room.c <<'EOF'
#include <errno.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>
int statvfs64(const char *path, struct statvfs *st) __attribute__((alias("statvfs")));
int statvfs(const char *path, struct statvfs *st)
{
	(void)path;
	if (!access("room/.step-00000099.tmp", F_OK)) /* which fills it */
		return *st = (struct statvfs){ .f_frsize = 1 }, 0;
	*st = (struct statvfs){ .f_frsize = 1, .f_bavail = strtoull(getenv("ROOM"), NULL, 10) };
	return 0;
}
int mkostemp(char *path, int flags);
int mkstemp64(char *path) __attribute__((alias("mkstemp")));
int mkstemp(char *path)
{
	errno = ENOSPC;
	return access("room/.step-00000099.tmp", F_OK) ? mkostemp(path, 0) : -1;
}
EOF
ok "a disk of our own" ${CC:-cc} -shared -fPIC -o room.so room.c
small_disk() { room=$1; shift; LD_PRELOAD="$tmp/room.so" ROOM="$room" "$heddle" train run.ini --set checkpoint.dir=room --set checkpoint.every=1 "$@"; }
each=$((weights + states))
fails "room for two of three" small_disk $((3 * each - 1))
like "both numbers are said" "$(cat .ok)" \
	'checkpoint\.dir: room: 3 checkpoints of [0-9.]+ KB .*checkpoint\.keep = 2.* need [0-9.]+ KB of disk space, but [0-9.]+ KB is free'
is "before a step, and before anything is made" "$(grep -c '^step' .ok) $(ls room 2>/dev/null)" "0 "
fails "one is kept, room for one of two" small_disk $((2 * each - 1)) --set checkpoint.keep=1
fails "one save, and room for none" small_disk $((each - 1)) --set train.steps=1
ok "one save, and room for it" small_disk $each --set train.steps=1
fails "one is there: room for one of two" small_disk $((2 * each - 1)) --set checkpoint.resume=auto
ok "room for two" small_disk $((2 * each)) --set checkpoint.resume=auto
fails "three are there: room for none of one more" small_disk $((each - 1)) --set checkpoint.resume=auto --set train.steps=9
mkdir -p room/.step-00000099.tmp room/.removed-.removed-.step-00000098.tmp
ok "a save that was cut short has filled the disk: its files make room first" small_disk $((2 * each)) --set checkpoint.resume=auto --set train.steps=5
is "and nothing of it stays" "$(find room -name '.*' | wc -l | tr -d ' ')" 0
printf '#include <errno.h>\nint rename(const char *from, const char *to) { (void)from, (void)to; errno = EACCES; return -1; }\n' >stays.c
ok "a disk where nothing can be renamed" ${CC:-cc} -shared -fPIC -o stays.so stays.c
mkdir room/.step-00000098.tmp
fails "what is left cannot be removed" env LD_PRELOAD="$tmp/stays.so $tmp/room.so" ROOM=$((each - 1)) \
	"$heddle" train run.ini --set checkpoint.dir=room --set checkpoint.resume=auto --set train.steps=6
like "which is said" "$(cat .ok)" 'cannot be removed: room/\.step-00000098\.tmp: cannot be removed: Permission denied'
rmdir room/.step-00000098.tmp
ok "nothing is to be done: no room is needed" small_disk 0 --set checkpoint.resume=auto
LD_PRELOAD="$tmp/room.so" ROOM=5000 "$heddle" tokenize --tokenizer "$src/t/data/tokenizers/gpt2" --out ids text.txt >.ok 2>&1
like "tokenize: the ids of a text" "$? $(cat .ok)" \
	'^1 heddle: ids\.bin: the ids of the rest of 0\.0 MB of text take about 0\.0 MB of disk space, but 0\.0 MB are free'
is "nothing is written, and nothing left in the way" "$(ls ids.* 2>/dev/null)" ""
ok "tokenize where there is room" env LD_PRELOAD="$tmp/room.so" ROOM=100000 "$heddle" tokenize --tokenizer "$src/t/data/tokenizers/gpt2" --out ids text.txt

# latest that cannot be replaced: a step that it does not name is not saved, so it is not there either.
mkdir -p stuck/latest
fails "latest cannot be written" train stuck
like "each step is said not to be saved" "$(cat .ok)" 'step 1 is not saved, and training goes on: stuck/latest: cannot be written'
is "and none is there" "$(ls -A stuck)" latest
rmdir stuck/latest
ok "steps, when it can" train stuck
rm stuck/latest && mkdir stuck/latest
fails "again it cannot" train stuck --set checkpoint.resume=stuck/step-00000003
like "for that reason" "$(tail -1 .ok)" 'stuck/latest: cannot be written'
is "what took the place of a step is gone too" "$(ls -A stuck | tr '\n' ' ')" "latest step-00000003 "

# What can be found before step 1 is found before step 1.
fails "a directory that cannot be" train text.txt/ck
unlike "is refused before the first step" "$(cat .ok)" '^step'
like "by name" "$(cat .ok)" 'text\.txt.*[Nn]ot a directory'
mkdir closed
chmod 555 closed
mv full/latest latest
mkdir full/latest
fails "latest that cannot be read" train full --set checkpoint.resume=auto
like "is named, with what to do" "$(cat .ok)" '^heddle: .*dir: full/latest: .*remove it'
fails "for eval too" "$heddle" eval full --data text.txt
like "which names it" "$(cat .ok)" '^heddle: .*full/latest: .*remove it'
rmdir full/latest
mv latest full/latest

# Whoever may write everywhere tries this as somebody else, with files of theirs.
forbidden() (
	cd "$1" || exit 1
	shift
	"$@"
)
if (: >closed/x) 2>/dev/null; then
	other=$tmp/other
	mkdir "$other"
	chmod a+x "$tmp"
	cp run.ini text.txt "$other"
	mkdir "$other/closed" "$other/cache"
	chmod 555 "$other/closed"
	chown -R 65534:65534 "$other"
	forbidden() ( # FOLDER COMMAND...
		cd "$other" || exit 1
		shift
		XDG_CACHE_HOME=$other/cache setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
	)
fi
if forbidden . "$heddle" --version >/dev/null 2>&1 && ! forbidden . touch closed/x 2>/dev/null; then
	fails "a directory without permission" forbidden . "$heddle" train run.ini --set checkpoint.dir=closed
	unlike "is refused before the first step" "$(cat .ok)" '^step'
	like "by name, and why" "$(cat .ok)" 'closed.*Permission denied'
	fails "one within it" forbidden . "$heddle" train run.ini --set checkpoint.dir=closed/new
	like "by name, and why" "$(cat .ok)" 'closed.*Permission denied'
else
	skip "no other user can run heddle here (setpriv): a directory without permission"
fi
fails "a run from step 0 into a directory with later steps" train full
like "is told what to do" "$(cat .ok)" 'full already contains step [0-9]+.*resume=auto'
fails "resume = a path without checkpoints" train new --set checkpoint.resume=closed
like "is told why" "$(cat .ok)" 'closed: is not a checkpoint'
done_testing
