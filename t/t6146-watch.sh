#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is visible of a run while it trains, and what is printed when it is resumed.  That is samples, metrics with their
# time, TensorBoard, and what has changed.  Whoever watches a run for days decides by these lines.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

# Samples.
out=$(heddle train tiny.ini --set train.steps=5 --set log.sample=3 --set log.sample_every=2 2>/dev/null | tr -cd '\n -~')
is "a sample after every second step, and after the last" \
	"$(printf '%s\n' "$out" | grep -e '^step [0-9]*/' -e '^sample:' | cut -d/ -f1 | tr '\n' ' ')" \
	"step 1 step 2 sample: step 3 step 4 sample: step 5 sample: "
is "... and only once where the last is one of them" \
	"$(heddle train tiny.ini --set train.steps=4 --set log.sample=3 --set log.sample_every=2 2>/dev/null |
	tr -cd '\n -~' | grep -c '^sample:')" 2
ok "sample_every alone is enough" eval 'heddle train tiny.ini --set train.steps=2 --set log.sample_every=2 2>/dev/null | tr -cd "\n -~" | grep -q "^sample:"'

# Metrics are never lost without a message.
before=$(date +%s)
heddle train tiny.ini --set log.metrics=m.jsonl >/dev/null 2>&1
first=$(cat m.jsonl)
like "each line has its time, in seconds" "$(head -1 m.jsonl)" '"time": [0-9]{10}\.[0-9]+'
at=$(json "$(head -1 m.jsonl)" time)
near "... which is the present time" "$at" "$before" 300
is "each line has the tokens so far" "$(json "$(sed -n 3p m.jsonl)" total_tokens)" $((3 * 8 * 32))
like "the first line has model and layout" "$(head -1 m.jsonl)" '"run": \{"family": "gpt2", "parameters": 34688,.*"layout": "dp 1", "ranks": 1'
is "... and no other has" "$(grep -c '"run"' m.jsonl)" 1
err=$(heddle train tiny.ini --set train.steps=1 --set log.metrics=m.jsonl 2>&1 >/dev/null)
like "another run into the same file says where the old one is" "$err" 'm\.jsonl contained another run, which was renamed to m\.jsonl\.1'
is "... and it is there" "$(cat m.jsonl.1)" "$first"
is "... and the new run is alone in the file" "$(grep -c '"loss": ' m.jsonl)" 1
heddle train tiny.ini --set train.steps=1 --set log.metrics=m.jsonl >/dev/null 2>&1
ok "the next run renames it to the next number" test -s m.jsonl.2

# A log that cannot be written must not end the run, and a line that was cut off must not spoil the others.

# A disk that is full until the second line, by a function of this test in place of the system's.  The next line has
# model and layout.
cat >first.c <<'EOF'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
ssize_t write(int fd, const void *p, size_t n)
{
	static int times;
	char link[32], path[4096] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "/full.jsonl") && times++ < 2)
		return errno = ENOSPC, -1;
	return ((ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, p, n);
}
EOF
ok "a library that simulates a disk that is full at first is built" ${CC:-cc} -w -shared -fPIC -o first.so first.c -ldl
ok "the run continues on that disk" \
	env LD_PRELOAD="$tmp/first.so" "$build/heddle" train tiny.ini --set train.steps=4 --set log.metrics=full.jsonl
is "... the metrics have the lines that could be written, with model and layout in the first" \
	"$(sed 's/^{"step": *\([0-9]*\),.*"run": *{.*/\1 run/; s/^{"step": *\([0-9]*\),.*/\1/' full.jsonl | tr '\n' ' ')" "3 run 4 4 "
if [ -w /dev/full ]; then
	fails "a run with metrics on a full disk fails" \
		heddle train tiny.ini --set train.steps=3 --set log.metrics=/dev/full --set checkpoint.dir=whole
	is "... but only at its end, after one warning" \
		"$(grep -c 'heddle: log\.metrics: /dev/full: .*; the run continues' "$tmp/.ok")" 1
	is "... and a last message with the number of missing lines" "$(messages <"$tmp/.ok" | tail -1)" \
		"heddle: log.metrics: /dev/full: No space left on device; the last 4 steps or saves are missing"
	ok "... and its checkpoint is saved" test -s whole/latest
	fails "a run with a trace on a full disk fails" \
		heddle train tiny.ini --set train.steps=3 --set log.trace=/dev/full
	like "... and a message says so" "$(cat "$tmp/.ok")" 'heddle: log\.trace: /dev/full: No space left on device'
fi
heddle train tiny.ini --set train.steps=3 --set log.metrics=cut.jsonl --set checkpoint.dir=cut >/dev/null 2>&1
truncate -s -9 cut.jsonl
ok "report leaves out a line that is cut off" heddle report cut.jsonl --out cut.html
like "... and a message says which" "$(cat "$tmp/.ok")" 'cut\.jsonl:[0-9]*: is cut off, so it is left out'
ok "a run resumes after such a line" \
	heddle train tiny.ini --set train.steps=5 --set log.metrics=cut.jsonl --set checkpoint.dir=cut --set checkpoint.resume=auto
