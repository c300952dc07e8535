/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/elementwise.h - checks of the kernels that treat every element alike; shared by all devices.
 */
#ifndef HD_KERNELS_PREPARE_ELEMENTWISE_H
#define HD_KERNELS_PREPARE_ELEMENTWISE_H
#include <stdlib.h>
#include "kernels/check.h"

/* Checks a kernel whose operands all have the same dims. n[0]: elements. */
static inline int hd_prepare_same_dims(const struct hd_check *c, struct hd_prep *p, uint32_t nin, uint32_t nout)
{
	HD_TRY(hd_check_counts(c, nin, nin, nout, nout));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	HD_TRY(hd_check_all_same(c));
	p->n[0] = hd_view_count(&c->d->in[0]);
	return 0;
}

/* Checks a gradient with the dims of input 0. A second output has its column sums, where the columns are the last
 * dims. n[0]: elements; n[1]: elements of a row, or 0 without sums. */
static inline int hd_prepare_slope_d(const struct hd_check *c, struct hd_prep *p)
{
	const struct hd_view *x = &c->d->in[0], *sums = &c->d->out[1];

	HD_TRY(hd_check_counts(c, 2, 2, 1, 2));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	HD_TRY(hd_check_same(c, &c->d->in[1], x));
	HD_TRY(hd_check_same(c, &c->d->out[0], x));
	p->n[0] = hd_view_count(x);
	p->n[1] = 0;
	if (c->d->nout == 1)
		return 0;
	HD_TRY(hd_check_ndim(c, sums, 1, x->ndim));
	p->n[1] = hd_view_count(sums);
	return hd_check_part(c, sums, x, x->ndim - sums->ndim, x->ndim);
}

/* The gate of swiglu, in n[1]: silu(a) b by default; gelu(a) b with gelu=1 by tanh, with gelu=2 by erf. */
enum { HD_GATE_SILU, HD_GATE_GELU_TANH, HD_GATE_GELU_ERF };

static inline int hd_prepare_gate(const struct hd_check *c, struct hd_prep *p, uint32_t nin, uint32_t nout)
{
	p->n[1] = hd_attr_int(c->d->attr, "gelu", 0);
	HD_TRY(hd_check_range(c, "gelu", (double)p->n[1], 0, 2));
	return hd_prepare_same_dims(c, p, nin, nout);
}

static inline int hd_prepare_cast(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 1, 1, 1, 1));
	HD_TRY(hd_check_all_same(c));
	p->n[0] = hd_view_count(&c->d->in[0]);
	p->n[1] = c->d->in[0].dtype;
	p->n[2] = c->d->out[0].dtype;
	for (int i = 1; i <= 2; i++)
		if (p->n[i] != HD_DTYPE_F32 && p->n[i] != HD_DTYPE_F64 && p->n[i] != HD_DTYPE_BF16 &&
		    p->n[i] != HD_DTYPE_F16 && p->n[i] != HD_DTYPE_B1 && p->n[i] != HD_DTYPE_U8 &&
		    p->n[i] != HD_DTYPE_I8 && p->n[i] != HD_DTYPE_E4M3 && p->n[i] != HD_DTYPE_E5M2)
			return hd_err_set(
				c->err, HD_ENOTSUP,
				"%s: %s 0 has dtype %s, it must be f32, f64, bf16, f16, u8, i8, e4m3, e5m2 or b1",
				c->kernel, i == 1 ? "input" : "output", hd_dtype_name((uint32_t)p->n[i]));
	if (HD_BITS(p->n[1]) <= 8 && HD_BITS(p->n[2]) <= 8)
		return hd_err_set(c->err, HD_ENOTSUP,
				  "%s: input 0 and output 0 both have dtype %s, but one must be a float", c->kernel,
				  hd_dtype_name((uint32_t)p->n[1]));
	return 0;
}

static inline int hd_prepare_fill(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_check_counts(c, 0, 1, 1, 1));
	if (c->d->out[0].dtype != HD_DTYPE_F64) /* sums are double on every device */
		HD_TRY(hd_check_dtypes(c, "*", "r"));
	p->n[0] = hd_view_count(&c->d->out[0]);
	p->n[1] = hd_attr_num(c->d->attr, "loss_scale", 0) != 0;
	p->n[2] = c->d->out[0].dtype == HD_DTYPE_F64;
	p->f[0] = hd_attr_num(c->d->attr, "value", 0);
	return 0;
}

enum { /* indices into p->n of copy; all but HD_COPY_RUNS are in bytes */
       HD_COPY_RUNS,
       HD_COPY_RUN,
       HD_COPY_SRC,
       HD_COPY_SRC_STEP,
       HD_COPY_DST,
       HD_COPY_DST_STEP,
};

/* Checks that n elements contain all pieces; piece i covers [first + i*step, first + i*step + run). */
static inline int hd_check_pieces(const struct hd_check *c, const char *what, int64_t n, int64_t runs, int64_t run,
				  int64_t first, int64_t step)
{
	int64_t last = first + (runs - 1) * step, low = first < last ? first : last, high = first < last ? last : first;

	if (runs < 1 || run < 1 || (low >= 0 && high + run <= n))
		return 0;
	return hd_err_set(c->err, HD_EINVAL, "%s: %s pieces cover elements %lld to %lld, it has %lld", c->kernel, what,
			  (long long)low, (long long)(high + run), (long long)n);
}

