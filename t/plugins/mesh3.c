/* SPDX-License-Identifier: Apache-2.0
 * A strategy for tests: three axes from rules alone - batch cut by a; vocab, heads, mlp by b; blocks dealt to c - and a
 * plain order of units.  No ops, no lowerings, nothing but the installed headers: everything else is the engine's rule.
 */
#include <heddle/strategy.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_axis *a, *b, *c;
	int64_t sequence;
};

static const struct hd_option options[] = {
	{ "a", HD_OPT_INT, 0, "2", "1..", "ranks that cut the batch" },
	{ "b", HD_OPT_INT, 0, "2", "1..", "ranks that cut vocab, heads and mlp" },
	{ "c", HD_OPT_INT, 0, "2", "1..", "stages" },
	{ "sequence", HD_OPT_BOOL, 0, "no", NULL, "b also cuts seq where nothing else uses it" },
};

static int mesh3_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->sequence = h->opt_int(p, "sequence");
	*self = s;
	return HD_OK;
}

static int mesh3_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	(void)size;
	(void)left;
	s->b = hd_axis_new(s->h, p, "b", s->h->opt_int(p, "b"));
	s->a = hd_axis_new(s->h, p, "a", s->h->opt_int(p, "a"));
	s->c = hd_axis_new(s->h, p, "c", s->h->opt_int(p, "c"));
	return s->h->status(p);
}

static int mesh3_rules(struct hd_strategy *s, struct hd_plan *p)
{
	static const char *const cut[] = { "vocab", "heads", "kv_heads", "mlp" };

	hd_rule(s->h, p, "batch", s->a, NULL, 0);
	for (int i = 0; i < 4; i++)
		hd_rule(s->h, p, cut[i], s->b, NULL, i ? 0 : HD_RULE_PAD);
	if (s->sequence)
		hd_rule(s->h, p, "seq", s->b, NULL, 0);
	hd_rule(s->h, p, "layer", s->c, NULL, 0);
	return s->h->status(p);
}

static int mesh3_schedule(struct hd_strategy *s, struct hd_plan *p, int64_t m)
{
	for (int64_t c = 0; c < s->c->n; c++) {
		for (int64_t i = 0; i < m; i++)
			hd_unit(s->h, p, s->c, c, HD_UNIT_F, 0, i);
		for (int64_t i = 0; i < m; i++)
			hd_unit(s->h, p, s->c, c, HD_UNIT_B, 0, i);
	}
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = 4,
	.option_size = sizeof(options[0]),
	.open = mesh3_open,
	.mesh = mesh3_mesh,
	.rules = mesh3_rules,
	.schedule = mesh3_schedule,
};
HD_PLUGIN("mesh3", "0.1", &ops)
