/* SPDX-License-Identifier: Apache-2.0
 * Tensor parallelism as Megatron-LM does it (1909.08053), with sequence parallelism (2205.05198): rules and nothing else.
 * The products' column and row forms, the all-reduces of forward and backward, the loss over cut logits, sums of
 * layer norm gradients under sequence parallelism. All follow from the engine's one rule.
 *
 * Grouped-query attention whose key heads are not a multiple of the ranks: the axis is two.  Both cut the query heads; the
 * key heads are cut by the outer one, if they can be at all. Each member of the inner one has them, so that the
 * gradients of k and v are partial sums there.
 */
#include "tp.h"

static int64_t common_divisor(int64_t a, int64_t b)
{
	while (b) {
		int64_t r = a % b;

		a = b;
		b = r;
	}
	return a;
}

/* What divides is asked here of all ranks together: where there are two axes, each alone says less. */
static int mesh(struct hd_strategy *s, struct hd_plan *p, int64_t n)
{
	const struct hd_dim *kv = s->h->dim(p, "kv_heads");
	const struct hd_dim *seq = s->h->dim(p, "seq");
	int64_t outer = kv ? common_divisor(n, kv->n) : n;

	if (seq && seq->n < n) /* a program of single tokens, that generates: there is no sequence to shard */
		s->sequence = 0;
	if (tp_divides(s, p, n, "", "model", "heads") < 0 || tp_divides(s, p, n, "", "model", "mlp") < 0 ||
	    tp_divides(s, p, n, "", "model", "expert_mlp") < 0 ||
	    (s->sequence && tp_divides(s, p, n, "", "train", "seq") < 0))
		return s->h->status(p);
	s->same_kv = outer < n;
	if (outer == n || outer == 1) {
		s->axis[0] = hd_axis_new(s->h, p, NULL, n);
	} else {
		s->axis[0] = hd_axis_new(s->h, p, "same_kv", n / outer);
		s->axis[1] = hd_axis_new(s->h, p, "kv", outer);
	}
	return s->h->status(p);
}

/* Where no other rule uses the axis, it shards tokens.  Whole sequences of the micro-batch lie one behind the other, so
 * they are gathered and scattered without a copy.  Each sequence is sharded where their number does not divide; where there
 * are two axes, so that one call gathers over both; and where experts count their rows by sequence. */
static void rules_of_tokens(struct hd_strategy *s, struct hd_plan *p, const struct hd_axis *axis)
{
	if (!s->axis[1] && !s->h->dim(p, "expert"))
		hd_rule(s->h, p, "batch", axis, NULL, HD_RULE_INNERMOST | HD_RULE_INSIDE | HD_RULE_IF_DIVIDES);
	hd_rule(s->h, p, "seq", axis, NULL, HD_RULE_INNERMOST);
}

static int rules(struct hd_strategy *s, struct hd_plan *p)
{
	for (int i = 0; i < 2 && s->axis[i]; i++) {
		hd_rule(s->h, p, "vocab", s->axis[i], NULL, HD_RULE_PAD);
		hd_rule(s->h, p, "heads", s->axis[i], NULL, 0);
		hd_rule(s->h, p, "kv_heads", s->axis[i], NULL, !i && s->same_kv ? HD_RULE_KEEP_REPLICATED : 0);
		hd_rule(s->h, p, "mlp", s->axis[i], NULL, 0);
		tp_rules_of_experts(s, p, s->axis[i]);
		if (s->sequence)
			rules_of_tokens(s, p, s->axis[i]);
	}
	return s->h->status(p);
}

const struct tp_form tp_form_1d = { .name = "1d", .mesh = mesh, .rules = rules };
