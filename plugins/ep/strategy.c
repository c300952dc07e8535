/* SPDX-License-Identifier: Apache-2.0
 * Expert parallelism (GShard, 2006.16668), by rules alone. Along the axis, experts are distributed, and the batch is
 * sharded everywhere else. So tokens reach their experts and return by two all-to-alls in forward and two in backward.
 * A gradient is summed over the ranks that hold the same expert. All of this follows from the engine's one rule.
 */
#include <heddle/strategy.h>

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_axis *axis;
};

static int ep_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	*self = s;
	return HD_OK;
}

static int ep_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	const struct hd_dim *experts = s->h->dim(p, "expert");
	int64_t n = size ? size : left;

	if (!experts)
		return s->h->fail(p, HD_EINVAL, "the model has no experts to place (model.experts = 0)");
	if (experts->n % n)
		return s->h->fail(p, HD_EDIVIDE, "size: %lld does not divide model.experts = %lld", (long long)n,
				  (long long)experts->n);
	s->axis = hd_axis_new(s->h, p, NULL, n);
	return s->h->status(p);
}

static int ep_rules(struct hd_strategy *s, struct hd_plan *p)
{
	hd_rule(s->h, p, "expert", s->axis, NULL, 0);
	hd_rule(s->h, p, "batch", s->axis, NULL, HD_RULE_INNERMOST); /* the all-to-alls move along this axis */
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops),
					    .option_size = sizeof(struct hd_option),
					    .open = ep_open,
					    .mesh = ep_mesh,
					    .rules = ep_rules };
HD_PLUGIN("ep", "0.1", &ops)
