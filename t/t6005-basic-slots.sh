#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A strategy without slot open or mesh gets the host's table and one axis.  Otherwise every author's first strategy
# would begin with the same forty lines.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy cp]\nplugin = %s\nsize = auto\n' "$build/t/plugins/.libs/ulysses.so"
} >cp.ini
heddle check cp.ini --ranks 2 >out 2>&1
tap_result $? "a plugin with only rules is a strategy" || tap_comment <out
like "its axis has the section's name and all remaining ranks" "$(cat out)" '^2 ranks = cp 2'
like "attention is sharded differently from the rest" "$(heddle explain cp.ini --ranks 2)" 'cp +all-to-all'
fails "a size that does not divide is refused" heddle check cp.ini --ranks 3 --set cp.size=3
like "... with both numbers" "$(cat "$tmp/.ok")" "3 does not divide .* = 4|4.* 3"

cat >half.c <<'E2'
#include <heddle/strategy.h>
struct hd_strategy {
	const struct hd_host *h;
};
static int half_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	*self = h->alloc(p, sizeof(**self));
	(*self)->h = h;
	return HD_OK;
}
static int half_mesh(struct hd_strategy *self, struct hd_plan *p, int64_t size, int64_t left)
{
	const struct hd_basic *b = hd_basic_of(self);
	(void)size;
	if (b->axis)
		return b->h->fail(p, HD_EBUG, "an axis before slot mesh");
	hd_axis_new(b->h, p, "wide", left);
	return b->h->status(p);
}
static int half_rules(struct hd_strategy *self, struct hd_plan *p)
{
#ifdef OPEN
	const struct hd_host *h = self->h;
#else
	const struct hd_host *h = hd_basic_of(self)->h;
	if (hd_basic_of(self)->axis)
		return h->fail(p, HD_EBUG, "an axis that slot mesh did not claim");
#endif
	for (const struct hd_axis *a = h->axis_next(p, NULL); a; a = h->axis_next(p, a))
		if (a->mine)
			hd_rule(h, p, "batch", a, NULL, 0);
	return h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rules = half_rules,
#ifdef OPEN
	.open = half_open,
#else
	.mesh = half_mesh,
#endif
};
HD_PLUGIN("half", "1.0", &ops)
E2
half() {
	${CC:-cc} -std=gnu11 -w -fPIC -shared -fvisibility=hidden -I"$src/include" "$@" -o half.so half.c
	sed "s|^plugin = .*ulysses.*|plugin = ./half.so|" cp.ini >half.ini
	heddle check half.ini --ranks 2 2>&1
}
like "a plugin with open but without mesh gets one axis" "$(half -DOPEN)" '^2 ranks = cp 2'
like "a plugin with mesh but without open gets the axes of mesh" "$(half)" '^2 ranks = cp\.wide 2'
done_testing
