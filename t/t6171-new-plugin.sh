#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# heddle new-plugin writes a folder that builds, runs and passes its own test as it is, with only the installed headers.
# check --against-one-rank detects a layout that trains a different model.  If either broke, an author's first day would
# end here.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

[ -f "$build/Makefile" ] || skip_all "no Makefile in the build folder"
command -v pkg-config >/dev/null || skip_all "no pkg-config"
root=$tmp/root
make -C "$build" install-heddleincludeHEADERS install-pkgconfigDATA DESTDIR="$root" >log 2>&1 ||
	{ tap_comment <log; skip_all "make install does not work here"; }
pc=$(find "$root" -name heddle.pc)
export PKG_CONFIG_PATH="${pc%/*}"
mkdir bin
printf '#!/bin/sh\nexec "%s/heddle" "$@"\n' "$build" >bin/heddle
chmod +x bin/*
PATH=$tmp/bin:$PATH
export PATH

for kind in sharding sync schedule op lowering optimizer; do
	ok "$kind: a folder is written" heddle new-plugin my_$kind --kind $kind
	ok "... it builds without a warning" make -s -C my_$kind CFLAGS='-Wall -Wextra -Werror'
	cd my_$kind || exit 1
	ranks=$(sed -n 's/.*check .* --ranks \([0-9]\)$/\1/p' test.sh)
	ok "... check accepts its INI" heddle check my_$kind.ini --ranks "$ranks"
	cd ..
	[ $kind = op ] || whole_sweep || continue
	ok "... and it conforms" heddle conform my_$kind/my_$kind.so --layouts 0 --no-runs
done
ok "make test does all that, and compares a run with one rank" make -C my_lowering test
like "... which compares gradients" "$(cat "$tmp/.ok")" '^worst of [0-9]+ gradients: .*0\.[0-9]+ times what rounding in fp32'

# The command that it prints, of a program that was installed with another libdir in a path with a blank.  The program
# is a copy with another name in place of lib; its plugin is only built, and its test is a stub.
prefix=$(sed -n 's/^prefix = //p' "$build/Makefile")
case $(sed -n 's/^libdir = //p' "$build/Makefile") in
'${exec_prefix}/lib')
	there="$tmp/a place"
	mkdir -p "$there/bin" "$there/l64/heddle" "$there/l64/pkgconfig"
	LC_ALL=C sed "s|$prefix/lib/heddle|$prefix/l64/heddle|g" "$build/heddle" >"$there/bin/heddle"
	chmod +x "$there/bin/heddle"
	cp "$pc" "$there/l64/pkgconfig"
	ln -s "$src/include" "$there/include"
	"$there/bin/heddle" new-plugin elsewhere --kind op >out
	like "the command names the folder of heddle.pc" "$(cat out)" "PKG_CONFIG_PATH='$there/l64/pkgconfig' make test HEDDLE='"
	printf '#!/bin/sh\necho "stub $1"\n' >"$there/bin/heddle"
	sed -n 's/^	//p' out >command
	ok "... and works" env -u PKG_CONFIG_PATH sh ./command
	like "... with that program" "$(cat "$tmp/.ok")" '^stub conform$'
	;;
*) skip "libdir is not PREFIX/lib" ;;
esac

fails "a folder that exists is left alone" heddle new-plugin my_sync --kind sync
like "... with its name" "$(cat "$tmp/.ok")" 'folder my_sync: File exists'
fails "an unknown kind is refused" heddle new-plugin other --kind shard
like "... with the known kinds" "$(cat "$tmp/.ok")" 'sharding, sync, schedule, op, lowering or optimizer, not shard$'
fails "a name that no plugin can have is refused" heddle new-plugin a-b --kind sync
fails "the name of a section is refused" heddle new-plugin model --kind op
fails "a missing kind is refused" heddle new-plugin other
like "... with the reason" "$(cat "$tmp/.ok")" '--kind is missing: sharding'
fails "a name of 32 letters is refused" heddle new-plugin abcdefghijklmnopqrstuvwxyz_and_6 --kind sync
like "... since a table has no room for it" "$(cat "$tmp/.ok")" 'a name has at most 31 letters, this one 32$'
for name in 1st libfast heddle_fast; do
	fails "a name with such a beginning is refused: $name" heddle new-plugin $name --kind sync
	like "... since its file could not have it" \
		"$(cat "$tmp/.ok")" "$name: a name begins with a letter, and not with lib or heddle_"
done
[ ! -e a-b ] && [ ! -e other ] && [ ! -e 1st ] && [ ! -e libfast ]
tap_result $? "no folder was written for these names"

# A layout that trains a different model, since its sums are maxima.
${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" -DW_MAX -o replicas.so "$src/t/plugins/replicas.c"
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy r]\nplugin = ./replicas.so\nsize = 2\n'
} >wrong.ini
ok "a wrong plugin passes check" heddle check wrong.ini --ranks 2
fails "... but not the comparison with one rank" heddle check wrong.ini --ranks 2 --against-one-rank
like "... with the tensor, by how much, and what rounding explains" "$(cat "$tmp/.ok")" \
	'^heddle: the layout does not train the same model as one rank: (gradient|loss).* differs by .* times what rounding in fp32 explains'
like "... and again with bounds raised by the effect of rounding on one rank" "$(tr '\n' ' ' <"$tmp/.ok")" \
	'worst of 6 losses .* the layout again, with bounds raised by what rounding alone changes in one rank whose [^:]*: worst of 6 losses'
# Norms of four elements near zero: rounding changes their gradients up to 40 times as much as others.
cat >cancel.ini <<'E2'
[model]
family = gemma2
layers = 6
heads = 4
embed = 24
head_dim = 4
kv_heads = 1
mlp = 16
init_std = 0.1
qk_norm = head
[data]
train = ids.txt
[train]
seq = 12
global_batch = 1
lr = 0.01
steps = 4
seed = 4
[strategy pp]
plugin = pp
size = 2
E2
head -c 3000 "$src/README.md" >ids.txt
ok "a model that rounding changes more is still the same model" \
	heddle check cancel.ini --against-one-rank --set model.vocab=256
mkdir -p saved/step-00000009
ok "bf16 has its own tolerance, and saved steps of a run do not matter" \
	heddle check tiny.ini --ranks 2 --set train.precision=bf16 --set checkpoint.dir=saved --against-one-rank
like "... and is within it" "$(cat "$tmp/.ok")" '0\.[0-9]+ times what rounding in bf16'
is "no temporary folder is left" \
	"$(find /tmp -maxdepth 1 -name 'heddle-against.*' -newer wrong.ini -user "$(id -un)" | wc -l)" 0
fails "a layout that does not train is a failure" \
	heddle check tiny.ini --ranks 2 --against-one-rank --set data.train=/dev/null --set model.vocab=256
done_testing
