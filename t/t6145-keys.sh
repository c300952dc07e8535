#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The list of keys, the manual page heddle.ini(5) and shell completion come from the tables that read the INI.  If one
# left out a key, nobody would find it; if one had a wrong key or default, somebody would believe it.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v python3 >/dev/null || skip_all "no python3"

heddle keys --json >keys.json
is "keys --json succeeds" $? 0
ok "each key has its section, type, default, range and help" python3 - <<'END'
import json
keys = json.load(open("keys.json"))
assert all(set(k) == {"section", "key", "type", "default", "range", "help"} for k in keys)
assert all(k["type"] in ("int", "bool", "bytes", "number", "text", "choice") for k in keys)
at = {(k["section"], k["key"]): k for k in keys}
assert len(at) == len(keys) > 80, len(keys)
assert at["train", "lr"]["default"] == "3e-4" and at["train", "lr"]["type"] == "number"
assert at["train", "seq"]["default"] is None and at["train", "schedule"]["range"] == "cosine|linear|constant"
assert at["strategy NAME", "size"]["default"] == "auto" and ("plugin NAME", "file") in at
assert at["strategy dp", "zero"]["range"] == "0..3" and at["strategy tp", "form"]["default"] == "1d"
END
# The reader must agree with the list: the ends of each range and each choice are accepted, and what lies beyond is
# refused.
ok "the reader keeps to the listed types and ranges" python3 - "$build/heddle" <<'END'
import json, subprocess, sys
def said(section, key, value):
    run = subprocess.run([sys.argv[1], "check", "tiny.ini", "--set", "%s.%s=%s" % (section, key, value)], capture_output=True, text=True)
    return run.stderr
wrong = []
for k in json.load(open("keys.json")):
    s, key = k["section"], k["key"]
    if s not in ("train", "log", "checkpoint", "model", "data", "strategy dp"):
        continue
    s = s.split()[-1]
    if k["type"] == "choice" and "is not a choice" not in said(s, key, "qqqqqqqqqq"):
        wrong.append((s, key, "takes any word"))
    if k["type"] in ("int", "number") and k["range"] != "any":
        low, _, high = k["range"].partition("..")
        if low and "." not in low and "e" not in low and not any(w in said(s, key, int(low) - 1) for w in ("too small", "is not in")):
            wrong.append((s, key, "goes below", low))
        if high and high.isdigit() and not any(w in said(s, key, int(high) + 1) for w in ("too large", "is not in")):
            wrong.append((s, key, "goes above", high))
    if k["type"] == "bool" and "is not yes or no" not in said(s, key, "maybe"):
        wrong.append((s, key, "takes maybe"))
assert not wrong, wrong
END
like "keys of one section" "$(heddle keys train)" '^lr +number +3e-4 +0\.\. +peak learning rate'
unlike "... and of no other" "$(heddle keys train)" 'embed'
like "keys of a plugin, by its name" "$(heddle keys tp)" '^form +choice +1d +1d\|2d\|2\.5d\|3d'
like "keys that all strategies have" "$(heddle keys strategy)" '^plugin +text +\(must be given\)'
like "a misspelt section is explained" "$(heddle keys trian 2>&1)" 'there is no section trian; did you mean train\?'
like "an unknown section: the message lists the sections" \
	"$(heddle keys nosuch 2>&1)" 'sections: model, .*, (plugin|strategy) NAME, (plugin|strategy) NAME, '
fails "a misspelt section is an error" heddle keys trian

# The manual page, key by key.
ok "heddle.ini(5) has the same keys, types, ranges and defaults" python3 - "$build/man/heddle.ini.5" <<'END'
import json, re, sys
page, section = {}, None
lines = [l.replace("\\-", "-").replace("\\e", "\\").rstrip("\n") for l in open(sys.argv[1])]
for i, line in enumerate(lines):
    m = re.match(r'\.SH "\[(.*)\]"', line)
    section = m.group(1) if m else section
    m = re.match(r"\.B (\S+) \\fR\((.*); (?:default )?\\fI(.*)\\fR\)", line)
    if m and section:
        page[section, m.group(1)] = (m.group(2), m.group(3), lines[i + 1].replace("\\&", ""))
keys = {}
for k in json.load(open("keys.json")):
    kind = k["type"] if k["range"] == "any" else k["type"] + ", " + k["range"]
    value = "must be given" if k["default"] is None else k["default"] or "(none)"
    keys[k["section"], k["key"]] = (kind, value, k["help"])
assert page == keys, [x for x in set(page.items()) ^ set(keys.items())][:4]
END
if command -v man >/dev/null && man --help 2>&1 | grep -q warnings; then
	is "... and man finds no fault in it" \
		"$(LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z "$build/man/heddle.ini.5" 2>&1 >/dev/null)" ""
else
	skip "no man"
fi

