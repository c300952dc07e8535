/* SPDX-License-Identifier: Apache-2.0
 * Pipeline stages in the order of GPipe; and with -D orders that are wrong in some layouts (t1300-conform.sh builds it so).
 */
#include <heddle/strategy.h>

static int rules(struct hd_strategy *s, struct hd_plan *p)
{
	return hd_rule(hd_basic_of(s)->h, p, "layer", hd_basic_of(s)->axis, NULL, 0);
}

static int schedule(struct hd_strategy *s, struct hd_plan *p, int64_t micro_batches)
{
	const struct hd_basic *b = hd_basic_of(s);

	for (int64_t stage = 0; stage < b->axis->n; stage++) {
		int64_t n = micro_batches, backwards = 0;

#ifdef W_DROP
		n = n > 3 ? n - 1 : n;
#endif
#ifdef W_DEADLOCK
		backwards = b->axis->n == 3 && stage == 1;
#endif
		for (int64_t m = 0; m < n; m++)
			hd_unit(b->h, p, b->axis, stage, HD_UNIT_F, 0, m);
		for (int64_t m = 0; m < n; m++)
			hd_unit(b->h, p, b->axis, stage, HD_UNIT_B, 0, backwards ? n - 1 - m : m);
	}
	return b->h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rules = rules, .schedule = schedule };
HD_PLUGIN("stages", "1.0", &ops)
