/* SPDX-License-Identifier: Apache-2.0
 * DeepSpeed-Ulysses (2309.14509): in attention a member has its share of the heads and the complete sequence. Elsewhere
 * it has all heads and its share of the sequence. Rules are enough. The all-to-alls before and after attention, the
 * positions of the tokens and the sums of the gradients follow from them. Every member has the same share of a causal
 * attention, since it has the complete sequence.
 *
 * If the number of members does not divide the key heads (grouped-query attention with few of them), all members have
 * all key heads in attention.
 */
#include "cp.h"

static int rules(struct hd_strategy *s, struct hd_plan *p)
{
	hd_rule(s->h, p, "heads", s->axis, "attention", 0);
	hd_rule(s->h, p, "kv_heads", s->axis, "attention", HD_RULE_IF_DIVIDES);
	hd_rule(s->h, p, "seq", s->axis, NULL, 0);
	return s->h->status(p);
}

const struct cp_form cp_ulysses = { .name = "ulysses", .rules = rules };