# Completion.
if command -v bash >/dev/null; then
	# complete WORDS...: prints what is offered for the last of them.
	complete() {
		PATH="$build:$PATH" bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _heddle; printf "%s\n" "${COMPREPLY[@]}"' \
			bash "$build/completion/heddle" heddle "$@"
	}
	verbs=$(heddle --help | sed -n 's/^  \([a-z-]*\) .*/\1/p' | sort)
	is "bash: all subcommands" "$(complete '' | grep -v -e '^--' -e '^help$' | sort)" "$verbs"
	is "bash: the beginning of a subcommand" "$(complete ex)" explain
	is "bash: options of a subcommand" "$(complete plan x.ini --ma)" --machine
	# An installation that was moved, and one where configure put it.
	data=$(sed -n "s/^	dir='\(.*\)'$/\1/p" "$build/completion/heddle")
	below=$(sed -n 's/.*dir=${at%\/bin\/heddle}\(.*\)$/\1/p' "$build/completion/heddle")
	named() {
		PATH="$1:$PATH" bash -c 'source "$1"; COMP_WORDS=(heddle plan x.ini "$2" "$3"); COMP_CWORD=4; _heddle; echo "${COMPREPLY[@]}"' bash "$2" "$3" "$4"
	}
	machines() { named "$1" "$2" --machine dgx-h; }
	mkdir -p "moved/bin" "moved$below"
	cp "$build/heddle" moved/bin/heddle
	ln -s "$src/conf" "moved$below/conf"
	is "bash: machines by name, of an installation that was moved" "$(machines "$tmp/moved/bin" "$build/completion/heddle")" dgx-h100
	sed "s|^	dir='$data'|	dir='$tmp/moved$below'|" "$build/completion/heddle" >c.bash
	is "... and of one that was not moved" "$(machines "$build" ./c.bash)" dgx-h100
	is "bash: search spaces by name" "$(named "$tmp/moved/bin" "$build/completion/heddle" --space def)" default
	is "bash: keys" "$(complete train x.ini --set train.warm)" train.warmup=
	is "bash: keys of plugins" "$(complete train x.ini --set dp.wir)" dp.wire=
	is "bash: plugins" "$(complete plugins ep)" ep
	is "bash: sections" "$(complete keys checkp)" checkpoint
	is "bash: files" "$(complete train tiny.)" tiny.ini
	: >"two words.ini"
	is "bash: a file whose name has a blank" "$(complete train two)" "two words.ini"
	is "... also as the value of an option" "$(complete plan x.ini --out two)" "two words.ini"
	for verb in $verbs; do
		heddle "$verb" --help | grep -q '^  --set ' && echo "$verb"
	done >with-sets
	is "bash: --set wherever it is accepted" \
		"$(for verb in $verbs; do [ -z "$(complete "$verb" --set)" ] || echo "$verb"; done)" "$(cat with-sets)"
	is "bash: kinds of plugins, those that the message names" "$(complete new-plugin x --kind '' | paste -s -d ' ')" \
		"$(heddle new-plugin x 2>&1 | sed 's/.*missing: //; s/, / /g; s/ or / /')"
	is "bash: passes" "$(complete explain x.ini --after '' | paste -s -d ' ')" \
		"list $(heddle explain tiny.ini --after list | paste -s -d ' ')"
	is "bash: yes and no" "$(complete tokenize --append-eos '' | paste -s -d ' ')" "yes no"
	is "bash: shells" "$(complete completion '' | paste -s -d ' ')" "bash zsh"
else
	skip "no bash"
fi
if command -v zsh >/dev/null; then
	ok "zsh parses its own file" zsh -n "$build/completion/_heddle"
	# _arguments accepts the specifications of each subcommand, and complains of none.
	# shellcheck disable=SC2016
	out=$(zsh -fc 'autoload -Uz compinit && compinit -D -u -d "$1/dump"; compdef() { :; }; source "$2"
		_arguments() { for a; do print -r -- "$a"; done }; _describe() { print -rl -- "${verbs[@]}"; }
		CURRENT=2; words=(heddle ""); _heddle; CURRENT=4; words=(heddle plan x.ini ""); _heddle' zsh "$tmp" "$build/completion/_heddle" 2>&1)
	like "zsh: subcommands with descriptions" "$out" '^train:train a model$'
	like "zsh: values of an option" "$out" '^--space\[.*\]:FILE\|NAME:_heddle_spaces$'
	like "zsh: options with their values" "$out" '^--machine\[.*\]:FILE\|NAME:_heddle_machines$'
else
	skip "no zsh"
fi
heddle completion bash >bash.out
ok "the build contains what the program prints: bash" cmp bash.out "$build/completion/heddle"
heddle completion zsh >zsh.out
ok "... zsh" cmp zsh.out "$build/completion/_heddle"
heddle keys --man >man.out
ok "... and the manual page" cmp man.out "$build/man/heddle.ini.5"
like "completion for another shell is refused" \
	"$(heddle completion fish 2>&1)" 'one for bash and one for zsh, not for fish'
for flag in -V --version version; do
	like "heddle $flag" "$(heddle $flag)" '^heddle [0-9.]+, plugin ABI'
done
done_testing
