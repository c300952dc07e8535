/* SPDX-License-Identifier: Apache-2.0
 * Data parallelism: the batch is cut along one axis, and every gradient becomes a partial sum there by the engine's own
 * rule.  What is left to say is how the sums are made, and where things live:
 *
 *   sync = ring        ring.c: reduce-scatter and all-gather over neighbours (Patarasuk and Yuan 2009; Horovod, 1802.05799)
 *   sync = allreduce   one collective of the comm module per bucket
 *   zero = 1, 2, 3     homes.c, pieces.c: states, gradients, parameters are cut (ZeRO, 1910.02054)
 *
 * In all of them gradients travel in buckets (bucket.c), filled in the order in which backward makes them.
 */
#include "dp.h"
#include <string.h>

static const struct hd_option options[] = {
	{ "sync", HD_OPT_CHOICE, 0, "ring", "ring|allreduce", "how gradients are summed" },
	{ "bucket", HD_OPT_BYTES, 0, "25M", "1..", "gradients moved together, bytes" },
	{ "zero", HD_OPT_INT, 0, "0", "0..3", "cut along the axis: 1 optimizer states, 2 and gradients, 3 and parameters" },
};

static int sync_of(const char *name)
{
	static const char *const names[] = { "ring", "allreduce", "hierarchical", "server" };
	int i = 3;

	while (i && strcmp(names[i], name))
		i--;
	return i;
}

static int dp_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->bucket = h->opt_int(p, "bucket");
	s->zero = h->opt_int(p, "zero");
	s->sync = sync_of(h->opt_str(p, "sync"));
	*self = s;
	return HD_OK;
}

static int dp_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->dp = s->h->axis(p, NULL, size ? size : left, 0);
	return s->h->status(p);
}

static int dp_rules(struct hd_strategy *s, struct hd_plan *p)
{
	return s->h->rule(p, "batch", s->dp, NULL, 0);
}

static int dp_lower(struct hd_strategy *s, struct hd_plan *p)
{
	dp_lower_sums(s, p);
	return dp_lower_pieces(s, p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops), .options = options, .noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]), .open = dp_open, .mesh = dp_mesh, .rules = dp_rules, .homes = dp_homes, .lower = dp_lower,
};
HD_PLUGIN("dp", "0.2", &ops)
