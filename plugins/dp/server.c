/* SPDX-License-Identifier: Apache-2.0
 * The synchronous parameter server (Li et al. 2014), on the workers: each owns a piece of every parameter, with its optimizer
 * state.  A worker sends each owner its piece of the gradient; the owner adds in the order of the workers, whatever came
 * first, updates, and all pull the new piece.  The bytes are those of a ring.
 */
#include "dp.h"

#define MOST 8 /* terms of one addition */

/* Terms are added from the left: ((a + b) + c) + ... */
static struct hd_tensor *in_order(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *const *x, int32_t n)
{
	static const char *const sums[] = { "a",
					    "a",
					    "a + b",
					    "a + b + c",
					    "a + b + c + d",
					    "a + b + c + d + e",
					    "a + b + c + d + e + f",
					    "a + b + c + d + e + f + g",
					    "a + b + c + d + e + f + g + h" };
	struct hd_tensor *term[MOST] = { x[0] };

	for (int32_t i = 1, k = 1; i < n; i++) {
		term[k++] = x[i];
		if (k == MOST || i + 1 == n) {
			term[0] = s->g->map(p, term, (uint32_t)k, sums[k]);
			k = 1;
		}
	}
	return term[0];
}

struct hd_tensor *dp_push(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct hd_tensor *flat)
{
	int32_t n = (int32_t)g->n;
	struct hd_tensor **x = s->h->alloc(p, 2 * (size_t)n * sizeof(*x)), **from = x + n;
	const struct hd_dim *dim = flat ? flat->dims[0] : NULL;

	if (!x || !flat)
		return NULL;
	for (int32_t i = 0; i < n; i++) { /* to me + i goes its piece; mine of me - i comes */
		x[i] = s->g->chunk(p, flat, dim, n, &(struct hd_pos){ .group = g, .mul = 1, .add = i });
		if (i)
			x[i] = dp_comm(s, p, HD_COMM_SHIFT, g, x[i], i);
	}
	for (int32_t j = 0; j < n; j++) /* of member j */
		from[j] = s->g->pick(p, x, (uint32_t)n, &(struct hd_pos){ .group = g, .mul = 1, .add = -j });
	return in_order(s, p, from, n);
}
