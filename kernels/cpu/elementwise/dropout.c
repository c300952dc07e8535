/* SPDX-License-Identifier: Apache-2.0
 * dropout: whether an element is kept is a pure function of seed, step, site and global index (see the reference).
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/dropout_key.h"
#include "kernels/prepare/embedding.h"

HD_PREPARE_LOW(prepare, "dropout", "t", "t", hd_prepare_dropout(c, p))

HD_CLONES static void row(float *y, const float *x, uint64_t key, uint64_t index, double drop, int64_t n)
{
	float scale = (float)(1 / (1 - drop));
	uint64_t limit = hd_dropout_limit(drop);

#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = hd_float_of(hd_bits_of(x[j] * scale) & ~hd_dropout_mask(key, index + (uint64_t)j, limit));
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	uint64_t key = hd_dropout_key(r->seed, r->step, (uint64_t)p->n[3]);
	int64_t rows = p->n[0], cols = p->n[1], t = p->n[14], step = t == HD_DTYPE_BF16 ? HD_PIECE : cols,
		width = t == HD_DTYPE_BF16 ? 2 : 4;

#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i++) {
		for (int64_t j = 0; r->train && p->f[0] > 0 && j < cols; j += step) {
			int64_t n = hd_min(step, cols - j), at = i * cols + j;
			float x[HD_PIECE], y[HD_PIECE];

			row(hd_write_to(out[0], t, at, y), hd_read(in[0], t, at, n, x), key,
			    hd_dropout_index(p, i, r->sample0) + (uint64_t)j, p->f[0], n);
			hd_write(out[0], t, at, n, y);
		}
		if (!(r->train && p->f[0] > 0) && in[0] != out[0])
			memcpy((char *)out[0] + i * cols * width, (const char *)in[0] + i * cols * width,
			       (size_t)(cols * width));
	}
}

const struct hd_kernel hd_cpu_dropout = { .name = "dropout", .prepare = prepare, .run = run };