like "... and a message says so" \
	"$(cat "$tmp/.ok")" 'log\.metrics: cut\.jsonl ended in the middle of a line, which was removed'
ok "... and report then finds all lines complete" heddle report cut.jsonl --out cut.html
unlike "... without a message" "$(cat "$tmp/.ok")" 'cut off'

# A file to write may be a link or a pipe.
ln -s page.html link.html
ok "a page is written through a link" heddle plan tiny.ini --machine dgx-a100 --ranks 1 --html link.html
is "... which stays a link" "$(readlink link.html) $(grep -c '</html>' page.html)" "page.html 1"
mkfifo pipe
cat pipe >piped.html &
ok "a page is written into a pipe" heddle plan tiny.ini --machine dgx-a100 --ranks 1 --html pipe
wait
is "... which stays a pipe" "$(test -p pipe && grep -c '</html>' piped.html)" 1

# TensorBoard.
heddle train tiny.ini --set train.steps=4 --set train.eval_every=2 --set log.metrics=t.jsonl --set log.tensorboard=tb \
	--set model.experts=2 >/dev/null 2>&1
is "an event file is written" "$(ls tb | grep -c '^events\.out\.tfevents\.')" 1
if python3 -c 'from tensorboard.backend.event_processing.event_accumulator import EventAccumulator' 2>/dev/null; then
	ok "TensorBoard reads from it what the metrics have" python3 - <<'END' 2>/dev/null
import json, struct
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
e = EventAccumulator("tb")
e.Reload()
want = {}
for line in open("t.jsonl"):
    o = json.loads(line)
    for key, v in o.items():
        if key in ("step", "time", "run"):
            continue
        for name, x in [(key, v)] if not isinstance(v, list) else [("%s/%d" % (key, i), x) for i, x in enumerate(v)]:
            want.setdefault(name, []).append((o["step"], struct.unpack("f", struct.pack("f", x))[0]))
assert set(e.Tags()["scalars"]) == set(want) and {"loss", "valid_loss", "lr", "load/0"} <= set(want), set(want)
for name, points in want.items():
    got = [(s.step, s.value) for s in e.Scalars(name)]
    # the file of metrics rounds to 15 digits before the float: one unit of its last place
    assert [s for s, _ in got] == [s for s, _ in points], name
    assert all(abs(a - b) <= 2**-23 * abs(b) for (_, a), (_, b) in zip(got, points)), (name, got, points)
times = [s.wall_time for s in e.Scalars("loss")]
assert times == sorted(times) and abs(times[0] - json.loads(open("t.jsonl").readline())["time"]) < 1e-3
END
else
	skip "no tensorboard"
fi
like "a directory that cannot be created is refused" \
	"$(heddle check tiny.ini --set log.tensorboard=/dev/null/tb 2>&1)" 'log\.tensorboard: /dev/null'

# Resumed runs.
run() { heddle train tiny.ini --set checkpoint.dir=ck --set checkpoint.resume=auto "$@" 2>&1 >/dev/null; }
run --set train.steps=4 >/dev/null
like "nothing to do: past the last step" "$(run --set train.steps=2)" '^heddle: step 4 is already past train\.steps = 2: nothing to do$'
like "nothing to do: at the last step" "$(run --set train.steps=4)" '^heddle: step 4 is the last of train\.steps = 4: nothing to do$'
unlike "nothing is printed about what is unchanged" \
	"$(run --set train.steps=4)" 'was made with|have changed|decay of the learning'
cp -r ck kept
again() { rm -rf ck; cp -r kept ck; run --set train.steps=6 "$@"; }
like "another end of the decay is reported" "$(again)" \
	'the decay of the learning rate was to end at step 4, but now ends at step 6. train\.decay = 4 keeps it as it was$'
unlike "... unless train.decay is given" "$(again --set train.decay=4)" 'decay of the learning rate'
unlike "... or nothing decays" \
	"$(rm -rf ck; run --set train.schedule=constant >/dev/null; run --set train.schedule=constant --set train.steps=6)" 'decay'
unlike "... or the run had no step" "$(rm -rf ck; run --set train.steps=0 >/dev/null; run)" 'decay'
like "another ramp is reported" \
	"$(again --set train.global_batch_ramp=2,2,100)" 'was made with train\.global_batch_ramp = .*, but it is 2,2,100 now$'
rm -rf ck; cp -r kept ck; rm ck/step-00000004/heddle/conf.ini
like "without the checkpoint's INI nothing is compared, and a message says so" "$(run --set train.steps=6)" \
	'changes since it was made cannot be determined: .*heddle/conf\.ini: .*No such file or directory$'
