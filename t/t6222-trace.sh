#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The trace of a pipeline.  People look at it when a run is slow, and --times takes the times of units from it.  If a
# unit were missing, duplicated, out of order or not around its kernels, the trace would mislead them.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v python3 >/dev/null || skip_all "no python3"

{ sed -e '/^\[strategy/,$d' -e 's/^layers = .*/layers = 4/' -e 's/^heads = .*/&\nvocab = 256/' -e 's/^steps = .*/steps = 5/' tiny.ini
	printf '[strategy pp]\nplugin = pp\nsize = 2\n'; } >two.ini

cat >look.py <<'END'
import json, re, sys

events = json.load(open(sys.argv[1]))["traceEvents"]
drawn = {int(l.split()[1]): re.findall(r"[FBW]\d+(?:\.\d+)?", l.split("|")[1]) for l in open(sys.argv[2]) if l.startswith("stage ")}
problems = []
def check(ok, what):
    if not ok:
        problems.append(what)

ranks = sorted({e["pid"] for e in events})
check(ranks == sorted(drawn), "a process for each rank: %s" % ranks)
for r in ranks:
    mine = [e for e in events if e["pid"] == r]
    named = {e["tid"]: e["args"]["name"] for e in mine if e["name"] == "thread_name"}
    check(named == {0: "units", 1: "kernels", 2: "communication"}, "rank %d: rows %s" % (r, named))
    bars = {t: [e for e in mine if e["tid"] == t and e["ph"] == "X"] for t in named}
    for t, row in bars.items():         # in order; each bar lies within another or after it
        open_, last = [], -1e99
        for e in row:
            begin, end = e["ts"], e["ts"] + e["dur"]
            check(begin >= last - 1e-3 and e["dur"] >= 0, "rank %d row %d: %s begins too early" % (r, t, e["name"]))
            while open_ and open_[-1] <= begin + 1e-3:
                open_.pop()
            check(not open_ or end <= open_[-1] + 1e-3, "rank %d row %d: %s is across another" % (r, t, e["name"]))
            open_.append(end)
            last = begin
    units = [e for e in bars[0] if re.fullmatch(r"[FBW]\d+(\.\d+)?", e["name"])]
    others = [e for e in bars[0] if e not in units]
    check(all(e["name"] in "GSU" for e in others), "rank %d: other bars %s" % (r, {e["name"] for e in others}))
    check(others and others[-1]["name"] == "U", "rank %d: the last is %s, not the update" % (r, others[-1:]))
    for step in (2, 3, 4):
        got = [e["name"] for e in units if e["args"]["step"] == step]
        check(got == drawn[r], "rank %d, step %d: %s, drawn %s" % (r, step, got, drawn[r]))
    for e in units:
        a = e["args"]
        want = "%s%d" % (a["kind"], a["micro"]) + (".%d" % a["chunk"] if "." in e["name"] else "")
        check(e["name"] == want and a["stage"] == r and 0 < a["busy"] <= e["dur"] + 1e-3, "rank %d: %s says %s" % (r, e["name"], a))
    for k in bars[1]:                   # each kernel runs within a bar of the first row
        check(any(e["ts"] - 1e-3 <= k["ts"] and k["ts"] + k["dur"] <= e["ts"] + e["dur"] + 1e-3 for e in bars[0]),
              "rank %d: kernel %s is in no unit" % (r, k["name"]))
    check({"einsum", "attention"} <= {k["name"] for k in bars[1]}, "rank %d: kernels" % r)
    check({"send", "receive", "wait"} <= {k["name"] for k in bars[2]}, "rank %d: communication %s" % (r, {k["name"] for k in bars[2]}))
    ends = {e["id"]: e for e in mine if e["ph"] == "e"}
    begins = [e for e in mine if e["ph"] == "b"]
    check(begins and len(begins) == len(ends) and all(ends[e["id"]]["ts"] >= e["ts"] for e in begins), "rank %d: movements" % r)
    check(any(e["name"].startswith("receive of ") for e in begins), "rank %d: no receive under way" % r)
