/* SPDX-License-Identifier: Apache-2.0
 * attention_cached and rope_at: attention of a few new tokens over all previous ones, whose keys and values are
 * cached.
 *
 * A task is a few heads of a sequence that read the same keys. Reading the cache dominates the cost. So scores and
 * results are thin products (kernels/cpu/thin), which read keys and values once, where they are. With a window the
 * keys are up to three pieces: two of the ring, and the new keys.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/pairs.h"
#include "kernels/cpu/base/scratch.h"
#include "kernels/cpu/thin/thin.h"
#include "kernels/prepare/attention.h"
#include "kernels/prepare/rope.h"
#include <omp.h>
#include <stdlib.h>

struct cached {
	struct hd_cached c;
	int threads;              /* threads that scratch suffices for */
	hd_thin_fn *thin, *pairs; /* pairs: for rows of bf16, or NULL */
};

/* Most heads of a task. All read one kv head, which is thus read once for all. */
#define HEADS HD_THIN_ROWS

/* Returns the floats of scratch per thread, for HEADS heads: q, scores, and results twice. */
static int64_t floats_per_thread(const struct hd_cached *c)
{
	return (HEADS * (c->past + 3 * c->t.dim) + 15) / 16 * 16;
}

static int64_t scratch(const struct hd_kernel_desc *d, int threads)
{
	struct hd_err ignored = { 0 };
	struct hd_cached c;

	memset(&c, 0, sizeof(c));
	if (hd_prepare_cached(d, "cpu", HD_DTYPE_F32, &c, &ignored) < 0)
		return 0;
	return floats_per_thread(&c) * threads * (int64_t)sizeof(float);
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct hd_cached c;
	struct cached *s;

	memset(&c, 0, sizeof(c));
	HD_TRY(hd_prepare_cached(d, "cpu", HD_DTYPE_F32, &c, err));
	if (c.t.dim > HD_PIECE)
		return hd_err_set(err, HD_ENOTSUP, "attention_cached: heads of %lld, but at most %d is possible",
				  (long long)c.t.dim, HD_PIECE);
	s = hd_alloc(sizeof(*s));
	*s = (struct cached){ c, omp_get_max_threads(), hd_thin_best(), NULL };
#if HD_AMX
	s->pairs = c.t.low && hd_pairs_fast() ? hd_thin_pairs : NULL;
#endif
	p->state = s;
	return hd_scratch_take(p, scratch(d, s->threads), "attention_cached", err);
}

/* Replaces x with e^(scale x - max), where cap, if positive, bounds scale x. Returns their sum. */
HD_CLONES static float softmax(float *x, int64_t n, float scale, float cap)
{
	float max = -HUGE_VALF, sum = 0;

	for (int64_t j = 0; cap > 0 && j < n; j++)
		x[j] = cap * hd_tanhf_all(scale * x[j] / cap);
	scale = cap > 0 ? 1 : scale;
#pragma omp simd reduction(max : max)
	for (int64_t j = 0; j < n; j++) {
		x[j] *= scale;
		max = x[j] > max ? x[j] : max;
	}
#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < n; j++) {
		x[j] = hd_expf(x[j] - max);
		sum += x[j];
	}
	return sum;
}

/* Consecutive keys, of the caches or among the new ones. */
struct key_run {
	const void *k, *v;
	int64_t at, n; /* element of the first key; number of keys */
};

/* Finds the keys that a query at `position` in column s of sequence b sees, in the order of their positions. Returns
 * the number of pieces. */
static int keys_of(const struct cached *c, void *const *in, int64_t b, int64_t s, int64_t kv, int64_t position,
		   struct key_run keys[3])
{
	const struct hd_attention *t = &c->c.t;
	int64_t first = hd_cached_first(&c->c, position), dim = t->dim, past = c->c.past;
	int64_t begin = position - hd_min(s, position); /* the position of this run's first token */
	int64_t from = first > begin ? first : begin, old = begin - first, slot = hd_cached_slot(&c->c, first), n = 0;

