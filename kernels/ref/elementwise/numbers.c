/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for scalar, iota and uniform, which have no inputs.
 */
#include <config.h>
#include "kernels/prepare/numbers.h"
#include <stdlib.h>

HD_PREPARE(prepare_scalar, "scalar", HD_DTYPE_F64, hd_prepare_scalar(c, p))
HD_PREPARE(prepare_iota, "iota", HD_DTYPE_F64, hd_prepare_iota(c, p))

static void run_scalar(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	(void)in;
	*(double *)out[0] = (double)hd_scalar_value(p, r);
}

static void run_iota(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = p->n[0] * p->n[1] * p->n[2];
	double *y = out[0];

	(void)in;
	(void)r;
	for (int64_t i = 0; i < n; i++)
		y[i] = (double)hd_iota_value(p, i);
}

static int prepare_random(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	const struct hd_check c = { "uniform", HD_DTYPE_F64, d, err, 0 };
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
	double *y = out[0];

	(void)in;
	for (int64_t i = 0; i < n; i++) /* in fp32, at most 1 - 2^-24 */
		y[i] = (double)((double)(hd_random_bits(key, hd_random_index(s, r->sample0, i)) >> 40) * 0x1p-24);
}

const struct hd_kernel hd_ref_scalar = { .name = "scalar", .prepare = prepare_scalar, .run = run_scalar };
const struct hd_kernel hd_ref_iota = { .name = "iota", .prepare = prepare_iota, .run = run_iota };
const struct hd_kernel hd_ref_uniform = { .name = "uniform", .prepare = prepare_random, .run = run_random };
