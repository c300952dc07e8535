/* SPDX-License-Identifier: Apache-2.0
 * Reads values of tensors from the ranks of a layout in one process, and assembles complete tensors from their parts.
 */
#include <config.h>
#include "engine/inprocess/inprocess.h"
#include "engine/base/half.h"
#include "engine/run/job.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

double *hd_inprocess_address(const struct hd_inprocess *r, const struct tensor *t, int rank)
{
	return hd_tensor_here(r->program[rank], t) ? hd_program_address(r->program[rank], t, 0) : NULL;
}

static double number_of(const struct tensor *t, const void *x, int64_t i)
{
	switch (t->v.dtype) {
	case HD_DTYPE_F32: return (double)((const float *)x)[i];
	case HD_DTYPE_BF16: return (double)hd_of_bf16(((const uint16_t *)x)[i]);
	default: return ((const double *)x)[i];
	}
}

double hd_inprocess_scalar(const struct hd_inprocess *r, const struct tensor *t, int rank)
{
	const void *x = t ? hd_inprocess_address(r, t, rank) : NULL;

	return x ? number_of(t, x, 0) : NAN;
}

struct tensor *hd_inprocess_param(const struct hd_inprocess *r, const char *name)
{
	for (size_t i = 0; i < r->plan->ntensors; i++) {
		struct tensor *t = r->plan->tensors[i];

		if (!t->v.node && t->v.what == HD_TENSOR_PARAM && !strcmp(t->v.name, name))
			return t;
	}
	return NULL;
}

struct tensor *hd_inprocess_gradient(const struct hd_inprocess *r, const struct tensor *param)
{
	for (struct node *n = r->plan->first; n; n = n->next)
		if (n->is->role == OP_ROLE_UPDATE && n->v.nin > 1 && n->ins[1]->v.of == &param->v)
			return n->ins[1];
	for (struct node *n = r->plan->first; n; n = n->next) /* a plugin's optimizer has no single update node */
		if (n->is->role == OP_ROLE_SYNC && n->outs[0]->v.of == &param->v)
			return n->outs[0];
	return NULL;
}

/* -- a complete tensor ------------------------------------------------------------------------------------ */
enum { SUM, MAX, COPY };
struct assembly {
	double *values, spread; /* spread: the largest difference between two copies of an element */
	const struct tensor *of;
	const void *part;
	char *written; /* by element: 1 if it has been written */
	int how;
};

static void add_run(void *ctx, int64_t global, int64_t local, int64_t count)
{
	struct assembly *u = ctx;

	for (int64_t i = 0; i < count; i++) {
		double x = number_of(u->of, u->part, local + i), *w = &u->values[global + i];

		if (u->how == COPY) {
			double off = fabs(x - *w);

			u->spread = !(off <= u->spread) && u->written[global + i] ? off : u->spread;
		} else if (!u->written[global + i]) {
			*w = x;
		} else if (u->how == SUM) {
			*w += x;
		} else {
			*w = fmax(x, *w);
		}
		u->written[global + i] = 1;
	}
}

static int reduction(const struct hd_plan *p, const struct tensor *t, int *partial)
{
	int how = SUM;

	*partial = 0;
	for (int a = 0; a < p->naxes; a++)
		if (t->at.on[a].kind == HD_PLACE_PARTIAL) {
			*partial = 1;
			how = t->at.on[a].red == HD_RED_MAX ? MAX : SUM;
		}
	return how;
}

static const void *part_of(const struct hd_inprocess *r, const struct tensor *t, int rank, const int64_t *micro)
{
	const struct hd_seen *s = micro ? hd_inprocess_seen(r, t, rank, *micro) : NULL;

	if (micro)
		return s && s->value ? s->value : NULL;
	return hd_inprocess_address(r, t, rank);
}

double *hd_inprocess_assemble(const struct hd_inprocess *r, const struct tensor *t, const int64_t *micro,
			      double *spread)
{
	int64_t n = hd_global_count(t);
	struct assembly u = { .values = hd_alloc((size_t)n * sizeof(double) + 1),
			      .of = t,
			      .written = hd_alloc((size_t)n + 1) };
	int partial, how = reduction(r->plan, t, &partial), all = 1;

	for (int copies = 0; copies < (partial ? 1 : 2); copies++)
		for (int k = 0; k < r->n; k++) {
			u.part = part_of(r, t, k, micro);
			u.how = copies ? COPY : how;
			if (u.part && hd_is_representative(r->plan, k, &t->at, ~0u, 1) != copies)
				hd_slice_runs(r->program[k], t, add_run, &u);
		}
	for (int64_t i = 0; i < n; i++)
		all &= u.written[i];
	if (spread)
		*spread = u.spread;
	free(u.written);
	if (!all) {
		free(u.values);
		return NULL;
	}
	return u.values;
}
