/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for attention_cached and rope_at: plain loops over the positions that a query sees.
 */
#include <config.h>
#include <math.h>
#include <stdlib.h>
#include "kernels/prepare/attention.h"
#include "kernels/prepare/rope.h"

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct hd_cached *c = hd_alloc(sizeof(*c));

	p->state = c;
	p->release = free;
	return hd_prepare_cached(d, "ref", HD_DTYPE_F64, c, err);
}

static double score(const struct hd_cached *c, const double *q, const double *k)
{
	double sum = 0;

	for (int64_t i = 0; i < c->t.dim; i++)
		sum += q[i] * k[i];
	sum *= c->t.exact_scale;
	return c->t.exact_softcap > 0 ? c->t.exact_softcap * tanh(sum / c->t.exact_softcap) : sum;
}

static void query(const struct hd_cached *c, double *o, const double *q, const double *k, const double *v,
		  int64_t position)
{
	int64_t stride = c->t.kv_heads * c->t.dim;
	double max = -INFINITY, sum = 0;

	memset(o, 0, (size_t)c->t.dim * sizeof(*o));
	for (int64_t j = hd_cached_first(c, position); j <= position; j++)
		max = fmax(max, score(c, q, k + hd_cached_slot(c, j) * stride));
	for (int64_t j = hd_cached_first(c, position); j <= position; j++) {
		double w = exp(score(c, q, k + hd_cached_slot(c, j) * stride) - max);

		sum += w;
		for (int64_t i = 0; i < c->t.dim; i++)
			o[i] += w * v[hd_cached_slot(c, j) * stride + i];
	}
	for (int64_t i = 0; i < c->t.dim && position >= 0; i++)
		o[i] /= sum;
}

/* Processes token by token: each is stored in the caches, and its queries are computed, before the next. */
static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_cached *c = p->state;
	const struct hd_attention *t = &c->t;
	int64_t row = t->kv_heads * t->dim;
	const int32_t *positions = in[5];

	(void)r;
	for (int64_t i = 0; i < t->batch * t->seq; i++) {
		int64_t sequence = i / t->seq * c->past;

		for (int k = 0; k < 2 && hd_cached_keeps(c, positions[i], positions[i]); k++)
			memcpy((double *)in[3 + k] + (sequence + hd_cached_slot(c, positions[i])) * row,
			       (const double *)in[1 + k] + i * row, (size_t)row * sizeof(double));
		for (int64_t h = 0; h < t->heads; h++) {
			int64_t at = (i * t->heads + h) * t->dim;
			int64_t cache = sequence * row + ((t->head0 + h) / t->group - t->kv0) * t->dim;

			query(c, (double *)out[0] + at, (const double *)in[0] + at, (const double *)in[3] + cache,
			      (const double *)in[4] + cache, positions[i]);
		}
	}
}

static int prepare_angles(const struct hd_check *c, struct hd_prep *p)
{
	p->state = hd_alloc(sizeof(struct hd_rope));
	p->release = free;
	return hd_prepare_rope_at(c, p, p->state);
}
HD_PREPARE(prepare_at, "rope_at", HD_DTYPE_F64, prepare_angles(c, p))

static void run_at(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_rope *of = p->state;
	int64_t half = of->turned / 2, dim = p->n[3];

	(void)r;
	for (int64_t i = 0; i < p->n[0] * p->n[1] * p->n[2]; i++) {
		const double *x = (const double *)in[0] + i * dim;
		double *y = (double *)out[0] + i * dim, position = fmax(0, ((const int32_t *)in[1])[i / p->n[2]]);

		memcpy(y, x, (size_t)dim * sizeof(*y));
		for (int64_t k = 0; k < half; k++) {
			double angle = position * hd_rope_rate(of, k), a = of->attention * x[k],
			       b = of->attention * x[k + half];

			y[k] = a * cos(angle) - b * sin(angle);
			y[k + half] = b * cos(angle) + a * sin(angle);
		}
	}
}

const struct hd_kernel hd_ref_attention_cached = { .name = "attention_cached", .prepare = prepare, .run = run };
const struct hd_kernel hd_ref_rope_at = { .name = "rope_at", .prepare = prepare_at, .run = run_at };
