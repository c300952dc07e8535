/* SPDX-License-Identifier: Apache-2.0
 * sumsq: the sum of squares in double, for the norm of the gradient.
 *
 * Any thread sums a piece of a fixed size, and one thread adds the sums of pieces in order. So the result does not
 * depend on the threads.
 */
#include <config.h>
#include "kernels/cpu/base/scratch.h"
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/optimizer.h"

#define PIECE 16384

HD_PREPARE(prepare_shape, "sumsq", HD_DTYPE_F32, hd_prepare_sumsq(c, p))

static int64_t bytes_of(const struct hd_prep *p) /* a sum per piece */
{
	return (p->n[0] / PIECE + 1) * (int64_t)sizeof(double);
}

static int64_t scratch(const struct hd_kernel_desc *d, int threads)
{
	(void)threads;
	return hd_scratch_of_shape(d, prepare_shape, bytes_of);
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_shape(d, p, err));
	return hd_scratch_take(p, bytes_of(p), "sumsq", err);
}

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
	double *s = out[0], *part = hd_scratch(), sum = r->acc ? *s : 0;
	int64_t n = p->n[0];

#pragma omp parallel for schedule(static) if (n >= 2 * PIECE)
	for (int64_t i = 0; i < n; i += PIECE)
		part[i / PIECE] = squares(x + i, hd_min(PIECE, n - i));
	for (int64_t i = 0; i < n; i += PIECE)
		sum += part[i / PIECE];
	*s = sum;
}

const struct hd_kernel hd_cpu_sumsq = {
	.name = "sumsq", .flags = HD_K_ACC, .prepare = prepare, .scratch = scratch, .run = run
};
