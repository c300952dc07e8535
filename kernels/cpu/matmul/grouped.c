/* SPDX-License-Identifier: Apache-2.0
 * grouped: the products of experts, one call for each expert that has rows.
 *
 * The number of rows is known only at run time. Where own products are preferred (kernels/cpu/gemm), they compute this.
 * Elsewhere dnnl_sgemm does, which needs no primitive prepared in advance. It was measured to be as fast as primitives
 * of fixed shapes from 100 rows on. It supports fp32 only: blocks of bf16 operands are first converted to fp32 in
 * scratch memory.
 */
#include <config.h>
#include <omp.h>
#include <stdlib.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/scratch.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/prepare/grouped.h"

#define BLOCK 256 /* rows, and columns of weights, that are converted from bf16 at a time */

#define SUMMED(c) (hd_attr_num((c)->d->attr, "add", 0) != 0 ? "ttu*" : "tt*")
HD_PREPARE_LOW(prepare_operands, "grouped", SUMMED(c), "u", hd_prepare_grouped(c, p))

/* p->n[9]: by own products. For tests, attribute own sets it. */
static int prepare_shared(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	p->n[9] = hd_attr_num(d->attr, "own", hd_gemm_preferred()) != 0;
	return prepare_operands(d, p, err);
}

/* ---- own products ---------------------------------------------------------------------------- */

static void set_matrix(struct hd_mm_shape *s, int o, uint32_t dtype, const int64_t stride[3])
{
	s->dtype[o] = dtype;
	memcpy(s->stride[o], stride, 3 * sizeof(*stride));
}

/* The product of y (rows, n) = a (rows, k) w (k, n), or with w (n, k) transposed. */
static void rows_shape(const struct hd_prep *p, struct hd_mm_shape *s, int64_t rows)
{
	int64_t k = p->n[2], n = p->n[3];
	uint32_t t = (uint32_t)p->n[14];

	*s = (struct hd_mm_shape){ .ndim = 3, .n = { rows, n, k } };
	set_matrix(s, HD_MM_A, t, (int64_t[]){ k, 0, 1 });
	set_matrix(s, HD_MM_B, t, p->n[5] ? (int64_t[]){ 0, k, 1 } : (int64_t[]){ 0, 1, n });
	set_matrix(s, HD_MM_C, t, (int64_t[]){ n, 1, 0 });
}

/* The product of w (m, n) = a (rows, m) transposed times x (rows, n). */
static void weights_shape(const struct hd_prep *p, struct hd_mm_shape *s, int64_t m, int64_t n, int64_t rows)
{
	uint32_t t = (uint32_t)p->n[14];

	*s = (struct hd_mm_shape){ .ndim = 3, .n = { m, n, rows } };
	set_matrix(s, HD_MM_A, t, (int64_t[]){ 1, 0, m });
	set_matrix(s, HD_MM_B, t, (int64_t[]){ 0, 1, n });
	set_matrix(s, HD_MM_C, HD_DTYPE_F32, (int64_t[]){ n, 1, 0 });
}

static void own_rows(const struct hd_prep *p, void *y, const void *a, const void *w, int64_t rows, int keep)
{
	struct hd_mm_shape s;

	rows_shape(p, &s, rows);
	hd_gemm_run_shape(&s, hd_scratch(), a, &(struct hd_mm_operands){ y, keep ? y : NULL, w, NULL });
}

/* Computes w (k, n) from a (rows, k) and x (rows, n), or its transpose w (n, k). */
static void own_weights(const struct hd_prep *p, float *w, const void *a, const void *x, int64_t rows, int keep)
{
	int64_t k = p->n[2], n = p->n[3];
	struct hd_mm_shape s;

	if (!rows && !keep)
		memset(w, 0, (size_t)(k * n) * sizeof(*w));
	if (!rows)
		return;
	weights_shape(p, &s, p->n[5] ? n : k, p->n[5] ? k : n, rows);
	hd_gemm_run_shape(&s, hd_scratch(), p->n[5] ? x : a,
			  &(struct hd_mm_operands){ w, keep ? w : NULL, p->n[5] ? a : x, NULL });
}

static int64_t own_bytes(const struct hd_prep *p, int threads)
{
	int64_t rows = p->n[8];
	struct hd_mm_shape s;

	if (p->n[4])
		weights_shape(p, &s, p->n[5] ? p->n[3] : p->n[2], p->n[5] ? p->n[2] : p->n[3], rows);
	else
		rows_shape(p, &s, rows);
	return rows ? hd_gemm_most_bytes(&s, threads) : 0;
}

/* ---- products of the library ----------------------------------------------------------------- */

static int64_t bytes_of(const struct hd_prep *p, int threads)
{
	int64_t k = p->n[2], n = p->n[3], rows = BLOCK * (k + n), weights = BLOCK * k + BLOCK * k + BLOCK * BLOCK;

	if (p->n[9])
		return own_bytes(p, threads);
	return p->n[14] == HD_DTYPE_BF16 ? (rows > weights ? rows : weights) * (int64_t)sizeof(float) : 0;
}

static int64_t scratch(const struct hd_kernel_desc *d, int threads)
{
	struct hd_err ignored = { 0 };
	struct hd_prep p = { 0 };

	return prepare_shared(d, &p, &ignored) < 0 ? 0 : bytes_of(&p, threads);
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_shared(d, p, err));
	if (p->n[15] != (p->n[4] ? HD_DTYPE_F32 : p->n[14]))
		return hd_err_set(err, HD_ENOTSUP, "grouped: output 0 has dtype %s, it must be %s",
				  hd_dtype_name((uint32_t)p->n[15]),
				  hd_dtype_name(p->n[4] ? HD_DTYPE_F32 : (uint32_t)p->n[14]));
	return hd_scratch_take(p, bytes_of(p, omp_get_max_threads()), "grouped", err);
}

