#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layouts and plugins that cannot work.  Every rank refuses them, and one rank names the plugin, the section and both
# numbers.  A layout of several ranks that is started alone prints the command to type, and that command works.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

mesh=$build/t/plugins/.libs/mesh3.so
[ -f "$mesh" ] || skip_all "t/plugins is not built"
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy m]\nplugin = %s\na = 1\nb = 1\nc = 1\n' "$mesh"
} >mesh.ini

# one NAME PATTERN ranks args...: the command fails on that many ranks with one message.
one() {
	name=$1 pattern=$2 n=$3
	shift 3
	if [ "$n" = 1 ]; then out=$(heddle "$@" 2>&1); else out=$(heddle_mpi "$n" "$@" 2>&1); fi
	rc=$?
	[ $rc -gt 0 ] && [ $rc -lt 124 ] && [ "$(printf '%s\n' "$out" | messages | wc -l)" -eq 1 ] &&
		printf '%s\n' "$out" | messages | grep -Eq -e "$pattern"
	tap_result $? "$name" || printf 'status %s\n%s\n want %s\n' $rc "$out" "$pattern" | tap_comment
}

# Sizes of a mesh.  The size of an axis section.KEY is reported by that key.
divide='^heddle: --set m\.b: 3 does not divide model\.heads = 4$'
one "heads over an axis of three" "$divide" 3 train mesh.ini --set m.b=3
one "the same, started alone" "$divide" 1 train mesh.ini --set m.b=3
one "the same, in check" "$divide" 1 check mesh.ini --set m.b=3
one "replicas that do not divide the batch" 'global_batch: 8 is not a multiple of micro_batch 2 x 3 replicas' 1 \
	check mesh.ini --set m.a=3 --ranks 3
one "more stages than layers" '--set m\.c: 3 stages for model\.layers = 2' 1 check mesh.ini --set m.c=3
one "fewer ranks than the layout needs" 'mesh\.ini: the layout needs 4 ranks, but there are 2$' 2 train mesh.ini \
	--set m.b=4
one "more ranks than the layout needs" 'mesh\.ini: the layout needs 1 rank, but there are 2$' 2 train mesh.ini
printf '\n[strategy more]\nplugin = dp\nsize = 3\n' | cat tiny.ini - >three.ini
one "a number of ranks that is not a multiple of the sizes" \
	'three\.ini:[0-9]+: \[strategy dp\] size: auto: 2 ranks cannot .* the 3 that .*: 2 is not a multiple of 3$' 2 \
	train three.ini
sed 's/size = 3/size = auto/' three.ini >two.ini
one "two sizes of auto" \
	'two\.ini:[0-9]+: \[strategy more\] size: auto, but so is that of \[strategy dp\]' 1 check two.ini
sed 's/^plugin = dp/plugin = pp\nsize = 6/' tiny.ini >long.ini
one "a pipeline that is too long" 'size: 4 blocks \(embedding, layers, head\) for 6 stages x 1 chunks: at most 4 stages$' 1 \
	check long.ini --set train.global_batch=12
one "a misspelt plugin" 'no plugin "dpp" .*; there: .*; did you mean dp\?$' 1 check tiny.ini --set dp.plugin=dpp

# Two axes that divide the heads separately but not together, and two axes that both distribute the layers.
{ sed '/^\[strategy/,$d' tiny.ini; printf '[strategy t]\nplugin = tp\nsize = 2\n[strategy u]\nplugin = tp\nsize = 4\n'; } >twice.ini
one "heads over two axes" 'twice\.ini:[0-9]+: \[strategy u\] size: t 2 x u 4 = 8 do not divide heads = 4, which they shard' 1 check twice.ini
sed 's/= tp/= pp/' twice.ini >stages.ini
one "layers over two axes" 'stages\.ini:[0-9]+: \[strategy u\]: blocks are already dealt to t \(slot rules of plugin pp\)$' 1 check stages.ini --set u.size=2

