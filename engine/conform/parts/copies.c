/* SPDX-License-Identifier: Apache-2.0
 * Copies of one slice on several members. The plan says that they are equal, so they must be, bit for bit.
 *
 * If members add the same terms in a different order, their sums differ in the last bits. Nothing makes them equal
 * again, so their weights drift apart from step to step.
 */
#include <config.h>
#include "engine/conform/parts/parts.h"
#include "engine/run/job.h"
#include <stdlib.h>
#include <string.h>

struct copy_pair {
	const double *a, *b;
	int64_t at; /* the first element that differs; -1: none */
	double is, other;
};

static void compare_run(void *ctx, int64_t global, int64_t local, int64_t count)
{
	struct copy_pair *c = ctx;

	for (int64_t i = local; i < local + count && c->at < 0; i++)
		if (memcmp(&c->a[i], &c->b[i], sizeof(*c->a))) {
			c->at = global + i - local;
			c->is = c->a[i];
			c->other = c->b[i];
		}
}

/* Compares the slices of two ranks that hold the same part of t, and returns a message, or NULL. Elements are
 * doubles. */
static char *compare(const struct hd_inprocess *r, const struct tensor *t, int a, int b)
{
	struct copy_pair c = { hd_inprocess_address(r, t, a), hd_inprocess_address(r, t, b), -1, 0, 0 };

	if (!c.a || !c.b)
		return NULL;
	hd_slice_runs(r->program[a], t, compare_run, &c);
	return c.at < 0 ? NULL
			: hd_format("element %lld of %s is %.17g on rank %d and %.17g on rank %d after an update, but "
				    "both are copies of one value. Do the members add in different orders?",
				    (long long)c.at, t->v.name, c.is, a, c.other, b);
}

char *copies_differ(const struct hd_inprocess *r)
{
	char *found = NULL;

	for (size_t i = 0; i < r->plan->ntensors && !found; i++) {
		const struct tensor *t = r->plan->tensors[i];

		if (t->v.node || t->v.dtype != HD_DTYPE_F64 ||
		    (t->v.what != HD_TENSOR_PARAM && t->v.what != HD_TENSOR_STATE))
			continue;
		/* each rank is compared with the first one that has the same slice */
		for (int k = 1; k < r->n && !found; k++)
			for (int first = 0; first < k && !found; first++)
				if (hd_has_same_slice(r->plan, t, first, k)) {
					found = compare(r, t, first, k);
					break;
				}
	}
	return found;
}
