#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The page of a run.  If this broke, a curve would leave out what went wrong, or a browser would refuse the page.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

said() { heddle "$@" 2>&1 | messages; }
# checks that every element is closed and every attribute is quoted
wellformed() { ! command -v python3 >/dev/null || python3 -c 'import sys, xml.dom.minidom
xml.dom.minidom.parseString(open(sys.argv[1]).read().replace("<!DOCTYPE html>", ""))' "$1"; }

heddle train tiny.ini --set train.steps=6 --set train.eval_every=2 --set log.metrics=a.jsonl >/dev/null 2>&1
heddle train tiny.ini --set train.steps=6 --set train.lr=1e-2 --set log.metrics=b.jsonl --set model.experts=4 >/dev/null 2>&1
ok "report writes a page of one run" heddle report a.jsonl --out a.html
ok "... which is well-formed" wellformed a.html
is "... with a dot for each evaluation" "$(grep -c '<circle class' a.html)" 3
like "... the last of which shows its step and value" "$(grep '<circle class' a.html | tail -1)" \
	"step 6: $(sed -n 's/.*"valid_loss": \([0-9.]\{5\}\).*/\1/p' a.jsonl | tail -1)"
for what in Loss Gradient Learning Tokens Share; do
	ok "the page has a drawing: $what" grep -q "<h2>$what" a.html
done
is "each drawing has a name below its axis" \
	"$(grep -c '<text class="name".*>step</text>' a.html)" "$(grep -c '<h2>' a.html)"
numbered() { sed -n 's/.*class="grid" d="M[0-9]* \([0-9.-]*\)H.*" y="\([0-9.-]*\)" text-anchor="end".*/\1 \2/p' "$1"; }
is "... and the baseline of each number is half a digit below its line" \
	"$(numbered a.html | awk '{ off += $2 - $1 < 3.8 || $2 - $1 > 4.2 } END { print (NR > 0), off + 0 }')" "1 0"
like "... and a name with its unit at the side" "$(cat a.html)" '<text class="name" transform=.*>nats per token</text>'
like "validation has a colour of its own and is dashed" \
	"$(grep 'class="line dashed' a.html | head -1)" '<path class="line dashed c1"'
like "training is not dashed" "$(grep 'class="line c' a.html | head -1)" '<path class="line c0"'
like "the legend names both" "$(grep 'class="legend"' a.html | head -1)" 'training: [0-9.]+<.*validation: [0-9.]+<'
like "the page describes the model" \
	"$(cat a.html)" '<b>Model:</b> gpt2, 34\.7 K parameters: 2 layers, embed 32, 4 heads, vocab 256; 8 sequences of 32 tokens a step'
like "the page describes the layout" "$(cat a.html)" '<b>Layout:</b> dp 1: 1 rank x [0-9]+ threads?, fp32'
like "the page has the time in steps separately" "$(cat a.html)" '<th>time in steps<'
like "the page has the time of the run" "$(cat a.html)" '<b>Time:</b> 20[0-9][0-9]-[0-9-]+ [0-9:]+ to 20'
like "the heading is the name of the file" "$(cat a.html)" '<h1>a\.jsonl</h1>'
ok "without experts the page has no drawing of their load" eval '! grep -q "<h2>Load" a.html'
ok "report writes a page of two runs" heddle report a.jsonl,b.jsonl --out two.html
ok "... which is well-formed with two runs" wellformed two.html
is "... with a row for each" "$(grep -c '^<tr><td' two.html)" 2
ok "... and the load of experts of the run that has some" grep -q '<h2>Load' two.html

# 30,000 steps; one is a spike, and one has a loss that is not finite.
awk 'BEGIN { for (i = 1; i <= 30000; i++) printf "{\"step\": %d, \"loss\": %s, \"lr\": 1e-3}\n", i, i == 99 ? "null" : i == 77 ? 1e6 : 3 }' >long.jsonl
ok "report writes a page of a long run" heddle report long.jsonl --out long.html
ok "... of less than 100 KB" test "$(wc -c <long.html)" -lt 100000
like "a long run is drawn as means, and thinly as extremes" \
	"$(cat long.html)" 'thick: means of up to 500 steps; thin: the smallest and largest of up to 50 steps'
# The frame reaches from y = 14 to y = 208.
tops() { sed -n 's/.*class="'"$2"' c[0-9]" d="\([^"]*\)".*/\1/p' "$1" | tr 'ML' '\n\n' | awk 'NF == 2 { n += $2 < 14.5 } END { print n + 0 }'; }
is "a spike is drawn at its value" "$(tops long.html faint)" 1
like "... on a logarithmic axis, which shows the other steps too" "$(cat long.html)" 'nats per token, log scale'
unlike "... and which other drawings do not use" "$(cat long.html)" 'learning rate, log scale'
awk 'BEGIN { for (i = 1; i <= 100000; i++) printf "{\"step\": %d, \"loss\": %s}\n", i, i == 50000 ? 60 : 3 }' >spike.jsonl
heddle report spike.jsonl --out spike.html
is "a spike of one step in 100,000 is visible" "$(tops spike.html faint)" 1
wide=$(sed -n 's/.*class="curves" viewBox="0 0 \([0-9]*\) .*/\1/p' spike.html)
right=$(sed -n 's/.*<text x="\([0-9.]*\)".*middle">100000<.*/\1/p' spike.html)
ok "the number of the last step is not cut off" awk "BEGIN { exit !($right + 6 * 7 / 2 < $wide) }"
# A learning rate at the beginning of a long decay has many digits.
for i in 1 2 3 4; do echo "{\"step\": $i, \"loss\": $i, \"lr\": 0.0029999999${i}}"; done >digits.jsonl
ok "report writes a page of long numbers" heddle report digits.jsonl --out digits.html
is "... which leave room for the name at the side" "$(sed -n 's/.*<text x="\([0-9]*\)" .*"end">\([0-9.e-]*\)<.*/\1 \2/p' digits.html |
	awk '{ touches += $1 - 6 * length($2) < 18; longest = length($2) > longest ? length($2) : longest } END { print longest, touches + 0 }')" "14 0"

