/* SPDX-License-Identifier: Apache-2.0
 * scalar, iota and uniform, which have no inputs.
 */
#include <config.h>
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/numbers.h"
#include <stdlib.h>

HD_PREPARE(prepare_scalar, "scalar", HD_DTYPE_F32, hd_prepare_scalar(c, p))
HD_PREPARE(prepare_iota, "iota", HD_DTYPE_F32, hd_prepare_iota(c, p))

static void run_scalar(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	(void)in;
	*(float *)out[0] = (float)hd_scalar_value(p, r);
}

static void run_iota(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = p->n[0] * p->n[1] * p->n[2];
	float *y = out[0];

	(void)in;
	(void)r;
#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i++)
		y[i] = (float)hd_iota_value(p, i);
}

static int prepare_random(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	const struct hd_check c = { "uniform", HD_DTYPE_F32, d, err, 0 };
	struct hd_random_plan *r = hd_alloc(sizeof(*r));

	p->state = r;
	p->release = free;
	return hd_prepare_random(&c, r);
}

static void run_random(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_random_plan *s = p->state;
	uint64_t key = hd_random_key(s, r->seed, r->step);
	int64_t n = s->total;
	float *y = out[0];

	(void)in;
#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i++) /* in fp32, at most 1 - 2^-24 */
		y[i] = (float)((double)(hd_random_bits(key, hd_random_index(s, r->sample0, i)) >> 40) * 0x1p-24);
}

const struct hd_kernel hd_cpu_scalar = { .name = "scalar", .prepare = prepare_scalar, .run = run_scalar };
const struct hd_kernel hd_cpu_iota = { .name = "iota", .prepare = prepare_iota, .run = run_iota };
const struct hd_kernel hd_cpu_uniform = { .name = "uniform", .prepare = prepare_random, .run = run_random };
