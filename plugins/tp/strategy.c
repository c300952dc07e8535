/* SPDX-License-Identifier: Apache-2.0
 * Tensor parallelism: the matrix products of a layer are sharded in one dimension (form_1d.c), two (form_2d.c) or three
 * (form_3d.c). form_2d.c also has 2.5D, with copies of the weights.
 */
#include <string.h>
#include "tp.h"

static const struct hd_option options[] = {
	{ "form", HD_OPT_CHOICE, 0, "1d", "1d|2d|2.5d|3d",
	  "1d: like Megatron-LM; 2d: SUMMA on q x q ranks; 2.5d: on q x q x depth; 3d: on q x q x q" },
	{ "depth", HD_OPT_INT, 0, "1", "1..", "2.5d: grids of q x q ranks, each with its own sequences of the batch" },
	{ "sequence_parallel", HD_OPT_BOOL, 0, "no", NULL,
	  "less memory: norms, dropout and the residual stream are sharded too, by tokens (1d)" },
};

static int tp_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	static const struct tp_form *const forms[] = { &tp_form_1d, &tp_form_2d, &tp_form_25d, &tp_form_3d };
	const char *form = h->opt_str(p, "form");
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->sequence = h->opt_int(p, "sequence_parallel");
	s->depth = h->opt_int(p, "depth");
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (!strcmp(form, forms[i]->name))
			s->form = forms[i];
	*self = s;
	if (s->sequence && s->form != &tp_form_1d)
		return h->fail(p, HD_EINVAL,
			       "sequence_parallel: form = %s shards the residual stream along embed, not along seq",
			       form);
	if (s->depth != 1 && s->form != &tp_form_25d)
		return h->fail(p, HD_EINVAL, "depth: %lld, but form = %s has none (2.5d has)", (long long)s->depth,
			       form);
	return HD_OK;
}

static int tp_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	return s->form->mesh(s, p, size ? size : left);
}

static int tp_rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	return s->form->rewrite ? s->form->rewrite(s, p) : HD_OK;
}

static int tp_rules(struct hd_strategy *s, struct hd_plan *p)
{
	return s->form->rules(s, p);
}
static int tp_storage(struct hd_strategy *s, struct hd_plan *p)
{
	return s->form->storage ? s->form->storage(s, p) : HD_OK;
}
static int tp_lower(struct hd_strategy *s, struct hd_plan *p)
{
	return s->form->lower ? s->form->lower(s, p) : HD_OK;
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]),
	.open = tp_open,
	.mesh = tp_mesh,
	.rewrite = tp_rewrite,
	.rules = tp_rules,
	.storage = tp_storage,
	.lower = tp_lower,
};
HD_PLUGIN("tp", "0.1", &ops)
