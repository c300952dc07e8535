#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random small searches find the best of all layouts, and no layout's step is shorter than its lower bound.  A bound
# that is too high loses the best layout without a word.  HD_TEST_SEARCHES=200 runs that many searches.
. "${0%/*}/lib/tap.sh"
command -v python3 >/dev/null || skip_all 'no python3'

cat >search.py <<'E'
import json, os, random, subprocess, sys

heddle, tmp, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def made(seed):
    r = random.Random(seed)
    heads = r.choice([2, 4, 6])
    model = {"layers": r.choice([2, 3, 4, 5, 6, 7]), "embed": heads * r.choice([8, 16, 32]), "heads": heads, "vocab": r.choice([48, 64])}
    train = {"seq": r.choice([8, 16, 64]), "global_batch": r.choice([4, 8, 12, 16]), "steps": 1}
    experts = random.Random(-seed)
    if experts.random() < 0.5:  # after dense layers, which take a different time
        model.update({"family": "mixtral", "experts": 4, "mlp": experts.choice([16, 64, 256]), "expert_mlp": experts.choice([16, 64, 256]),
                      "dense_layers": experts.randrange(model["layers"]), "moe_every": experts.choice([1, 1, 2])})
        model["moe_every"] = 1 if model["layers"] - model["dense_layers"] < 2 else model["moe_every"]
    windows = random.Random(~seed)
    if windows.random() < 0.5:  # layers that see all keys take longer than those with a window
        model.update({"window": 4, "window_layers": windows.choice(["wf", "fw", "wwf", "fffw", "f", "fffffw"])})
        model.setdefault("family", "llama")
    text = "[model]\n" + "".join("%s = %s\n" % x for x in model.items()) + "[data]\ntrain = none\n[train]\n"
    text += "".join("%s = %s\n" % x for x in train.items())
    machine = {"name": "m", "ranks_per_node": r.choice([1, 2, 4]), "memory": "1G", "flops_fp32": r.choice([1e10, 1e11, 1e12]),
               "memory_bandwidth": r.choice([1e10, 1e11]), "kernel_latency": r.choice([1e-6, 1e-5]),
               "node_bandwidth": r.choice([1e9, 1e10]), "node_latency": r.choice([1e-6, 1e-5]),
               "network_bandwidth": r.choice([1e8, 1e9]), "network_latency": r.choice([1e-6, 1e-5, 1e-4])}
    parts = [("tp", ["form=1d", "form=1d sequence_parallel=yes", "form=2d"]), ("dp", ["zero=0", "zero=1", "sync=allreduce", "zero=3"]),
             ("pp", ["schedule=1f1b", "schedule=gpipe", "schedule=zb", "schedule=interleaved chunks=2"]), ("cp", ["form=ulysses", "form=ring"])]
    space = ""
    for name, choices in r.sample(parts, r.choice([2, 3])):
        space += "[strategy %s]\nplugin = %s\nchoose = %s\n" % (name, name, ", ".join(r.sample(choices, min(len(choices), 2))))
    space += "[vary train.micro_batch]\nvalues = 1, %d\n" % r.choice([2, 4])
    if r.random() < 0.5:
        space += "[vary train.recompute]\nvalues = full, none\n"
    return text, "[machine]\n" + "".join("%s = %s\n" % x for x in machine.items()), space, r.choice([2, 4, 6])

def search(seed, ranks, **env):
    at = [os.path.join(tmp, "%s%d.ini" % (n, seed)) for n in ("model", "machine", "space")]
    p = subprocess.run([heddle, "plan", at[0], "--machine", at[1], "--space", at[2], "--ranks", str(ranks), "--search", "--tries", "0", "--json"],
                       capture_output=True, text=True, env=dict(os.environ, **env))
    return (json.loads(p.stdout), "") if p.returncode == 0 else (None, p.stderr.strip())

wrong = planned = everything = 0
for seed in range(first, first + count):
    *texts, ranks = made(seed)
    for name, text in zip(("model", "machine", "space"), texts):
        open(os.path.join(tmp, "%s%d.ini" % (name, seed)), "w").write(text)
    found, why = search(seed, ranks)
    every, no = search(seed, ranks, HD_TEST_SEARCH_ALL="1")
    if not found or not every:
        if bool(found) != bool(every) or "no layout" not in why:
            wrong += 1
            print("# %d: %s | %s" % (seed, why, no))
        continue
    planned, everything = planned + len(found["candidates"]), everything + len(every["candidates"])
    a, b = found["candidates"][0], every["candidates"][0]
    if a["step_seconds"] != b["step_seconds"]:
        wrong += 1
        print("# %d: found %g s, there is %g s: %s" % (seed, a["step_seconds"], b["step_seconds"], b["ini"].replace("\n", "; ")))
    for c in every["candidates"]:
        if c["bound_seconds"] > c["step_seconds"] * (1 + 1e-9):
            wrong += 1
            print("# %d: a step of %g s, and its bound is %g s: %s" % (seed, c["step_seconds"], c["bound_seconds"], c["ini"].replace("\n", "; ")))
            break
print("wrong", wrong, "planned", planned, "of", everything)
E
said=$(python3 search.py "$build/heddle" "$tmp" 1 "${HD_TEST_SEARCHES:-$(whole_sweep && echo 12 || echo 4)}" 2>&1)
printf '%s\n' "$said" | grep '^#'
like "all searches find the best layout, and no step is shorter than its bound" "$said" '^wrong 0 '
ok "... without planning all layouts" \
	test "$(printf '%s\n' "$said" | sed -n 's/^wrong .*planned \([0-9]*\) of.*/\1/p')" -lt \
	"$(printf '%s\n' "$said" | sed -n 's/^wrong .* of \([0-9]*\)$/\1/p')"
done_testing