# Both stages must share one clock: a stage computes with what it receives only after the other has begun to send it.
first = {r: min(e["ts"] for e in events if e["pid"] == r and e["ph"] == "X" and e["name"].startswith("F0") and e["args"]["step"] == 2)
         for r in ranks}
b0 = {r: max(e["ts"] + e["dur"] for e in events if e["pid"] == r and e["ph"] == "X" and e["name"].startswith("B0") and e["args"]["step"] == 2)
      for r in ranks}
check(first[0] < b0[1] < b0[0] or "." in drawn[0][0], "stage 0 ends B0 after stage 1: %s %s" % (first, b0))
print("\n".join(problems[:10]) or "all right")
END

for order in gpipe 1f1b zb interleaved; do
	heddle explain two.ini --ranks 2 --set pp.schedule=$order --schedule >drawn
	heddle_mpi 2 train two.ini --set pp.schedule=$order --set log.trace=$order.json >/dev/null 2>&1
	is "$order: the trace has all rows, units in the drawn order and kernels within units" \
		"$(python3 look.py $order.json drawn 2>&1)" "all right"
done
# The trace has the steps of log.trace_steps, numbered as in the metrics.  A value that is no range of steps is refused.
traced() { python3 -c 'import json, sys
print(*sorted({e["args"]["step"] for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X" and e["name"] == "B0" and e["pid"] == 1}))' many.json; }
heddle_mpi 2 train two.ini --set log.trace=many.json --set log.trace_steps=3-14 --set train.steps=13 >/dev/null 2>&1
is "a range of trace_steps that exceeds the run ends at its last step" "$(traced)" "3 4 5 6 7 8 9 10 11 12 13"
heddle_mpi 2 train two.ini --set log.trace=many.json --set log.trace_steps=5 --set train.steps=6 --set log.machine=dgx-a100 \
	--set log.metrics=many.jsonl >/dev/null 2>&1
is "trace_steps may be a single step" "$(traced)" "5"
# The page of the run draws that step below the predicted one, with 850 pieces a row.  A kind of work is at most one
# piece off, and a piece shows no kind that takes less than a fiftieth of it.
cat >rows.py <<'END'
import json, re, sys

events = [e for e in json.load(open("many.json"))["traceEvents"] if e["ph"] == "X" and e["tid"]]
step = [json.loads(l) for l in open("many.jsonl") if '"timeline"' in l][-1]["foresight"]["timeline"]
zero, end = min(e["ts"] for e in events), max(e["ts"] + e["dur"] for e in events)
problems = [] if abs(1e6 * step["measured_seconds"] / (end - zero) - 1) < 1e-3 else ["%g s, traced %g us" % (step["measured_seconds"], end - zero)]
for row, rank in zip(step["stages"], (0, 1)):
    waits = last = 0
    for e in sorted((e for e in events if e["pid"] == rank), key=lambda e: e["ts"]):
        waits += e["ts"] + e["dur"] - max(last, zero if last else e["ts"]) if e["tid"] == 2 else 0
        last = e["ts"] + e["dur"]
    pieces = {}
    for kind, n in re.findall(r"(\D)(\d+)", row["measured"]):
        pieces[kind] = pieces.get(kind, 0) + int(n)
    if row["rank"] != rank or abs(pieces.get("-", 0) / 850 - waits * 1e-6 / step["seconds"]) > 1 / 850 + 1 / 50:
        problems.append("rank %d waits %g us: %s" % (rank, waits, row))
    if sum(pieces.values()) != 850 or set("FB") - set(row["measured"]) or set("FB") - set(row["predicted"]):
        problems.append("no whole step: %s" % row)
print("\n".join(problems) or "%d stages" % len(step["stages"]))
END
is "the timeline in the metrics agrees with the trace" "$(python3 rows.py 2>&1)" "2 stages"
heddle report many.jsonl --out many.html
is "... and report draws the traced step below the predicted one" \
	"$(grep -o '<h2>The step as [a-z]*\|>stage [0-9]<\|>rank [0-9]<' many.html | tr -d '<>\n')" \
	"h2The step as plannedstage 0stage 1h2The step as tracedrank 0rank 1"
if [ -w /dev/full ]; then
	fails "a trace that cannot be written" heddle train tiny.ini --set log.trace=/dev/full --set log.trace_steps=1 --set checkpoint.dir=full
	like "... does not end the run, which ends with the reason" "$(cat "$tmp/.ok")" '^heddle: log\.trace: /dev/full: No space left on device$'
	is "... and is saved" "$(cat full/latest)" step-00000003
fi
like "a message says that no step was traced" \
	"$(heddle_mpi 2 train two.ini --set log.trace=many.json --set train.steps=1 2>&1)" \
	'many\.json: no step is traced; log\.trace_steps is 2-4, but this run has steps 1 to 1'
for steps in 4-2 0-3 x 2- 2,3 2-3x -1; do
	like "trace_steps = $steps" "$(heddle check two.ini --ranks 2 --set "log.trace_steps=$steps" 2>&1)" \
		"^heddle: --set log\.trace_steps: '$steps' is neither a step \(from 1\) nor FIRST-LAST$"
done
# Between hosts the difference of clocks is measured with a message.  A busy machine may delay it by more than a step.
heddle explain two.ini --ranks 2 --schedule >drawn
for try in 1 2 3 4; do
	HD_TEST_COMM=mpi heddle_mpi 2 train two.ini --set pp.schedule=1f1b --set log.trace=mpi.json >/dev/null 2>&1
	looks=$(python3 look.py mpi.json drawn 2>&1)
	[ "$looks" != "all right" ] || break
done
is "a trace between hosts has the same properties" "$looks" "all right"

# -- the times of one order, used for another
said=$(heddle explain two.ini --ranks 2 --schedule --times zb.json)
is "explain uses the times of zb for 1f1b" $? 0
like "... and prints a time, the busiest stage and a bubble" \
	"$said" '^with these times: a step takes [0-9.]+ s, stage [01] is busy for [0-9.]+ s, bubble [0-9.]+$'
fails "for zb a trace without times of W is refused" \
	heddle explain two.ini --ranks 2 --schedule --set pp.schedule=zb --times 1f1b.json
fails "a trace of a pipeline with other chunks is refused" \
	heddle explain two.ini --ranks 2 --schedule --times interleaved.json
fails "a file that is not a trace is refused" heddle explain two.ini --ranks 2 --schedule --times two.ini
like "... with its line and what is expected" \
	"$(cat "$tmp/.ok")" "^heddle: two\.ini:1: .*; a trace \(log\.trace\), which is JSON, is expected$"
echo '{}' >no.json
fails "other JSON is refused as a trace" heddle explain two.ini --ranks 2 --schedule --times no.json
like "... and the message names the list that it lacks" \
	"$(cat "$tmp/.ok")" '^heddle: no\.json: has no list traceEvents; a trace \(log\.trace\) is expected$'
# Invented times: F 1 ms, B 2 ms, W 3 ms on both stages; 4 micro-batches.
python3 - >made.json <<'END'
import json
print(json.dumps({"traceEvents": [{"name": k + "0", "ph": "X", "args": {"kind": k, "micro": 0, "chunk": 0, "stage": s, "busy": t}}
                                  for s in (0, 1) for k, t in (("F", 1000), ("B", 2000), ("W", 3000))]}))
END
like "1f1b: a step takes (p - 1) (F + B + W) more than the work" \
	"$(heddle explain two.ini --ranks 2 --schedule --times made.json)" \
	'a step takes 0.030000 s, stage 0 is busy for 0.024000 s, bubble 0.250$'
# Stage 0 waits from the end of F1, at 2 ms, until the end of B0 on stage 1, at 1 + 1 + 2 ms.
like "zb: a step takes only 2 ms more than the work" \
	"$(heddle explain two.ini --ranks 2 --schedule --set pp.schedule=zb --times made.json)" \
	'a step takes 0.026000 s, stage [01] is busy for 0.024000 s, bubble 0.083$'
done_testing
