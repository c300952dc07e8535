/* SPDX-License-Identifier: Apache-2.0
 * attention_cached and rope_at: attention of a few new tokens over all that came before, of which keys and values are kept.
 *
 * A head of a sequence is a task.  What costs is reading the cache once; so a query makes its scores in one pass over the keys,
 * and its result in one over the values.  With a window the keys are up to three pieces: two of the ring, and what came in.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/scratch.h"
#include "kernels/prepare/attention.h"
#include "kernels/prepare/rope.h"
#include <omp.h>
#include <stdlib.h>

struct cached {
	struct hd_cached c;
	int threads; /* that there is scratch for */
};

/* Floats of scratch of a thread: scores, and a result */
static int64_t each(const struct hd_cached *c)
{
	return (c->past + c->t.dim + 15) / 16 * 16;
}

static int64_t scratch(const struct hd_kernel_desc *d, int threads)
{
	struct hd_err ignored = { 0 };
	struct hd_cached c;

	memset(&c, 0, sizeof(c));
	if (hd_prepare_cached(d, "cpu", HD_DTYPE_F32, &c, &ignored) < 0)
		return 0;
	return each(&c) * threads * (int64_t)sizeof(float);
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct hd_cached c;
	struct cached *s;

	memset(&c, 0, sizeof(c));
	HD_TRY(hd_prepare_cached(d, "cpu", HD_DTYPE_F32, &c, err));
	if (c.t.dim > HD_PIECE)
		return hd_err_set(err, HD_ENOTSUP, "attention_cached: heads of %lld, at most %d are known",
				  (long long)c.t.dim, HD_PIECE);
	s = hd_alloc(sizeof(*s));
	*s = (struct cached){ c, omp_get_max_threads() };
	p->state = s;
	return hd_scratch_take(p, scratch(d, s->threads), "attention_cached", err);
}

/* Four rows of a cache, `AHEAD` rows after `at`: a head's rows are short and lie far apart, so no processor fetches them by itself. */
enum { AHEAD = 12 };

static inline __attribute__((always_inline)) void fetch_four(const void *x, int64_t at, int64_t stride, int64_t dim,
							     const int low)
{
	for (int r = 0; r < 4; r++)
		for (int64_t i = 0; i < dim; i += low ? 32 : 16)
			__builtin_prefetch((const char *)x + (at + (AHEAD + r) * stride + i) * (low ? 2 : 4), 0, 3);
}

/* The scores of keys at k, which are `stride` apart; four at once, so that their sums do not wait for each other. */
static inline __attribute__((always_inline)) void scores_any(float *score, const float *q, const void *k, int64_t at,
							     int64_t stride, int64_t n, int64_t dim, float scale,
							     const int low)
{
	int64_t j = 0;

	for (; j + 4 <= n; j += 4, at += 4 * stride) {
		float a = 0, b = 0, c = 0, d = 0;

		fetch_four(k, at, stride, dim, low);
#pragma omp simd reduction(+ : a, b, c, d)
		for (int64_t i = 0; i < dim; i++) {
			a += q[i] * hd_get(k, low, at + i);
			b += q[i] * hd_get(k, low, at + stride + i);
			c += q[i] * hd_get(k, low, at + 2 * stride + i);
			d += q[i] * hd_get(k, low, at + 3 * stride + i);
		}
		score[j] = scale * a, score[j + 1] = scale * b, score[j + 2] = scale * c, score[j + 3] = scale * d;
	}
	for (; j < n; j++, at += stride) {
		float sum = 0;

#pragma omp simd reduction(+ : sum)
		for (int64_t i = 0; i < dim; i++)
			sum += q[i] * hd_get(k, low, at + i);
		score[j] = scale * sum;
	}
}

HD_CLONES static void scores(float *score, const float *q, const void *k, int64_t at, int64_t stride, int64_t n,
			     int64_t dim, float scale)
{
	scores_any(score, q, k, at, stride, n, dim, scale, 0);
}

HD_CLONES static void scores_low(float *score, const float *q, const void *k, int64_t at, int64_t stride, int64_t n,
				 int64_t dim, float scale)
{
	scores_any(score, q, k, at, stride, n, dim, scale, 1);
}