# Few points, the last of which is the worst.
for i in 1 2 3 4 5; do echo "{\"step\": $i, \"loss\": $((i * i * i * i * i)), \"grad_norm\": $((i + 2))}"; done >rise.jsonl
heddle report rise.jsonl --out rise.html
is "only the last point is at the top" \
	"$(sed -n 's/.*class="line c0" d="\([^"]*\)".*/\1/p' rise.html | head -1 | tr 'ML' '\n\n' |
	awk 'NF == 2 { y = $2; n += y < 14.5 } END { print n, y < 14.5 }')" "1 1"

# A run that diverges by 17 powers of ten, next to one that does not.
awk 'BEGIN { for (i = 1; i <= 50; i++) printf "{\"step\": %d, \"loss\": %g}\n", i, 3 * exp(i * 0.8) }' >far.jsonl
awk 'BEGIN { for (i = 1; i <= 50; i++) printf "{\"step\": %d, \"loss\": %g}\n", i, 10 - i / 10 }' >near.jsonl
heddle report near.jsonl,far.jsonl --out far.html
is "a run keeps its part of the drawing next to one that diverges" \
	"$(sed -n 's/.*class="line c0" d="\([^"]*\)".*/\1/p' far.html | head -1 | tr 'ML' '\n\n' |
	awk 'NF == 2 { low = low == "" || $2 > low ? $2 : low; high = high == "" || $2 < high ? $2 : high } END { print (low - high > 15) }')" 1
like "... whose points above the drawing are counted" \
	"$(cat far.html)" 'far.jsonl, training: [0-9.e+]+ \([0-9]+ of 50 points above, up to [0-9.e+]+\)'
like "... and marked" "$(cat far.html)" 'class="f c1" d="M[0-9. ]*l4 7h-8z"><title>step '
like "the title has the names of both runs" "$(cat far.html)" '<title>Heddle: near\.jsonl, far\.jsonl</title>'

# A single loss of 0 does not take over the axis.
sed 's/"step": 7, "loss": .*/"step": 7, "loss": 0.0}/' near.jsonl >zero.jsonl
heddle report zero.jsonl,far.jsonl --out zero.html
is "a run keeps its part of the drawing if one loss is 0" \
	"$(sed -n 's/.*class="line c0" d="\([^"]*\)".*/\1/p' zero.html | head -1 | tr 'ML' '\n\n' |
	awk 'NF == 2 && NR != 8 { low = low == "" || $2 > low ? $2 : low; high = high == "" || $2 < high ? $2 : high } END { print (low - high > 15) }')" 1
# Values that a double can hardly tell apart leave no room for an axis between them.
for values in '1.0 1.0000000000000002' '1e15 1000000000000000.125'; do
	set -- $values
	printf '{"step": 1, "loss": %s}\n{"step": 2, "loss": %s}\n' "$1" "$2" >alike.jsonl
	ok "report writes a page for the losses $1 and $2" \
		timeout 10 "$build/heddle" report alike.jsonl --out alike.html
	ok "... of less than 20 KB ($1)" test "$(wc -c <alike.html)" -lt 20000
done

# Curves of one run look different, and so do the first run and the ninth.
for i in a b; do printf '{"step": 1, "load": [1, 2]}\n{"step": 2, "load": [2, 3]}\n' >load$i.jsonl; done
heddle report loada.jsonl,loadb.jsonl --out load.html
is "curves of the layers of a run look different" \
	"$(grep -o 'class="line c[^"]*" d="M[^1]' load.html | sed 's/" d.*//' | sort -u | tr '\n' ' ')" \
	'class="line c0 class="line c0 d1 class="line c1 class="line c1 d1 '
heddle report "$(printf 'old%s.jsonl,' 1 2 3 4 5 6 7 8 9 | sed 's/old[0-9]/near/g')" --out nine.html
like "the ninth run has the colour of the first, but fainter" "$(cat nine.html)" 'class="line c0 o1"'

# Everything wide scrolls separately.
is "tables and drawings are in elements that scroll" "$(grep -c '<table>\|<svg class="curves"' far.html)" \
	"$(grep -c '<div class="wide"><\(table>\|svg class="curves"\)' far.html)"
like "... and drawings keep a readable width" "$(cat far.html)" '\.curves\{[^}]*min-width:700px'

# The last step of a run that fails.
printf '{"step": 1, "loss": 2}\n{"step": 2, "loss": null, "grad_norm": 1, "error": "step 2: loss inf <"}\n' >failed.jsonl
heddle report failed.jsonl --out failed.html
like "the page shows why a run failed" "$(cat failed.html)" '<b>Failed:</b> step 2: loss inf &#60;<'
printf '{"step": 2, "loss": 2}\n' >>failed.jsonl
heddle report failed.jsonl --out failed.html
unlike "... but not if the run was continued" "$(cat failed.html)" 'Failed:'
printf '{"step": 1, "loss": null, "error": "no"}\n' >failed.jsonl
heddle report failed.jsonl --out failed.html
like "... also if it failed in the first step" "$(cat failed.html)" '<b>Failed:</b> no<'

mv near.jsonl near,far.jsonl
heddle report near,far.jsonl --out comma.html
like "the name of a file may contain a comma" "$(cat comma.html)" '<h1>near,far\.jsonl</h1>'

printf '{"step": 1, "loss": 2}\n{"step": 2, "loss": null}\n' >null.jsonl
heddle report null.jsonl --out null.html
like "a loss that is not finite is not drawn, and the legend has the one before" \
	"$(grep 'class="legend"' null.html | head -1)" 'training: 2<'

# A step that was predicted and traced, with two stages, the second of which waits. Each row is as long as its time.
stages() { printf '{"step": 2, "loss": 1}\n{"step": 2, "foresight": {"machine": "m", "largest": "step", "parts": [], "timeline":
	{"seconds": 8.5, "predicted_seconds": 4.25, "measured_seconds": 8.5, "stages": [{"rank": 0, "predicted": "F100B325.425",
	"measured": "F400%s"}, {"rank": 2, "predicted": "-100F100B225.425", "measured": "-425F200B225"}]}}}\n' "$1" | tr '\n\t' '  ' |
	sed 's/} *{"step"/}\n{"step"/'; }
stages B450 >step.jsonl
ok "report writes a page with a traced step" heddle report step.jsonl --out step.html
ok "... which is well-formed with a traced step" wellformed step.html
is "rows are as long as the parts of the step" \
	"$(grep -o 'class="f w[0-9]" d="[^"]*' step.html | tr -s '\n' ' ')" 'class="f w0" d="M96.0 4.0h100.0v20.0h-100.0z class="f w1" d="M196.0 4.0h325.0v20.0h-325.0z class="f w0" d="M196.0 27.0h100.0v20.0h-100.0z class="f w1" d="M296.0 27.0h225.0v20.0h-225.0z class="f w4" d="M96.0 27.0h100.0v20.0h-100.0z class="f w0" d="M96.0 4.0h400.0v20.0h-400.0z class="f w1" d="M496.0 4.0h450.0v20.0h-450.0z class="f w0" d="M521.0 27.0h200.0v20.0h-200.0z class="f w1" d="M721.0 27.0h225.0v20.0h-225.0z class="f w4" d="M96.0 27.0h425.0v20.0h-425.0z '
like "... with the planned and the traced time" \
	"$(cat step.html)" 'Planned 4\.2[0-9]* s, traced 8\.5[0-9]* s: the fastest step'
is "... and an axis each" "$(grep -c '>seconds from the beginning of the step<' step.html)" 2
is "no selector of the page's style is defined twice" \
	"$(sed -n 's/.*<style>\(.*\)@media.*/\1/p' step.html | tr '{}' '\n\n' | awk 'NR % 2' |
	sort | uniq -d)" ''
for row in B451 B0 x450 450; do
	stages $row >bad.jsonl
	ok "an invalid row ($row) is not drawn" \
		eval 'heddle report bad.jsonl --out bad.html && ! grep -q "The step as" bad.html'
done

# A line that no run writes: times beyond all bounds, and text that looks like HTML or is not valid UTF-8.
step() { printf '{"step": 1, "loss": 1, "foresight": {"machine": "m", "largest": "l", "parts": [{"kind": "<b>%s", "predicted_seconds": 1,
	"measured_seconds": 1}], "timeline": {"seconds": %s, "predicted_seconds": %s, "measured_seconds": %s, "stages": [{"rank": 0,
	"predicted": "F400B450", "measured": "F400B450"}]}}}\n' "$1" "$2" "$3" "$4" | tr '\n\t' '  '; echo; }
