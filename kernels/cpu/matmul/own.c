/* SPDX-License-Identifier: Apache-2.0
 * Own products, which are timed against oneDNN's: on tiles (kernels/cpu/tiles), and for few rows (kernels/cpu/thin).
 */
#include <config.h>
#include "kernels/cpu/matmul/matmul_impl.h"
#include <string.h>

int64_t hd_mm_own_bytes(const struct hd_mm_shape *s, const char *name, int threads)
{
	if (!strcmp(name, HD_MM_TILES))
		return hd_amx_bytes(s, threads);
	return strcmp(name, HD_MM_THIN) ? 0 : hd_thin_bytes(s, HD_THIN_MOST, hd_amx_here(), threads);
}

int hd_mm_own_make(struct hd_mm_own *o, const struct hd_mm_shape *s, const char *name)
{
	if (!strcmp(name, HD_MM_TILES))
		return (o->tiles = hd_amx_create(s, 1)) != NULL;
	if (!strcmp(name, HD_MM_THIN))
		return (o->thin = hd_thin_create(s, HD_THIN_MOST, hd_amx_here())) != NULL;
	return 0;
}

void hd_mm_own_run(const struct hd_mm_own *o, void *scratch, const void *from, void *const *mem, uint32_t bias_dtype)
{
	void *c = mem[HD_MM_C], *a = mem[HD_MM_A], *b = mem[HD_MM_B], *bias = mem[HD_MM_BIAS];

	if (o->tiles)
		hd_amx_run(o->tiles, scratch, a, &(struct hd_amx_operands){ c, from, b, bias });
	else
		hd_thin_run(o->thin, scratch, from != NULL, c, a, b, bias, bias_dtype);
}

void hd_mm_own_drop(struct hd_mm_own *o)
{
	hd_amx_destroy(o->tiles);
	hd_thin_destroy(o->thin);
	*o = (struct hd_mm_own){ NULL, NULL };
}
