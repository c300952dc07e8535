# SPDX-License-Identifier: Apache-2.0
# ordered.awk - reads a log of t/lib/log_files.c from a run that saves checkpoints, and prints the events in a wrong
# order: a machine that stopped there would have lost something.  The last line counts the events that were checked.

function parent(path) { sub(/\/[^\/]*$/, "", path); return path }
function name(path) { sub(/.*\//, "", path); return path }
function inside(path, dir) { return index(path, dir "/") == 1 }
function wrong(text) { print "line " NR ": " text }

# Checks that everything below dir is on disk: files as last written, directories with their last entries.
function on_disk(dir, path) {
	for (path in changed)
		if (path == dir || inside(path, dir)) {
			looked++
			if (!(synced[path] > changed[path])) wrong(path " is not on disk when " dir " gets its name")
		}
}
function entry(path) { changed[parent(path)] = NR }	# an entry of the path's directory has changed
function move(from, to, path, new) {
	for (path in changed)
		if (path == from || inside(path, from)) {
			new = to substr(path, length(from) + 1)
			changed[new] = changed[path]
			synced[new] = synced[path]
			delete changed[path]
		}
	entry(from)
	entry(to)
}

$1 == "open" { if (!($2 in changed)) entry($2); changed[$2] = NR }
$1 == "write" { changed[$2] = NR }
$1 == "mkdir" { changed[$2] = NR; entry($2) }
$1 == "sync" { synced[$2] = NR }
$1 == "remove" { delete changed[$2]; entry($2) }
$1 == "rename" && name($3) ~ /^step-/ {
	steps++
	on_disk($2)
	newest = $3
	renamed = NR
}
$1 == "rename" && name($3) == "latest" {
	latests++
	on_disk($2)
	if (!newest) wrong("latest before any step has its name")
	else if (!(synced[parent(newest)] > renamed)) wrong("latest before the name of " newest " is on disk")
	named = NR
	before = is_named
	is_named = newest
}
$1 == "rename" && name($2) ~ /^step-/ {
	removed++
	if ($2 == is_named || ($2 == before && !(synced[parent($2)] > named))) wrong($2 " is removed, and latest names it on disk")
}
$1 == "rename" { move($2, $3) }
END { print steps + 0, "steps,", latests + 0, "latest,", removed + 0, "removed,", looked + 0, "looked at" }