step x 1e300 4 4 >huge.jsonl
ok "a step of 1e300 seconds is not drawn" eval 'heddle report huge.jsonl --out huge.html && ! grep -q "The step as" huge.html'
step x 4 1e300 1e300 >huge.jsonl
ok "... nor one of 4 seconds that took 1e300" \
	eval 'heddle report huge.jsonl --out huge.html && ! grep -q "The step as" huge.html'
step x 4 4 4 >kind.jsonl
heddle report kind.jsonl --out kind.html
like "a step within bounds is drawn" "$(cat kind.html)" 'The step as traced'
ok "kinds of work are escaped" wellformed kind.html
like "... as text" "$(cat kind.html)" '<td>&#60;b&#62;x</td>'
printf '{"step": 1, "loss": 1e308}\n{"step": 2, "loss": -1e308}\n{"step": 3, "loss": 3}\n' >vast.jsonl
heddle report vast.jsonl --out vast.html
like "numbers that no axis can show are left out" "$(cat vast.html)" '<circle class="at c0"[^>]*><title>step 3: 3<'
name=$(printf 'a\377b\001\302.jsonl')
cp kind.jsonl "$name" && heddle report "$name" --out name.html
ok "the name of a file may contain any bytes" wellformed name.html
like "... which the page replaces" "$(cat name.html)" "<h1>a$(printf '\357\277\275')b$(printf '\357\277\275\357\277\275').jsonl</h1>"

