/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/low.h - operands in HD_DTYPE_BF16: casts, the low copies that updates write next to the master, and
 * kernels with operands in HD_DTYPE_F32 or HD_DTYPE_BF16.
 *
 * These kernels compute in fp32 in either case. A piece of an operand is read in place, or is converted into a piece
 * of fp32 in L1. Results are written the same way, rounded once.
 */
#ifndef HD_KERNELS_CPU_BASE_LOW_H
#define HD_KERNELS_CPU_BASE_LOW_H
#include "kernels/check.h"
#include "kernels/cpu/base/simd.h"

#define HD_PIECE 1024 /* elements that are converted at a time */

/* Stores low[0..n-1] = x, rounded to nearest, ties to even. Subnormal numbers are kept, and NaN stays NaN. The bits
 * are the same on every processor. */
void hd_store_bf16(uint16_t *low, const float *x, int64_t n);
/* The same for results that are not read soon: past the caches where the processor can, so that lines need not be read
 * first. */
void hd_store_bf16_past(uint16_t *low, const float *x, int64_t n);

HD_CLONES static inline void hd_bf16_to_f32(float *y, const uint16_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = hd_of_bf16(x[j]);
}

/* Computes y += x. */
HD_CLONES static inline void hd_add_floats(float *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] += x[j];
}

/* Returns elements at..at+n-1 of x as floats: in place, or converted in tmp. */
__attribute__((unused)) static const float *hd_read(const void *x, int64_t dtype, int64_t at, int64_t n, float *tmp)
{
	if (dtype != HD_DTYPE_BF16)
		return (const float *)x + at;
	hd_bf16_to_f32(tmp, (const uint16_t *)x + at, n);
	return tmp;
}

/* Returns where a kernel writes elements of y from `at` on; hd_write then stores them in y. */
__attribute__((unused)) static float *hd_write_to(void *y, int64_t dtype, int64_t at, float *tmp)
{
	return dtype == HD_DTYPE_BF16 ? tmp : (float *)y + at;
}

__attribute__((unused)) static void hd_write(void *y, int64_t dtype, int64_t at, int64_t n, const float *tmp)
{
	if (dtype == HD_DTYPE_BF16)
		hd_store_bf16((uint16_t *)y + at, tmp, n);
}

/* Returns how many elements are processed at a time. */
static inline int64_t hd_vector_step(int64_t dtype)
{
	return dtype == HD_DTYPE_BF16 ? HD_PIECE : HD_CHUNK;
}

/* Reads one element. `low` is a constant in all uses, so that loops are compiled for each dtype. */
static inline __attribute__((always_inline)) float hd_get(const void *x, int low, int64_t j)
{
	return low ? hd_of_bf16(((const uint16_t *)x)[j]) : ((const float *)x)[j];
}

static inline __attribute__((always_inline)) void hd_put(void *y, int low, int64_t j, float v)
{
	if (low)
		((uint16_t *)y)[j] = hd_bf16_of(v);
	else
		((float *)y)[j] = v;
}

/* Returns the address of element `at`. */
static inline const void *hd_at(const void *x, int64_t dtype, int64_t at)
{
	return (const char *)x + at * (dtype == HD_DTYPE_BF16 ? 2 : 4);
}

static inline void *hd_into(void *x, int64_t dtype, int64_t at)
{
	return (char *)x + at * (dtype == HD_DTYPE_BF16 ? 2 : 4);
}

/* Checks the dtypes of operands against letters. t: HD_DTYPE_F32 or HD_DTYPE_BF16, but the same for all of them; u:
 * likewise, a second group; f: HD_DTYPE_F32; *: any (checked elsewhere). The last letter repeats. Returns the dtypes
 * of t and u in kind. */
static inline int hd_check_kinds(const struct hd_check *c, const char *ins, const char *outs, uint32_t kind[2])
{
	uint32_t n = c->d->nin + c->d->nout;

	for (uint32_t i = 0; i < n; i++) {
		const struct hd_view *v = i < c->d->nin ? &c->d->in[i] : &c->d->out[i - c->d->nin];
		const char **s = i < c->d->nin ? &ins : &outs;
		uint32_t *k = **s == 'u' ? &kind[1] : &kind[0], f32 = HD_DTYPE_F32, *need = **s == 'f' ? &f32 : k;
		char who[32];

		if (**s != '*' && !*need)
			*need = v->dtype == HD_DTYPE_BF16 ? HD_DTYPE_BF16 : HD_DTYPE_F32;
		if (**s != '*' && v->dtype != *need)
			return hd_err_set(c->err, HD_ENOTSUP, "%s: %s has dtype %s, it must be %s", c->kernel,
					  hd_check_operand(c, v, who), hd_dtype_name(v->dtype), hd_dtype_name(*need));
		*s += (*s)[1] != 0;
	}
	return 0;
}

/* Defines a kernel's prepare, as HD_PREPARE does, with operands of two dtypes. The dtypes of t and u go to p->n[14]
 * and p->n[15]. */
#define HD_PREPARE_LOW(function, kernel, ins, outs, expr) \
	static int function(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err) \
	{ \
		const struct hd_check check_ = { kernel, HD_DTYPE_F32, d, err, HD_DTYPE_BF16 }, *c = &check_; \
		uint32_t kind[2] = { 0, 0 }; \
\
		HD_TRY(hd_check_kinds(c, ins, outs, kind)); \
		HD_TRY(expr); \
		p->n[14] = kind[0]; \
		p->n[15] = kind[1]; \
		return 0; \
	}

#endif
