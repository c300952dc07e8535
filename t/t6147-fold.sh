#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layouts of many stages and layers are printed in readable lines: what is equal is one line, and nothing is left out.
# If a stage that needs more were hidden by a similar one, somebody would buy a job that cannot run.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v python3 >/dev/null || skip_all "no python3"

here="--set data.train=none --set model.vocab=512"

# check: 8 stages, of which the inner ones are equal.
printf '[model]\nlayers = 30\nembed = 64\nheads = 4\n[data]\ntrain = none\n[train]\nseq = 64\nglobal_batch = 32\nmicro_batch = 1\nsteps = 1\n' >deep.ini
printf '[strategy tp]\nplugin = tp\nsize = 2\n[strategy pp]\nplugin = pp\nsize = 8\n' >>deep.ini
said=$(heddle check deep.ini --ranks 16 --set model.vocab=512)
is "check: equal stages are one line" "$(printf '%s\n' "$said" | grep -c '^rank')" 3
like "... with their ranks, blocks, and the minimum and maximum that a step needs" "$said" \
	'^ranks 2 to 12 \(stages 1 to 6, 4 blocks each; [0-9.]+ [KM] parameters each\): [0-9.]+ [KM] parameters, memory [0-9.]+ MB to [0-9.]+ MB \(parameters and state [0-9.]+ MB, within a step [0-9.]+ MB to [0-9.]+ MB, scratch of kernels [0-9.]+ [KM]B\)$'
is "check --all: a line for each stage" \
	"$(heddle check deep.ini --ranks 16 --set model.vocab=512 --all | grep -c '^rank .*parameters, memory [0-9.]* MB (')" 8
heddle check deep.ini --ranks 16 --set model.vocab=512 --all >all.txt
heddle check deep.ini --ranks 16 --set model.vocab=512 --json >check.json
printf '%s\n' "$said" >folded.txt
ok "--json has the same in bytes, and each stage is within the range of its line" python3 - <<'END'
import json, re
c = json.load(open("check.json"))
assert [a["name"] for a in c["axes"]] == ["tp", "pp"] and c["ranks"] == 16 and c["micro_batches"] == 32
assert len(c["stages"]) == 8 and sum(s["stage_parameters"] for s in c["stages"]) == c["parameters"]
lines = [l for l in open("all.txt") if l.startswith("rank ")]
for s, line in zip(c["stages"], lines):
    m = re.match(r"rank (\d+) \(stage (\d+): .*; (\d+) parameters\): (\d+) parameters, memory ([\d.]+) MB \(parameters and state ([\d.]+), within a step ([\d.]+), scratch of kernels ([\d.]+)\)", line)
    rank, stage, whole, own = map(int, m.groups()[:4])
    assert (rank, stage, whole, own) == (s["rank"], s["stage"], s["stage_parameters"], s["parameters"]), (s, line)
    for text, n in zip(m.groups()[4:], (s["memory_bytes"], s["persistent_bytes"], s["transient_bytes"])):
        assert abs(float(text) * 1e6 - n) <= 0.05e6 + 1, (text, n)
folded = next(l for l in open("folded.txt") if l.startswith("ranks "))
low, high = re.search(r"memory ([\d.]+) MB to ([\d.]+) MB", folded).groups()
bytes_ = [s["memory_bytes"] for s in c["stages"][1:7]]
assert abs(float(low) * 1e6 - min(bytes_)) <= 0.05e6 + 1 and abs(float(high) * 1e6 - max(bytes_)) <= 0.05e6 + 1, (folded, bytes_)
assert len(set(bytes_)) > 1
END
# A schedule where the last of them needs most.
heddle check deep.ini --ranks 16 --set model.vocab=512 --set pp.schedule=zb --json >check.json
heddle check deep.ini --ranks 16 --set model.vocab=512 --set pp.schedule=zb >folded.txt
ok "the maximum is printed, wherever it is" python3 - <<'END'
import json, re
stages = json.load(open("check.json"))["stages"]
folded = next(l for l in open("folded.txt") if l.startswith("ranks "))
low, high = re.search(r"within a step ([\d.]+) MB to ([\d.]+) MB", folded).groups()
bytes_ = [s["transient_bytes"] for s in stages[1:7]]
assert max(bytes_) == bytes_[-1] > bytes_[0], bytes_
assert abs(float(low) * 1e6 - min(bytes_)) <= 0.05e6 + 1 and abs(float(high) * 1e6 - max(bytes_)) <= 0.05e6 + 1, (folded, bytes_)
END
like "check: numbers for people" "$(heddle check "$src/conf/ptd-p-1t.ini" --ranks 3072)" \
	'^1008038758400 parameters \(1\.0 T\)$'

# explain: tensor-parallel layers move the same.
heddle explain "$src/conf/megatron-tp.ini" --ranks 4 $here --set model.layers=12 >folded.txt
heddle explain "$src/conf/megatron-tp.ini" --ranks 4 $here --set model.layers=12 --all >all.txt
heddle explain "$src/conf/megatron-tp.ini" --ranks 4 $here --set model.layers=12 --json >explain.json
like "explain: equal layers are one line" "$(cat folded.txt)" '^forward +layer 0-11 +tp +all-reduce +[0-9.]+ KB x[0-9]+ '
like "explain: backward the layers run down" "$(cat folded.txt)" '^backward +layer 11-0 +tp +all-reduce'
ok "... the lines stand for all layers, which --all prints with their bytes" python3 - <<'END'
import json, re
units = ("forward", "backward", "weight-gradient", "gather", "sync", "update")
def lines(name):
    return [l for l in open(name) if l.split(" ")[0] in units]
total = 0
for l in lines("folded.txt"):
    m = re.search(r" layer (\d+)-(\d+) ", l)
    total += abs(int(m.group(1)) - int(m.group(2))) + 1 if m else 1
all_, js = lines("all.txt"), json.load(open("explain.json"))
assert total == len(all_) == len(js), (total, len(all_), len(js))
assert len(lines("folded.txt")) <= 12, len(lines("folded.txt"))
for l, o in zip(all_, js):
    m = re.search(r" (\d+) bytes x(\d+) ", l)
    assert (int(m.group(1)), int(m.group(2))) == (o["bytes"], o["count"]), (l, o)
END
# Layers that differ in one number are not folded: every other one has experts here.
said=$(heddle explain "$src/conf/megatron-tp.ini" --ranks 4 $here --set model.layers=6 --set model.experts=4)
unlike "layers that differ are not in one line" "$said" 'layer [0-9]+-[0-9]+ .*dispatch'
like "a receive is printed with its bytes" \
	"$(heddle explain deep.ini --ranks 16 --set model.vocab=512)" '^backward +layer [0-9]+ +pp +receive +[0-9.]+ KB x32'

# plan
said=$(heddle plan deep.ini --ranks 16 --set model.vocab=512 --machine dgx-a100)
like "plan: numbers for people" "$said" '^step [0-9.]+ m?s: [0-9.]+ [KM] tokens/s'
like "plan: equal stages are one line" \
	"$said" '^stages 1 to 6, each: kernels [0-9.]+ [um]s, collectives .* exposed, idle .*; at most [0-9.]+ [MG]B$'
done_testing
