#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Somebody installs Heddle, builds a strategy with only what was installed, and trains with it.  This is what the plugin
# interface is for.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

[ -f "$build/Makefile" ] || skip_all "no Makefile in the build folder"
command -v pkg-config >/dev/null || skip_all "no pkg-config"
root=$tmp/root
prefix=$(sed -n 's/^prefix = //p' "$build/Makefile")
make -C "$build" install DESTDIR="$root" >log 2>&1 || { tap_comment <log; skip_all "make install does not work here"; }
pc=$(find "$root" -name heddle.pc)
ok "heddle.pc is installed" [ -f "$pc" ]

# What messages and pages name must exist.
share=$root$prefix/share
missing=
for f in heddle/conf/quickstart.ini heddle/conf/ptd-p.ini heddle/conf/machines/dgx-h100.ini doc/heddle/README.md doc/heddle/doc/ini.md \
	bash-completion/completions/heddle zsh/site-functions/_heddle man/man1/heddle.1 man/man5/heddle.ini.5 \
	man/man7/heddle-plugin.7; do
	[ -s "$share/$f" ] || missing="$missing $f"
done
is "layouts, machines, pages, completions and both manuals are installed" "$missing" ""
is "all layouts of the sources are installed" \
	"$(ls "$share/heddle/conf" | grep -c ini)" "$(ls "$src"/conf/*.ini | wc -l)"
missing=
for f in README.md $(cd "$share/doc/heddle" && ls doc/*.md); do
	for to in $(grep -o '](\([^)#]*\)' "$share/doc/heddle/$f" | sed 's/^](//; /^http/d; /^$/d'); do
		[ -e "$(dirname "$share/doc/heddle/$f")/$to" ] || missing="$missing $f:$to"
	done
done
is "links of installed pages lead to existing files" "$missing" ""
like "a machine is found by its name, away from the sources" "$(cd "$share/heddle/conf" && timeout 60 \
	"$root$prefix/bin/heddle" plan char-small.ini --set data.train=none --set model.vocab=256 --machine dgx-h100 2>&1)" \
	'^on [^,]+, 8 ranks a node'

# The command of doc/first-strategy.md.
mkdir mine
cp "$src/examples/sign-compression/strategy.c" mine/strategy.c
flags=$(PKG_CONFIG_PATH=${pc%/*} pkg-config --cflags heddle)
like "pkg-config names the installed headers" "$flags" "-I$root$prefix"
ok "the strategy builds with them" \
	${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -Wl,-z,defs -Wall -Wextra -Werror $flags \
	-o mine/heddle_sign_compression.so mine/strategy.c

installed() { timeout -k 5 60 "$root$prefix/bin/heddle" "$@" </dev/null; }
ok "the installed program runs" installed --version
like "... and accepts the plugin" "$(installed plugins ./mine/heddle_sign_compression.so 2>&1)" \
	'^sign_compression 1\.1, ABI [0-9.]+, .*/mine/heddle_sign_compression\.so$'

# The example's own INI, made small.
sed -e 's|^plugin = .*|plugin = ./mine/heddle_sign_compression.so|' -e 's/^train = .*/train = text.txt/' \
	"$src/examples/sign-compression/sign.ini" >sign.ini
small="--set model.layers=2 --set model.embed=32 --set model.heads=4 --set train.seq=32 --set train.global_batch=8"
small="$small --set train.steps=120 --set train.lr=3e-3 --set train.eval_batches=1 --set train.threads=1 --set log.metrics=m.jsonl"
run() {
	n=$1
	shift
	mpi "$n" "$root$prefix/bin/heddle" train sign.ini $small "$@"
}
loss() { json "$(sed -n "$1p" m.jsonl)" loss; }
said=$(installed explain sign.ini $small --ranks 2)
like "one bit an element is sent" "$said" 'all-gather +[0-9.]+ (bytes|KB) x1 .*'
ok "the strategy trains on two ranks" run 2
first=$(loss 1)
last=$(loss 120)
note "loss $first, after 120 steps $last"
awk -v a="$first" -v b="$last" 'BEGIN { exit !(b > 0 && b < a - 1) }'
tap_result $? "... and the loss falls"
ok "it trains with all sums exact" run 2 --set replicas.smallest=1000000000
exact=$(loss 120)
# It has 0.84 of the fall of 3.8 here; if only the small parameters were trained, it would have 0.07.
awk -v a="$first" -v b="$last" -v c="$exact" 'BEGIN { exit !(a - c > 3 && a - b > 0.75 * (a - c)) }'
tap_result $? "compressed training has at least three quarters of the fall to $exact"
ok "the first loss is that of any layout" [ "$(loss 1)" = "$first" ]

# Less than a fifth of the bytes: one bit instead of 32, and exact sums of what is small.
bytes() { json "$(mpi 2 "$root$prefix/bin/heddle" bench sign.ini $small --steps 1 --json "$@" 2>/dev/null)" bytes_counted; }
note "bytes a step: $(bytes), exact $(bytes --set replicas.smallest=1000000000)"
ok "less than a fifth of the bytes is sent" [ "$(($(bytes) * 5))" -lt "$(bytes --set replicas.smallest=1000000000)" ]

# The residual is in checkpoints, and a run resumes with it on another number of members.
ok "a run saves" run 2 --set train.steps=6 --set checkpoint.dir=c --set checkpoint.every=3
ok "a run resumes" run 2 --set train.steps=6 --set checkpoint.dir=d --set checkpoint.resume=c/step-00000003
ok "... with the same weights, to the last bit" cmp c/step-00000006/model.safetensors d/step-00000006/model.safetensors
ok "a run resumes with four members" \
	run 4 --set train.steps=6 --set train.micro_batch=1 --set checkpoint.resume=c/step-00000003 \
	--set checkpoint.dir=e
done_testing
