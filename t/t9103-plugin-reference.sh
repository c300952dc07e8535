#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The plugins of doc/plugin-reference.md and doc/plugin-examples.md build with the public headers and train as the pages
# say.  The reference has every slot and function of the headers, also in its code.  Authors could find a function that
# is missing there only by reading the engine.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"
command -v "${CC:-cc}" >/dev/null || skip_all "no C compiler"

page=$src/doc/plugin-reference.md
block() { awk -v want="<!-- test: $1 -->" '$0 == want { next_one = 1 } /^```/ { on = next_one && !on; if (!on) next_one = 0; next } on' "$page"; }
block tour.c >tour.c
block serial.c >serial.c
block tour.ini >tour.ini
cp text.txt corpus.txt
ok "the plugin of the reference is built without warnings" \
	"${CC:-cc}" -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -Wl,-z,defs \
	-Wl,-z,now -I"$src/include" -o tour.so tour.c
ok "... and so is its serial definition" \
	"${CC:-cc}" -std=gnu11 -O1 -Wall -Wextra -Werror -I"$src/include" -c -o serial.o serial.c
like "heddle plugins accepts the plugin and lists its key" "$(heddle plugins ./tour.so)" '^every +int +2 '
like "check plans a layout with the plugin" "$(heddle check tour.ini --ranks 2 2>&1)" '^2 ranks = t 2'
losses() { sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([0-9.]*\).*/\1 \2/p' "$1" | awk '{ printf "%d %.4f\n", $1, $2 }'; }
ok "two ranks train with the plugin" \
	heddle_mpi 2 train tour.ini --set train.threads=1 --set train.eval_batches=1 --set log.metrics=tour.jsonl --set checkpoint.dir=tour
is "... four steps" "$(losses tour.jsonl | wc -l)" 4
ok "two ranks train with the plugin's optimizer" \
	heddle_mpi 2 train tour.ini --set train.threads=1 --set train.eval_batches=1 --set checkpoint.dir=own \
	--set train.optimizer=t
ok "a run resumes with the plugin's states" \
	heddle_mpi 2 train tour.ini --set train.threads=1 --set train.eval_batches=1 --set checkpoint.dir=tour \
	--set train.steps=5 --set checkpoint.resume=auto
tr ',' '\n' <tour/step-00000005/heddle/optimizer.safetensors | grep -aq 't\.slow\.'
tap_result $? "... which are in the checkpoint"

# -- doc/plugin-examples.md -----------------------------------------------------------------------------------------------------
page=$src/doc/plugin-examples.md
small() { # NAME SECTIONS
	block "$1.c" >"$1.c"
	ok "$1: it is built without warnings" \
		"${CC:-cc}" -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -I"$src/include" -o "$1.so" "$1.c"
	{ sed '/^\[strategy/,$d' tour.ini && printf "$2"; } >"$1.ini"
}
trained() { # NAME ARGS...
	trained_as=$1
	shift
	rm -rf out numbers.jsonl
	ok "$trained_as: two ranks train" \
		heddle_mpi 2 train "$trained_as.ini" --set train.threads=1 --set train.eval_batches=1 --set log.metrics=numbers.jsonl \
		--set checkpoint.dir=out "$@"
}
small swap '[strategy t]\nplugin = ./swap.so\nsize = 2\n'
small thin '[strategy t]\nplugin = pp\nsize = 2\n[plugin h]\nfile = ./thin.so\n'
small mean_of '[strategy t]\nplugin = ./mean_of.so\nsize = 2\n'
sed 's|./swap.so|dp|' swap.ini >dp.ini
trained dp
losses numbers.jsonl >want
trained swap
is "swap: the losses are those of dp" "$(losses numbers.jsonl)" "$(cat want)"
heddle explain swap.ini --ranks 2 --nodes >nodes.txt
[ "$(grep -c '^sync  *comm shift on t grad:' nodes.txt)" -gt 10 ] && ! grep -q 'comm all-reduce on t grad:' nodes.txt
tap_result $? "swap: gradients move by shifts, without an all-reduce"
like "swap: a size other than 2 is refused" \
	"$(heddle check swap.ini --ranks 4 --set t.size=4 2>&1)" 'size: 4 members, and a swap is between 2'
trained mean_of --set t.keep=0
is "mean_of: with keep = 0 the losses are those of dp" "$(losses numbers.jsonl)" "$(cat want)"
trained mean_of
[ "$(losses numbers.jsonl)" != "$(cat want)" ]
tap_result $? "mean_of: without keep = 0 the losses differ from those of dp"
tr ',' '\n' <out/step-00000004/heddle/optimizer.safetensors | grep -aq 't\.mean\.wte\.weight'
tap_result $? "mean_of: its state is in the checkpoint"
ok "mean_of: it trains as its serial definition says" \
	heddle conform ./mean_of.so --only 'serial definition, gpt2: mean_of 2'
small shards '[strategy t]\nplugin = ./shards.so\nsize = 2\n'
trained shards
is "shards: the losses are those of dp" "$(losses numbers.jsonl)" "$(cat want)"
memory() { heddle check "$@" 2>&1 | sed -n 's/.*(parameters and state \([0-9.]* KB\),.*/\1/p'; }
is "shards: parameters and states take as much memory as with zero = 3" \
	"$(memory shards.ini --ranks 2)" "$(memory dp.ini --ranks 2 --set t.zero=3)"
{ printf '[strategy tp]\nplugin = tp\nsize = 2\n'; sed -n '/^\[strategy/,$p' shards.ini; } >sections
{ sed '/^\[strategy/,$d; s/^heads = .*/heads = 2/' shards.ini; cat sections; } >both.ini
ok "shards: within tp it chooses dims that divide, and trains like one rank" \
	heddle check both.ini --ranks 4 --against-one-rank
{ sed '/^\[strategy/,$d; s/^embed = .*/embed = 32\nmlp = 6/' tour.ini; cat sections; } | sed 's/shards/tour/' >both.ini
like "tour: within tp it shards no dim of which an odd number is left, and its failed call is named" \
	"$(heddle check both.ini --ranks 4 2>&1)" '\[strategy t\]: rename: vocab has 256 elements, 128 of them here'
small late '[strategy t]\nplugin = ./late.so\nsize = 2\n'
trained late --set t.delay=0
is "late: with delay = 0 the losses are those of dp" "$(losses numbers.jsonl)" "$(cat want)"
ok "late: it trains as its serial definition says" \
	heddle conform ./late.so --only 'serial definition, gpt2: late 2'
# What doc/first-strategy.md calls impossible is refused in planning.
cat >cannot.c <<'END'
#include <heddle/strategy.h>
static int rules(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_basic *b = hd_basic_of(self);
	const struct hd_block *k = NULL;

#ifdef TWICE
	while ((k = b->h->block_next(p, k)))
		for (int i = 0; i < 2; i++)
			hd_stage(b->h, p, k, b->axis, i, i);
#endif
	(void)k;
	return hd_rule(b->h, p, "batch", b->axis, NULL, 0);
}
#ifdef HOST
static int storage(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_basic *b = hd_basic_of(self);
	const struct hd_match first = { .size = sizeof(first), .kind = "attention" };
	struct hd_node *n = b->h->graph->node_next(p, NULL, &first);
	const struct hd_place whole = { .kind = HD_PLACE_REPLICATED };
	const struct hd_storage_args x = { sizeof(x), n->outs[0], b->axis, &whole, HD_SPACE_HOST, 0 };

	return b->h->graph->storage(p, &x);
}
#endif
#ifdef INTEGERS
static int rewrite(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_graph_api *g = hd_basic_of(self)->h->graph;
	const struct hd_match first = { .size = sizeof(first), .kind = "attention" };
	struct hd_node *n = g->node_next(p, NULL, &first);
	struct hd_tensor *x = n->ins[0];

	hd_cursor(g, p, n, NULL);
	return g->replace_in(p, n, x, g->cast(p, g->cast(p, x, HD_DTYPE_I32), x->dtype));
}
#endif
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rules = rules, SLOT };
HD_PLUGIN("cannot", "1", &ops)
END
cannot() {	# MACRO SLOT WHAT PATTERN
	"${CC:-cc}" -std=gnu11 -fPIC -shared -fvisibility=hidden "-D$1" "-DSLOT=$2" -I"$src/include" -o cannot.so cannot.c
	like "not possible: $3" "$(heddle check late.ini --ranks 2 --set t.plugin=./cannot.so 2>&1)" "$4"
}
cannot TWICE .lower=NULL "a block on two stages" 'stage: block embed is already on stage 0'
cannot HOST .storage=storage "an activation in host memory" 'computed by attention in each step and has no storage'
cannot INTEGERS .rewrite=rewrite "computed integers" 'cast of layer 0: output 0 has dtype i32'
trained thin
losses numbers.jsonl >numbers.txt
# bf16 rounds by at most 2^-9 of an activation, which is far less in a mean over 256 tokens.
ok "thin: the losses are those of dp up to rounding" \
	awk 'NR == FNR { w[$1] = $2; next } { d = $2 - w[$1]; if (d < 0) d = -d; if (!(d <= $2 / 512)) exit 1; n++ }
	END { if (n != 4) exit 1 }' want numbers.txt
