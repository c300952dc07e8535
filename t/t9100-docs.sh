#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The examples of doc/architecture.md, doc/wrong-gradient.md and doc/extending.md work as a reader types them.  They
# are nodes in the passes, a strategy, ops, a model family, and the search for a wrong gradient.  If an example broke,
# its readers would look for a mistake of their own.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

cat "$src/doc/architecture.md" "$src/doc/wrong-gradient.md" "$src/doc/extending.md" >pages
command -v "${CC:-cc}" >/dev/null || skip_all "no C compiler"
command -v mpirun >/dev/null || skip_all "no mpirun"

# Each block after a line <!-- test: NAME --> is the file NAME.
sed -n 's/^<!-- test: \(.*\) -->$/\1/p' pages >names
while read -r name; do
	case $name in */*) mkdir -p "${name%/*}" ;; esac
	awk -v want="<!-- test: $name -->" '$0 == want { next_one = 1 } /^```/ { on = next_one && !on; if (!on) next_one = 0; next }
		on { print }' pages >"$name"
done <names
is "no block of the pages is empty" "$(while read -r n; do [ -s "$n" ] || echo "$n"; done <names)" ""

# The commands of the pages find the headers and the program of this tree.
mkdir bin
cp text.txt corpus.txt
printf '#!/bin/sh\necho "-I%s/include"\n' "$src" >bin/pkg-config
printf '#!/bin/sh\nv=$1\nshift\n[ $v != train ] || set -- "$@" --set train.threads=1\nexec %s "$v" "$@"\n' "$build/heddle" >bin/heddle
chmod +x bin/*
typed() { PATH=$tmp/bin:$PATH timeout -k 5 60 sh -e "$1" </dev/null; }

# build NAME: builds the plugin with the command that the page gives for columns.
build() { sed -n '/^cc /,/[^\\]$/p' columns.sh | sed "s/columns/$1/g" >build.sh && typed build.sh; }

# losses FILE: prints loss and norm of steps 1 and 2, to five and four digits.
losses() { sed -n 's/.*"loss": *\([^,]*\), *"grad_norm": *\([^,]*\),.*/\1 \2/p' "$1" | awk '{ printf "%.5g %.4g\n", $1, $2 }'; }

# equal NAME INI PROGRAM: checks that two steps on two ranks equal those on one; they are saved in INI.1 and INI.2.
equal() {
	name=$1 ini=$2 program=$3
	rm -f 1.jsonl 2.jsonl
	ok "$name: one rank trains" \
		timeout 60 "$program" train "$ini" --set log.metrics=1.jsonl --set checkpoint.dir="$ini.1" --set train.threads=1
	ok "$name: two ranks train" \
		mpi 2 "$program" train "$ini" --set log.metrics=2.jsonl --set checkpoint.dir="$ini.2"
	is "$name: ... with the same losses and norms" "$(losses 2.jsonl)" "$(losses 1.jsonl)"
	is "$name: ... of two steps" "$(losses 1.jsonl | wc -l)" 2
}

# -- three nodes through the passes; the numbers of tensors may change with the model ------------------------------------------
numberless() { sed 's/#[0-9]*/#/g'; }
ok "the commands that show the passes run" typed passes.sh
is "... and print what the page shows" "$(numberless <.ok)" "$(numberless <passes.txt)"

# -- strategies and ops out of tree ---------------------------------------------------------------------------------------
ok "the commands of the page run: a rules-only strategy" typed columns.sh
PATH=$tmp/bin:$PATH heddle explain columns.ini --ranks 2 --json >columns.json
is "... which has four all-reduces a layer" "$(sed 's/},/&\n/g' columns.json | grep -c '"all-reduce".*layer 0')" 4
equal "the rules-only strategy" columns.ini "$build/heddle"
gelu=$(losses 1.jsonl | head -n 1)
ok "the commands of the page run: a family of a plugin" typed seed.sh
{ sed 's/^family.*/family = seed_oss\nkv_heads = 2\ninit_std = 0.1/' columns.ini && printf '\n[plugin seed]\nfile = seed.so\n'; } >seed.ini
equal "a family of a plugin" seed.ini "$build/heddle"
ok "an op of a plugin is built" build silu
{ cat columns.ini && printf '\n[plugin silu]\nfile = ./silu.so\n'; } >silu.ini
equal "an op of a plugin" silu.ini "$build/heddle"
sed 's/^steps = .*/&\nprecision = bf16/' silu.ini >low.ini
ok "an op of a plugin equals one rank, which has the plugin too" \
	"$build/heddle" check silu.ini --ranks 2 --against-one-rank --set train.threads=1
ok "an op of a plugin trains in bf16" mpi 2 "$build/heddle" train low.ini
unlike "the op of a plugin trains a different model than the op of the engine" \
	"$(losses 1.jsonl | head -n 1)" "^$gelu\$"

# -- the wrong gradient ---------------------------------------------------------------------------------------------------
ok "the wrong plugin is built" build mean
sed 's/columns/mean/; s/\[strategy t\]/[strategy r]/' columns.ini >mean.ini
if command -v python3 >/dev/null; then
	ok "the commands of the page compare gradients" typed compare.sh
	cp .ok found
	[ "$(grep -c 'times as long' found)" -eq 34 ] && [ "$(grep -c ' 0\.500000 times as long' found)" -eq 34 ]
	tap_result $? "... and find every gradient half as long" || tap_comment <found
	sed 's/mean\.so/dp/' mean.ini >right.ini
	sed 's/mean\.ini/right.ini/; s/=one/=one-right/; s/=two/=two-right/; s/ one\// one-right\//; s/ two\// two-right\//' compare.sh >right.sh
	ok "the same commands compare gradients with dp instead" typed right.sh
	like "... and find no difference" "$(cat .ok)" '^0 of 36 gradients differ$'
	unlike "... and name no gradient" "$(cat .ok)" 'times as long'
