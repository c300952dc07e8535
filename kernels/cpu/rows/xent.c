/* SPDX-License-Identifier: Apache-2.0
 * xent, xent_combine, xent_d and xent_both: cross entropy over a slice of the vocabulary; the equations are in the
 * reference.
 *
 * A row is read from memory once. While it is in L2, first its maximum is found, and then the sum of exponentials
 * around it. xent_both keeps the exponentials, which are the gradient but for a factor: to compute one takes longer
 * than to load an element from memory.
 */
#include <config.h>
#include <math.h>
#include <omp.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/scratch.h"
#include "kernels/prepare/elementwise.h"
#include "kernels/prepare/xent.h"

HD_PREPARE_LOW(prepare, "xent", "t*", "f", hd_prepare_xent(c, p))
HD_PREPARE(prepare_combine, "xent_combine", HD_DTYPE_F32, hd_prepare_same_dims(c, p, 3, 1))
HD_PREPARE_LOW(prepare_d, "xent_d", "t*f", "t", hd_prepare_xent_d(c, p))
HD_PREPARE_LOW(prepare_both_shared, "xent_both", "t*", "tf", hd_prepare_xent_both(c, p))

static inline __attribute__((always_inline)) float larger(float x, float max)
{
	return x > max ? x : max;
}

/* Returns the largest of max and n logits from `at` on. It scans four pieces at once, since a maximum waits for the
 * one before. low: they are bf16; a constant, so that loops are compiled for either. */
static inline __attribute__((always_inline)) float largest_of(const void *z, int low, int64_t at, float max, int64_t n)
{
	int64_t q = n / 4;
	float a = max, b = max, c = max, d = max;

#pragma omp simd reduction(max : a, b, c, d)
	for (int64_t j = at; j < at + q; j++) {
		a = larger(hd_get(z, low, j), a);
		b = larger(hd_get(z, low, j + q), b);
		c = larger(hd_get(z, low, j + 2 * q), c);
		d = larger(hd_get(z, low, j + 3 * q), d);
	}
	for (int64_t j = at + 4 * q; j < at + n; j++)
		a = larger(hd_get(z, low, j), a);
	return larger(larger(a, b), larger(c, d));
}

HD_CLONES static float largest(const void *z, int low, int64_t at, int64_t n)
{
	return low ? largest_of(z, 1, at, -INFINITY, n) : largest_of(z, 0, at, -INFINITY, n);
}

static inline __attribute__((always_inline)) float exponentials_of(float *e, const void *z, int low, int64_t at,
								   float max, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < n; j++) {
		e[j] = hd_expf(hd_get(z, low, at + j) - max);
		sum += e[j];
	}
	return sum;
}

/* Computes exponentials around max, and returns their sum. */
HD_CLONES static float exponentials(float *e, const void *z, int low, int64_t at, float max, int64_t n)
{
	return low ? exponentials_of(e, z, 1, at, max, n) : exponentials_of(e, z, 0, at, max, n);
}

static int is_low(const struct hd_prep *p)
{
	return p->n[14] == HD_DTYPE_BF16;
}

/* Prefetches n logits from `at` on into L2: the next row arrives while exponentials of this one are computed. */
static void prefetch_logits(const struct hd_prep *p, const void *logits, int64_t at, int64_t n)
{
	const char *from = hd_at(logits, p->n[14], at);

	for (int64_t b = 0; b < n * HD_BITS(p->n[14]) / 8; b += 64)
		__builtin_prefetch(from + b, 0, 2);
}

/* Computes the statistics of row i. e: receives the exponentials, or NULL if they are not needed again. */
static void statistics(const struct hd_prep *p, const void *logits, int64_t i, float *e, float *max, float *row_sum)
{
	double sum = 0;

	*max = largest(logits, is_low(p), i * p->n[1], p->n[2]);
	for (int64_t j = 0; j < p->n[2]; j += HD_PIECE) {
		float here[HD_PIECE];
		int64_t n = hd_min(HD_PIECE, p->n[2] - j);

		if (i + 1 < p->n[0])
			prefetch_logits(p, logits, (i + 1) * p->n[1] + j, n);
		sum += exponentials(e ? e + j : here, logits, is_low(p), i * p->n[1] + j, *max, n);
	}
	*row_sum = *max == -INFINITY ? 0 : (float)sum; /* exp(-inf + inf) is NaN */
}