/* Computes y (rows, n) = a (rows, k) w (k, n), or with w (n, k) transposed. keep: adds it to y. */
static void rows_product(const struct hd_prep *p, float *y, const float *a, const float *w, int64_t rows, int keep)
{
	int64_t k = p->n[2], n = p->n[3];

	hd_mm_sgemm('N', p->n[5] ? 'T' : 'N', (int64_t[]){ rows, n, k }, a, k, w, p->n[5] ? k : n, keep ? 1 : 0, y, n);
}

/* Computes w (k, n) = a (rows, k) transposed times x (rows, n), or its transpose w (n, k). keep: adds it to w. */
static void weights_product(const struct hd_prep *p, float *w, const float *a, const float *x, int64_t rows, int keep)
{
	int64_t k = p->n[2], n = p->n[3];

	if (!rows && !keep)
		memset(w, 0, (size_t)(k * n) * sizeof(*w));
	else if (p->n[5] && rows)
		hd_mm_sgemm('T', 'N', (int64_t[]){ n, k, rows }, x, n, a, k, keep ? 1 : 0, w, k);
	else if (rows)
		hd_mm_sgemm('T', 'N', (int64_t[]){ k, n, rows }, a, k, x, n, keep ? 1 : 0, w, n);
}

static void raise_rows(float *y, const uint16_t *x, int64_t rows, int64_t cols, int64_t step)
{
#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i++)
		hd_bf16_to_f32(y + i * cols, x + i * step, cols);
}

/* Does the same as rows_product, for bf16. A block of columns of w stays in scratch while the rows pass. */
static void rows_product_low(const struct hd_prep *p, uint16_t *y, const uint16_t *a, const uint16_t *w, int64_t rows,
			     int keep)
{
	int64_t k = p->n[2], n = p->n[3];
	float *wf = hd_scratch(), *af = wf + BLOCK * k, *yf = af + BLOCK * k;

	for (int64_t c = 0; c < n; c += BLOCK) {
		int64_t cols = hd_min(BLOCK, n - c);

		if (p->n[5])
			raise_rows(wf, w + c * k, cols, k, k);
		else
			raise_rows(wf, w + c, k, cols, n);
		for (int64_t i = 0; i < rows; i += BLOCK) {
			int64_t m = hd_min(BLOCK, rows - i);

			raise_rows(af, a + i * k, m, k, k);
			if (keep)
				raise_rows(yf, y + i * n + c, m, cols, n);
			hd_mm_sgemm('N', p->n[5] ? 'T' : 'N', (int64_t[]){ m, cols, k }, af, k, wf, p->n[5] ? k : cols,
				    keep ? 1 : 0, yf, cols);
			for (int64_t r = 0; r < m; r++)
				hd_store_bf16(y + (i + r) * n + c, yf + r * cols, cols);
		}
	}
}

static void weights_product_low(const struct hd_prep *p, float *w, const uint16_t *a, const uint16_t *x, int64_t rows,
				int keep)
{
	int64_t k = p->n[2], n = p->n[3];
	float *af = hd_scratch(), *xf = af + BLOCK * k;

	if (!rows)
		weights_product(p, w, NULL, NULL, 0, keep);
	for (int64_t i = 0; i < rows; i += BLOCK) {
		int64_t m = hd_min(BLOCK, rows - i);

		raise_rows(af, a + i * k, m, k, k);
		raise_rows(xf, x + i * n, m, n, n);
		weights_product(p, w, af, xf, m, keep || i);
	}
}

/* Computes c = (keep ? c : 0) + the product of an expert's rows. */
static void product(const struct hd_prep *p, void *c, const void *a, const void *b, int64_t rows, int keep)
{
	int low = p->n[14] == HD_DTYPE_BF16, single = rows == 1 && !low; /* the library is faster with a vector */

	if (p->n[9] && p->n[4])
		own_weights(p, c, a, b, rows, keep);
	else if (p->n[9] && !single)
		own_rows(p, c, a, b, rows, keep);
	else if (p->n[4] && low)
		weights_product_low(p, c, a, b, rows, keep);
	else if (p->n[4])
		weights_product(p, c, a, b, rows, keep);
	else if (low)
		rows_product_low(p, c, a, b, rows, keep);
	else
		rows_product(p, c, a, b, rows, keep);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *counts = in[p->n[7]];
	const void *add = p->n[6] ? in[p->n[6]] : NULL;
	int64_t k = p->n[2], n = p->n[3], at = 0, t = p->n[14], width = HD_BITS(t) / 8;

	for (int64_t e = 0; e < p->n[0]; e++, at += hd_grouped_rows(p, counts, e - 1)) {
		int64_t rows = hd_grouped_rows(p, counts, e);
		const void *a = hd_at(in[0], t, at * k), *b = hd_at(in[1], t, p->n[4] ? at * n : e * k * n);
		void *y = hd_into(out[0], t, at * n);
		float *w = (float *)out[0] + e * k * n;
		int keep = add || r->acc;

		if (p->n[4]) {
			product(p, w, a, b, rows, r->acc);
		} else if (rows) {
			if (add && add != out[0])
				memcpy(y, hd_at(add, t, at * n), (size_t)(rows * n * width));
			product(p, y, a, b, rows, keep);
		}
	}
}

const struct hd_kernel hd_cpu_grouped = {
	.name = "grouped", .flags = HD_K_ACC, .prepare = prepare, .scratch = scratch, .run = run
};
