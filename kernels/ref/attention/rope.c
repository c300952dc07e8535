/* SPDX-License-Identifier: Apache-2.0
 * Reference of rope: rotary position embedding (Su et al. 2021) of halves.
 *
 * The pair (i, i + head_dim/2) turns by the angle position * theta^(-2i/head_dim); backwards
 * for the gradient.
 */
#include <config.h>
#include <math.h>
#include "kernels/prepare/rope.h"

HD_PREPARE(prepare, "rope", HD_DTYPE_F64, hd_prepare_rope(c, p))

static void turn(double *y, const double *x, const struct hd_prep *p, int64_t position)
{
	int64_t half = p->n[3] / 2;

	for (int64_t i = 0; i < half; i++) {
		double angle = p->f[1] * (double)position * pow(p->f[0], -2 * (double)i / (double)p->n[3]);
		double a = x[i], b = x[i + half];

		y[i] = a * cos(angle) - b * sin(angle);
		y[i + half] = b * cos(angle) + a * sin(angle);
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t seq = p->n[1], heads = p->n[2], dim = p->n[3];

	(void)r;
	for (int64_t i = 0; i < p->n[0] * seq * heads; i++)
		turn((double *)out[0] + i * dim, (const double *)in[0] + i * dim, p,
		     hd_rope_position(p, i / heads % seq));
}

const struct hd_kernel hd_ref_rope = { .name = "rope", .prepare = prepare, .run = run };
