/* SPDX-License-Identifier: Apache-2.0
 * A strategy for tests that is nothing but what its INI says:
 *
 *	axes = b:4 a:2				the mesh, innermost first
 *	rules = batch>a vocab>b+ heads>b@attention seq>b	in order; + may be padded, @ in nodes of this kind only
 *	home = a				parameters are also cut along this axis
 *	states = a				states of the optimizer are
 *	order = each|all|split			of units: one forward, one backward; or all forwards first; or that, and
 *						weight gradients apart, last
 */
#include <heddle/strategy.h>
#include <stdlib.h>
#include <string.h>

#define AXES 6

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_axis *axis[AXES], *stages;
	char name[AXES][16];
	int naxes;
	const char *axes, *rules, *home, *states, *order;
};

static const struct hd_option options[] = {
	{ "axes", HD_OPT_STR, 0, "a:1", NULL, "name:size, innermost first" },
	{ "rules", HD_OPT_STR, 0, "", NULL, "dim>axis, dim>axis+ (padded), dim>axis@kind, in order" },
	{ "home", HD_OPT_STR, 0, "", NULL, "axis along which parameters are cut too" },
	{ "states", HD_OPT_STR, 0, "", NULL, "axis along which states are cut too" },
	{ "order", HD_OPT_CHOICE, 0, "each", "each|all|split", "of units" },
};

/* The next word of *s up to any of `ends`; both move on. */
static int word(const char **s, char *to, size_t size, const char *ends)
{
	size_t n;

	*s += strspn(*s, " ");
	n = strcspn(*s, ends);
	if (!n || n >= size)
		return 0;
	memcpy(to, *s, n);
	to[n] = 0;
	*s += n;
	return 1;
}

static int rules_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->axes = h->opt_str(p, "axes");
	s->rules = h->opt_str(p, "rules");
	s->home = h->opt_str(p, "home");
	s->states = h->opt_str(p, "states");
	s->order = h->opt_str(p, "order");
	*self = s;
	return HD_OK;
}

static int rules_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	const char *at = s->axes;

	(void)size;
	(void)left;
	while (s->naxes < AXES && word(&at, s->name[s->naxes], sizeof(s->name[0]), ": ")) {
		if (*at++ != ':')
			return s->h->fail(p, HD_EINVAL, "axes: %s has no size", s->name[s->naxes]);
		s->axis[s->naxes] = hd_axis_new(s->h, p, s->name[s->naxes], strtol(at, NULL, 10));
		s->naxes++;
		at += strcspn(at, " ");
	}
	return s->h->status(p);
}

static const struct hd_axis *named(const struct hd_strategy *s, const char *name)
{
	for (int i = 0; i < s->naxes; i++)
		if (!strcmp(s->name[i], name))
			return s->axis[i];
	return NULL;
}

static int rules_rules(struct hd_strategy *s, struct hd_plan *p)
{
	const char *at = s->rules;
	char dim[32], axis[16], kind[32];

	while (word(&at, dim, sizeof(dim), "> ") && *at++ == '>' && word(&at, axis, sizeof(axis), "+!@ ")) {
		uint32_t flags = *at == '+' ? HD_RULE_PAD : *at == '!' ? HD_RULE_INNERMOST : 0;
		int limited;

		at += *at == '+' || *at == '!';
		limited = *at == '@' && (at++, word(&at, kind, sizeof(kind), " "));
		if (!named(s, axis))
			return s->h->fail(p, HD_EINVAL, "rules: there is no axis %s", axis);
		if (!strcmp(dim, "layer"))
			s->stages = named(s, axis);
		hd_rule(s->h, p, dim, named(s, axis), limited ? kind : NULL, flags);
	}
	return s->h->status(p);
}

/* The first dim that nothing else cuts and that divides. */
static void cut_more(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *t, const struct hd_axis *axis)
{
	const struct hd_graph_api *g = s->h->graph;

	if (g->place(p, t, axis)->kind != HD_PLACE_REPLICATED)
		return;
	for (uint32_t d = 0; d < t->ndim; d++) {
		struct hd_place cut = { .kind = HD_PLACE_SHARD, .dim = t->dims[d] };
		int taken = 0;

		for (int i = 0; i < s->naxes; i++)
			taken |= g->place(p, t, s->axis[i])->kind == HD_PLACE_SHARD &&
				 g->place(p, t, s->axis[i])->dim == t->dims[d];
		if (taken || t->local[d] % axis->n)
			continue;
		hd_storage(g, p, t, axis, &cut);
		return;
	}
}

static int rules_storage(struct hd_strategy *s, struct hd_plan *p)
{
	if (*s->home)
		for (struct hd_tensor *t = NULL; (t = s->h->graph->leaf_next(p, t, HD_TENSOR_PARAM));)
			cut_more(s, p, t, named(s, s->home));
	if (*s->states)
		for (struct hd_tensor *t = NULL; (t = s->h->graph->leaf_next(p, t, HD_TENSOR_STATE));)
			cut_more(s, p, t, named(s, s->states));
	return s->h->status(p);
}

static int rules_schedule(struct hd_strategy *s, struct hd_plan *p, int64_t m)
{
	static const uint32_t kinds[] = { HD_UNIT_F, HD_UNIT_B, HD_UNIT_W };
	int n = !strcmp(s->order, "each") ? 0 : !strcmp(s->order, "all") ? 2 : 3;

	for (int64_t c = 0; s->stages && c < s->stages->n; c++)
		for (int k = 0; k < n; k++)
			for (int64_t i = 0; i < m; i++)
				hd_unit(s->h, p, s->stages, c, kinds[k], 0, i);
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = 5,
	.option_size = sizeof(options[0]),
	.open = rules_open,
	.mesh = rules_mesh,
	.rules = rules_rules,
	.storage = rules_storage,
	.schedule = rules_schedule,
};
HD_PLUGIN("rules", "0.1", &ops)
