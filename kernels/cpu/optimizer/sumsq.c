/* SPDX-License-Identifier: Apache-2.0
 * sumsq: the sum of squares in double, for the norm of the gradient.
 *
 * Pieces of a fixed size are summed by any thread, their sums in order by one: the result does
 * not depend on the threads.
 */
#include <config.h>
#include <stdlib.h>
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/optimizer.h"

#define PIECE 16384

static int prepare_sumsq(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_prepare_sumsq(c, p));
	p->state = hd_alloc((size_t)(p->n[0] / PIECE + 1) * sizeof(double));
	p->release = free;
	return 0;
}
HD_PREPARE(prepare, "sumsq", HD_DTYPE_F32, prepare_sumsq(c, p))

HD_CLONES static double squares(const float *x, int64_t n)
{
	double sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < n; j++)
		sum += (double)x[j] * (double)x[j];
	return sum;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const float *x = in[0];
	double *s = out[0], *part = p->state, sum = r->acc ? *s : 0;
	int64_t n = p->n[0];

#pragma omp parallel for schedule(static) if (n >= 2 * PIECE)
	for (int64_t i = 0; i < n; i += PIECE)
		part[i / PIECE] = squares(x + i, hd_min(PIECE, n - i));
	for (int64_t i = 0; i < n; i += PIECE)
		sum += part[i / PIECE];
	*s = sum;
}

const struct hd_kernel hd_cpu_sumsq = { .name = "sumsq", .flags = HD_K_ACC, .prepare = prepare, .run = run };
