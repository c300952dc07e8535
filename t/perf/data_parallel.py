#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares all forms of data parallelism, for the tables and the figure of doc/data-parallel.md.

usage: t/perf/data_parallel.py build/heddle [--svg FILE]
       t/perf/data_parallel.py build/heddle --real 2,4,8 [--forms "ring,1 server"]
       t/perf/data_parallel.py build/heddle --slow 1.5

By default it plans a GPT-2 of 1.7 billion parameters in bf16 on 8 to 4,096 GPUs of dgx-a100.  --real measures a small
model instead, on these numbers of workers of this machine, one thread each, under mpirun.  --slow measures it on 2
workers, one of which is stopped and woken ten times per second so that it takes this many times as long.  It compares
the result with the prediction of plan.
"""
import argparse
import json
import os
import signal
import subprocess
import tempfile
import time

PLANNED = """[model]
layers = 24
embed = 2304
heads = 24
vocab = 50304
[data]
train = none
[train]
seq = 2048
global_batch = 4096
micro_batch = 1
steps = 1
precision = bf16
recompute = full
[strategy dp]
plugin = dp
"""
REAL = """[model]
layers = 4
embed = 256
heads = 4
vocab = 256
[data]
train = none
[train]
seq = 64
global_batch = 16
steps = 1
threads = 1
[strategy dp]
plugin = dp
"""
# name, keys of dp, number of servers, minimum number of ranks
FORMS = [
    ("all-reduce", "sync=allreduce", 0, 1),
    ("ring", "sync=ring", 0, 1),
    ("two levels", "sync=hierarchical", 0, 16),
    ("1 server", "sync=server servers=1", 1, 1),
    ("2 servers", "sync=server servers=2", 2, 1),
    ("4 servers", "sync=server servers=4", 4, 1),
    ("servers on the workers", "sync=server", 0, 1),
    ("zero 1", "sync=allreduce zero=1", 0, 1),
    ("zero 2", "sync=allreduce zero=2", 0, 1),
    ("zero 3", "sync=allreduce zero=3", 0, 1),
    ("zero 3 in groups of 8 (HSDP)", "sync=allreduce zero=3 zero_size=8", 0, 16),
]
REPEATS = 3
RANKS = [8, 64, 512, 1024, 4096]


def sets(keys):
    return [x for k in keys.split() for x in ("--set", "dp." + k)]


def last_json(text):
    return json.loads([l for l in text.splitlines() if l.startswith("{")][-1])


def plan(heddle, ini, keys, ranks):
    r = subprocess.run([heddle, "plan", ini, "--ranks", str(ranks), "--machine", "dgx-a100", "--memory", "1000G", "--json"] + sets(keys),
                       capture_output=True, text=True)
    if r.returncode:
        print("# %s, %d ranks: %s" % (keys, ranks, (r.stderr.strip().splitlines() or ["?"])[-1]))
        return None
    return last_json(r.stdout)


def bench(heddle, ini, keys, ranks):
    best = None
    for _ in range(REPEATS):
        r = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), heddle,
                            "bench", ini, "--steps", "5", "--json"] + sets(keys), capture_output=True, text=True)
        if r.returncode:
            print("# %s, %d ranks: %s" % (keys, ranks, (r.stderr.strip().splitlines() or ["?"])[-1]))
            return None
        j = last_json(r.stdout)
        if not best or j["step_seconds"] < best["step_seconds"]:
            best = j
    return best


def table(rows, head):
    print("| | " + " | ".join(head) + " |")
    print("|---|" + "---|" * len(head))
    for name, cells in rows:
        print("| %s | %s |" % (name, " | ".join(cells)))
    print()


def planned(heddle, ini):
    found = {}
    for name, keys, servers, least in FORMS:
        for n in RANKS:
            if n >= least:
                found[name, n] = plan(heddle, ini, keys, n + servers)
    views = [
        ("Seconds a step", lambda j: "%.2f" % j["step_seconds"]),
        ("Of them waiting for communication", lambda j: "%.2f" % j["comm_exposed_seconds"]),
        ("GB of memory of a worker", lambda j: "%.1f" % (max(s["memory_bytes"] for s in j["stages"]) / 1e9)),
        ("GB sent by a worker within its node and over the network",
         lambda j: "%.1f, %.1f" % (j["bytes"].get("node", 0) / 1e9, j["bytes"].get("network", 0) / 1e9)),
    ]
    for title, show in views:
        print("%s, by number of workers:\n" % title)
        table([(f[0], [show(found[f[0], n]) if found.get((f[0], n)) else "" for n in RANKS]) for f in FORMS],
              ["%d" % n for n in RANKS])
    return found


def measured(heddle, ini, workers, forms):
    rows = []
    for name, keys, servers, least in FORMS:
        cells = []
        if forms and name not in forms:
            continue
        for n in workers:
            keys_here = keys.replace("zero_size=8", "zero_size=%d" % (n // 2))
            skip = "hierarchical" in keys or (least > 1 and n < 4)  # a single host has no second level
            j = None if skip else bench(heddle, ini, keys_here, n + servers)
            cells.append("%.1f" % (1000 * j["step_seconds"]) if j else "")
        rows.append((name.replace(" of 8", " of half"), cells))
    print("Milliseconds a step of a small model, measured, by number of workers:\n")
    table(rows, ["%d" % n for n in workers])


def worker(ini, rank):
    """Returns the process of a rank of the run of `ini`, once it exists."""
    while True:
        for p in filter(str.isdigit, os.listdir("/proc")):
            try:
                if ini in open("/proc/%s/cmdline" % p).read() and "OMPI_COMM_WORLD_RANK=%d\0" % rank in open("/proc/%s/environ" % p).read():
                    return int(p)
            except OSError:
                pass
        time.sleep(0.05)


def train(heddle, ini, keys, ranks, slow):
    """Returns the mean seconds of a step without the first ten; rank 1 runs only 1 / slow of the time."""
    steps, text = ini + ".jsonl", ini + ".txt"
    open(text, "w").write("and god said let there be light " * 2000)
    if os.path.exists(steps):
        os.unlink(steps)
    run = subprocess.Popen(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), heddle, "train", ini,
                            "--set", "train.steps=40", "--set", "data.train=" + text, "--set", "data.valid_fraction=0", "--set", "log.metrics=" + steps] + sets(keys),
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = worker(ini, 1)
    while slow > 1 and run.poll() is None:
        try:
            time.sleep(0.1 / slow)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.1 - 0.1 / slow)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            break
    run.wait()
    seconds = [j["seconds"] for j in map(json.loads, open(steps)) if "seconds" in j][10:]
    return sum(seconds) / len(seconds)


def slowed(heddle, ini, slow):
    rows = []
    for name, keys, servers, _ in FORMS:
        if name not in ("ring", "1 server", "servers on the workers"):
            continue
        real = [train(heddle, ini, keys, 2 + servers, x) for x in (1, slow)]
        said = [last_json(subprocess.run([heddle, "plan", ini, "--ranks", str(2 + servers), "--machine", "dgx-a100", "--json"] + sets(keys) +
                                         (["--slow", "1=%g" % x] if x > 1 else []), capture_output=True, text=True).stdout)["step_seconds"]
                for x in (1, slow)]
        rows.append((name, ["%.1f" % (1000 * real[0]), "%.1f" % (1000 * real[1]), "%.2f" % (real[1] / real[0]), "%.2f" % (said[1] / said[0])]))
    print("Milliseconds a step of 2 workers, and with one that takes %g times as long:\n" % slow)
    table(rows, ["as it is", "one slow", "ratio", "ratio planned"])


COLOURS = ["#3b6ea5", "#c2571a", "#2c7d4f", "#a33a3a", "#d08c1d", "#7a7a1f", "#6a4fb0", "#1f8a8a", "#8f5a3c", "#b0478d", "#4d5b66"]


def svg(path, found):
    import math
    w, h, left, top, right, low = 760, 380, 56, 24, 520, 330
    x = lambda n: left + (right - left) * math.log(n / RANKS[0]) / math.log(RANKS[-1] / RANKS[0])
    ideal = {n: found["all-reduce", 8]["step_seconds"] * 8 / n for n in RANKS}
    y = lambda v: low - (low - top) * min(max(v, 0), 1)
    o = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12">' % (w, h, w, h),
         '<title>Share of ideal speed, by number of workers</title>',
         '<style>.bg{fill:#fff}.t{fill:#1c2530}.g{stroke:#d5dce3}@media (prefers-color-scheme: dark){.bg{fill:#12171d}.t{fill:#e6ebf0}.g{stroke:#37444f}}</style>',
         '<rect class="bg" width="100%" height="100%"/>']
    for v in (0, .25, .5, .75, 1):
        o.append('<line class="g" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="t" x="%d" y="%.1f" text-anchor="end">%d %%</text>' % (left, right, y(v), y(v), left - 6, y(v) + 4, 100 * v))
    for n in RANKS:
        o.append('<text class="t" x="%.1f" y="%d" text-anchor="middle">%d</text>' % (x(n), low + 18, n))
    o.append('<text class="t" x="%.1f" y="%d" text-anchor="middle">workers</text>' % ((left + right) / 2, low + 38))
    o.append('<text class="t" x="%d" y="14">share of the speed of 8 workers with all-reduce, times workers / 8</text>' % left)
    ends = []
    for (name, *_), c in zip(FORMS, COLOURS):
        at = [(x(n), y(ideal[n] / found[name, n]["step_seconds"])) for n in RANKS if found.get((name, n))]
        if at:
            o.append('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>' % (c, " ".join("%.1f,%.1f" % p for p in at)))
            ends.append((at[-1][1], name, c))
    last = min(top, low - 15 * len(ends))
    for k, (yy, name, c) in enumerate(sorted(ends)):
        last = max(last + 15, min(yy, low + 10 - 15 * (len(ends) - 1 - k)))
        o.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="%s"/><text class="t" x="%d" y="%.1f">%s</text>' % (right, right + 22, yy, last, c, right + 26, last + 4, name))
    o.append("</svg>")
    open(path, "w").write("\n".join(o) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("heddle")
    p.add_argument("--real", help="numbers of workers, separated by commas")
    p.add_argument("--forms", help="only these rows of the table, separated by commas")
    p.add_argument("--slow", type=float)
    p.add_argument("--svg")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        ini = os.path.join(tmp, "model.ini")
        open(ini, "w").write(REAL)
        if a.slow:
            return slowed(a.heddle, ini, a.slow)
        if a.real:
            return measured(a.heddle, ini, [int(n) for n in a.real.split(",")], a.forms and a.forms.split(","))
        open(ini, "w").write(PLANNED)
        found = planned(a.heddle, ini)
        if a.svg:
            svg(a.svg, found)


main()
