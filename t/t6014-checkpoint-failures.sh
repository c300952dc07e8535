#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A crash, a full disk or a forbidden directory must never cost the checkpoints that were saved before.
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

# whole DIR: latest names a complete checkpoint, eval reads every step in DIR, and a run resumes from it.
whole() {
	[ -f "$1/$(cat "$1/latest")/heddle/state.json" ] || return 1
	for step in "$1"/step-*; do
		"$heddle" eval "$step" --data text.txt || return 1
	done
	train "$1" --set checkpoint.resume=auto --set train.steps=1
}

# Runs that are killed at any time.  A step takes less time than its checkpoint, so most kills hit a save.
ok "a first checkpoint is saved" train killed --set train.steps=1
for wait in 0.15 0.2 0.25 0.3 0.35 0.4; do
	"$heddle" train run.ini --set checkpoint.dir=killed --set checkpoint.resume=auto --set train.steps=1000000 \
		>killed.out 2>&1 &
	pid=$!
	sleep $wait
	kill -9 $pid
	wait $pid 2>/dev/null
	ok "killed after $wait s, at $(cat killed/latest): the checkpoints are complete" whole killed
done
if [ $have_dp = yes ]; then
	mpi 2 "$heddle" train dp.ini --set checkpoint.dir=killed --set checkpoint.resume=auto \
		--set train.steps=1000000 >killed.out 2>&1 &
	sleep 2
	victim=$(ps -eo pid,args | awk -v h="$heddle train dp.ini" 'index($0, h) && !/awk|mpirun|prterun/ { print $1; exit }')
	[ -z "$victim" ] || kill -9 "$victim"
	wait
	ok "one of two ranks killed, at $(cat killed/latest): the checkpoints are complete" whole killed
else
	skip "the plugin dp is not built: a rank of two killed"