# An older page stays if the new one cannot be written.
heddle report kind.jsonl --out keep.html && cp keep.html kept.html
( ulimit -f 8 && heddle report far.jsonl,spike.jsonl --out keep.html ) >said 2>&1
is "a page beyond the limit on file sizes is an error" $? 1
ok "... and the older page stays" cmp keep.html kept.html

# A run of one step, one of a million, and one that was resumed in another layout.
printf '{"step": 1, "loss": 2, "tokens_per_second": 1234567}\n' >single.jsonl
heddle report single.jsonl --out single.html
like "the only step of a run is drawn as a dot" "$(cat single.html)" '<circle class="at c0"[^>]*><title>step 1: 2<'
like "a legend names its curve in words" "$(grep 'class="legend"' single.html)" 'tokens per second: 1234567<'
unlike "... and no number in it or at an axis is a power of ten" "$(cat single.html)" '[0-9]e\+0[0-9]'
printf '{"step": 1234567, "loss": 2}\n{"step": 1234568, "loss": 2}\n' >million.jsonl
heddle report million.jsonl --out million.html
like "the number of a step has all its digits" "$(cat million.html)" '<td>1234568</td>'
unlike "... and no fraction on the axis" "$(cat million.html)" 'middle">[0-9]+\.[0-9]+<'
run() { printf '{"step": %d, "loss": 1, "run": {"layout": "%s", "ranks": 2, "threads": 1, "precision": "fp32"}}\n' "$@"; }
{ run 1 'dp 2'; run 2 'dp 2'; run 3 'tp 2'; } >resumed.jsonl
heddle report resumed.jsonl --out resumed.html
like "the page names all layouts of a run" \
	"$(cat resumed.html)" '<b>Layout:</b> dp 2: 2 ranks x 1 thread, fp32; from step 3: tp 2: 2 ranks x 1 thread, fp32<'

