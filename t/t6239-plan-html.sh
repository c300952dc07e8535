#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The page of a plan is well formed, loads nothing, and draws what plan predicts. If this broke, people would decide by
# a wrong drawing, or see none without a network.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v python3 >/dev/null || skip_all 'no python3'

cat >m.ini <<'E'
[model]
layers = 8
embed = 64
heads = 4
vocab = 64
[data]
train = none
[train]
seq = 16
global_batch = 8
micro_batch = 1
steps = 1
precision = fp32
[strategy t]
plugin = tp
size = 2
[strategy p]
plugin = pp
size = 4
E
cat >machine.ini <<'E'
[machine]
name = small & slow
ranks_per_node = 2
flops_fp32 = 1e10
memory_bandwidth = 1e10
node_bandwidth = 5e9
network_bandwidth = 1e9
E
cat >look.py <<'E'
import re, sys, xml.etree.ElementTree as tree
text = open(sys.argv[1]).read()
page = tree.fromstring(text.split("\n", 1)[1])
print("fetches", len(re.findall(r"https?:|src=|<script|@import|url\(", text)))
print("dark", text.count("prefers-color-scheme:dark"))
for svg in page.iter("svg"):
    words = ["".join(t.itertext()) for t in svg.iter("text")]
    print("drawing", svg.get("aria-label"), "|", "; ".join(words))
    rows = {}
    for p in svg.iter("path"):
        kind = p.get("class").split()
        if kind[0] == "f" and kind[1][0] == "w":
            for x, y, n in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)", p.get("d")):
                rows.setdefault(y, []).append((float(n), kind[1]))
    for y in sorted(rows, key=float):
        print("row", sum(n for n, k in rows[y]), "idle", sum(n for n, k in rows[y] if k == "w4") / sum(n for n, k in rows[y]))
    for bar in svg.iter("rect"):
        if bar.get("class").startswith("f l"):
            print("bar", bar.get("class")[-1], bar.get("width"))
    for p in svg.iter("path"):
        if p.get("class").startswith("f m"): # the height of a kind of memory at the beginning
            low = float(re.match(r"M\d+ ([\d.]+)", p.get("d")).group(1))
            print("memory", p.get("class")[-1], round(low - float(re.search(r"L\d+ ([\d.]+)h1L", p.get("d")).group(1)), 1))
print("points", sum(1 for c in page.iter("circle")))
E
field() { printf '%s\n' "$1" | python3 -c 'import json, sys
print(eval(sys.argv[1], {"r": json.load(sys.stdin)}))' "$2" 2>&1; }
plan() { heddle plan m.ini --ranks 8 --machine machine.ini "$@"; }

said=$(plan --json --html page.html)
seen=$(python3 look.py page.html 2>&1)
like "the page is well formed and fetches nothing" "$seen" 'fetches 0'
like "the page follows the reader's choice of light or dark" "$seen" 'dark 1'
like "the page draws the mesh with its axes" "$seen" 'drawing The mesh | t 2; .*p 4'
like "the page draws the time of each stage" "$seen" 'drawing The step as planned | stage 0; stage 1; stage 2; stage 3'
like "the axis has a name and a unit" "$seen" 'seconds from the beginning of the step'
is "each stage has a row" "$(printf '%s\n' "$seen" | grep -c '^row')" 4
near "... which is as long as the step" "$(printf '%s\n' "$seen" | awk '/^row/ { n = $2 } END { print n }')" 850 2
waits=$(field "$said" '(r["stages"][3]["idle_seconds"] + r["stages"][3]["comm_exposed_seconds"]) / r["step_seconds"]')
near "the last stage waits as long as plan says" "$(printf '%s\n' "$seen" | awk '/^row/ { n = $4 } END { print n }')" "$waits" 0.02
bytes=$(field "$said" 'r["bytes"]["network"] / r["bytes"]["node"]')
near "the bars of links are proportional to their bytes" \
	"$(printf '%s\n' "$seen" | awk '$1 == "bar" && $3 > most[$2] { most[$2] = $3 }
	END { print most[1] / most[0] }')" "$bytes" 0.01
like "the page has the memory by kind" "$(cat page.html)" 'kept for backward'
like "names are escaped as text" "$(cat page.html)" 'small &#38; slow'
like "without a search the page has no points" "$seen" 'points 0'

# What the plan is of, whether it fits, and what was asked for.
like "the page has the rate" "$(cat page.html)" 'a step takes .*: .* tokens/s, .* a rank, [0-9.]+% of the peak'
like "... and the precision" "$(cat page.html)" '<p>8 ranks of small &#38; slow, 2 a node, fp32</p>'
said=$(plan --memory 64K --style megatron-2021 --slow 1=2 --json --html over.html 2>/dev/null)
like "a layout that does not fit has that in its heading" "$(cat over.html)" '<h1>m\.ini: does not fit</h1>'
like "... with the memory that was given" \
	"$(cat over.html)" 'memory of a rank: .*, more than its .* \(--memory\): this layout does not fit'
like "... and a line in the drawing of memory" "$(cat over.html)" 'class="limit".*memory of a rank: 65.5 KB, less'
like "... which the page explains" "$(cat over.html)" 'A rank has 65.5 KB, so this does not fit'
unlike "a machine without a limit has no such line" "$(cat page.html)" 'class="limit"|does not fit'
like "the page names the style" "$(cat over.html)" 'fp32; style megatron-2021<'
like "... and the slow rank" "$(cat over.html)" 'rank 1 takes 2 times as long to compute: a step takes .* instead of '
near "each stage works or waits for the complete step, also beside a slow one" "$(field "$said" \
	'max(abs(s["compute_seconds"] + s["comm_exposed_seconds"] + s["idle_seconds"] - r["step_seconds"])
	for s in r["stages"]) / r["step_seconds"]')" 0 1e-6
