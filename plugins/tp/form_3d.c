/* SPDX-License-Identifier: Apache-2.0
 * Tensor parallelism on q x q x q ranks (Bian et al. 2105.14450): rules, and storage for weights.
 *
 *   axis     residual stream X    inside a layer Y = X W     weight that X is multiplied by
 *   weight   batch                batch                      embed, inside output
 *   input    batch                heads, mlp, vocab          heads, mlp, vocab
 *   output   embed                batch                      embed
 *
 * X is gathered over input and W over weight. The product is a partial sum over output, and is scattered there along
 * the batch. The next product, of Y and a weight from mlp to embed, does the same with input and output exchanged. So
 * two of them bring the residual stream back to its original placement. Gradients of weights are partial sums over
 * weight, reduced once per step.
 */
#include "tp.h"

enum { INPUT, OUTPUT, WEIGHT };

static int mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size)
{
	int64_t q = 0;

	while ((q + 1) * (q + 1) * (q + 1) <= size)
		q++;
	if (q * q * q != size)
		return s->h->fail(p, HD_EDIVIDE, "size: %lld ranks are not a cube; the nearest cubes are %lld and %lld",
				  (long long)size, (long long)(q * q * q), (long long)((q + 1) * (q + 1) * (q + 1)));
	if (tp_divides_all(s, p, q, "q = ") < 0)
		return s->h->status(p);
	s->axis[INPUT] = hd_axis_new(s->h, p, "input", q);
	s->axis[OUTPUT] = hd_axis_new(s->h, p, "output", q);
	s->axis[WEIGHT] = hd_axis_new(s->h, p, "weight", q);
	return s->h->status(p);
}

static int rules(struct hd_strategy *s, struct hd_plan *p)
{
	static const char *const inner[] = { "heads", "kv_heads", "mlp" };
	/* Kinds of nodes in the loss, whose rows output already shards. The rows of a router's choice are sharded by
	 * input (route). */
	static const char *const whole_on_input[] = { "sum", "fill" };

	hd_rule(s->h, p, "vocab", s->axis[INPUT], NULL, HD_RULE_PAD);
	for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++)
		hd_rule(s->h, p, inner[i], s->axis[INPUT], NULL, 0);
	tp_rules_of_experts(s, p, s->axis[INPUT]);
	for (size_t i = 0; i < sizeof(whole_on_input) / sizeof(whole_on_input[0]); i++)
		hd_rule(s->h, p, "batch", s->axis[INPUT], whole_on_input[i], HD_RULE_KEEP_REPLICATED);
	hd_rule(s->h, p, "batch", s->axis[INPUT], NULL, HD_RULE_INSIDE);
	hd_rule(s->h, p, "embed", s->axis[OUTPUT], "norm", 0);
	hd_rule(s->h, p, "embed", s->axis[OUTPUT], NULL, 0);
	hd_rule(s->h, p, "batch", s->axis[OUTPUT], "route", HD_RULE_KEEP_REPLICATED);
	hd_rule(s->h, p, "batch", s->axis[OUTPUT], NULL, HD_RULE_INSIDE);
	hd_rule(s->h, p, "batch", s->axis[WEIGHT], NULL, HD_RULE_INSIDE);
	return s->h->status(p);
}

static int store_weights(struct hd_strategy *s, struct hd_plan *p)
{
	static const char *const kinds[] = { "einsum", "embedding", "position" };
	struct tp_leaves all;

	if (tp_leaves_find(s, p, &all) < 0)
		return s->h->status(p);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const struct hd_match readers = { .size = sizeof(readers), .kind = kinds[i], .phases = HD_UNIT_F };
		struct hd_node *n = NULL;

		while ((n = s->g->node_next(p, n, &readers)))
			if (n->nin > 1 && n->ins[1]->what == HD_TENSOR_PARAM && !n->ins[1]->node)
				tp_store_sharded(s, p, &all, n->ins[1], s->axis[WEIGHT]);
	}
	return s->h->status(p);
}

const struct tp_form tp_form_3d = { .name = "3d", .mesh = mesh, .rules = rules, .storage = store_weights };
