/* SPDX-License-Identifier: Apache-2.0
 * t/lib/kernel_props.h - properties of kernels beyond agreement with the reference.
 *
 * kt_gradient: dx, computed by a backward kernel in double, agrees with finite differences of the forward.
 * kt_threads: the bits of the cpu kernel's outputs do not depend on the number of threads; another device's are the
 * same in each run.
 */
#ifndef HD_T_LIB_KERNEL_PROPS_H
#define HD_T_LIB_KERNEL_PROPS_H
#include <omp.h>
#include "t/lib/kernel_test.h"
#include "t/lib/tap.h"

static TAP_UNUSED double *kt_ref(const struct kt_buf *b)
{
	return b->mem[KT_REF];
}

/* Returns the loss sum(y * dy) of the forward kernel, in double. */
static TAP_UNUSED double kt_loss(struct kt *forward, const struct kt_buf *y, const struct kt_buf *dy)
{
	double loss = 0;

	if (kt_run(forward, KT_REF) < 0)
		return NAN;
	for (int64_t i = 0; i < y->count; i++)
		loss += kt_ref(y)[i] * kt_ref(dy)[i];
	return loss;
}

/* Central differences are off by h^2/6 of the third derivative, and by the rounding of the loss over h.  With h = 1e-4
 * and values around 1, both stay under 1e-7 of the largest element; 1e-6 also leaves room for third derivatives of
 * 100. */
static TAP_UNUSED int kt_gradient(struct kt *forward, struct kt_buf *x, const struct kt_buf *y, const struct kt_buf *dy,
				  const struct kt_buf *dx, const char *name)
{
	double h = 1e-4, worst = 0, largest = 1e-3, *v = kt_ref(x);

	for (int64_t i = 0; i < x->count; i++) {
		double keep = v[i], up, down;

		v[i] = keep + h;
		up = kt_loss(forward, y, dy);
		v[i] = keep - h;
		down = kt_loss(forward, y, dy);
		v[i] = keep;
		worst = fmax(worst, fabs((up - down) / (2 * h) - kt_ref(dx)[i]));
		worst = up == up && down == down ? worst : INFINITY;
		largest = fmax(largest, fabs(kt_ref(dx)[i]));
	}
	return near(worst / largest, 0, 1e-6, name);
}

/* Copies the values of one operand to another. */
static TAP_UNUSED void kt_share(const struct kt_buf *to, const struct kt_buf *from)
{
	memcpy(to->mem[KT_REF], from->mem[KT_REF], from->bytes[KT_REF]);
	memcpy(to->mem[KT_CPU], from->mem[KT_CPU], from->bytes[KT_CPU]);
}

#ifdef KT_CUDA
#define KT_DEVICE "cuda" /* its name in messages */
#define KT_TEAMS 2       /* two runs, since the host's threads do not matter */
#define KT_SAME "in each run"
#else
#define KT_DEVICE "cpu"
#define KT_TEAMS 3
#define KT_SAME "on 1, 2 and 3 threads"
#endif

/* Not for kernels that work in place.  Outputs begin with their present values, for acc. */
static TAP_UNUSED int kt_threads(struct kt *t, const char *name)
{
	void *begin[HD_MAX_OUTS], *one[HD_MAX_OUTS];
	int threads = omp_get_max_threads(), same = 1;

	for (int k = 0; k < t->nout; k++) {
		begin[k] = malloc(t->out[k]->bytes[0] + 1);
		one[k] = malloc(t->out[k]->bytes[0] + 1);
		memcpy(begin[k], t->out[k]->mem[0], t->out[k]->bytes[0]);
	}
	for (int n = 1; n <= KT_TEAMS; n++) {
		omp_set_num_threads(n);
		for (int k = 0; k < t->nout; k++)
			memcpy(t->out[k]->mem[0], begin[k], t->out[k]->bytes[0]);
		same &= kt_run(t, KT_CPU) == 0;
		for (int k = 0; k < t->nout; k++) {
			if (n == 1)
				memcpy(one[k], t->out[k]->mem[0], t->out[k]->bytes[0]);
			same &= !memcmp(one[k], t->out[k]->mem[0], t->out[k]->bytes[0]);
		}
	}
	omp_set_num_threads(threads);
	for (int k = 0; k < t->nout; k++) {
		free(begin[k]);
		free(one[k]);
	}
	return ok(same, "%s: the same bits " KT_SAME, name);
}

/* Checks that prepare of the device's kernel fails with this text. */
static TAP_UNUSED int kt_refused(struct kt *t, const char *text)
{
	int rc = kt_prepare(t, KT_CPU);

	return is_str(rc < 0 ? t->err.text : "accepted", text,
		      "prepare refuses, with a message that names the operand");
}

#endif