	if (!t->window) { /* the caches contain the new keys already */
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

static int64_t tasks_of_group(const struct hd_attention *t)
{
	return (t->group + HEADS - 1) / HEADS;
}

/* Returns the task of local head h. */
static int64_t task_of(const struct hd_attention *t, int64_t h)
{
	return (t->head0 + h) / t->group * tasks_of_group(t) + (t->head0 + h) % t->group / HEADS;
}

/* Heads h..h + n - 1 of query s of sequence b, all of which read local kv head `kv`. */
struct queries {
	int64_t b, s, h, n, kv;
};

/* Returns the product of n rows with the keys or values of a run, which are in x. */
static struct hd_thin_job with_cache(const struct hd_attention *t, const float *rows, int64_t n, const void *x,
				     const struct key_run *keys, struct hd_fetch *next)
{
	struct hd_thin_job j = { .m = n, .rows = rows, .low = t->low, .b_step = t->kv_heads * t->dim, .next = next };

	j.b = (const char *)x + keys->at * (t->low ? 2 : 4);
	return j;
}

/* Describes the lines of the keys or values of a run, in x, for prefetching. */
static struct hd_fetch lines_of(const struct hd_attention *t, const void *x, const struct key_run *keys)
{
	int64_t bytes = t->low ? 2 : 4;

	return hd_fetch_of((const char *)x + keys->at * bytes, t->dim * bytes, keys->n, t->kv_heads * t->dim * bytes);
}

static void end_fetch(struct hd_fetch *next)
{
	if (next)
		hd_fetch_lines(next, INT64_MAX);
}

/* Returns the first element of `a` in q and in the result. */
static int64_t first_of(const struct hd_attention *t, const struct queries *a)
{
	return ((a->b * t->seq + a->s) * t->heads + a->h) * t->dim;
}

/* Returns q of `a` in the form that score() takes: in place, or converted to fp32 in tmp (n, dim). */
static const void *queries_at(const struct cached *c, const struct queries *a, const void *q, float *tmp)
{
	const struct hd_attention *t = &c->c.t;
	int64_t at = first_of(t, a);

	if (!t->low)
		return (const float *)q + at;
	if (c->pairs)
		return (const uint16_t *)q + at;
	hd_bf16_to_f32(tmp, (const uint16_t *)q + at, a->n * t->dim);
	return tmp;
}

/* Computes the products of n queries with keys in place. */
static void score(const struct cached *c, const void *q, float *scores, const struct key_run *keys, int64_t n,
		  struct hd_fetch *next)
{
	struct hd_thin_job j = with_cache(&c->c.t, c->pairs ? NULL : q, n, keys->k, keys, next);

	j.low_rows = c->pairs ? q : NULL;
	j.k = j.row_step = c->c.t.dim;
	j.along_k = 1;
	(c->pairs ? c->pairs : c->thin)(&j, scores, c->c.past, 0, keys->n);
	end_fetch(next);
}

/* Computes o (n, dim), the products of the scores with values. */
static void mix(const struct cached *c, const float *scores, float *o, const struct key_run *keys, int64_t n,
		struct hd_fetch *next)
{
	struct hd_thin_job j = with_cache(&c->c.t, scores, n, keys->v, keys, next);

	j.k = keys->n;
	j.row_step = c->c.past;
	c->thin(&j, o, c->c.t.dim, 0, c->c.t.dim);
	end_fetch(next);
}

static void write_results(const struct hd_attention *t, const struct queries *a, void *to, float *o, const float *sums)
{
	int64_t at = first_of(t, a);

	for (int64_t i = 0; i < a->n; i++, at += t->dim, o += t->dim) {
		for (int64_t k = 0; k < t->dim && sums; k++)
			o[k] /= sums[i];
		if (t->low)
			hd_write(to, HD_DTYPE_BF16, at, t->dim, o);
		else
			memcpy((float *)to + at, o, (size_t)t->dim * sizeof(*o));
	}
}

/* Finds the keys that `a` sees. Returns the number of pieces, 0 for a token that is padding. */
static int keys_seen(const struct cached *c, void *const *in, const struct queries *a, struct key_run keys[3])
{
	int32_t position = ((int32_t *)in[5])[a->b * c->c.t.seq + a->s];

	return position < 0 ? 0 : keys_of(c, in, a->b, a->s, a->kv, position, keys);
}

/* Computes the queries `a`. next: the queries after `a`, whose keys are prefetched; NULL if there are none, or if the
 * processor's cache has their keys already. */
static void compute_queries(const struct cached *c, float *own, void *const *out, void *const *in,
			    const struct queries *a, const struct queries *next)
{
	const struct hd_attention *t = &c->c.t;
	int64_t size = HEADS * t->dim, n = 0;
	float *o = own + size, *more = o + size, *scores = more + size, sums[HEADS];
	const void *q = queries_at(c, a, in[0], own);
	struct key_run keys[3], later[3];
	int pieces = keys_seen(c, in, a, keys), more_pieces = next ? keys_seen(c, in, next, later) : 0;

	for (int i = 0; i < pieces; n += keys[i++].n) {
		struct hd_fetch values = lines_of(t, keys[i].v, &keys[i]);

		score(c, q, scores + n, &keys[i], a->n, t->seq == 1 ? &values : NULL);
	}
	for (int64_t i = 0; i < a->n && pieces; i++)
		sums[i] = softmax(scores + i * c->c.past, n, t->scale, t->softcap);
	if (!pieces)
		memset(o, 0, (size_t)size * sizeof(*o));
	for (int i = 0; i < pieces; scores += keys[i++].n) {
		struct hd_fetch f = { 0 };

		if (i < more_pieces)
			f = lines_of(t, later[i].k, &later[i]);
		mix(c, scores, i ? more : o, &keys[i], a->n, t->seq == 1 ? &f : NULL);
		for (int64_t k = 0; k < a->n * t->dim && i; k++)
			o[k] += more[k];
	}
	write_results(t, a, out[0], o, pieces ? sums : NULL);
}

/* Returns the heads of task i of sequence b. Tasks are numbered by the heads of the whole dim, so that no bit depends
 * on how it is sharded. */
static struct queries queries_of(const struct hd_attention *t, int64_t b, int64_t i)
{
	int64_t per = tasks_of_group(t), kv = i / per, from = kv * t->group + i % per * HEADS;
	int64_t to = hd_min(from + HEADS, (kv + 1) * t->group), first = from > t->head0 ? from : t->head0;
	struct queries a = { .b = b, .h = first - t->head0, .kv = kv - t->kv0 };

	a.n = hd_min(to, t->head0 + t->heads) - first;
	return a;
}

/* Runs tasks from..to - 1 on one thread. Each sequence has `tasks` of them, numbered from `first` on. */
static void run_tasks(const struct cached *c, float *own, void *const *out, void *const *in, int64_t first,
		      int64_t tasks, int64_t from, int64_t to)
{
	const struct hd_attention *t = &c->c.t;

	for (int64_t i = from; i < to; i++) {
		struct queries a = queries_of(t, i / tasks, first + i % tasks), next;

		if (i + 1 < to)
			next = queries_of(t, (i + 1) / tasks, first + (i + 1) % tasks);
		for (; a.s < t->seq; a.s++)
			compute_queries(c, own, out, in, &a, i + 1 < to && t->seq == 1 ? &next : NULL);
	}
}

/* Stores keys and values of token i, which belongs to sequence i / seq, in the caches. */
static void store_in_cache(const struct hd_cached *c, void *const *in, int64_t i)
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
	int64_t first = task_of(t, 0), tasks = task_of(t, t->heads - 1) - first + 1, tokens = t->batch * t->seq;
	int64_t n = t->batch * tasks;
	int threads = omp_get_max_threads() < c->threads ? omp_get_max_threads() : c->threads;

	(void)r;
#pragma omp parallel num_threads(threads)
	{
		int64_t me = omp_get_thread_num(), all_here = omp_get_num_threads();

#pragma omp for schedule(static)
		for (int64_t i = 0; i < (t->window ? 0 : tokens); i++)
			store_in_cache(&c->c, in, i);
		run_tasks(c, all + me * floats_per_thread(&c->c), out, in, first, tasks, n * me / all_here,
			  n * (me + 1) / all_here);
#pragma omp barrier
#pragma omp for schedule(static)
		for (int64_t i = 0; i < (t->window ? tokens : 0); i++)
			store_in_cache(&c->c, in, i);
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