like "the memory is explained as that of units" "$(cat page.html)" 'The curve shows the most that each unit uses'

# Groups of three do not divide a node of eight, and those of four do not divide one of six.
sed 's/heads = 4/heads = 12/; s/embed = 64/embed = 96/' m.ini >odd.ini
printf '[strategy d]\nplugin = dp\n' >>odd.ini
odd() { sed "s/ranks_per_node = 2/ranks_per_node = $1/" machine.ini >node.ini
	heddle plan odd.ini --ranks $((8 * $2)) --machine node.ini --html odd.html --set train.global_batch=24 --set p.size=2 --set d.size=4 \
		--set t.size=$2 2>&1; }
said=$(odd 8 3)
like "the page counts the groups that span nodes" "$(cat odd.html)" '>1 apart, 2 of 8 groups span nodes<'
like "... and plan warns that prices are of another group" \
	"$said" 'plan: 2 of 8 groups along t span nodes, but not that of rank 0, for which the prices are'
said=$(odd 6 4)
like "... also with an even size" "$(cat odd.html)" '>1 apart, 3 of 8 groups span nodes<'
said=$(odd 8 4)
like "groups that divide the node are within it" "$(cat odd.html)" '>1 apart, all members within a node<'
unlike "... and plan does not warn" "$said" 'span nodes'
sed 's/^\[strategy t\]/[strategy a_very_long_name_that_nobody_would_want_to_read]/' m.ini >long.ini
heddle plan long.ini --machine machine.ini --html name.html >said 2>&1
like "a long name of an axis is shortened, and complete for the pointer" "$(cat name.html)" \
	'<text[^>]*><title>a_very_long_name_that_nobody_would_want_to_read 2</title>a_very_long_name_[a-z_]*[^<a-z]+</text>'
name=$(printf 'm\377<\001.ini')
cp m.ini "$name" && heddle plan "$name" --machine machine.ini --html bytes.html >said 2>&1
like "the name of an INI may contain any bytes" "$(python3 look.py bytes.html 2>&1)" 'fetches 0'

