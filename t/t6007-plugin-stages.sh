#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A plugin may cast what one stage sends to the next.  At the wrong cursor, the cast and the send would be in the
# receiver's program, and every rank would wait for ever.  Such a plan must be refused; at the right cursor it is
# accepted and trains.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

cat >wire.c <<'END'
#include <heddle/strategy.h>
static int lower(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_graph_api *g = h->graph;
	const struct hd_match moves = { .size = sizeof(moves), .kind = "reshard" };
	struct hd_node *n, *next;

	for (n = g->node_next(p, NULL, &moves); n; n = next) {
		struct hd_tensor *x = n->ins[0];

		next = g->node_next(p, n, &moves);
		if (n->reshard->have.kind != HD_PLACE_PINNED || n->reshard->need.kind != HD_PLACE_PINNED || !x->node)
			continue;
#ifdef WRONG
		hd_cursor(g, p, n, NULL);
#else
		hd_cursor(g, p, x->node, NULL);
#endif
		x = g->cast(p, x, HD_DTYPE_BF16);
		hd_cursor(g, p, n, NULL);
		x = g->reshard(p, x, n->reshard->axis, &n->reshard->need);
		g->replace(p, n->outs[0], g->cast(p, x, HD_DTYPE_F32));
	}
	return h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .option_size = sizeof(struct hd_option), .lower = lower };
HD_PLUGIN("wire", "1.0", &ops)
END
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy p]\nplugin = pp\nsize = 2\n[strategy w]\nplugin = ./wire.so\nsize = 1\n'
} >wire.ini
compile() { ${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$src/include" "$@" -o wire.so wire.c; }

compile -DWRONG
out=$(heddle check wire.ini --ranks 2 2>&1)
is "a cast on the wrong stage: refused" $? 1
like "a cast on the wrong stage: the message names both stages" \
	"$out" '\[strategy w\]: cast of .* runs on stage [01], but its operand \(.*\) is on stage [01]'
compile
ok "a cast on the right stage: accepted" heddle check wire.ini --ranks 2
ok "a cast on the right stage: the run trains" heddle_mpi 2 train wire.ini
done_testing
