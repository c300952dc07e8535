/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/gemm/micro.h - the micro-kernel and the packing for one vector width. A .c file for each instruction set
 * includes this. It first defines HD_VL, the floats of a vector, and HD_GEMM_ISA, the name of the table. HD_MR and
 * HD_NV are the rows and vectors of a result, which stays in registers. HD_MR is at most HD_VL.
 */
#include "kernels/cpu/base/lanes.h"
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/gemm/gemm.h"

#define COLS (HD_NV * HD_VL)
#define L1 24576 /* bytes of a panel of b: processors have 32 KB and more of L1 */
#define UNROLL 4 /* values of k in one turn of the loop: with fewer, the processor does not fetch fast enough */
#define CHUNK 16 /* values of k that are packed for all panels before the next */

_Static_assert(HD_MR <= HD_VL && HD_VL <= HD_GEMM_SLACK && HD_MR * COLS <= HD_GEMM_MOST_SUMS, "sizes in gemm.h");

/* ---- the micro-kernel ------------------------------------------------------------------------ */

INLINE void add_products(V x[HD_MR][HD_NV], const float *a, const float *b)
{
	V y[HD_NV];

#pragma GCC unroll 4
	for (int j = 0; j < HD_NV; j++)
		y[j] = *(const V *)(b + j * HD_VL);
#pragma GCC unroll 16
	for (int i = 0; i < HD_MR; i++)
#pragma GCC unroll 4
		for (int j = 0; j < HD_NV; j++)
			x[i][j] += a[i] * y[j];
}

INLINE void write_sums(const struct hd_gemm_micro *t, V x[HD_MR][HD_NV])
{
#pragma GCC unroll 16
	for (int i = 0; i < HD_MR; i++)
#pragma GCC unroll 4
		for (int j = 0; j < HD_NV; j++) {
			if (t->from)
				x[i][j] += *(const VU *)(t->from + i * t->step + j * HD_VL);
			if (t->bias)
				x[i][j] += *(const VU *)(t->bias + j * HD_VL);
			*(VU *)(t->c + i * t->step + j * HD_VL) = x[i][j];
		}
}

static void multiply(const struct hd_gemm_micro *t)
{
	const float *a = t->a, *b = t->b, *end = b + t->k / UNROLL * UNROLL * COLS;
	V x[HD_MR][HD_NV] = { 0 };

	for (int i = 0; i < HD_MR; i++) {
		__builtin_prefetch(t->c + i * t->step, 1);
		__builtin_prefetch(t->c + i * t->step + COLS - 1, 1);
	}
	for (int64_t i = 0; i < t->lines; i++)
		__builtin_prefetch(t->next + 64 * i);
	for (; b < end; a += UNROLL * HD_MR, b += UNROLL * COLS)
#pragma GCC unroll 4
		for (int k = 0; k < UNROLL; k++)
			add_products(x, a + k * HD_MR, b + k * COLS);
	for (int64_t k = 0; k < t->k % UNROLL; k++)
		add_products(x, a + k * HD_MR, b + k * COLS);
	write_sums(t, x);
}

/* ---- packing --------------------------------------------------------------------------------- */

struct gemm_part { /* rows of one panel, and values of k from `k` on */
	float *to;
	int64_t at, rows, k, n;
};

/* Packs a part one by one: at the edges. */
INLINE void pack_slowly(const struct hd_gemm_pack *p, const struct gemm_part *r, const int width, const int low)
{
	for (int64_t k = 0; k < r->n; k++)
		for (int64_t i = 0; i < width; i++)
			r->to[k * width + i] =
				i < r->rows ? hd_get(p->from, low, (r->at + i) * p->step + (r->k + k) * p->k_step) : 0;
}

/* Packs HD_VL values of k of `rows` rows that are contiguous along k. A store of HD_VL floats may reach into the next
 * value of k, which is written later. */
INLINE void turn(float *to, const void *from, int64_t at, int64_t step, const int rows, const int width, const int low)
{
	V v[HD_VL];

#pragma GCC unroll 16
	for (int i = 0; i < HD_VL; i++)
		v[i] = i < rows ? load_floats(from, low, at + i * step) : (V){ 0 };
	transpose(v);
#pragma GCC unroll 16
	for (int i = 0; i < HD_VL; i++)
		*(VU *)(to + i * width) = v[i];
}

/* Packs a complete panel that is contiguous along k. */
INLINE void pack_turned(const struct hd_gemm_pack *p, const struct gemm_part *r, const int width, const int low)
{
	const int each = width < HD_VL ? width : HD_VL;
	int64_t whole = r->n / HD_VL * HD_VL;
	struct gemm_part rest = *r;

	for (int64_t k = 0; k < whole; k += HD_VL)
#pragma GCC unroll 4
		for (int i = 0; i < width; i += each)
			turn(r->to + k * width + i, p->from, (r->at + i) * p->step + r->k + k, p->step, each, width,
			     low);
	rest.to += whole * width;
	rest.k += whole;
	rest.n -= whole;
	pack_slowly(p, &rest, width, low);
}

/* Packs a complete panel that is contiguous along its rows. Vectors may be longer than the panel is wide. Where a load
 * would then reach beyond the last row, or a store into the next panel, values are packed one by one. */
INLINE void pack_copied(const struct hd_gemm_pack *p, const struct gemm_part *r, const int width, const int low)
{
	int64_t k = 0, n = r->n;
	struct gemm_part rest = *r;

	if (width < HD_VL && r->at + HD_VL > p->there)
		n = 0;
	else if (width < HD_VL && r->k + r->n == p->k)
		n--;
	for (; k < n; k++) {
		int64_t at = r->at + (r->k + k) * p->k_step;

#pragma GCC unroll 4
		for (int i = 0; i < width; i += HD_VL)
			*(VU *)(r->to + k * width + i) = load_floats(p->from, low, at + i);
	}
	rest.to += k * width;
	rest.k += k;
	rest.n -= k;
	pack_slowly(p, &rest, width, low);
}

INLINE void pack_part(const struct hd_gemm_pack *p, const struct gemm_part *r, const int width, const int low)
{
	if (r->rows < width)
		pack_slowly(p, r, width, low);
	else if (p->k_step == 1)
		pack_turned(p, r, width, low);
	else
		pack_copied(p, r, width, low);
}

/* Packs panels one after the other if their elements are contiguous along k. Else packs all of them a few k at a time,
 * so that memory is read in long pieces. */
INLINE void pack(const struct hd_gemm_pack *p, const int width, const int low)
{
	int64_t each = p->k_step == 1 ? p->k : CHUNK;

	for (int64_t k = 0; k < p->k; k += each)
		for (int64_t at = 0; at < p->n; at += width) {
			struct gemm_part r = { p->to + at * p->k + k * width, at, hd_min(width, p->n - at), k,
					       hd_min(each, p->k - k) };

			pack_part(p, &r, width, low);
		}
}

static void pack_a(const struct hd_gemm_pack *p)
{
	if (p->low)
		pack(p, HD_MR, 1);
	else
		pack(p, HD_MR, 0);
}

static void pack_b(const struct hd_gemm_pack *p)
{
	if (p->low)
		pack(p, COLS, 1);
	else
		pack(p, COLS, 0);
}

const struct hd_gemm_isa HD_GEMM_ISA = {
	.rows = HD_MR, .cols = COLS, .deep = L1 / (COLS * 4), .multiply = multiply, .pack_a = pack_a, .pack_b = pack_b
};