# Four ranks on two cores take as long as the cores need, and the drawing ends there.
printf '[model]\nlayers = 2\nembed = 256\nheads = 4\nvocab = 64\n[data]\ntrain = none\n[train]\nseq = 64\nglobal_batch = 8\nsteps = 1\n[strategy d]\nplugin = dp\nsize = 4\n' >four.ini
heddle plan four.ini --ranks 4 --machine "$src/t/data/two-cores.ini" --html crowd.html >said
seen=$(python3 look.py crowd.html 2>&1)
near "ranks that share cores: the row is as long as the step" "$(printf '%s\n' "$seen" | awk '/^row/ { print $2 }')" 850 1
like "... and shows the time of sharing cores" "$(cat crowd.html)" 'class="w5"><i></i>sharing cores'
like "... and so does the text" "$(cat said)" 'ranks share cores: for .* of the step'
like "... and the table" "$(cat crowd.html)" \
	"<td>$(sed -n 's/^ranks share cores: for \(.*\) of the step.*/\1/p' said)</td><td>[0-9.]* .B</td><td>[^<]*</td></tr>"
said=$(heddle plan four.ini --ranks 4 --machine "$src/t/data/two-cores.ini" --json)
is "time in which other ranks use the core has a number of its own" \
	"$(field "$said" 'r["sharing_seconds"] > 0 and r["stages"][0]["idle_seconds"] < r["sharing_seconds"] / 100')" True
near "... and all times add up to the step" "$(field "$said" '(r["stages"][0]["compute_seconds"] + r["stages"][0]["comm_exposed_seconds"]
	+ r["stages"][0]["idle_seconds"] + r["sharing_seconds"] + r.get("host_seconds", 0)) / r["step_seconds"]')" 1 1e-6

said=$(plan --json --slow 1=2)
near "JSON has the time of a step without the slow rank" \
	"$(field "$said" 'r["slow"]["step_seconds_without"]')" "$(field "$(plan --json)" 'r["step_seconds"]')" 1e-9
is "... and the rank and factor of the slow one" "$(field "$said" 'r["slow"]["rank"], r["slow"]["factor"]')" "(1, 2.0)"

# If a step has many units, its beginning and its end are drawn too, and the page stays small.
plan --html long.html --set train.global_batch=400 >said
like "many units: the beginning is drawn separately" "$(python3 look.py long.html 2>&1)" 'drawing Its beginning'
ok "... and the page is below 400,000 bytes" test "$(wc -c <long.html)" -lt 400000

