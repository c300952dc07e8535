/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for attention, in plain loops: one row of probabilities at a time.
 *
 * With p = softmax(scale q k^T) and o = p v:
 *
 *	dv = p^T do	dp = do v^T	ds = p (dp - sum(do o))	dq = scale ds k	dk = scale ds^T q
 *
 * With softcap c a score is c tanh(s / c), and ds has the additional factor 1 - tanh^2(s / c).
 */
#include <config.h>
#include "kernels/prepare/attention.h"
#include "engine/device/device.h"
#include <stdlib.h>

static int prepare_any(const struct hd_kernel_desc *d, struct hd_prep *p, int backward, struct hd_err *err)
{
	struct hd_attention t = { 0 }, *kept;

	HD_TRY(hd_prepare_attention(d, backward, "ref", HD_DTYPE_F64, &t, err));
	kept = hd_alloc(sizeof(*kept));
	*kept = t;
	p->state = kept;
	p->release = free;
	return 0;
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_any(d, p, 0, err);
}

static int prepare_d(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_any(d, p, 1, err);
}

static int64_t limit(const struct hd_attention *t, int64_t i) /* end of the keys that query i sees */
{
	int64_t n = t->q0 + i - t->k0 + 1;

	if (!t->causal || n > t->keys)
		return t->keys;
	return n > 0 ? n : 0;
}

static int64_t first(const struct hd_attention *t, int64_t i) /* first key that query i sees */
{
	int64_t j = t->q0 + i - t->k0 - t->window + 1;

	return t->window && j > 0 ? j : 0;
}

static int64_t at(const struct hd_attention *t, int64_t b, int64_t i, int64_t h)
{
	return ((b * t->seq + i) * t->heads + h) * t->dim;
}

static int64_t kv_at(const struct hd_attention *t, int64_t b, int64_t j, int64_t h)
{
	return ((b * t->keys + j) * t->kv_heads + (t->head0 + h) / t->group - t->kv0) * t->dim;
}

static double dot(const double *x, const double *y, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += x[i] * y[i];
	return sum;
}

static void axpy(double *y, double a, const double *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] += a * x[i];
}

static double score(const struct hd_attention *t, const double *q, const double *k)
{
	double s = t->exact_scale * dot(q, k, t->dim), cap = t->exact_softcap;

	return cap > 0 ? cap * tanh(s / cap) : s;
}

static void query(const struct hd_attention *t, double *const *out, double *const *in, int64_t b, int64_t h, int64_t i)
{
	const double *q = in[0] + at(t, b, i, h);
	double *o = out[0] + at(t, b, i, h), max = -INFINITY, sum = 0;
	int64_t n = limit(t, i), from = first(t, i);

	memset(o, 0, (size_t)t->dim * sizeof(*o));
	for (int64_t j = from; j < n; j++)
		max = fmax(max, score(t, q, in[1] + kv_at(t, b, j, h)));
	for (int64_t j = from; j < n; j++) {
		double p = exp(score(t, q, in[1] + kv_at(t, b, j, h)) - max);

		sum += p;
		axpy(o, p, in[2] + kv_at(t, b, j, h), t->dim);
	}
	for (int64_t d = 0; d < t->dim && from < n; d++)
		o[d] /= sum;
	out[1][(b * t->heads + h) * t->seq + i] = from < n ? max + log(sum) : -INFINITY;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_attention *t = p->state;

	(void)r;
	for (int64_t b = 0; b < t->batch; b++)
		for (int64_t h = 0; h < t->heads; h++)
			for (int64_t i = 0; i < t->seq; i++)
				query(t, (double *const *)out, (double *const *)in, b, h, i);
}

static void query_d(const struct hd_attention *t, double *const *out, double *const *in, int64_t b, int64_t h,
		    int64_t i)
{
	int64_t qi = at(t, b, i, h);
	const double *q = in[0] + qi, *o = in[3] + qi, *d_o = in[5] + qi;
	double lse = in[4][(b * t->heads + h) * t->seq + i], delta = dot(o, d_o, t->dim);

	for (int64_t j = first(t, i); j < limit(t, i); j++) {
		int64_t kj = kv_at(t, b, j, h);
		const double *k = in[1] + kj, *v = in[2] + kj;
		double s = score(t, q, k), part = t->exact_softcap > 0 ? s / t->exact_softcap : 0, pr = exp(s - lse);
		double ds = t->exact_scale * pr * (dot(d_o, v, t->dim) - delta) * (1 - part * part);

		axpy(out[0] + qi, ds, k, t->dim);
		axpy(out[1] + kj, ds, q, t->dim);
		axpy(out[2] + kj, pr, d_o, t->dim);
	}
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_attention *t = p->state;
	size_t nq = (size_t)(t->batch * t->seq * t->heads * t->dim) * sizeof(double);
	size_t nk = (size_t)(t->batch * t->keys * t->kv_heads * t->dim) * sizeof(double);

	(void)r;
	memset(out[0], 0, nq);
	memset(out[1], 0, nk);
	memset(out[2], 0, nk);
	for (int64_t b = 0; b < t->batch; b++)
		for (int64_t h = 0; h < t->heads; h++)
			for (int64_t i = 0; i < t->seq; i++)
				query_d(t, (double *const *)out, (double *const *)in, b, h, i);
}

const struct hd_kernel hd_ref_attention = { .name = "attention", .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_attention_d = { .name = "attention_d", .prepare = prepare_d, .run = run_d };
