/* SPDX-License-Identifier: Apache-2.0
 * Ulysses (Jacobs et al. 2309.14509): attention over heads, everything else over the sequence.  All that a strategy of
 * rules has to say, where slots open and mesh are left out.
 */
#include <heddle/strategy.h>

static int rules(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_basic *b = hd_basic_of(self);

	hd_rule(b->h, p, "heads", b->axis, "attention", 0);
	hd_rule(b->h, p, "kv_heads", b->axis, "attention", 0);
	return hd_rule(b->h, p, "seq", b->axis, NULL, 0);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rules = rules };
HD_PLUGIN("ulysses", "1.0", &ops)
