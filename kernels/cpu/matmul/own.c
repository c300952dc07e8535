/* SPDX-License-Identifier: Apache-2.0
 * Own products, which are timed against oneDNN's: on tiles (kernels/cpu/tiles), for few rows (kernels/cpu/thin), and
 * with vectors of floats (kernels/cpu/gemm).
 */
#include <config.h>
#include "kernels/cpu/base/scratch.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/matmul/matmul_impl.h"
#include <string.h>

const char *const hd_mm_own_names[HD_MM_OWN] = { HD_MM_TILES, HD_MM_THIN, HD_MM_GEMM };

int64_t hd_mm_own_bytes(const struct hd_mm_shape *s, const char *name, int threads)
{
	if (!strcmp(name, HD_MM_TILES))
		return hd_amx_bytes(s, threads);
	if (!strcmp(name, HD_MM_GEMM))
		return hd_gemm_bytes(s, threads);
	return strcmp(name, HD_MM_THIN) ? 0 : hd_thin_bytes(s, HD_THIN_MOST, hd_amx_here(), threads);
}

int hd_mm_own_make(struct hd_mm_own *o, const struct hd_mm_shape *s, const char *name)
{
	if (!strcmp(name, HD_MM_TILES))
		return (o->tiles = hd_amx_create(s, 1)) != NULL;
	if (!strcmp(name, HD_MM_GEMM))
		return (o->gemm = hd_gemm_create(s, 1, hd_gemm_best())) != NULL;
	if (!strcmp(name, HD_MM_THIN))
		return (o->thin = hd_thin_create(s, HD_THIN_MOST, hd_amx_here())) != NULL;
	return 0;
}

int hd_mm_own_exists(const struct hd_mm_own *o)
{
	return o->tiles || o->thin || o->gemm;
}

int hd_mm_own_adds(const struct hd_mm_own *o)
{
	return o->tiles || o->gemm;
}

void hd_mm_own_run(const struct hd_mm_own *o, void *scratch, const void *from, void *const *mem, uint32_t bias_dtype)
{
	void *c = mem[HD_MM_C], *a = mem[HD_MM_A], *b = mem[HD_MM_B], *bias = mem[HD_MM_BIAS];

	if (o->tiles)
		hd_amx_run(o->tiles, scratch, a, &(struct hd_mm_operands){ c, from, b, bias });
	else if (o->gemm)
		hd_gemm_run(o->gemm, scratch, a, &(struct hd_mm_operands){ c, from, b, bias });
	else
		hd_thin_run(o->thin, scratch, from != NULL, c, a, b, bias, bias_dtype);
}

void hd_mm_several_run(const struct hd_mm_own *o, const void *a, const struct hd_mm_operands *operands)
{
	if (o->tiles)
		hd_amx_run(o->tiles, hd_scratch(), a, operands);
	else
		hd_gemm_run(o->gemm, hd_scratch(), a, operands);
}

void hd_mm_own_drop(struct hd_mm_own *o)
{
	hd_amx_destroy(o->tiles);
	hd_thin_destroy(o->thin);
	hd_gemm_destroy(o->gemm);
	*o = (struct hd_mm_own){ NULL, NULL, NULL };
}