fi
mkdir -p killed/.step-00000099.tmp/heddle
echo half >killed/.step-00000099.tmp/model.safetensors
last=$(cat killed/latest)
ok "the next run resumes" train killed --set checkpoint.resume=auto --set train.steps=$((1${last#step-} - 99999999 + 1))
is "... and removes what was half written" "$(find killed -name '.*' ! -name . | wc -l | tr -d ' ')" 0

# A step that does not fit on the disk.
states=$(wc -c <"killed/$(cat killed/latest)/heddle/optimizer.safetensors")
weights=$(wc -c <"killed/$(cat killed/latest)/model.safetensors")
ok "a checkpoint is saved before the disk is full" train full --set train.steps=1
before=$(cd full && find . -type f | sort | xargs cksum)
limited() (			# limits a file to the size of the weights and half of the states
	ulimit -f $(((weights + (states - weights) / 2) / 512))
	exec "$@"
)
fails "a run whose states do not fit fails" \
	limited "$heddle" train run.ini --set checkpoint.dir=full --set checkpoint.resume=auto
like "... the message names the file and its size" "$(cat .ok)" "optimizer\.safetensors: no room for its $states bytes"
like "... and says that the step is not saved, as for a full disk" \
	"$(cat .ok)" 'step [0-9]+ is not saved, and training goes on: .*optimizer\.safetensors: no room for .*: File too large'
is "... once for each save" "$(grep -c '^heddle: .*optimizer' .ok)" 3
is "... the earlier files are unchanged, and nothing else is left" \
	"$(cd full && find . -type f | sort | xargs cksum)" "$before"
ok "... and the checkpoints are complete" whole full

# shellcheck disable=SC2016
sh -c 'ulimit -f 1; exec "$1" keys >keys.out' sh "$heddle" 2>keys.err
is "another verb that cannot write ends with status 1, not by a signal" $? 1
like "... and gives the reason" "$(cat keys.err)" '^heddle: .*File too large'

# A save that fails, followed by one that succeeds.  Functions of this test replace those of the system.  Rank 0
# allocates the file, and each rank writes its part.
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
ok "a library that simulates a full disk is built" ${CC:-cc} -w -shared -fPIC -o fills.so fills.c -ldl
goes_on() {			# NAME RANKS INI FULL_RANK ASYNC: of 4 steps, 2 and 3 cannot be saved, then 3 and 4
	rm -rf fills
	rank=$4 async=$5 ini=$3 n=$2
	what=$1
	full_at() { FULL_AT=$1 FULL_RANK=$rank LD_PRELOAD="$tmp/fills.so" mpi "$n" "$heddle" train "$ini.ini" --set checkpoint.dir=fills --set "checkpoint.async=$async"; }
	ok "$what: the run continues after saves that fail" full_at 23
	like "$what: a message names the step and the newest checkpoint" "$(cat .ok)" \
		"heddle: step 2 is not saved, and training goes on: .*fills/\.step-00000002\.tmp/.*No space left on device.*; the newest checkpoint is that of step 1"
	is "$what: it is printed once for each step" "$(grep -c 'is not saved' .ok)" 2
	is "$what: the other steps are saved" "$(ls -A fills | tr '\n' ' ')" "latest step-00000001 step-00000004 "
	ok "$what: they are complete" whole fills
	rm -rf fills
	fails "$what: the run fails if its last save fails" full_at 34
	like "$what: a message names that step" \
		"$(tail -20 .ok)" '^heddle: .*\.step-00000004\.tmp/.*No space left on device'
	is "$what: it is printed once" "$(grep -c '^heddle: .*\.step-00000004' .ok)" 1
	is "$what: the earlier steps are unchanged" "$(cat fills/latest; ls -A fills | tr '\n' ' ')" "step-00000002
latest step-00000001 step-00000002 "
	ok "$what: the earlier steps are complete" whole fills
}
goes_on "one rank" 1 run 0 no
goes_on "one rank, asynchronous saves" 1 run 0 yes
if [ $have_dp = yes ]; then
	sed 's/^size = 2/&\nzero = 1/' dp.ini >zero.ini
	goes_on "the second of two" 2 zero 1 no
	goes_on "the second of two, asynchronous saves" 2 zero 1 yes
else
	skip "the plugin dp is not built: a rank of two that cannot write"
fi

# A disk with a given amount of free space, as reported by a function of this test in place of the system's.
cat >room.c <<'EOF'
#include <errno.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>
int statvfs64(const char *path, struct statvfs *st) __attribute__((alias("statvfs")));
int statvfs(const char *path, struct statvfs *st)
{
	(void)path;
	if (!access("room/.step-00000099.tmp", F_OK)) /* the rest of such a save fills the disk */
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
ok "a library that simulates a small disk is built" ${CC:-cc} -shared -fPIC -o room.so room.c
small_disk() { room=$1; shift; LD_PRELOAD="$tmp/room.so" ROOM="$room" "$heddle" train run.ini --set checkpoint.dir=room --set checkpoint.every=1 "$@"; }
each=$((weights + states))
fails "room for two of three checkpoints is refused" small_disk $((3 * each - 1))
like "... the message gives the space needed and the free space" "$(cat .ok)" \
	'checkpoint\.dir: room: 3 checkpoints of [0-9.]+ KB .*checkpoint\.keep = 2.* need [0-9.]+ KB of disk space, but [0-9.]+ KB is free'
is "... before the first step, and before anything is created" "$(grep -c '^step' .ok) $(ls room 2>/dev/null)" "0 "
fails "keep = 1, with room for one of the two that it needs: refused" \
	small_disk $((2 * each - 1)) --set checkpoint.keep=1
fails "a single save without room for it: refused" small_disk $((each - 1)) --set train.steps=1
ok "a single save with room for it: accepted" small_disk $each --set train.steps=1
fails "resumed with room for one of two more checkpoints: refused" \
	small_disk $((2 * each - 1)) --set checkpoint.resume=auto
ok "resumed with room for two: accepted" small_disk $((2 * each)) --set checkpoint.resume=auto
fails "resumed with enough old checkpoints, but without room for one more: refused" \
	small_disk $((each - 1)) --set checkpoint.resume=auto --set train.steps=9
mkdir -p room/.step-00000099.tmp room/.removed-.removed-.step-00000098.tmp
ok "the rest of a save that was cut short fills the disk: it is removed first" \
	small_disk $((2 * each)) --set checkpoint.resume=auto --set train.steps=5
is "... and nothing of it is left" "$(find room -name '.*' | wc -l | tr -d ' ')" 0
printf '#include <errno.h>\nint rename(const char *from, const char *to) { (void)from, (void)to; errno = EACCES; return -1; }\n' >stays.c
ok "a library with a rename that fails is built" ${CC:-cc} -shared -fPIC -o stays.so stays.c
mkdir room/.step-00000098.tmp
fails "the rest of a save that cannot be removed: refused" \
	env LD_PRELOAD="$tmp/stays.so $tmp/room.so" ROOM=$((each - 1)) \
	"$heddle" train run.ini --set checkpoint.dir=room --set checkpoint.resume=auto --set train.steps=6
like "... and the message names it" \
	"$(cat .ok)" 'cannot be removed: room/\.step-00000098\.tmp: cannot be removed: Permission denied'
rmdir room/.step-00000098.tmp
ok "a run with no step left needs no room" small_disk 0 --set checkpoint.resume=auto
LD_PRELOAD="$tmp/room.so" ROOM=5000 "$heddle" tokenize --tokenizer "$src/t/data/tokenizers/gpt2" --out ids text.txt >.ok 2>&1
like "tokenize refuses ids that do not fit on the disk" "$? $(cat .ok)" \
	'^1 heddle: ids\.bin: the ids of the rest of 0\.0 MB of text take about 0\.0 MB of disk space, but 0\.0 MB are free'
is "... and leaves no file" "$(ls ids.* 2>/dev/null)" ""
ok "tokenize succeeds when the ids fit" \
	env LD_PRELOAD="$tmp/room.so" ROOM=100000 "$heddle" tokenize --tokenizer "$src/t/data/tokenizers/gpt2" --out ids text.txt

# When latest cannot be replaced, a step that it does not name counts as not saved, so its files must not be left.
mkdir -p stuck/latest
fails "a run that cannot write latest fails" train stuck
like "... a message says that the step is not saved" \
	"$(cat .ok)" 'step 1 is not saved, and training goes on: stuck/latest: cannot be written'
is "... and no step is left" "$(ls -A stuck)" latest
rmdir stuck/latest
ok "steps are saved when latest can be written" train stuck
rm stuck/latest && mkdir stuck/latest
fails "a resumed run that cannot write latest fails" train stuck --set checkpoint.resume=stuck/step-00000003
like "... for that reason" "$(tail -1 .ok)" 'stuck/latest: cannot be written'
is "... and the step that replaced an earlier one is gone too" "$(ls -A stuck | tr '\n' ' ')" "latest step-00000003 "

# What can be detected before step 1 must be detected before step 1.
fails "a directory that cannot be created is refused" train text.txt/ck
unlike "... before the first step" "$(cat .ok)" '^step'
like "... and named" "$(cat .ok)" 'text\.txt.*[Nn]ot a directory'
mkdir closed
chmod 555 closed
mv full/latest latest
mkdir full/latest
fails "a latest that cannot be read is refused" train full --set checkpoint.resume=auto
like "... the message names it and says what to do" "$(cat .ok)" '^heddle: .*dir: full/latest: .*remove it'
fails "eval refuses it too" "$heddle" eval full --data text.txt
like "... and names it" "$(cat .ok)" '^heddle: .*full/latest: .*remove it'
rmdir full/latest
mv latest full/latest

# A user who may write everywhere runs this part as another user, with files of that user.
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
	fails "a directory without write permission is refused" \
		forbidden . "$heddle" train run.ini --set checkpoint.dir=closed
	unlike "... before the first step" "$(cat .ok)" '^step'
	like "... with its name and the reason" "$(cat .ok)" 'closed.*Permission denied'
	fails "a new directory within it is refused" forbidden . "$heddle" train run.ini --set checkpoint.dir=closed/new
	like "... with its name and the reason" "$(cat .ok)" 'closed.*Permission denied'
else
	skip "no other user can run heddle here (setpriv): a directory without permission"
fi
fails "a run from step 0 into a directory with later steps is refused" train full
like "... and the message says what to do" "$(cat .ok)" 'full already contains step [0-9]+.*resume=auto'

# The checkpoints of another run.
steps() { (cd "$1" && find . -type f | sort | xargs cksum); }
before=$(steps full)
fails "a run that continues another directory's checkpoint may not replace those in dir" \
	train full --set checkpoint.resume=stuck/step-00000003 --set train.steps=9
like "... and the message names both and says what to do" "$(cat .ok)" \
	'^heddle: .*checkpoint\.dir: full already contains step [0-9]+, which this run from stuck/step-00000003 would replace; give another dir, or remove it'
unlike "... before the first step" "$(cat .ok)" '^step'
is "... and nothing has changed" "$(steps full)" "$before"
ln -s full linked
last=$(cat full/latest)
ok "the same directory under another name is no other one" train linked --set checkpoint.resume="$tmp/full/$last"
rm linked
fails "a checkpoint that was removed is refused" train new --set checkpoint.resume=full/step-00000099
like "... and the message names those that are there" "$(cat .ok)" 'full/step-00000099: no such directory; full has (step-[0-9]{8}, )*step-[0-9]{8}$'
fails "a path like that of a step, in no directory, is refused" train new --set checkpoint.resume=nowhere/step-00000001
like "... and not taken for a model of the Hub" "$(cat .ok)" 'nowhere/step-00000001: no such directory$'

# A name that a coming step needs.
rm -rf taken
ok "a step is saved before its successor's name is taken" train taken --set train.steps=1
for taken in 'touch taken/step-00000003' 'ln -s step-00000001 taken/step-00000003'; do
	$taken
	fails "$taken: refused" train taken --set checkpoint.resume=auto
	like "... with a message that names it" "$(cat .ok)" \
		'^heddle: .*checkpoint\.dir: taken/step-00000003: has the name of a step that this run may save, but is not a directory'
	unlike "... before the first step" "$(cat .ok)" '^step'
	rm taken/step-00000003
done
rm taken/latest
touch taken/step-00000009
ok "only directories count as the newest step" "$heddle" eval taken --data text.txt
fails "resume = a path without checkpoints is refused" train new --set checkpoint.resume=closed
like "... with the reason" "$(cat .ok)" 'closed: is not a checkpoint'
done_testing