static float target_of(const struct hd_prep *p, const void *z, int64_t i, int32_t target)
{
	int64_t t = target - p->n[3];

	return t >= 0 && t < p->n[2] ? hd_get(z, is_low(p), i * p->n[1] + t) : 0;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *targets = in[1];
	float *max = out[0], *sum = out[1], *target = out[2];

	(void)r;
#pragma omp parallel for schedule(static) if (p->n[0] * p->n[1] >= HD_SMALL)
	for (int64_t i = 0; i < p->n[0]; i++) {
		statistics(p, in[0], i, NULL, &max[i], &sum[i]);
		target[i] = target_of(p, in[0], i, targets[i]);
	}
}

HD_CLONES static void combine(float *y, const float *max, const float *whole, const float *sum, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = sum[j] * hd_expf(max[j] - whole[j]);
}

static void run_combine(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	(void)r;
	combine(out[0], in[0], in[1], in[2], p->n[0]);
}

HD_CLONES static void row_d(float *dz, const float *z, float max, float scale, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		dz[j] = hd_expf(z[j] - max) * scale;
}

HD_CLONES static void scaled(float *dz, const float *e, float scale, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		dz[j] = e[j] * scale;
}

/* Computes the gradient of row i. e: its exponentials around max, or NULL to compute them from the logits. */
static void gradient(const struct hd_prep *p, void *out, const void *in, int64_t i, int32_t target, const float *e,
		     float max, float sum, float dnll)
{
	int64_t cols = p->n[1], real = p->n[2], type = p->n[14], t = target - p->n[3];

	for (int64_t j = 0; j < real; j += HD_PIECE) {
		float z[HD_PIECE], dz[HD_PIECE];
		int64_t n = hd_min(HD_PIECE, real - j);
		float *to = hd_write_to(out, type, i * cols + j, dz);

		if (e)
			scaled(to, e + j, dnll / sum, n);
		else
			row_d(to, hd_read(in, type, i * cols + j, n, z), max, dnll / sum, n);
		if (t >= j && t < j + n)
			to[t - j] -= dnll;
		hd_write(out, type, i * cols + j, n, dz);
	}
	memset(hd_into(out, type, i * cols + real), 0, (size_t)(cols - real) * HD_BITS(type) / 8);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *targets = in[1];
	const float *max = in[2], *sum = in[3], *dnll = in[4];

	(void)r;
#pragma omp parallel for schedule(static) if (p->n[0] * p->n[1] >= HD_SMALL)
	for (int64_t i = 0; i < p->n[0]; i++)
		gradient(p, out[0], in[0], i, targets[i], NULL, max[i], sum[i], dnll[i]);
}

/* -- xent_both ------------------------------------------------------------------------------------------- */
/* Exponentials of bf16 are kept in scratch, a row per thread, others in the gradient's place. */
static int64_t floats_of_row(const struct hd_prep *p)
{
	return is_low(p) ? (p->n[1] + 15) / 16 * 16 : 0;
}

static int64_t bytes_of_row(const struct hd_prep *p)
{
	return floats_of_row(p) * (int64_t)sizeof(float);
}

static int prepare_both(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_both_shared(d, p, err));
	p->n[5] = omp_get_max_threads(); /* threads that scratch suffices for */
	return floats_of_row(p) ? hd_scratch_take(p, p->n[5] * bytes_of_row(p), "xent_both", err) : HD_OK;
}

static int64_t scratch_both(const struct hd_kernel_desc *d, int threads)
{
	return threads * hd_scratch_of_shape(d, prepare_both_shared, bytes_of_row);
}

static void run_both(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *targets = in[1];
	float *max = out[1], *sum = out[2], *target = out[3], *kept = hd_scratch();
	float dnll = (float)(p->n[4] ? p->f[0] * r->loss_scale : p->f[0]);
	int threads = (int)hd_min(omp_get_max_threads(), p->n[5]);

#pragma omp parallel for schedule(static) num_threads(threads) if (p->n[0] * p->n[1] >= HD_SMALL)
	for (int64_t i = 0; i < p->n[0]; i++) {
		float *e = floats_of_row(p) ? kept + omp_get_thread_num() * floats_of_row(p)
					    : (float *)out[0] + i * p->n[1];

		target[i] = target_of(p, in[0], i, targets[i]);
		statistics(p, in[0], i, e, &max[i], &sum[i]);
		gradient(p, out[0], in[0], i, targets[i], e, max[i], sum[i], dnll);
	}
}

const struct hd_kernel hd_cpu_xent = { .name = "xent", .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_xent_combine = { .name = "xent_combine", .prepare = prepare_combine, .run = run_combine };
const struct hd_kernel hd_cpu_xent_d = { .name = "xent_d", .prepare = prepare_d, .run = run_d };
const struct hd_kernel hd_cpu_xent_both = {
	.name = "xent_both", .prepare = prepare_both, .scratch = scratch_both, .run = run_both
};
