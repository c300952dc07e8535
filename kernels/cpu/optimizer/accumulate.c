/* SPDX-License-Identifier: Apache-2.0
 * accumulate: y = x, or y += x; x may be of lower precision than y.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/prepare/elementwise.h"

HD_PREPARE_LOW(prepare, "accumulate", "t", "u", hd_prepare_same_dims(c, p, 1, 1))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t n = p->n[0], from = p->n[14], to = p->n[15], step = hd_min(hd_vector_step(from), hd_vector_step(to));

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += step) {
		float a[HD_PIECE], b[HD_PIECE];
		int64_t k = hd_min(step, n - i);
		const float *x = hd_read(in[0], from, i, k, a);
		float *y = (float *)(uintptr_t)(r->acc ? hd_read(out[0], to, i, k, b) : hd_write_to(out[0], to, i, b));

		if (r->acc)
			hd_add_floats(y, x, k);
		else if (x != y)
			memcpy(y, x, (size_t)k * sizeof(*y));
		hd_write(out[0], to, i, k, b);
	}
}

const struct hd_kernel hd_cpu_accumulate = { .name = "accumulate", .flags = HD_K_ACC, .prepare = prepare, .run = run };