mv a.jsonl '<b>&.jsonl' && heddle report '<b>&.jsonl' --out odd.html
ok "names of files are escaped" wellformed odd.html
printf '{"step": 1, "loss": 2}\n{"step": 2, "loss": 1}\n' >old.jsonl
ok "report reads a file of an earlier version, which does not describe the run" heddle report old.jsonl --out old.html
unlike "... and shows no model and no time" "$(cat old.html)" 'Model:|Time:'
like "a missing file is refused" "$(said report nothing.jsonl)" '^heddle: nothing.jsonl: '
printf '{"step": 1, "loss": 2}\n{"loss": 2}\n' >bad.jsonl
like "a line without a step is refused" "$(said report bad.jsonl)" 'bad.jsonl:2: .*no step'
: >empty.jsonl
like "an empty file is refused" "$(said report empty.jsonl)" 'empty.jsonl: contains no numbers'
printf '{"step": 1, "loss": 2}\nnonsense\n' >bad.jsonl
like "a line that is not JSON is refused" "$(said report bad.jsonl)" 'bad.jsonl:2: is not a line of metrics: '
like "a list of empty names is refused" "$(said report ,)" '^heddle: report: which metrics file'
like "more than 16 files are refused" \
	"$(said report "$(printf 'old.jsonl,%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17)")" '^heddle: report: at most 16 files$'
like "a page that cannot be written is reported" \
	"$(said report old.jsonl --out nowhere/p.html)" '^heddle: nowhere/p.html: cannot be written: No such file'
# A run of one step that Heddle did not write: an empty line, no loss, and a quotation mark in the name.
printf '{"step": 1, "lr": 2}\n\n' >'a"b.jsonl'
heddle report 'a"b.jsonl' >one.html
ok "without --out the page of one step without a loss is printed" wellformed one.html
like "... with the name of the file as heading" "$(cat one.html)" '<h1>a&#34;b\.jsonl</h1>'
done_testing
