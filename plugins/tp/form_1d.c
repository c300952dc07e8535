/* SPDX-License-Identifier: Apache-2.0
 * Tensor parallelism as in Megatron-LM (1909.08053), with sequence parallelism (2205.05198), by rules alone. They imply
 * the column and row forms of the products, and the all-reduces of forward and backward. They also imply the loss over
 * sharded logits, and the sums of layer norm gradients under sequence parallelism. All of this follows from the
 * engine's one rule.
 *
 * With grouped-query attention, the number of ranks may not divide the key heads. The axis then consists of two. Both
 * shard the query heads. The outer one shards the key heads, if they can be sharded at all. All members of the inner
 * one have the same key heads, so the gradients of k and v are partial sums along it.
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

/* Claims the axis or axes. Divisibility is checked for all ranks together. With two axes, a refusal of one alone would
 * name only part of the number. */
static int mesh(struct hd_strategy *s, struct hd_plan *p, int64_t n)
{
	const struct hd_dim *kv = s->h->dim(p, "kv_heads");
	const struct hd_dim *seq = s->h->dim(p, "seq");
	int64_t outer = kv ? common_divisor(n, kv->n) : n;

	if (seq && seq->n < n) /* a program that generates single tokens has no sequence to shard */
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

/* Shards tokens along the axis where no other rule uses it. If possible it shards the micro-batch: complete sequences
 * are adjacent in memory, so they are gathered and scattered without a copy. It shards each sequence if the number of
 * sequences does not divide. So it does with two axes, since one call then gathers over both, and with experts, which
 * count their rows per sequence. */
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
