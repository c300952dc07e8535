#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: t/perf/search.sh [TABLE:RUN...]
# Compares the published layout of each model with the one that `heddle plan --search` finds for the same number of
# ranks, with 80 GiB each.  Prints rows of the table in doc/foresight.md.  TABLE:RUN: as in t/data/published.tsv
# ("ptd-p-1:1.7B"); without any, all of PTD-P's models and others of that size.  The last column is processor time in
# seconds.
set -e
src=$(cd "${0%/*}/../.." && pwd)
heddle=${HEDDLE:-$src/build/heddle}
tab=$(printf '\t')
[ $# -gt 0 ] || set -- ptd-p-1:{1.7B,3.6B,7.5B,18.4B,39.1B,76.1B,145.6B,310.1B,529.6B,1008B} 'mt-nlg:2240 ranks' \
	korthikanti-5:{'22B full','175B full','530B full','1T full'}
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT
line_of() { grep "^[c-]$tab${1%%:*}$tab${1#*:}$tab" "$src/t/data/published.tsv"; }

one() { # TABLE:RUN
	IFS=$tab read -r _ table name machine _ ranks _ _ _ _ _ keys <<L
$(line_of "$1")
L
	set --
	for key in $keys; do # a search has Heddle's own buckets
		[[ $key = dp.bucket=* ]] || set -- "$@" --set "$key"
	done
	times=$( { TIMEFORMAT='%U %S'; time "$heddle" plan "$src/t/data/published.ini" --ranks "$ranks" --machine "$machine" \
		--memory 80G --search --json "$@" >"$tmp" 2>/dev/null; } 2>&1 || :)
	python3 - "$tmp" "$name" "$ranks" "$times" <<'P'
import json, sys
path, name, ranks, times = sys.argv[1:]
try:
    r = json.load(open(path))
except ValueError:
    sys.exit("%s: the search did not end" % name)
best, given = r["candidates"][0], r["given_step_seconds"]
keys, section = [], ""
for line in best["ini"].splitlines():
    line = line.split(";")[0].strip()
    if line.startswith("[strategy"):
        section = line.split()[1].strip("]")
        keys.append(section)
    elif line.startswith("["):
        section = line
    elif section == "[train]" and line.split(" = ")[0] in ("micro_batch", "recompute", "overlap_micro_batches"):
        keys.append(line.replace(" = ", "="))
    elif not section.startswith("[") and " = " in line:
        key, value = line.split(" = ")
        if key == "size":
            keys[-1] += " " + value
        elif key != "plugin":
            keys[-1] += " " + (value if key in ("schedule", "form") else key + "=" + value)
print("| %s | %s | %.4g | %.4g | %.1f %% | %s | %.1f | %.0f |" % (
    name, format(int(ranks), ","), given, best["step_seconds"], 100 * (given / best["step_seconds"] - 1), ", ".join(keys),
    best["memory_bytes"] / 1e9, sum(map(float, times.split()))), flush=True)
P
}
for run; do
	one "$run"
done
