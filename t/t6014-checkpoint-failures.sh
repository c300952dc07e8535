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
mkdir small
if mount -t tmpfs -o size=$(((weights + states) * 3 / 2 / 1024 + 16))k none small 2>/dev/null; then
	train small/ck --set train.steps=1 >/dev/null 2>&1
	before=$(cd small/ck && find . -type f | sort | xargs cksum)
	if [ $have_dp = yes ]; then
		fails "a full disk, two ranks" mpi 2 "$heddle" train dp.ini --set checkpoint.dir=small/ck \
			--set checkpoint.resume=auto
	else
		fails "a full disk" train small/ck --set checkpoint.resume=auto
	fi
	like "is told" "$(cat .ok)" 'heddle: .*No space left on device'
	is "once" "$(grep -c 'No space left' .ok)" 1
	is "what was there is there" "$(cd small/ck && find . -type f | sort | xargs cksum)" "$before"
	ok "and whole" whole small/ck
	umount small
else
	skip "no file system may be mounted here: a full disk"
fi

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