static inline int hd_prepare_copy(const struct hd_check *c, struct hd_prep *p)
{
	const struct hd_view *x = &c->d->in[0], *y = &c->d->out[0];
	const char *a = c->d->attr;
	int64_t nx, ny, run, runs, bits;

	HD_TRY(hd_check_counts(c, 1, 1, 1, 1));
	nx = hd_view_count(x);
	ny = hd_view_count(y);
	bits = HD_BITS(x->dtype);
	if (x->dtype != y->dtype)
		return hd_err_set(c->err, HD_EINVAL, "%s: input 0 has dtype %s, output 0 has %s", c->kernel,
				  hd_dtype_name(x->dtype), hd_dtype_name(y->dtype));
	runs = hd_attr_int(a, "runs", 1);
	run = hd_attr_int(a, "run", -1);
	if (run < 0 && nx != ny)
		return hd_err_set(c->err, HD_EINVAL,
				  "%s: input 0 has %lld elements, output 0 has %lld, but no run= is given", c->kernel,
				  (long long)nx, (long long)ny);
	if (run < 0)
		run = nx;
	p->n[HD_COPY_RUNS] = runs;
	p->n[HD_COPY_RUN] = run;
	p->n[HD_COPY_SRC] = hd_attr_int(a, "src", 0);
	p->n[HD_COPY_SRC_STEP] = hd_attr_int(a, "src_step", run);
	p->n[HD_COPY_DST] = hd_attr_int(a, "dst", 0);
	p->n[HD_COPY_DST_STEP] = hd_attr_int(a, "dst_step", run);
	HD_TRY(hd_check_pieces(c, "input 0's", nx, runs, run, p->n[HD_COPY_SRC], p->n[HD_COPY_SRC_STEP]));
	HD_TRY(hd_check_pieces(c, "output 0's", ny, runs, run, p->n[HD_COPY_DST], p->n[HD_COPY_DST_STEP]));
	for (int i = HD_COPY_RUN; i <= HD_COPY_DST_STEP; i++) {
		int whole = i == HD_COPY_RUN && run == nx; /* may end inside its last byte */

		if (p->n[i] * bits % 8 && !whole && !(runs == 1 && (i == HD_COPY_SRC_STEP || i == HD_COPY_DST_STEP)))
			return hd_err_set(c->err, HD_ENOTSUP,
					  "%s: pieces of dtype %s must begin and end at whole bytes", c->kernel,
					  hd_dtype_name(x->dtype));
		p->n[i] = i == HD_COPY_RUN ? (run * bits + 7) / 8 : p->n[i] * bits / 8;
	}
	return 0;
}

/* add: y (dims of input 0) = sum of inputs, broadcast by dim.  The dims are merged where every
 * input allows it. */
struct hd_add {
	uint32_t nin, ndim;
	int64_t n[HD_MAX_DIMS];
	int64_t stride[HD_MAX_INS][HD_MAX_DIMS];
};

static inline int hd_add_strides(const struct hd_check *c, struct hd_add *s, uint32_t k)
{
	const struct hd_view *x = &c->d->in[k], *y = &c->d->in[0];
	int64_t stride = 1;
	char who[32];

	for (uint32_t i = x->ndim; i--; stride *= x->n[i]) {
		uint32_t j = 0;

		while (j < y->ndim && y->dims[j] != x->dims[i])
			j++;
		if (j == y->ndim || y->n[j] != x->n[i])
			return hd_err_set(c->err, HD_EINVAL, "%s: %s has dim %s of %lld, input 0 has %lld", c->kernel,
					  hd_check_operand(c, x, who), x->dims[i]->name, (long long)x->n[i],
					  (long long)(j == y->ndim ? 0 : y->n[j]));
		s->stride[k][j] = stride;
	}
	return 0;
}

static inline void hd_add_merge(struct hd_add *s)
{
	uint32_t to = 0;

	for (uint32_t i = 1; i < s->ndim; i++) {
		int joins = 1;

		for (uint32_t k = 0; k < s->nin; k++)
			joins &= s->stride[k][to] == s->stride[k][i] * s->n[i];
		s->n[to + !joins] = joins ? s->n[to] * s->n[i] : s->n[i];
		to += !joins;
		for (uint32_t k = 0; k < s->nin; k++)
			s->stride[k][to] = s->stride[k][i];
	}
	s->ndim = s->ndim ? to + 1 : 0;
}

static inline int hd_prepare_add(const struct hd_check *c, struct hd_prep *p)
{
	struct hd_add *s;
	int rc = 0;

	HD_TRY(hd_check_counts(c, 1, HD_MAX_INS, 1, 1));
	HD_TRY(hd_check_dtypes(c, "r", "r"));
	HD_TRY(hd_check_same(c, &c->d->out[0], &c->d->in[0]));
	s = (struct hd_add *)hd_alloc(sizeof(*s));
	s->nin = c->d->nin;
	s->ndim = c->d->in[0].ndim;
	memcpy(s->n, c->d->in[0].n, sizeof(s->n));
	for (uint32_t k = 0; k < s->nin && !rc; k++)
		rc = hd_add_strides(c, s, k);
	if (rc) {
		free(s);
		return rc;
	}
	hd_add_merge(s);
	if (!s->ndim) { /* a scalar */
		s->ndim = 1;
		s->n[0] = 1;
	}
	p->n[0] = hd_view_count(&c->d->in[0]);
	p->state = s;
	p->release = free;
	return 0;
}

#endif
