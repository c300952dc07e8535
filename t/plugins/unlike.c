/* SPDX-License-Identifier: Apache-2.0
 * Two stages, the embedding and the rest.  B units go from the last micro-batch to the first, W units the other way, and the first
 * stage has weight gradients alone: it must not take what it receives in the order of its W units.
 */
#include <heddle/strategy.h>

static int rules(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_basic *b = hd_basic_of(self);
	const struct hd_block *k = NULL;

	for (int i = 0; (k = b->h->block_next(p, k)); i++)
		hd_stage(b->h, p, k, b->axis, i > 0, 0);
	return b->h->status(p);
}

static int schedule(struct hd_strategy *self, struct hd_plan *p, int64_t n)
{
	const struct hd_basic *b = hd_basic_of(self);

	for (int64_t c = 0; c < 2; c++) {
		for (int64_t m = 0; m < n; m++)
			hd_unit(b->h, p, b->axis, c, HD_UNIT_F, 0, m);
		for (int64_t m = n; m--;)
			hd_unit(b->h, p, b->axis, c, HD_UNIT_B, 0, m);
		for (int64_t m = 0; m < n; m++)
			hd_unit(b->h, p, b->axis, c, HD_UNIT_W, 0, m);
	}
	return b->h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rules = rules, .schedule = schedule };
HD_PLUGIN("unlike", "1.0", &ops)