static inline __attribute__((always_inline)) void mix_any(float *o, const float *p, const void *v, int64_t at,
							  int64_t stride, int64_t n, int64_t dim, const int low)
{
	int64_t j = 0;

	for (; j + 4 <= n; j += 4, at += 4 * stride) {
		float a = p[j], b = p[j + 1], c = p[j + 2], d = p[j + 3];

		fetch_four(v, at, stride, dim, low);
#pragma omp simd
		for (int64_t i = 0; i < dim; i++)
			o[i] += (a * hd_get(v, low, at + i) + b * hd_get(v, low, at + stride + i)) +
				(c * hd_get(v, low, at + 2 * stride + i) + d * hd_get(v, low, at + 3 * stride + i));
	}
	for (; j < n; j++, at += stride) {
#pragma omp simd
		for (int64_t i = 0; i < dim; i++)
			o[i] += p[j] * hd_get(v, low, at + i);
	}
}

HD_CLONES static void mix(float *o, const float *p, const void *v, int64_t at, int64_t stride, int64_t n, int64_t dim)
{
	mix_any(o, p, v, at, stride, n, dim, 0);
}

HD_CLONES static void mix_low(float *o, const float *p, const void *v, int64_t at, int64_t stride, int64_t n,
			      int64_t dim)
{
	mix_any(o, p, v, at, stride, n, dim, 1);
}

/* -> the sum of what they become: e^(x - max) */
HD_CLONES static float softmax(float *x, int64_t n, float cap)
{
	float max = -HUGE_VALF, sum = 0;

	for (int64_t j = 0; cap > 0 && j < n; j++)
		x[j] = cap * hd_tanhf_all(x[j] / cap);
#pragma omp simd reduction(max : max)
	for (int64_t j = 0; j < n; j++)
		max = x[j] > max ? x[j] : max;
#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < n; j++) {
		x[j] = hd_expf(x[j] - max);
		sum += x[j];
	}
	return sum;
}

/* Keys that lie behind each other, of the caches or of what came in. */
struct key_run {
	const void *k, *v;
	int64_t at, n; /* element of the first; how many */
};

/* What a query at `position` in column s of sequence b sees, by their positions. */
static int keys_of(const struct cached *c, void *const *in, int64_t b, int64_t s, int64_t kv, int64_t position,
		   struct key_run keys[3])
{
	const struct hd_attention *t = &c->c.t;
	int64_t first = hd_cached_first(&c->c, position), dim = t->dim, past = c->c.past;
	int64_t begin = position - hd_min(s, position); /* where this run's own begin */
	int64_t from = first > begin ? first : begin, old = begin - first, slot = hd_cached_slot(&c->c, first), n = 0;

	if (!t->window) { /* all are kept already */
		keys[n++] = (struct key_run){ in[3], in[4], (b * past * t->kv_heads + kv) * dim, position + 1 };
		return (int)n;
	}
	if (old > 0)
		keys[n++] = (struct key_run){ in[3], in[4], ((b * past + slot) * t->kv_heads + kv) * dim,
					      hd_min(old, past - slot) };
	if (old > past - slot)
		keys[n++] = (struct key_run){ in[3], in[4], (b * past * t->kv_heads + kv) * dim, old - (past - slot) };
	keys[n++] = (struct key_run){ in[1], in[2], ((b * t->seq + s - position + from) * t->kv_heads + kv) * dim,
				      position - from + 1 };
	return (int)n;
}

/* Query s of head h of sequence b. */
static void query(const struct cached *c, float *own, void *const *out, void *const *in, int64_t b, int64_t s,
		  int64_t h)
{
	const struct hd_attention *t = &c->c.t;
	int64_t dim = t->dim, at = ((b * t->seq + s) * t->heads + h) * dim, n = 0, stride = t->kv_heads * dim;
	int64_t position = ((int32_t *)in[5])[b * t->seq + s];
	uint32_t dtype = t->low ? HD_DTYPE_BF16 : HD_DTYPE_F32;
	float *o = own + each(&c->c) - dim, wide[HD_PIECE], sum;
	struct key_run keys[3];
	int pieces = position < 0 ? 0 : keys_of(c, in, b, s, (t->head0 + h) / t->group - t->kv0, position, keys);

	memset(o, 0, (size_t)dim * sizeof(*o));
	for (int i = 0; i < pieces; n += keys[i++].n)
		(t->low ? scores_low : scores)(own + n, hd_read(in[0], dtype, at, dim, wide), keys[i].k, keys[i].at,
					       stride, keys[i].n, dim, t->scale);
	sum = softmax(own, n, t->softcap);
	for (int i = 0; i < pieces; own += keys[i++].n)
		(t->low ? mix_low : mix)(o, own, keys[i].v, keys[i].at, stride, keys[i].n, dim);
	for (int64_t i = 0; i < dim && pieces; i++)
		o[i] /= sum;
	if (t->low)
		hd_write(out[0], dtype, at, dim, o);
	else
		memcpy((float *)out[0] + at, o, (size_t)dim * sizeof(*o));
}

