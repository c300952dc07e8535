/* SPDX-License-Identifier: Apache-2.0
 * v_schedule: pipeline stages in the form of a V. Each stage holds two chunks of the model, and the second chunks run
 * through the stages in reverse order. So stage 0 has the first and the last blocks, and embedding and head are on one
 * stage. The form is from Qi et al. 2024, arXiv 2405.15362.
 *
 * Micro-batches run in groups: first all forwards of a group, down one arm of the V and up the other, then its
 * backwards. Larger groups wait less. Smaller groups need less memory, because only the activations of one group are
 * kept.
 */
#include <heddle/strategy.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_axis *stages;
	int64_t group;
};

static const struct hd_option options[] = {
	{ "group", HD_OPT_INT, 0, "0", "0..", "micro-batches that go through together; 0: all" },
};

static int v_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->group = h->opt_int(p, "group");
	*self = s;
	return HD_OK;
}

static int v_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->stages = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}

/* Cuts the blocks into pieces of about equal work, filled one after the other. Piece i of 2 n is on stage i, or on
 * stage 2 n - 1 - i. */
static int v_rules(struct hd_strategy *s, struct hd_plan *p)
{
	int64_t n = s->stages->n, piece = 0, left = 0;
	const struct hd_block *b = NULL;
	double all = 0, sum = 0;

	while ((b = s->h->block_next(p, b)))
		all += b->flops, left++;
	if (left < 2 * n)
		return s->h->fail(p, HD_EDIVIDE,
				  "size: %lld stages have %lld pieces of a V, and the model has %lld blocks",
				  (long long)n, (long long)(2 * n), (long long)left);
	while ((b = s->h->block_next(p, b))) {
		hd_stage(s->h, p, b, s->stages, piece < n ? piece : 2 * n - 1 - piece, piece < n ? 0 : 1);
		sum += b->flops;
		left--;
		if (piece + 1 < 2 * n &&
		    (sum >= all * (double)(piece + 1) / (double)(2 * n) || left <= 2 * n - 1 - piece))
			piece++;
	}
	return s->h->status(p);
}

/* Orders the units. Every stage has the same order, so no two stages wait for each other. */
static int v_schedule(struct hd_strategy *s, struct hd_plan *p, int64_t micro_batches)
{
	static const struct {
		uint32_t kind;
		int64_t chunk;
	} order[] = { { HD_UNIT_F, 0 }, { HD_UNIT_F, 1 }, { HD_UNIT_B, 1 }, { HD_UNIT_B, 0 } };
	int64_t group = s->group && s->group < micro_batches ? s->group : micro_batches;

	for (int64_t r = 0; r < s->stages->n; r++)
		for (int64_t from = 0; from < micro_batches; from += group)
			for (int k = 0; k < 4; k++)
				for (int64_t m = from; m < from + group && m < micro_batches; m++)
					hd_unit(s->h, p, s->stages, r, order[k].kind, order[k].chunk, m);
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]),
	.open = v_open,
	.mesh = v_mesh,
	.rules = v_rules,
	.schedule = v_schedule,
};
HD_PLUGIN("v_schedule", "1.0", &ops)
