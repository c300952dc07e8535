#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doc/ini.md and the manual page have the keys, verbs and options of the program.  Users would not find a key that is
# missing there, and would lose an hour with one that the program does not know.
. "${0%/*}/lib/tap.sh"
cd "$src" || exit 1

# Prints SECTION KEY DEFAULT of the tables of keys; a default that must be given, or is empty, is "-".
program_keys() {
	for f in model:engine/models/model.c data:engine/data/data.c train:engine/config/train_config.c output:engine/config/output_config.c; do
		awk -v section="${f%%:*}" '
			function entry(text) {
				if (!match(text, /^[ \t]*\{ *"[a-z0-9_]+", HD_OPT_[A-Z]+, 0, ("[^"]*"|NULL),/)) return
				split(text, part, "\"")
				rest = text
				sub(/^[^,]*,[^,]*,[^,]*, */, "", rest)
				value = "-"
				if (substr(rest, 1, 1) == "\"") { split(rest, part2, "\""); if (part2[2] != "") value = part2[2] }
				print section, part[2], value
			}
			/^static const struct hd_option train\[\]/ { section = "train" }
			/^static const struct hd_option checkpoint\[\]/ { section = "checkpoint" }
			/^static const struct hd_option logging\[\]/ { section = "log" }
			{ entry($0) }' "${f#*:}"
	done | sort
}
page_keys() {
	awk -F' *[|] *' '
		/^## / { section = $0; gsub(/^## \[|\]$/, "", section) }
		/^\| `/ && section !~ /strategy/ { key = $2; gsub(/`/, "", key); print section, key, $3 == "" ? "-" : $3 }' \
		doc/ini.md | sort
}
program_keys >"$tmp/program"
page_keys >"$tmp/page"
[ "$(wc -l <"$tmp/program")" -gt 40 ]
tap_result $? "more than 40 keys with defaults are found in the program"
ok "doc/ini.md has exactly these keys and defaults" diff "$tmp/program" "$tmp/page"

# Verbs and their options, from the table in main.c.
man=man/heddle.1
plain() { sed 's/\\f[A-Z]//g; s/\\-/-/g' "$1"; }
plain $man >"$tmp/man"
missing=
# Prints one line per entry of a table, however the source wraps it.
entries() { awk '/^\t\{/ { printf "\n" } { sub(/^[ \t]+/, " "); printf "%s", $0 } /;$/ { printf "\n" }' engine/cli/main.c; }
for flag in $(entries | grep -v hd_verb_ | grep -o '{ "[a-z-]*", \(NULL\|"[A-Z]*"\), "' | cut -d'"' -f2 | sort -u); do
	grep -qe "--$flag" "$tmp/man" || missing="$missing --$flag"
done
verbs=$(entries | sed -n 's/.*{ "\([a-z]*\)", "[^"]*", "[^"]*", .* hd_verb_[a-z]*, [01] },.*/\1/p')
for verb in $verbs; do
	grep -q "^\.B $verb\|^$verb " "$tmp/man" || missing="$missing $verb"
	grep -q "heddle $verb" README.md || missing="$missing README:$verb"
done
is "the manual page has all verbs and options, and README.md has all verbs" "$missing" ""
[ "$(echo "$verbs" | wc -l)" -ge 8 ]
tap_result $? "at least 8 verbs are found in the program"
if command -v man >/dev/null && man --help 2>&1 | grep -q warnings; then
	is "man formats the manual page without warnings" \
		"$(LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z $man 2>&1 >/dev/null)" ""
else
	skip "no man"
fi

# The planned steps of context parallelism are those that plan prints now; older ones would rank the forms wrongly.
step_of() { # OPTIONS...: milliseconds of the command on the page
	"$build/heddle" plan conf/cp.ini --ranks 4 --machine conf/machines/dgx-h100.ini --set train.seq=4096 --set data.valid_fraction=0 \
		--set data.train="$src/README.md" --json "$@" | sed -n 's/.*"step_seconds": \([0-9.e-]*\).*/\1/p' | awk '{ printf "%.1f", 1000 * $1 }'
}
steps_of() { # OPTIONS...: the row of the page
	echo "$(step_of "$@") | $(step_of --set cp.form=ring "$@") | $(step_of --set cp.form=ring --set cp.balance=none "$@") |"
}
if [ -x "$build/heddle" ]; then
	is "the planned steps of ulysses and ring" "$(sed -n 's/^| 2,048 | //p' doc/measurements.md)" \
		"$(steps_of --set model.embed=2048 --set model.heads=16 --set model.kv_heads=16)"
	is "... and of the smaller model" "$(sed -n 's/^| 128 | //p' doc/measurements.md)" "$(steps_of)"
else
	skip "heddle is not built"
fi

# Files and functions that pages name must exist.
missing=
for f in README.md doc/*.md; do
	for to in $(grep -o '](\([^)#]*\)' "$f" | sed 's/^](//; /^http/d; /^$/d'); do
		[ -e "$(dirname "$f")/$to" ] || missing="$missing $f:$to"
	done
done
is "links between pages lead to existing files" "$missing" ""
missing=
for name in $(grep -ho '`hd_[a-z_0-9]*`' doc/*.md | tr -d '`' | grep -v _silu | sort -u); do
	grep -rqw "$name" engine include kernels t/lib || missing="$missing $name"
done
is "functions that pages name exist" "$missing" ""
done_testing
