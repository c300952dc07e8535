#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The communication of all ranks is matched before anything runs.  When a plugin lets a backward unit receive what a
# forward unit sends, two stages exchange tensors in different orders.  The receiver would take one tensor for another,
# or wait for ever.  A collective that only one member's program contains would also wait for ever.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

cat >order.c <<'END'
#include <heddle/strategy.h>
/* Returns an add of this unit on the stage that block names ("0" or "1"), whose output has three dims, or NULL. */
static struct hd_node *reader(const struct hd_graph_api *g, struct hd_plan *p, const struct hd_axis *stages, uint32_t unit,
			      const char *block)
{
	const struct hd_match all = { .size = sizeof(all), .phases = unit, .kind = "add" };
	struct hd_node *n = NULL;

	while ((n = g->node_next(p, n, &all))) {
		const struct hd_place *at = g->place(p, n->outs[0], stages);

		if (at->kind == HD_PLACE_PINNED && at->index == (block[0] - '0') && n->outs[0]->ndim == 3)
			return n;
	}
	return NULL;
}
static const struct hd_axis *stages_of(const struct hd_graph_api *g, struct hd_plan *p)
{
	const struct hd_match moves = { .size = sizeof(moves), .kind = "reshard" };
	struct hd_node *n = NULL;

	while ((n = g->node_next(p, n, &moves)))
		if (n->reshard->need.kind == HD_PLACE_PINNED)
			return n->reshard->axis;
	return NULL;
}
static int lower(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_graph_api *g = h->graph;
	const struct hd_axis *stages = stages_of(g, p);
	const struct hd_place there = { .kind = HD_PLACE_PINNED, .index = 1 };
	struct hd_node *from, *to;
	struct hd_tensor *x;

	if (!stages)
		return h->status(p);
	from = reader(g, p, stages, HD_UNIT_F, "0");
	to = reader(g, p, stages, UNIT, "1");
	if (!from || !to) /* an evaluation has no backward */
		return h->status(p);
#ifdef ALONE
	hd_cursor(g, p, from, NULL);
	x = hd_comm(g, p, HD_COMM_ALL_REDUCE, hd_group_of(h, p, &stages, 1), from->ins[0], NULL, 0);
	g->replace_in(p, from, from->ins[0], x);
	return h->status(p);
#endif
	hd_cursor(g, p, to, NULL);
	x = g->reshard(p, from->outs[0], stages, &there);
	x = g->map(p, (struct hd_tensor *[]){ to->ins[0], x }, 2, "a + 0 * b");
	g->replace_in(p, to, to->ins[0], x);
	return h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .option_size = sizeof(struct hd_option), .lower = lower };
HD_PLUGIN("order", "1.0", &ops)
END
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy p]\nplugin = pp\nsize = 2\n[strategy o]\nplugin = ./order.so\nsize = 1\n'
} >order.ini
compile() { ${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$src/include" "$@"; }

compile -DUNIT=HD_UNIT_B -o order.so order.c
out=$(heddle check order.ini --ranks 2 2>&1)
is "a receive in another unit than its send: refused" $? 1
like "a receive in another unit than its send: the message names both ranks and both tensors" "$out" \
	'heddle: a send and the receive in its place are not the same: rank 0 reaches send of .* \(batch,seq,embed\) of layer 0 on p \(2048 f32, micro-batch 0, made by o\), and rank 1 reaches receive of .* on p \(2048 f32, micro-batch 0, made by the engine\)'
is "a receive in another unit than its send: one message" "$(printf '%s\n' "$out" | grep -c '^heddle:')" 1
compile -DUNIT=HD_UNIT_F -DALONE -o order.so order.c
out=$(heddle check order.ini --ranks 2 2>&1)
is "an all-reduce over stages that only one stage runs: refused" $? 1
like "an all-reduce over stages that only one stage runs: the message names both ranks" "$out" \
	'heddle: rank 0 waits in all-reduce of .* on p \(2048 f32, micro-batch 0, made by o\) for rank 1, which never gets there'
compile -DUNIT=HD_UNIT_F -o order.so order.c
ok "a receive in the unit of its send: accepted" heddle check order.ini --ranks 2
ok "... and the run trains" heddle_mpi 2 train order.ini
done_testing