rm -rf ck; cp -r kept ck; : >ck/step-00000004/heddle/conf.ini
like "... nor with an empty INI" \
	"$(run --set train.steps=6 --set train.lr=1e-3)" 'changes since it was made cannot be determined: .*heddle/conf\.ini: \[train\]'
rm -rf ck; cp -r kept ck; sed -i '/^\[train\]/,$d' ck/step-00000004/heddle/conf.ini
like "... nor with one that was cut off" \
	"$(run --set train.steps=6 --set train.lr=1e-3)" 'changes since it was made cannot be determined: .*heddle/conf\.ini: \[train\]'
unlike "... and nothing is reported as changed" \
	"$(rm -rf ck; cp -r kept ck; rm ck/step-00000004/heddle/conf.ini; run --set train.steps=6)" 'was made with|decay'
rm -rf ck; cp -r kept ck; mv ck/step-00000004 ck/step-00000003; echo step-00000003 >ck/latest
like "a step under the name of another is refused" \
	"$(run --set train.steps=6)" 'state\.json: is for step 4, but its directory is for step 3'
like "another learning rate is reported" \
	"$(again --set train.lr=1e-3)" 'was made with train\.lr = 3e-3, but it is 1e-3 now$'
tr a-z A-Z <text.txt >upper.txt
like "another model is reported" \
	"$(again --set model.norm_eps=1e-3)" 'was made with model\.norm_eps = 1e-5, but it is 1e-3 now$'
unlike "the same number, written differently, is no change" \
	"$(again --set model.norm_eps=0.00001)" 'was made with model'
like "other data are reported" \
	"$(again --set data.train=upper.txt)" 'was made with data\.train = text\.txt, but it is upper\.txt now: from here on the batches'
unlike "another path to the same file is no change" "$(again --set data.train="$tmp/text.txt")" 'data\.train|batches'
cp text.txt copy.txt
like "another file with the same contents is reported, with the result of comparing samples" \
	"$(again --set data.train=copy.txt)" \
	'data\.train = text\.txt, but it is copy\.txt now, with the same number of tokens: the samples that were compared are the same$'
unlike "the weight of a single file is no change" "$(again --set data.weights=3)" 'data\.weights|batches|have changed'
like "a new file for validation changes the batches" "$(again --set data.valid=upper.txt)" \
	'data\.valid = \(none\), but it is upper\.txt now: from here on the batches are different$'
like "another validation fraction changes the batches" \
	"$(again --set data.valid_fraction=0.2)" 'data\.valid_fraction = 0\.1, but it is 0\.2 now: from here on the batches'
like "another length of sequences changes the batches" \
	"$(again --set train.seq=16 --set model.max_seq=32)" 'train\.seq = 32, but it is 16 now: from here on the batches'
valid() { rm -rf ck; cp -r valid ck; run --set train.steps=6 "$@"; }
rm -rf ck; run --set train.steps=4 --set data.valid=upper.txt >/dev/null
cp -r ck valid
like "other data for validation are reported" \
	"$(valid --set data.valid=copy.txt)" 'data\.valid = upper\.txt, but it is copy\.txt now$'
unlike "... but do not change the batches" "$(valid --set data.valid=copy.txt)" 'batches|have changed'
mixed() { run --set data.train=text.txt,upper.txt "$@"; }
rm -rf ck; mixed --set train.steps=4 --set data.weights=7,3 >/dev/null
cp -r ck mixed
like "other weights of the data are reported" "$(mixed --set train.steps=6 --set data.weights=1,1)" \
	'was made with data\.weights = 7,3, but it is 1,1 now: from here on the batches are different$'
rm -rf ck; cp -r mixed ck
unlike "... which is all that is printed about data" \
	"$(mixed --set train.steps=6 --set data.weights=1,1)" 'have changed'
rm -rf ck; cp -r mixed ck
unlike "the same weights, written differently, are no change" \
	"$(mixed --set train.steps=6 --set 'data.weights=0.7, 0.3')" 'data\.weights|have changed'
cp text.txt was.txt
cp upper.txt text.txt
like "a file of the same name and length with other bytes is reported" \
	"$(again)" 'the data of data\.train have changed: the same number of tokens, but different ones$'
head -c 15000 was.txt >text.txt
like "a shorter file is reported" "$(again)" 'the data of data\.train have changed: [0-9]+ tokens then, 13500 now$'
cp was.txt text.txt
unlike "the original file is no change" "$(again)" 'have changed'
# A caller, such as a daemon, may have closed standard files.  Messages must not get into a file that is opened later.
mkdir -p closed/latest
heddle train tiny.ini --set log.metrics=closed.jsonl --set checkpoint.dir=closed --set checkpoint.every=1 >&- 2>&-
is "a run that fails, and has no standard output and error: the status is 1" $? 1
is "... and its metrics contain no messages" "$(grep -vc '^{"step":' closed.jsonl) $(grep -c '^{"step":' closed.jsonl)" "0 3"
done_testing