/* Keys and values of token i, which is of sequence i / seq. */
static void keep(const struct hd_cached *c, void *const *in, int64_t i)
{
	int64_t sequence = i / c->t.seq, row = c->t.kv_heads * c->t.dim;
	const int32_t *positions = in[5];
	size_t bytes = (size_t)row * (c->t.low ? 2 : 4);

	if (!hd_cached_keeps(c, positions[i], positions[(sequence + 1) * c->t.seq - 1]))
		return;
	for (int k = 0; k < 2; k++)
		memcpy((char *)in[3 + k] + (size_t)(sequence * c->past + hd_cached_slot(c, positions[i])) * bytes,
		       (const char *)in[1 + k] + (size_t)i * bytes, bytes);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	struct cached *c = p->state;
	float *all = hd_scratch();
	const struct hd_attention *t = &c->c.t;
	int64_t tasks = t->batch * t->heads, tokens = t->batch * t->seq;
	int threads = omp_get_max_threads() < c->threads ? omp_get_max_threads() : c->threads;

	(void)r;
#pragma omp parallel num_threads(threads)
	{
#pragma omp for schedule(static)
		for (int64_t i = 0; i < (t->window ? 0 : tokens); i++)
			keep(&c->c, in, i);
#pragma omp for schedule(static)
		for (int64_t i = 0; i < tasks; i++)
			for (int64_t s = 0; s < t->seq; s++)
				query(c, all + omp_get_thread_num() * each(&c->c), out, in, i / t->heads, s,
				      i % t->heads);
#pragma omp for schedule(static)
		for (int64_t i = 0; i < (t->window ? tokens : 0); i++)
			keep(&c->c, in, i);
	}
}

/* -- rope_at ----------------------------------------------------------------------------------- */
static struct hd_rope_table *tables;

static void release(void *state)
{
#pragma omp critical(hd_rope_at_tables)
	free(hd_rope_drop(&tables, state));
}

static int prepare_rope_at(const struct hd_check *c, struct hd_prep *p)
{
	struct hd_rope_table *t;
	struct hd_rope a;

	HD_TRY(hd_prepare_rope_at(c, p, &a));
#pragma omp critical(hd_rope_at_tables)
	{
		t = hd_rope_find(tables, &a);
		if (!t)
			t = hd_rope_add(&tables, &a, hd_rope_angles(&a));
	}
	p->state = t;
	p->release = release;
	p->n[8] = a.seq;
	return 0;
}
HD_PREPARE_LOW(prepare_at, "rope_at", "t*", "t", prepare_rope_at(c, p))

static inline __attribute__((always_inline)) void turn_any(void *y, const void *x, int64_t at, const float *cosine,
							   const struct hd_prep *p, const int low)
{
	int64_t half = p->n[7] / 2, dim = p->n[3];
	const float *sine = cosine + half;

	for (int64_t h = 0; h < p->n[2]; h++, at += dim) {
#pragma omp simd
		for (int64_t i = 0; i < half; i++) {
			float a = hd_get(x, low, at + i), b = hd_get(x, low, at + i + half);

			hd_put(y, low, at + i, a * cosine[i] - b * sine[i]);
			hd_put(y, low, at + i + half, b * cosine[i] + a * sine[i]);
		}
		for (int64_t i = at + 2 * half; i < at + dim; i++)
			hd_put(y, low, i, hd_get(x, low, i));
	}
}

HD_CLONES static void turn(void *y, const void *x, int64_t at, const float *cosine, const struct hd_prep *p)
{
	turn_any(y, x, at, cosine, p, 0);
}

HD_CLONES static void turn_low(void *y, const void *x, int64_t at, const float *cosine, const struct hd_prep *p)
{
	turn_any(y, x, at, cosine, p, 1);
}

static void run_at(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t tokens = p->n[0] * p->n[1], row = p->n[2] * p->n[3];
	const struct hd_rope_table *t = p->state;
	const int32_t *positions = in[1];

	(void)r;
#pragma omp parallel for schedule(static) if (tokens * row >= 2 * HD_SMALL)
	for (int64_t i = 0; i < tokens; i++) {
		int64_t at = positions[i] < 0 ? 0 : hd_min(positions[i], p->n[8] - 1);

		(p->n[14] == HD_DTYPE_BF16 ? turn_low : turn)(out[0], in[0], i * row, t->turn + at * p->n[7], p);
	}
}

const struct hd_kernel hd_cpu_attention_cached = {
	.name = "attention_cached", .prepare = prepare, .scratch = scratch, .run = run
};
const struct hd_kernel hd_cpu_rope_at = { .name = "rope_at", .prepare = prepare_at, .run = run_at };
