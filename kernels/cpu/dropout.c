/* SPDX-License-Identifier: Apache-2.0
 * dropout: what is kept is a pure function of seed, step, site and global index (see the
 * reference).
 */
#include <config.h>
#include "kernels/cpu/simd.h"
#include "kernels/dropout_key.h"
#include "kernels/prepare/embedding.h"

HD_PREPARE(prepare, "dropout", HD_F32, hd_prepare_dropout(c, p))

HD_CLONES static void row(float *y, const float *x, uint64_t key, uint64_t index, double drop,
			  int64_t n)
{
	float scale = (float)(1 / (1 - drop));
	uint64_t limit = hd_dropout_limit(drop);

#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = hd_float_of(hd_bits_of(x[j] * scale) &
				   ~hd_dropout_mask(key, index + (uint64_t)j, limit));
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	uint64_t key = hd_dropout_key(r->seed, r->step, (uint64_t)p->n[3]);
	int64_t rows = p->n[0], cols = p->n[1];
	const float *x = in[0];
	float *y = out[0];

#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i++) {
		if (r->train && p->f[0] > 0)
			row(y + i * cols, x + i * cols, key, hd_dropout_index(p, i, r->sample0),
			    p->f[0], cols);
		else if (x != y)
			memcpy(y + i * cols, x + i * cols, (size_t)cols * sizeof(*y));
	}
}

const struct hd_kernel hd_cpu_dropout = { .name = "dropout", .prepare = prepare, .run = run };
