#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A plugin's op that is marked as cheap (HD_OP_CHEAP) is recomputed in backward rather than kept, as the engine's gelu
# is.  It must be in the program twice, save memory within a step, and leave the losses the same to the last digit.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

cat >square.c <<'END'
#include <heddle/strategy.h>
static int same(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins, uint32_t nin,
	struct hd_shape *outs, uint32_t *nout)
{
	(void)s, (void)p, (void)attr, (void)nin;
	outs[0].dtype = ins[0]->dtype;
	outs[0].ndim = ins[0]->ndim;
	for (uint32_t i = 0; i < ins[0]->ndim; i++)
		outs[0].dims[i] = ins[0]->dims[i];
	*nout = 1;
	return HD_OK;
}
static int slope(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout, uint64_t want,
	struct hd_tensor **din)
{
	struct hd_tensor *in[2] = { n->ins[0], dout[0] };
	(void)want;
	din[0] = hd_basic_of(s)->h->graph->map(p, in, 2, "2 * a * b");
	return HD_OK;
}
static int record(struct hd_strategy *s, struct hd_record *r, const struct hd_node *n)
{
	return hd_basic_of(s)->h->record->launch(r, "map", n->ins, 1, n->outs, 1, "a * a");
}
static const struct hd_op square = { .size = sizeof(square), .name = "square", .shape = same, .vjp = slope, .record = record,
	.flags = FLAGS };
static int rewrite(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_graph_api *g = hd_basic_of(self)->h->graph;
	const struct hd_match gelus = { .size = sizeof(gelus), .kind = "gelu" };
	struct hd_node *n = NULL;

	while ((n = g->node_next(p, n, &gelus))) {
		hd_cursor(g, p, n, NULL);
		g->replace(p, n->outs[0], g->node(p, &square, n->ins, 1, "%s", "")->outs[0]);
	}
	return hd_basic_of(self)->h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .option_size = sizeof(struct hd_option), .rewrite = rewrite };
HD_PLUGIN("square", "1.0", &ops)
END
{ sed '/^\[strategy/,$d' tiny.ini; printf '[plugin s]\nfile = ./square.so\n'; } >square.ini
made() { ${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$src/include" -DFLAGS="$1" -o square.so square.c; }
nodes() { heddle explain square.ini --nodes | grep -c ' square '; }
within() { heddle check square.ini --ranks 1 | sed -n 's/.*within a step \([0-9.]*\).*/\1/p'; }

made 0
kept=$(nodes) memory=$(within)
ok "without the flag, the run trains" heddle train square.ini --set log.metrics=kept.jsonl
made HD_OP_CHEAP
again=$(nodes) less=$(within)
ok "with the flag, the run trains" heddle train square.ini --set log.metrics=again.jsonl
is "without the flag, the op runs once a layer" "$kept" 2
is "with the flag, it runs in forward and in backward" "$again" 4
ok "with the flag, memory within a step is less ($less MB, not $memory MB)" awk "BEGIN { exit !($less < $memory) }"
losses() { sed -n 's/.*loss": *\([0-9.]*\).*/\1/p' "$1"; }
is "the losses are the same with and without the flag" "$(losses again.jsonl)" "$(losses kept.jsonl)"
done_testing