# Experts.
experts() { one "$1" "$2" "$3" train tiny.ini --set dp.plugin=ep --set "$4" --set "$5"; }
experts "experts over an axis of three" '--set dp\.size: 3 does not divide model\.experts = 4$' 3 model.experts=4 dp.size=3
experts "no experts to place" 'the model has no experts to place' 2 model.experts=0 dp.size=2
experts "a token group larger than a rank's micro-batch" \
	'^heddle: --set model\.group_tokens: groups of 128 tokens, but a rank has 64 of a micro-batch' 2 \
	model.experts=4 model.group_tokens=128
experts "more experts per token than experts" \
	'--set model\.experts_per_token: 5 is more than model\.experts = 4' 2 model.experts=4 \
	model.experts_per_token=5

# Started alone.
out=$(heddle train tiny.ini --set dp.size=2 --set "log.metrics=two words.jsonl" 2>&1)
is "started alone: the status is 1" $? 1
like "started alone: the message gives both numbers of ranks" \
	"$out" '^heddle: tiny\.ini: the layout needs 2 ranks, but there is 1; start it with$'
command=$(printf '%s\n' "$out" | grep mpirun)
like "started alone: the command is printed" \
	"$command" '^	mpirun -np 2 .*--bind-to none .*--mca odls_base_sigkill_timeout [0-9]+ '
[ "$(id -u)" -ne 0 ] || like "started alone by root: the command allows root" "$command" ' --allow-run-as-root '
ok "started alone: the command works as printed" sh -c "timeout 60 $command </dev/null"
is "started alone: the command quotes a file name with a blank" "$(grep -c '"step": 3, "loss"' 'two words.jsonl')" 1
command=$(heddle train tiny.ini --set dp.size=64 --set train.global_batch=128 2>&1 | grep mpirun)
like "started alone: for more ranks than cores, the command oversubscribes" \
	"$command" '^	mpirun -np 64 --oversubscribe '

one "a split with fewer layers than the model" \
	'pp\.split: 1,0 has 1 layers; the model has 2' 1 check tiny.ini --ranks 2 \
	--set pp.plugin=pp --set pp.size=2 --set pp.split=1,0
one "a split with more layers than the model" \
	'pp\.split: 100,0 has more than 2 layers; the model has 2' 1 check tiny.ini --ranks 2 \
	--set pp.plugin=pp --set pp.size=2 --set pp.split=100,0

# Plugins.
one "a plugin that does not exist" 'dp\.plugin: no plugin "nix" .*; there: .*dp' 2 train tiny.ini --set dp.plugin=nix
one "a plugin file that does not exist" \
	'dp\.plugin: no plugin file \./nix\.so: No such file' 1 train tiny.ini --set dp.plugin=./nix.so
echo "not a plugin" >text.so
one "a file that is not a library" \
	'text\.so: .*(invalid ELF header|too short)' 1 train tiny.ini --set dp.plugin=./text.so
# variant NAME -D...: builds a plugin with one fault.
variant() {
	file=$1
	shift
	${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$src/include" -DV_NAME="\"$file\"" "$@" \
		-o "$file.so" "$src/t/plugins/variant.c"
}
variant hollow -DV_UNDEFINED_FUNCTION
one "a plugin with an undefined symbol" \
	'hollow\.so.*undefined symbol: nobody_has_this' 2 train tiny.ini --set dp.plugin=./hollow.so
variant future '-DV_BUILD="minor=1000"'
one "a plugin that needs a newer ABI" \
	'future\.so: needs ABI [0-9]+\.1000, this engine has [0-9]+\.[0-9]+' 2 train tiny.ini --set dp.plugin=./future.so
variant alien -DV_MAGIC=7
one "a library that is not a plugin of Heddle" 'alien\.so' 1 train tiny.ini --set dp.plugin=./alien.so
done_testing
