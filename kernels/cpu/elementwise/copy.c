/* SPDX-License-Identifier: Apache-2.0
 * copy: pieces of raw elements, whatever their dtype.
 *
 * Few long pieces are cut, so that all threads copy.
 */
#include <config.h>
#include "kernels/cpu/base/simd.h"
#include "kernels/prepare/elementwise.h"

#define PIECE 32768

HD_PREPARE(prepare, "copy", HD_DTYPE_F32, hd_prepare_copy(c, p))

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const char *x = (const char *)in[0] + p->n[HD_COPY_SRC];
	char *y = (char *)out[0] + p->n[HD_COPY_DST];
	int64_t bytes = p->n[HD_COPY_RUN], cuts = (bytes + PIECE - 1) / PIECE, runs = p->n[HD_COPY_RUNS];

	(void)r;
#pragma omp parallel for schedule(static) if (runs * bytes >= 4 * HD_SMALL)
	for (int64_t i = 0; i < runs * cuts; i++) {
		int64_t at = i % cuts * PIECE;
		char *to = y + i / cuts * p->n[HD_COPY_DST_STEP] + at;
		const char *from = x + i / cuts * p->n[HD_COPY_SRC_STEP] + at;

		if (to != from)
			memcpy(to, from, (size_t)hd_min(PIECE, bytes - at));
	}
}

const struct hd_kernel hd_cpu_copy = { .name = "copy", .prepare = prepare, .run = run };
