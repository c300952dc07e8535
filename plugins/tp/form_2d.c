/* SPDX-License-Identifier: Apache-2.0
 * Tensor parallelism on q x q ranks (Xu et al. 2104.05343) and on `depth` such grids (2.5D, Wang et al. 2105.14500).
 *
 * An activation is sharded in rows along batch and in columns along embed, heads, mlp or vocab. A weight is sharded in
 * rows along its input dim and in columns along its output dim. Nothing is replicated: the blocks that a product needs
 * are sent for each use (summa.c). Norms sum two numbers per token over the columns. An embedding shards the vocabulary
 * by rows, and the entries looked up are summed into the rows of the batch. Parameters that no product reads, and the
 * weights of experts, are stored in q x q pieces too.
 *
 * The grids of 2.5D have different rows of the batch and copies of the weights. The gradients of the weights are
 * partial sums over the grids.
 */
#include "summa.h"

static int64_t root(int64_t n)
{
	int64_t q = 0;

	while ((q + 1) * (q + 1) <= n)
		q++;
	return q;
}

static int grid(struct hd_strategy *s, struct hd_plan *p, int64_t q)
{
	if (tp_divides_all(s, p, q, "q = ") < 0)
		return s->h->status(p);
	s->axis[TP_COL] = hd_axis_new(s->h, p, "col", q);
	s->axis[TP_ROW] = hd_axis_new(s->h, p, "row", q);
	return s->h->status(p);
}

static int mesh_2d(struct hd_strategy *s, struct hd_plan *p, int64_t size)
{
	int64_t q = root(size);

	if (q * q != size)
		return s->h->fail(p, HD_EDIVIDE,
				  "size: %lld ranks are not a square; the nearest squares are %lld and %lld",
				  (long long)size, (long long)(q * q), (long long)((q + 1) * (q + 1)));
	return grid(s, p, q);
}

static int mesh_25d(struct hd_strategy *s, struct hd_plan *p, int64_t size)
{
	int64_t q = root(size / s->depth);

	if (q * q * s->depth != size)
		return s->h->fail(p, HD_EDIVIDE,
				  "size: %lld is not depth = %lld times a square; the nearest are %lld and %lld",
				  (long long)size, (long long)s->depth, (long long)(q * q * s->depth),
				  (long long)((q + 1) * (q + 1) * s->depth));
	if (grid(s, p, q) < 0)
		return s->h->status(p);
	s->axis[TP_DEPTH] = hd_axis_new(s->h, p, "depth", s->depth);
	return s->h->status(p);
}

static void rules_of_grid(struct hd_strategy *s, struct hd_plan *p)
{
	static const char *const columns[] = { "heads", "kv_heads", "mlp", "embed" };
	const struct hd_axis *row = s->axis[TP_ROW], *col = s->axis[TP_COL];

	hd_rule(s->h, p, "vocab", row, "embedding", HD_RULE_PAD);
	hd_rule(s->h, p, "batch", row, NULL, HD_RULE_INSIDE);
	hd_rule(s->h, p, "embed", col, "embedding", 0);
	hd_rule(s->h, p, "embed", col, "norm", 0);
	hd_rule(s->h, p, "vocab", col, NULL, HD_RULE_PAD);
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
		hd_rule(s->h, p, columns[i], col, NULL, 0);
	tp_rules_of_experts(s, p, col);
}

static int rules(struct hd_strategy *s, struct hd_plan *p)
{
	if (s->axis[TP_ROW]->n > 1)
		rules_of_grid(s, p);
	if (s->axis[TP_DEPTH])
		hd_rule(s->h, p, "batch", s->axis[TP_DEPTH], NULL, HD_RULE_INSIDE);
	return s->h->status(p);
}

static int store_weights(struct hd_strategy *s, struct hd_plan *p)
{
	struct hd_tensor *t = NULL;
	struct tp_leaves all;

	if (tp_leaves_find(s, p, &all) < 0)
		return s->h->status(p);
	while ((t = s->g->leaf_next(p, t, HD_TENSOR_PARAM)))
		tp_store_sharded(s, p, &all, t, s->axis[TP_ROW]);
	return s->h->status(p);
}

const struct tp_form tp_form_2d = { .name = "2d",
				    .mesh = mesh_2d,
				    .rewrite = tp_summa_rewrite,
				    .rules = rules,
				    .storage = store_weights,
				    .lower = tp_summa_lower };
const struct tp_form tp_form_25d = { .name = "2.5d",
				     .mesh = mesh_25d,
				     .rewrite = tp_summa_rewrite,
				     .rules = rules,
				     .storage = store_weights,
				     .lower = tp_summa_lower };