else
	skip "no python3"
fi
like "explain shows the map after the sum" "$(heddle explain mean.ini --ranks 2 --nodes)" \
	'^sync +map \[a / 2\] grad:wpe\.weight\(position,embed\) -> grad:wpe\.weight\(position,embed\) replicated; made by r$'
like "... and numbers tensors without a name, so that readers of a result can be found" \
	"$(heddle explain mean.ini --ranks 2 --nodes |
	awk '$3 == "position_dw" { made = $7 } $2 == "accumulate" && $3 == made { print "found", $5 }')" '^found grad:wpe\.weight'

# -- in the engine: the files of an example are in a tree of their own, searched before the real one -------------------
value() { sed -n "s/^$1 = //p" "$build/Makefile"; }
flags="-std=gnu11 -O1 -I$build -I$src -I$src/include $(value CFLAGS) $(value OPENMP_CFLAGS)"
for lib in MPI DNNL LTDL INIH JANSSON PCRE2 ZLIB ZSTD; do
	flags="$flags $(value ${lib}_CFLAGS)"
	libs="$libs $(value ${lib}_LIBS)"
done
archives="$build/libheddle.a $build/libref.a $build/libcpu.a $build/libbase.a"
# The variables hold several words each.
# shellcheck disable=SC2086
compile() { to=$1; shift; $(value CC) -I"${1%%/*}" $flags -o "$to" "$@" $archives $libs $(value LIBS); }
# list FILE MACRO: copies a list and adds silu and silu_d.
list() { { cat "$src/$1" && printf '%s(silu)\n%s(silu_d)\n' "$2" "$2"; } >"op/$1"; }
if [ -f "$build/libtest.a" ] && [ -f "$build/Makefile" ]; then
	list engine/ops/list.h OP
	list kernels/list.h KERNEL
	for f in engine/ops kernels/cpu kernels/ref; do
		cp "$src/$f/table.c" op/$f/table.c
	done
	ok "an op of the engine is built" compile op.t op/engine/ops/silu.c op/engine/ops/table.c op/kernels/cpu/elementwise/silu.c \
		op/kernels/cpu/table.c op/kernels/ref/elementwise/silu.c op/kernels/ref/table.c op/test.c "$build/libtest.a"
	ok "... and its test passes" ./op.t
else
	skip "libtest.a is not built"
fi

of=engine/models/family
sed 's/^extern const struct hd_expert_names .*/&\nextern const struct hd_family hd_family_starcoder2;/' "$src/$of/families.h" >family/$of/families.h
sed 's/^static const struct hd_family \*const families\[\] = {/& \&hd_family_starcoder2,/' "$src/$of/list.c" >family/$of/list.c
ok "a model family is built" compile family/heddle family/$of/starcoder2.c family/$of/list.c \
	"$build/engine/cli/heddle-main.o"
sed 's/^family.*/family = starcoder2\nkv_heads = 2\ninit_std = 0.1/' columns.ini >family.ini
equal "a model family" family.ini family/heddle
mkdir -p wrong/$of
cp family/$of/families.h family/$of/list.c wrong/$of
sed 's/^\tr->ndim = .*/&\n\tif (strstr(r->name, "k_proj"))\n\t\t*strstr(r->name, "k_proj") = '"'q'"';/' \
	family/$of/starcoder2.c >wrong/$of/starcoder2.c
ok "a family that stores k in the place of q is built" compile wrong/heddle wrong/$of/starcoder2.c wrong/$of/list.c \
	"$build/engine/cli/heddle-main.o"
like "... and a message says so instead of saving half" \
	"$(wrong/heddle train family.ini --set t.size=1 --set checkpoint.dir=wrong.out 2>&1)" \
	'self_attn\.q_proj\.weight and layers\.0\.self_attn\.k_proj\.weight are both .* 512 elements, of which 0 remain for the second'
cat >theirs.py <<-'EOT'
	import torch
	from transformers import AutoModelForCausalLM
	torch.set_num_threads(1)
	model, info = AutoModelForCausalLM.from_pretrained("family.ini.2/step-00000002", output_loading_info=True)
	data = torch.tensor(list(open("corpus.txt", "rb").read()))
	n = (len(data) - 1) // 32
	with torch.no_grad():
	    logits = model.eval()(data[:n * 32].view(n, 32)).logits.reshape(n * 32, -1).double()
	print(sum(len(v) for v in info.values()), torch.nn.functional.cross_entropy(logits, data[1:n * 32 + 1]).item())
EOT
if python3 -c 'import torch, transformers' 2>/dev/null; then
	ok "transformers reads a checkpoint of the model family" \
		env HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error python3 theirs.py
	theirs=$(grep "^[0-9]* [0-9.]*\$" .ok)
	is "... with no missing and no additional tensor" "${theirs% *}" 0
	near "... and computes the same loss" \
		"$(family/heddle eval family.ini.2 --data corpus.txt | sed -n 's/^loss \([^ ]*\).*/\1/p')" "${theirs#* }" 1e-5
else
	skip "python3 has no torch and transformers"
fi
done_testing