# A traced step, drawn below the planned one: 4 stages in 8 seconds.  The last stage waits for two of these seconds,
# within its unit.
python3 - >trace.json <<'E'
import json
bar = lambda rank, name, at, dur, **more: {"name": name, "ph": "X", "pid": rank, "tid": 0, "ts": at * 1e6, "dur": dur * 1e6, "args": dict(more, step=7)}
piece = lambda rank, tid, at, dur: {"name": "x", "ph": "X", "pid": rank, "tid": tid, "ts": at * 1e6, "dur": dur * 1e6}
def unit(rank, at, dur, waits):
    yield bar(rank, "F0", at, dur, kind="F", micro=0, chunk=0, stage=rank // 2)
    yield piece(rank, 1, at, (dur - waits) / 2)
    yield piece(rank, 2, at + (dur - waits) / 2, waits)
    yield piece(rank, 1, at + (dur + waits) / 2, (dur - waits) / 2)
def rank(r):
    yield from unit(r, 10, 6, 2) if r == 6 else unit(r, 10, 4, 0)
    if r == 6: # a sync within the unit, at the time of the wait
        yield bar(r, "S", 12, 2)
        yield piece(r, 1, 0, 1) # belongs to a different step
    yield bar(r, "U", 16, 2)
    yield piece(r, 1, 16, 2)
events = [e for r in range(8) for e in rank(r)]
print(json.dumps({"traceEvents": events + [dict(bar(0, "F0", 0, 9), args={"step": 6, "stage": 0})]}))
E
plan --html traced.html --times trace.json --set train.global_batch=1 >said
seen=$(python3 look.py traced.html 2>&1)
like "a traced step is drawn too" "$seen" 'drawing The step as traced . rank 0; rank 2; rank 4; rank 6'
like "... with its time" "$(cat traced.html)" 'traced 8(\.0*)? s'
near "... where only communication within a unit counts as a wait" \
	"$(printf '%s\n' "$seen" | awk '/^row/ { n = $4 } END { print n }')" 0.25 0.01
like "... drawn at its place" \
	"$(cat traced.html)" 'class="f w4" d="M30[89]\.[0-9] [0-9.]*h21[123]\.0v[0-9.]*h-21[123]\.0z"'
# A unit that is computed by turns with another has a bar for each piece.
python3 - >pieces.json <<'E'
import json
events = []
for e in json.load(open("trace.json"))["traceEvents"]:
    if e["name"] != "F0" or e["args"]["step"] != 7:
        events.append(e)
        continue
    for k in 0, 1:
        events.append(dict(e, ts=e["ts"] + k * e["dur"] / 2, dur=e["dur"] / 2))
print(json.dumps({"traceEvents": events}))
E
plan --html pieces.html --times pieces.json --set train.global_batch=1 >said 2>&1
like "a traced step whose units have pieces is drawn, too" "$(python3 look.py pieces.html 2>&1)" \
	'drawing The step as traced . rank 0; rank 2; rank 4; rank 6'
said=$(plan --times trace.json 2>&1)
is "--times without --html is refused" $? 1
like "... and the message says so" "$said" 'times needs --html'
said=$(heddle plan m.ini --machine machine.ini --html x.html --times trace.json --set p.size=8 --set train.global_batch=1 --ranks 16 2>&1)
is "a trace of a different layout is refused" $? 1
like "... and the message names the stage that it lacks" "$said" 'has no units of stage 4; the layout has 8 stages'
said=$(plan --html x.html --times trace.json 2>&1)
is "a trace with a different number of micro-batches is refused" $? 1
like "... and the message has both numbers" \
	"$said" 'has [0-9]+ forward units of stage 0 in its last step; the layout has [0-9]+'

cat >space.ini <<'E'
[strategy b]
plugin = dp
[strategy t]
plugin = tp
[strategy p]
plugin = pp
choose = schedule=gpipe, schedule=1f1b
E
found=$(plan --search --space "$tmp/space.ini" --json --html found.html)
seen=$(python3 look.py found.html 2>&1)
is "a search draws a point for each layout that was planned" \
	"$(printf '%s\n' "$seen" | sed -n 's/^points //p')" "$(field "$found" 'len(r["candidates"])')"
like "... on axes of time and memory" "$seen" 'The search: .*of a rank.*of a step'
like "... and says how many were planned, and how many were not looked at" "$(cat found.html)" "$(field "$found" \
	'"{} layouts: {} planned completely; [0-9]+ were less promising, so not looked at".format(r["layouts"], len(r["candidates"]))')"
like "... and marks the layout of the INI" "$(tr '\n' ' ' <found.html)" '<path class="own".*the layout of the INI: .*The diamond is'
like "... and writes out the best" "$(tr '\n' ' ' <found.html)" '<pre>.*\[strategy [a-z]\] plugin = .*</pre>'
plan --search --space "$tmp/space.ini" --memory 1T --html wide.html >said
is "the page has the table of the best" "$(sed -n 's/^<tr><td>[0-9][0-9]*<.*<td class="left">\(.*\)<.td><.tr>/\1/p' wide.html)" \
	"$(sed -n 's/^ *[0-9]*  [0-9.]* [a-z]*s  *\(+[0-9.]*%\)*  *[0-9.]* [A-Z]*B  *\(.*\)/\2/p' said)"
sed 's/^network_bandwidth.*/network_bandwidth = 1e6/' machine.ini >slow.ini
found=$(heddle plan m.ini --ranks 8 --machine slow.ini --search --space "$tmp/space.ini" --json --html far.html)
out=$(field "$found" 'sum(c["step_seconds"] > 3 * r["candidates"][0]["step_seconds"] for c in r["candidates"])')
like "layouts that are too slow for the drawing are counted" "$(cat far.html)" " ($out of [0-9]+ layouts are left out)"
like "memory that no layout needs does not squeeze the points against the axis" "$(cat wide.html)" 'A rank has 1\.1 TB'
heddle plan m.ini --machine machine.ini --ranks 3 --set t.size=1 --set p.size=1 --set d.plugin=dp --set d.sync=server \
	--set d.servers=1 --html servers.html >said
seen=$(python3 look.py servers.html 2>&1)
like "the mesh has the servers" "$seen" 'drawing The mesh .* d 2 . 1 server; 0; 1; 2;'
sent=$(sed -n 's/.*within its node and \(.*\) to other nodes/\1/p' said)
like "... and so have the links, with the bytes to other nodes" "$seen" "drawing Bytes over links.* server; .*$sent"
like "... and the table" "$(cat servers.html)" "<td>server</td>.*<td>$sent</td></tr>"
is "parameters from a server are no gradients" \
	"$(printf '%s\n' "$seen" | awk '$1 == "memory" && ($2 == 0 || $2 == 2) { print $2, ($3 > 0) }' | tr '\n' ' ')" '0 1 2 0 '
like "the page has the memory of servers, which may be the most" "$(cat servers.html)" \
	"A server needs at most $(sed -n 's/^1 server rank: at most \(.*\) (rank.*/\1/p' said)"
said=$(plan --html "$tmp/none/x.html" 2>&1)
is "a page that cannot be written is refused" $? 1
like "... and named" "$said" 'none/x.html'
like "a search refuses it before it begins" \
	"$(plan --search --space "$tmp/space.ini" --memory 1K --html "$tmp/none/x.html" 2>&1)" 'none/x.html'
said=$(plan --search --space "$tmp/space.ini" --tries 1 --html /dev/full 2>&1)
is "a page that cannot be written after a search is an error" $? 1
like "... and the result is printed nevertheless" "$said" 'layouts: .* planned completely'

# Colours of areas that touch, as readers see them who lack a kind of cone (Machado et al. 2009), and on the page.
cat >colours.py <<'E'
import itertools, math, re, sys
style = re.search(r"<style>(.*?)</style>", open(sys.argv[1]).read()).group(1)
eyes = (((1, 0, 0), (0, 1, 0), (0, 0, 1)), ((.152, 1.053, -.205), (.115, .786, .099), (-.004, -.048, 1.052)),
        ((.367, .861, -.228), (.280, .673, .047), (-.012, .043, .969)), ((1.256, -.077, -.179), (-.078, .931, .148), (.005, .691, .304)))
def light(c):
    return [v / 12.92 if v <= .04045 else ((v + .055) / 1.055) ** 2.4 for v in (int(c[i:i + 2], 16) / 255 for i in (1, 3, 5))]
def lab(l):
    x, y, z = ((v ** (1 / 3) if v > .008856 else 7.787 * v + 16 / 116) for v in
               ((.4124 * l[0] + .3576 * l[1] + .1805 * l[2]) / .9505, .2126 * l[0] + .7152 * l[1] + .0722 * l[2],
                (.0193 * l[0] + .1192 * l[1] + .9505 * l[2]) / 1.089))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)
