/* SPDX-License-Identifier: Apache-2.0
 * What the timings of products share: shapes that do not take too long, and memory that was written.
 */
#include <config.h>
#include "kernels/cpu/matmul/matmul_impl.h"
#include <stdlib.h>

/* Shortens dim d. Rows that were contiguous stay so, because oneDNN offers less for rows with gaps. */
static void set_extent(struct hd_mm_shape *s, int d, int64_t n)
{
	for (int o = 0; o < HD_MM_OPERANDS; o++)
		for (int e = 0; e < s->ndim; e++)
			if (e != d && s->stride[o][d] && s->stride[o][e] >= s->stride[o][d] * s->n[d])
				s->stride[o][e] -= s->stride[o][e] / s->n[d] * (s->n[d] - n);
	s->n[d] = n;
}

void hd_mm_shrink(struct hd_mm_shape *s, double limit)
{
	while (hd_mm_flops(s) > limit) {
		int d, longest = 0;

		for (d = 0; d < s->ndim; d++)
			if (s->n[d] > s->n[longest])
				longest = d;
		if (s->n[longest] < 1024)
			return;
		set_extent(s, longest, s->n[longest] / 2 / 64 * 64 + s->n[longest] % 64);
	}
}

int hd_mm_touch(void **mem, size_t *have, size_t bytes)
{
	void *more;

	if (bytes <= *have)
		return 1;
	free(*mem);
	*mem = NULL;
	*have = 0;
	if (posix_memalign(&more, 4096, bytes))
		return 0;
	for (size_t i = 0; i < bytes / 4; i++)
		/* about 1/128 as fp32 and as two bf16: it is not denormal, and sums stay small */
		((uint32_t *)more)[i] = 0x3c003c00;
	*mem = more;
	*have = bytes;
	return 1;
}
