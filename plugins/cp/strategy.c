/* SPDX-License-Identifier: Apache-2.0
 * Context parallelism: every layer has a share of each sequence, so that the memory of a rank does not grow with the
 * sequence length. Only attention reads other tokens; the forms differ in how it gets them.
 *
 *   ulysses.c   attention has the complete sequence, and a share of the heads
 *   ring.c      keys and values go round; shares.c: which member computes which part
 */
#include "cp.h"
#include <string.h>

static const struct hd_option options[] = {
	{ "form", HD_OPT_CHOICE, 0, "ulysses", "ulysses|ring",
	  "ulysses: each member computes attention for a share of the heads, after all-to-alls; ring: keys and "
	  "values circulate" },
	{ "balance", HD_OPT_CHOICE, 0, "zigzag", "zigzag|none",
	  "ring: which tokens a member gets. zigzag: a piece of each half of the sequence, so that the work is equal. none: "
	  "adjacent ones" },
};

static int cp_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	static const struct cp_form *const forms[] = { &cp_ulysses, &cp_ring };
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (!strcmp(h->opt_str(p, "form"), forms[i]->name))
			s->form = forms[i];
	s->zigzag = !strcmp(h->opt_str(p, "balance"), "zigzag");
	*self = s;
	return HD_OK;
}

static int cp_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->axis = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}

/* One member has the complete sequences, so the model stays as it is in any form. */
static int is_alone(const struct hd_strategy *s)
{
	return s->axis->n == 1;
}

static int cp_rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	return s->form->rewrite && !is_alone(s) ? s->form->rewrite(s, p) : HD_OK;
}

/* zigzag is the default, so the user has set none. */
static void warn_of_balance(struct hd_strategy *s, struct hd_plan *p)
{
	if (!s->zigzag && s->form == &cp_ulysses && s->g->leaf_next(p, NULL, HD_TENSOR_GRAD))
		s->h->log(p, HD_LOG_WARN, __FILE__, __LINE__,
			  "balance = none does nothing with form = ulysses: the work is equal in any order");
}

static int cp_lower(struct hd_strategy *s, struct hd_plan *p)
{
	warn_of_balance(s, p);
	return s->form->lower && !is_alone(s) ? s->form->lower(s, p) : HD_OK;
}

static int cp_rules(struct hd_strategy *s, struct hd_plan *p)
{
	return is_alone(s) ? HD_OK : s->form->rules(s, p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]),
	.open = cp_open,
	.mesh = cp_mesh,
	.rewrite = cp_rewrite,
	.rules = cp_rules,
	.lower = cp_lower,
};
HD_PLUGIN("cp", "0.1", &ops)