def seen(c, eye):
    return lab([max(0, min(1, sum(a * b for a, b in zip(row, light(c))))) for row in eye])
def bright(c):
    return .05 + sum(a * b for a, b in zip((.2126, .7152, .0722), light(c)))
for part, page in zip(style.split("@media", 1), ("#ffffff", "#181818")):
    colour = {n: c for names, c in re.findall(r"((?:\.[a-z]\d,?)+)\{--c:(#\w{6})\}", part) for n in re.findall(r"\.([wm]\d)", names)}
    for kind in "wm":
        print(kind, round(min(math.dist(seen(a, e), seen(b, e)) for e in eyes
            for a, b in itertools.combinations([c for k, c in colour.items() if k[0] == kind], 2))))
    print("waits", round(max(bright(colour["w4"]), bright(page)) / min(bright(colour["w4"]), bright(page)), 2))
E
seen=$(python3 colours.py page.html 2>&1)
is "areas that touch differ for all readers, in light and dark" "$(printf '%s\n' "$seen" | awk '/^[wm] [0-9]/ && $2 >= 20' | wc -l)" 4
is "waiting is visible on the page, in light and dark" "$(printf '%s\n' "$seen" | awk '/^waits/ && $2 >= 3' | wc -l)" 2
like "a drawing in a narrow window keeps its width" "$(cat page.html)" '\.drawing\{min-width:9[0-9]+px\}'
done_testing
