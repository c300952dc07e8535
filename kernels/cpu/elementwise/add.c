/* SPDX-License-Identifier: Apache-2.0
 * add: the sum of all inputs, broadcast by dim, in one pass over memory.
 *
 * After adjacent dims are merged where possible, rows of the last dim remain. An input's stride there is 1, 0
 * (broadcast) or, rarely, something else. A piece of a row is summed in L1 before it is written.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/prepare/elementwise.h"

#define PIECE HD_PIECE

HD_PREPARE_LOW(prepare, "add", "t", "t", hd_prepare_add(c, p))

HD_CLONES static void sum2(float *y, const float *a, const float *b, int64_t stride, int64_t n)
{
	if (stride == 1) {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] = a[j] + b[j];
	} else {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] = a[j] + b[j * stride];
	}
}

/* Returns n elements of an input, `stride` apart. bf16 is converted into tmp, and *stride becomes 1. */
static const float *operand(const void *x, int64_t t, int64_t at, int64_t *stride, int64_t n, float *tmp)
{
	if (t == HD_DTYPE_BF16 && *stride != 1) {
		for (int64_t j = 0; j < n; j++)
			tmp[j] = hd_of_bf16(((const uint16_t *)x)[at + j * *stride]);
		*stride = 1;
		return tmp;
	}
	return hd_read(x, t, at, n, tmp);
}

static void piece(const struct hd_add *s, void *out, int64_t t, void *const *in, int64_t row, int64_t from)
{
	int64_t inner = s->n[s->ndim - 1], n = hd_min(PIECE, inner - from), at[HD_MAX_INS] = { 0 },
		to = row * inner + from;
	float tmp[PIECE], wide[PIECE], y_low[PIECE]; /* y may be x0, which may also be x2: y is written last */
	const float *sum = hd_read(in[0], t, to, n, tmp);
	float *y = hd_write_to(out, t, to, y_low);

	for (uint32_t i = s->ndim - 1; i--; row /= s->n[i])
		for (uint32_t k = 1; k < s->nin; k++)
			at[k] += row % s->n[i] * s->stride[k][i];
	for (uint32_t k = 1; k < s->nin; k++) {
		int64_t stride = s->stride[k][s->ndim - 1];

		const float *x = operand(in[k], t, at[k] + from * stride, &stride, n, wide);

		sum2(k + 1 < s->nin ? tmp : y, sum, x, stride, n);
		sum = tmp;
	}
	if (s->nin == 1 && y != sum)
		memcpy(y, sum, (size_t)n * sizeof(*y));
	hd_write(out, t, to, n, y_low);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_add *s = p->state;
	int64_t inner = s->n[s->ndim - 1], pieces = (inner + PIECE - 1) / PIECE, rows = inner ? p->n[0] / inner : 0;

	if (s->ndim == 1)
		pieces = (hd_used(r, inner) + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) if (p->n[0] >= HD_SMALL)
	for (int64_t i = 0; i < rows * pieces; i++)
		piece(s, out[0], p->n[14], in, i / pieces, i % pieces * PIECE);
}

const struct hd_kernel hd_cpu_add = { .name = "add", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