page=$src/doc/plugin-reference.md

# members STRUCT HEADER: prints the functions of the struct.
members() { sed -n "/^struct $1 {/,/^};/p" "$src/include/heddle/$2" | sed -n 's/^\t.*(\*\([a-z_]*\))(.*/\1/p'; }
missing=
for name in $(members hd_host host.h; members hd_graph_api graph.h; members hd_record_api op.h; members hd_strategy_ops strategy.h
	members hd_op op.h; members hd_kernel_ops kernel.h; members hd_kernel_prepare kernel.h; members hd_optimizer_ops optimizer.h
	members hd_serial serial.h; members hd_serial_ops serial.h); do
	grep -q "[\`.>]$name\b\|^## Slot $name\|\`$name(" "$page" || missing="$missing $name"
	grep -iq "\b$name\b\|hd_$name(" tour.c serial.c || [ "$name" = release ] || missing="$missing code:$name"
done
is "every function of the headers is in the page and in its code" "$missing" ""
[ "$(members hd_graph_api graph.h | wc -l)" -gt 40 ]
tap_result $? "more than 40 functions of the graph are found in the headers"
for name in $(sed -n 's/^static inline .*[ *]\(hd_[a-z_]*\)(.*/\1/p' "$src/include/heddle/host.h" "$src/include/heddle/graph.h"); do
	grep -q "\`$name(\|\`$name\`" "$page" || missing="$missing $name"
done
is "every short form is in the page" "$missing" ""

# The manual page names every slot and every table.
man=$src/man/heddle-plugin.7
for name in $(members hd_strategy_ops strategy.h) strategy approximate serial kernels optimizer families build; do
	grep -qx "\.B $name" "$man" || missing="$missing $name"
done
is "heddle-plugin(7) has all slots and tables" "$missing" ""
if command -v man >/dev/null && man --help 2>&1 | grep -q warnings; then
	is "... and man formats it without warnings" \
		"$(LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z "$man" 2>&1 >/dev/null)" ""
else
	skip "no man"
fi
done_testing
