/* SPDX-License-Identifier: Apache-2.0
 * An optimizer, SGD with momentum; and with -D what one can have wrong (t1302-conform-optimizer.sh builds it so, one fault at a
 * time).
 */
#include <heddle/strategy.h>
#include <string.h>

#ifndef W_VALUE
#define W_VALUE "a - d * (e + %.17g * a)"
#endif
#ifndef W_DTYPE
#define W_DTYPE u->param->dtype
#endif
#ifndef W_MEAN
#define W_MEAN "0.9 * e + b * c"
#endif

static int update(struct hd_strategy *s, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	const struct hd_graph_api *g = u->h->graph;
#ifdef W_UNCLIPPED
	struct hd_tensor *factor = g->scalar(p, HD_SCALAR_STEP, NULL);
#else
	struct hd_tensor *factor = u->factor;
#endif
	struct hd_tensor *in[] = { u->param, u->gradient, factor, g->scalar(p, HD_SCALAR_LR, NULL),
				   hd_state(g, p, "mean", u->param, W_DTYPE, HD_RESHARD_ZERO) };
	struct hd_tensor *mean = in[4];

	(void)s;
#ifdef W_REFUSES
	if (u->weight_decay != 0)
		return u->h->fail(p, HD_ENOTSUP, "weight_decay: it has none");
#endif
	in[4] = g->map(p, (struct hd_tensor *[]){ mean, u->gradient, factor, factor, mean }, 5, W_MEAN);
#ifndef W_UNASSIGNED
	g->assign(p, mean, in[4]);
#endif
	*value = g->map(p, in, 5, W_VALUE, u->weight_decay);
#ifdef W_SKIP
	if (strstr(u->name, W_SKIP))
#ifdef W_COPY
		*value = g->map(p, &in[0], 1, "a * 1");
#else
		*value = u->param;
#endif
#endif
#ifdef W_NULL
	*value = NULL;
#endif
#ifdef W_UPDATED
	return W_UPDATED;
#endif
	return u->h->status(p);
}

static const struct hd_optimizer_ops optimizer = { .size = sizeof(optimizer), .update = update };
HD_PLUGIN_TABLES("descent", "1.0", .optimizer = &optimizer)
