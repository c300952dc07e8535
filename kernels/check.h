/* SPDX-License-Identifier: Apache-2.0
 * kernels/check.h - the checks that `prepare` of every kernel makes. Their messages name the kernel, the operand and
 * both sides.
 *
 *	static inline int hd_prepare_norm(const struct hd_check *c, struct hd_prep *p)
 *	{
 *		HD_TRY(hd_check_counts(c, 2, 3, 2, 3));
 *		HD_TRY(hd_check_dtypes(c, "r", "r"));
 *		return hd_check_part(c, &c->d->in[1], &c->d->in[0], ndim - 1, ndim);
 *	}
 *	HD_PREPARE(prepare_norm, "norm", HD_DTYPE_F32, hd_prepare_norm(c, p))
 */
#ifndef HD_KERNELS_CHECK_H
#define HD_KERNELS_CHECK_H
#include <stdio.h>
#include <string.h>
#include "engine/device/device.h"

struct hd_check {
	const char *kernel;
	uint32_t real; /* dtype of float operands on this device */
	const struct hd_kernel_desc *d;
	struct hd_err *err;
	uint32_t also; /* a second dtype that is accepted where `real` is needed, or 0 */
};

/* Computes the strides of a global index that does not depend on the micro-batch: row-major over the whole dims, with
 * batch first wherever it stands. */
static inline void hd_global_strides(const struct hd_view *v, int64_t *strides)
{
	int64_t stride = 1;

	for (uint32_t d = v->ndim; d-- > 0;)
		if (strcmp(v->dims[d]->name, "batch") != 0) {
			strides[d] = stride;
			stride *= v->dims[d]->n;
		}
	for (uint32_t d = 0; d < v->ndim; d++)
		if (!strcmp(v->dims[d]->name, "batch"))
			strides[d] = stride;
}

/* Defines a kernel's prepare as one expression of c and p. */
#define HD_PREPARE(function, kernel, real, expr) \
	static int function(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err) \
	{ \
		const struct hd_check check_ = { kernel, real, d, err, 0 }, *c = &check_; \
		return expr; \
	}

/* Returns "input 2" or "output 0", depending on where v stands in the descriptor. */
static inline const char *hd_check_operand(const struct hd_check *c, const struct hd_view *v, char text[32])
{
	if (c->d->nin && v >= c->d->in && v < c->d->in + c->d->nin)
		snprintf(text, 32, "input %d", (int)(v - c->d->in));
	else
		snprintf(text, 32, "output %d", (int)(v - c->d->out));
	return text;
}

/* Returns "(batch 4, seq 256)" for the dims from..to-1. */
static inline const char *hd_check_shape(const struct hd_view *v, uint32_t from, uint32_t to, char text[256])
{
	size_t at = 1;

	strcpy(text, "(");
	for (uint32_t i = from; i < to && at < 200; i++)
		at += (size_t)snprintf(text + at, 256 - at, "%s%.40s %lld", i > from ? ", " : "", v->dims[i]->name,
				       (long long)v->n[i]);
	snprintf(text + at, 256 - at, ")");
	return text;
}

static inline int hd_check_counts(const struct hd_check *c, uint32_t in_min, uint32_t in_max, uint32_t out_min,
				  uint32_t out_max)
{
	uint32_t nin = c->d->nin, nout = c->d->nout;

	if (nin < in_min || nin > in_max)
		return hd_err_set(c->err, HD_EINVAL, "%s: %u inputs, %u to %u are needed", c->kernel, nin, in_min,
				  in_max);
	if (nout < out_min || nout > out_max)
		return hd_err_set(c->err, HD_EINVAL, "%s: %u outputs, %u to %u are needed", c->kernel, nout, out_min,
				  out_max);
	return 0;
}

static inline int hd_check_dtype(const struct hd_check *c, const struct hd_view *v, char code)
{
	uint32_t need = code == 'i' ? HD_DTYPE_I32 : code == 'd' ? HD_DTYPE_F64 : c->real;
	char who[32];

	if (code == 'l') /* a copy of lower precision: the reference keeps everything in double */
		need = c->real == HD_DTYPE_F64 ? HD_DTYPE_F64 : HD_DTYPE_BF16;
	if (code == '*' || v->dtype == need || (c->also && v->dtype == c->also && need == c->real))
		return 0;
	return hd_err_set(c->err, HD_ENOTSUP, "%s: %s has dtype %s, it must be %s", c->kernel,
			  hd_check_operand(c, v, who), hd_dtype_name(v->dtype), hd_dtype_name(need));
}

