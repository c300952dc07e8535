/* SPDX-License-Identifier: Apache-2.0
 * Reference kernel for rope: rotary position embedding (Su et al. 2021) of halves.
 *
 * The pair (i, i + turned/2) is rotated by an angle that is proportional to the position (kernels/prepare/rope.h),
 * backwards for the gradient. Dims after the rotated ones stay as they are.
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/rope.h"

static int prepare_angles(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_prepare_rope(c, p));
	p->state = hd_alloc(sizeof(struct hd_rope));
	p->release = free;
	hd_rope_set(p->state, p, c->d->attr);
	return 0;
}
HD_PREPARE(prepare, "rope", HD_DTYPE_F64, prepare_angles(c, p))

static void rotate(double *y, const double *x, const struct hd_prep *p, int64_t position)
{
	const struct hd_rope *of = p->state;
	int64_t half = of->turned / 2;

	for (int64_t i = 0; i < half; i++) {
		double angle = p->f[0] * (double)position * hd_rope_rate(of, i);
		double a = of->attention * x[i], b = of->attention * x[i + half];

		y[i] = a * cos(angle) - b * sin(angle);
		y[i + half] = b * cos(angle) + a * sin(angle);
	}
	for (int64_t i = of->turned; i < p->n[3]; i++)
		y[i] = x[i];
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t seq = p->n[1], heads = p->n[2], dim = p->n[3];

	(void)r;
	for (int64_t i = 0; i < p->n[0] * seq * heads; i++)
		rotate((double *)out[0] + i * dim, (const double *)in[0] + i * dim, p,
		       hd_rope_position(p->state, i / heads % seq));
}

const struct hd_kernel hd_ref_rope = { .name = "rope", .prepare = prepare, .run = run };