/* Checks dtypes against one letter per operand: r the device's float, i HD_DTYPE_I32, d HD_DTYPE_F64, l a copy in
 * lower precision, * any. The last letter repeats. */
static inline int hd_check_dtypes(const struct hd_check *c, const char *ins, const char *outs)
{
	for (uint32_t i = 0; i < c->d->nin; i++) {
		HD_TRY(hd_check_dtype(c, &c->d->in[i], *ins));
		ins += ins[1] != 0;
	}
	for (uint32_t i = 0; i < c->d->nout; i++) {
		HD_TRY(hd_check_dtype(c, &c->d->out[i], *outs));
		outs += outs[1] != 0;
	}
	return 0;
}

/* Checks that v has exactly the dims from..to-1 of `of`, with the same local sizes. */
static inline int hd_check_part(const struct hd_check *c, const struct hd_view *v, const struct hd_view *of,
				uint32_t from, uint32_t to)
{
	int same = v->ndim == to - from;
	char got[256], want[256], who[32], whose[32];

	for (uint32_t i = 0; same && i < v->ndim; i++)
		same = v->dims[i] == of->dims[from + i] && v->n[i] == of->n[from + i];
	if (same)
		return 0;
	return hd_err_set(c->err, HD_EINVAL, "%s: %s is %s, %s calls for %s", c->kernel, hd_check_operand(c, v, who),
			  hd_check_shape(v, 0, v->ndim, got), hd_check_operand(c, of, whose),
			  hd_check_shape(of, from, to, want));
}

static inline int hd_check_same(const struct hd_check *c, const struct hd_view *v, const struct hd_view *of)
{
	return hd_check_part(c, v, of, 0, of->ndim);
}

/* Checks that all inputs and outputs have the dims of input 0. */
static inline int hd_check_all_same(const struct hd_check *c)
{
	for (uint32_t i = 1; i < c->d->nin; i++)
		HD_TRY(hd_check_same(c, &c->d->in[i], &c->d->in[0]));
	for (uint32_t i = 0; i < c->d->nout; i++)
		HD_TRY(hd_check_same(c, &c->d->out[i], &c->d->in[0]));
	return 0;
}

static inline int hd_check_ndim(const struct hd_check *c, const struct hd_view *v, uint32_t ndim, uint32_t ndim_max)
{
	char who[32];

	if (v->ndim >= ndim && v->ndim <= ndim_max)
		return 0;
	return hd_err_set(c->err, HD_EINVAL, "%s: %s has %u dims, %u to %u are needed", c->kernel,
			  hd_check_operand(c, v, who), v->ndim, ndim, ndim_max);
}

static inline int hd_check_scalar(const struct hd_check *c, const struct hd_view *v)
{
	return hd_check_ndim(c, v, 0, 0);
}

/* Checks that this rank has dim i of v completely: it is neither cut nor padded. */
static inline int hd_check_complete(const struct hd_check *c, const struct hd_view *v, uint32_t i)
{
	char who[32];

	if (v->off[i] == 0 && v->n[i] == v->dims[i]->n && v->n[i] > 0)
		return 0;
	return hd_err_set(c->err, HD_EINVAL,
			  "%s: %s has %lld of the %lld elements of dim %s (from %lld), but it needs all", c->kernel,
			  hd_check_operand(c, v, who), (long long)v->n[i], (long long)v->dims[i]->n, v->dims[i]->name,
			  (long long)v->off[i]);
}

static inline int hd_check_range(const struct hd_check *c, const char *what, double v, double low, double high)
{
	if (v >= low && v <= high)
		return 0;
	return hd_err_set(c->err, HD_EINVAL, "%s: %s is %g, it must be from %g to %g", c->kernel, what, v, low, high);
}

/* Returns the number of elements in the dims from..to-1. */
static inline int64_t hd_check_count(const struct hd_view *v, uint32_t from, uint32_t to)
{
	int64_t n = 1;

	for (uint32_t i = from; i < to; i++)
		n *= v->n[i];
	return n;
}

#endif
