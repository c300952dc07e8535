/* SPDX-License-Identifier: Apache-2.0
 * Tasks of attention_blocks.h. A task walks spans of queries of a head, and spans of keys, one after the other. So its
 * panels do not grow with the sequence.
 *
 * Forward, a span of queries meets all spans of keys that it sees, with a running maximum and sum for each query.
 * Backward, a span of keys meets the spans of queries that see it. The fp32 sums of a span that is visited again are
 * kept in its results. Results in bf16 have no room for them. Then scratch keeps the sums of dq for the complete
 * sequence, and those of dk and dv too where several heads read one kv head.
 */
/* Blocks of a span, which are packed together. Repacking for each of the other spans costs little compared with the
 * products of two spans. */
#define SPAN 16

/* Reserves n floats at *at, rounded up to whole cache lines, and returns their address. */
static inline float *att_room(float **at, int64_t n)
{
	float *room = *at;

	*at += (n + 15) / 16 * 16;
	return room;
}

/* ---- forward --------------------------------------------------------------------------------- */

struct att_keys { /* a span of keys: k packed as columns, v as rows */
	float *kt, *v;
	/* The span's first block, or -1 if none is packed. The task needs blocks from .. to - 1. */
	int64_t first, from, to;
};

/* A span of queries of one head: per block q, the result o and the softmax; s: the scores of one block. */
struct att_queries {
	float *q, *o, *s;
	struct att_rows *rows;
	int64_t first, end;
};

static void open_keys(const struct hd_attention *t, struct att_keys *x, void *const *in, const struct hd_att_task *task,
		      int64_t first)
{
	int64_t step = t->kv_heads * t->dim, panel = BLOCK * hd_att_padded(t);
	int64_t base = (task->b * t->keys * t->kv_heads + task->kv) * t->dim;

	if (x->first == first)
		return;
	x->first = first;
	for (int64_t j = first > x->from ? first : x->from; j < hd_att_min(first + SPAN, x->to); j++) {
		int64_t n = hd_att_min(BLOCK, t->keys - j * BLOCK), at = base + j * BLOCK * step;

		pack_columns(t, x->kt + (j - first) * panel, element(t, in[1], at), step, n);
		pack_rows(t, x->v + (j - first) * panel, element(t, in[2], at), step, n, 1);
	}
}

static int64_t query_at(const struct hd_attention *t, int64_t b, int64_t h, int64_t i)
{
	return ((b * t->seq + i * BLOCK) * t->heads + h) * t->dim;
}

static void open_queries(const struct hd_attention *t, const struct att_queries *x, void *const *in, int64_t b,
			 int64_t h)
{
	int64_t panel = BLOCK * hd_att_padded(t), n = x->end - x->first;

	memset(x->o, 0, (size_t)(n * panel) * sizeof(*x->o));
	memset(x->rows, 0, (size_t)n * sizeof(*x->rows));
	for (int64_t i = 0; i < n; i++) {
		int64_t block = x->first + i;

		pack_rows(t, x->q + i * panel, element(t, in[0], query_at(t, b, h, block)), t->heads * t->dim,
			  hd_att_min(BLOCK, t->seq - block * BLOCK), t->scale);
		for (int g = 0; g < BLOCK / HD_VL; g++)
			x->rows[i].max[g] = (V){ 0 } - INFINITY;
	}
}

/* Processes block i of queries against the packed keys. */
static void process_block(const struct hd_attention *t, const struct att_queries *x, const struct att_keys *y,
			  int64_t i)
{
	int64_t w = hd_att_padded(t), panel = BLOCK * w, end = hd_att_min(y->first + SPAN, hd_att_blocks(t->keys));
	int64_t from = first_block(t, i);
	float *q = x->q + (i - x->first) * panel, *o = x->o + (i - x->first) * panel;
	struct pair p;

	for (int64_t j = from > y->first ? from : y->first; j < end && pair_set(t, &p, i, j); j++) {
		product_n(x->s, BLOCK, q, w, y->kt + (j - y->first) * panel, BLOCK, p.scores, p.tiles_q, 0);
		softmax(t, &x->rows[i - x->first], x->s, o, &p);
		product_n(o, w, x->s, BLOCK, y->v + (j - y->first) * panel, w, p.by_key, p.tiles_q, 1);
	}
}

/* Computes all queries of a span of head h. */
static void forward_span(const struct hd_attention *t, const struct att_queries *x, struct att_keys *y,
			 void *const *out, void *const *in, const struct hd_att_task *task, int64_t h)
{
	int64_t last = hd_att_min(x->end * BLOCK, t->seq) - 1, panel = BLOCK * hd_att_padded(t);
	int64_t seen = hd_att_blocks(hd_att_seen(t, t->q0 + last, t->k0, t->keys));

	open_queries(t, x, in, task->b, h);
	for (int64_t j = first_block(t, x->first) / SPAN * SPAN; j < seen; j += SPAN) {
		open_keys(t, y, in, task, j);
		for (int64_t i = x->first; i < x->end; i++)
			process_block(t, x, y, i);
	}
	for (int64_t i = x->first; i < x->end; i++)
		finish(t, &x->rows[i - x->first], out[0], query_at(t, task->b, h, i),
		       (float *)out[1] + (task->b * t->heads + h) * t->seq + i * BLOCK, x->o + (i - x->first) * panel,
		       hd_att_min(BLOCK, t->seq - i * BLOCK));
}

/* Lays out the scratch of a forward task. Returns its size in floats. */
static int64_t forward_set(const struct hd_attention *t, struct att_keys *y, struct att_queries *x, float *scratch)
{
	int64_t panel = BLOCK * hd_att_padded(t), keys = hd_att_min(SPAN, hd_att_blocks(t->keys));
	int64_t queries = hd_att_min(SPAN, hd_att_blocks(t->seq));
	float *at = scratch;

	y->kt = att_room(&at, keys * panel);
	y->v = att_room(&at, keys * panel);
	x->q = att_room(&at, queries * panel);
	x->o = att_room(&at, queries * panel);
	x->s = att_room(&at, BLOCK * BLOCK);
	x->rows = (struct att_rows *)att_room(&at, queries * (int64_t)sizeof(*x->rows) / 4);
	return at - scratch;
}

static void forward(const struct hd_attention *t, float *scratch, void *const *out, void *const *in,
		    const struct hd_att_task *task)
{
	int64_t end = hd_att_blocks(task->to);
	struct att_queries x;
	struct att_keys y;

	forward_set(t, &y, &x, scratch);
	y.first = -1;
	y.from = first_block(t, task->from / BLOCK);
	y.to = hd_att_blocks(hd_att_seen(t, t->q0 + task->to - 1, t->k0, t->keys));
	for (int64_t h = 0; h < t->heads; h++)
		for (int64_t i = task->from / BLOCK; i < end && hd_att_reads(t, h, task); i += SPAN) {
			x.first = i;
			x.end = hd_att_min(i + SPAN, end);
			forward_span(t, &x, &y, out, in, task, h);
		}
}

/* ---- backward -------------------------------------------------------------------------------- */

struct panels {
	float *k, *kt, *vt, *dk, *dv; /* a span of keys */
	float *q, *d_o, *dq;          /* a span of queries of one head; q times scale */
	float *lse, *delta;
	float *s, *dp;  /* BLOCK x BLOCK */
	float *kept_dq; /* sums of all blocks in fp32; NULL if not needed, as the next two */
	float *kept_dk, *kept_dv;
	int64_t keys, queries; /* the first block of each open span; keys -1: no span is open */
	int heads;             /* heads of the task before the current one */
};

/* Returns whether sums are kept in scratch: results are bf16, and the keys are several spans. */
static int keeps(const struct hd_attention *t)
{
	return t->low && hd_att_blocks(t->keys) > SPAN;
}

static int keeps_keys(const struct hd_attention *t)
{
	return keeps(t) && t->group > 1 && t->heads > 1;
}

/* Lays out the scratch of a backward task. Returns its size in floats. */
static int64_t panels_set(const struct hd_attention *t, struct panels *x, float *scratch)
{
	int64_t keys = hd_att_blocks(t->keys), seq = hd_att_blocks(t->seq), panel = BLOCK * hd_att_padded(t);
	int64_t nk = hd_att_min(SPAN, keys), nq = hd_att_min(SPAN, seq);
	float *at = scratch, **of_keys[] = { &x->k, &x->kt, &x->vt, &x->dk, &x->dv };
	float **of_queries[] = { &x->q, &x->d_o, &x->dq };

	for (int i = 0; i < 5; i++)
		*of_keys[i] = att_room(&at, nk * panel);
	for (int i = 0; i < 3; i++)
		*of_queries[i] = att_room(&at, nq * panel);
	x->lse = att_room(&at, nq * BLOCK);
	x->delta = att_room(&at, nq * BLOCK);
	x->s = att_room(&at, BLOCK * BLOCK);
	x->dp = att_room(&at, BLOCK * BLOCK);
	x->kept_dq = keeps(t) ? att_room(&at, seq * panel) : NULL;
	x->kept_dk = keeps_keys(t) ? att_room(&at, keys * panel) : NULL;
	x->kept_dv = keeps_keys(t) ? att_room(&at, keys * panel) : NULL;
	return at - scratch;
}

INLINE float vdot(const struct hd_attention *t, const void *x, const void *y, int64_t at, int64_t n)
{
	V sum = { 0 };
	float tail = 0;
	int64_t i = 0;

	for (; i + HD_VL <= n; i += HD_VL)
		sum += load_operand(t, x, at + i) * load_operand(t, y, at + i);
	for (; i < n; i++)
		tail += load_element(t, x, at + i) * load_element(t, y, at + i);
	return vsum(sum) + tail;
}

/* Blocks first .. first + n - 1 of an operand of `rows` rows, which begin at `base` and are `step` apart. */
struct att_range {
	int64_t base, step, rows, first, n;
};

static struct att_range range_of(int64_t base, int64_t step, int64_t rows, int64_t first)
{
	return (struct att_range){ base, step, rows, first, hd_att_min(SPAN, hd_att_blocks(rows) - first) };
}

/* Loads the sums of range r from where they were kept: `kept`, which has room for all blocks, or the result where kept
 * is NULL. */
static void load_sums(const struct hd_attention *t, float *to, const float *kept, const void *result,
		      struct att_range r)
{
	int64_t panel = BLOCK * hd_att_padded(t);

	if (kept)
		memcpy(to, kept + r.first * panel, (size_t)(r.n * panel) * sizeof(*to));
	for (int64_t i = r.first; !kept && i < r.first + r.n; i++)
		pack_rows(t, to + (i - r.first) * panel, element(t, result, r.base + i * BLOCK * r.step), r.step,
			  hd_att_min(BLOCK, r.rows - i * BLOCK), 1);
}

/* Stores the sums of range r there. With `done` nothing will be added to them, and they become the result, times
 * `factor`. */
static void store_sums(const struct hd_attention *t, void *result, float *kept, const float *from, struct att_range r,
		       float factor, int done)
{
	int64_t panel = BLOCK * hd_att_padded(t);

	if (kept && !done)
		memcpy(kept + r.first * panel, from, (size_t)(r.n * panel) * sizeof(*from));
	else
		unpack_rows(t, result, r.base + r.first * BLOCK * r.step, r.step, from,
			    hd_att_min(r.n * BLOCK, r.rows - r.first * BLOCK), done ? factor : 1);
}

/* ---- spans ----------------------------------------------------------------------------------- */

static struct att_range keys_of(const struct hd_attention *t, const struct hd_att_task *task, int64_t first)
{
	return range_of((task->b * t->keys * t->kv_heads + task->kv) * t->dim, t->kv_heads * t->dim, t->keys, first);
}

static struct att_range queries_of(const struct hd_attention *t, const struct hd_att_task *task, int64_t h,
				   int64_t first)
{
	return range_of((task->b * t->seq * t->heads + h) * t->dim, t->heads * t->dim, t->seq, first);
}

static void close_keys(const struct hd_attention *t, struct panels *x, void *const *out, const struct hd_att_task *task)
{
	struct att_range r = keys_of(t, task, x->keys);

	if (x->keys < 0)
		return;
	store_sums(t, out[1], x->kept_dk, x->dk, r, 1, 0);
	store_sums(t, out[2], x->kept_dv, x->dv, r, 1, 0);
	x->keys = -1;
}

static void open_keys_d(const struct hd_attention *t, struct panels *x, void *const *out, void *const *in,
			const struct hd_att_task *task, int64_t first)
{
	int64_t panel = BLOCK * hd_att_padded(t);
	struct att_range r = keys_of(t, task, first);

	if (x->keys == first)
		return;
	close_keys(t, x, out, task);
	x->keys = first;
	for (int64_t j = 0; j < r.n; j++) {
		int64_t n = hd_att_min(BLOCK, t->keys - (first + j) * BLOCK);
		int64_t at = r.base + (first + j) * BLOCK * r.step;

		pack_rows(t, x->k + j * panel, element(t, in[1], at), r.step, n, 1);
		pack_columns(t, x->kt + j * panel, element(t, in[1], at), r.step, n);
		pack_columns(t, x->vt + j * panel, element(t, in[2], at), r.step, n);
	}
	if (x->heads) {
		load_sums(t, x->dk, x->kept_dk, out[1], r);
		load_sums(t, x->dv, x->kept_dv, out[2], r);
		return;
	}
	memset(x->dk, 0, (size_t)(r.n * panel) * sizeof(*x->dk));
	memset(x->dv, 0, (size_t)(r.n * panel) * sizeof(*x->dv));
}

static void open_queries_d(const struct hd_attention *t, struct panels *x, void *const *in,
			   const struct hd_att_task *task, int64_t h, int64_t first)
{
	struct att_range r = queries_of(t, task, h, first);
	int64_t panel = BLOCK * hd_att_padded(t);

	x->queries = first;
	for (int64_t i = 0; i < r.n; i++) {
		int64_t row = (first + i) * BLOCK, n = hd_att_min(BLOCK, t->seq - row), at = r.base + row * r.step;
		const float *from = (const float *)in[4] + (task->b * t->heads + h) * t->seq + row;

		pack_rows(t, x->q + i * panel, element(t, in[0], at), r.step, n, t->scale);
		pack_rows(t, x->d_o + i * panel, element(t, in[5], at), r.step, n, 1);
		for (int64_t k = 0; k < BLOCK; k++) {
			float lse = k < n ? from[k] : INFINITY;

			/* A query that sees nothing gets infinity, so that all its terms become 0. */
			x->lse[i * BLOCK + k] = lse == -INFINITY ? INFINITY : lse;
			x->delta[i * BLOCK + k] = k < n ? vdot(t, in[3], in[5], at + k * r.step, t->dim) : 0;
		}
	}
}

/* In one row, turns the scores s into probabilities and dp into ds. part: 1 / softcap, or 0. */
INLINE void row_d(float *s, float *dp, float lse, float delta, float part, int begin, int seen, const int masked)
{
#pragma GCC unroll 4
	for (int c = 0; c < BLOCK; c += HD_VL) {
		V x = vexp(load(s + c) - lse);
		V d = x * (load(dp + c) - delta), of = load(s + c) * part;

		d *= 1.0f - of * of;
		if (masked) {
			VS in = is_seen(c, begin, seen);

			x = (V)((VI)x & (VI)in);
			d = (V)((VI)d & (VI)in);
		}
		store(s + c, x);
		store(dp + c, d);
	}
}

static void probabilities(const struct hd_attention *t, float *s, float *dp, const struct pair *p, const float *lse,
			  const float *delta)
{
	float part = t->softcap > 0 ? 1 / t->softcap : 0;

	if (t->softcap > 0)
		cap_scores(t, s, p->tiles_q * HD_MR);
	for (int r = 0; r < p->tiles_q * HD_MR; r++, s += BLOCK, dp += BLOCK) {
		if (p->seen[r] == BLOCK && !p->begin[r])
			row_d(s, dp, lse[r], delta[r], part, 0, BLOCK, 0);
		else
			row_d(s, dp, lse[r], delta[r], part, p->begin[r], p->seen[r], 1);
	}
}

/* Processes the open spans, of nk blocks of keys and nq blocks of queries. */
static void spans_d(const struct hd_attention *t, const struct panels *x, int64_t nk, int64_t nq)
{
	int64_t w = hd_att_padded(t), panel = BLOCK * w;
	struct pair p;

	for (int64_t j = 0; j < nk; j++)
		for (int64_t i = 0; i < nq; i++) {
			const float *q = x->q + i * panel, *d_o = x->d_o + i * panel;

			if (!pair_set(t, &p, x->queries + i, x->keys + j))
				continue;
			product_n(x->s, BLOCK, q, w, x->kt + j * panel, BLOCK, p.scores, p.tiles_q, 0);
			product_n(x->dp, BLOCK, d_o, w, x->vt + j * panel, BLOCK, p.scores, p.tiles_q, 0);
			probabilities(t, x->s, x->dp, &p, x->lse + i * BLOCK, x->delta + i * BLOCK);
			product_t(x->dv + j * panel, w, x->s, d_o, w, p.by_query, p.tiles_k, 1);
			product_t(x->dk + j * panel, w, x->dp, q, w, p.by_query, p.tiles_k, 1);
			product_n(x->dq + i * panel, w, x->dp, BLOCK, x->k + j * panel, w, p.by_key, p.tiles_q, 1);
		}
}

/* Processes a span of queries of head h against the open keys, if it sees any. Its dq starts at the first span of keys
 * that it sees, and is complete after the last. */
static void queries_d(const struct hd_attention *t, struct panels *x, void *const *out, void *const *in,
		      const struct hd_att_task *task, int64_t h, int64_t first)
{
	struct att_range r = queries_of(t, task, h, first);
	int64_t last = hd_att_min((first + r.n) * BLOCK, t->seq) - 1, all = hd_att_blocks(t->keys);
	int64_t begin = hd_att_min(first_block(t, first), all - 1) / SPAN * SPAN, nk = hd_att_min(SPAN, all - x->keys);
	int64_t seen = hd_att_blocks(hd_att_seen(t, t->q0 + last, t->k0, t->keys));
	int64_t end = seen > begin ? (seen - 1) / SPAN * SPAN : begin;

	if (x->keys < begin || x->keys > end)
		return;
	open_queries_d(t, x, in, task, h, first);
	if (x->keys > begin)
		load_sums(t, x->dq, x->kept_dq, out[0], r);
	else
		memset(x->dq, 0, (size_t)(r.n * BLOCK * hd_att_padded(t)) * sizeof(*x->dq));
	spans_d(t, x, nk, r.n);
	store_sums(t, out[0], x->kept_dq, x->dq, r, t->scale, x->keys == end);
}

static void backward(const struct hd_attention *t, float *scratch, void *const *out, void *const *in,
		     const struct hd_att_task *task)
{
	int64_t nkb = hd_att_blocks(t->keys), nqb = hd_att_blocks(t->seq);
	struct panels x;

	panels_set(t, &x, scratch);
	x.keys = -1;
	x.heads = 0;
	for (int64_t h = 0; h < t->heads; h++) {
		if (!hd_att_reads(t, h, task))
			continue;
		for (int64_t j = 0; j < nkb; j += SPAN) {
			open_keys_d(t, &x, out, in, task, j);
			for (int64_t i = 0; i < nqb; i += SPAN)
				queries_d(t, &x, out, in, task, h, i);
		}
		x.heads++;
	}
	/* A rank may hold keys that none of its own heads reads: their gradients are zero. */
	for (int64_t j = 0; !x.heads && j < nkb; j += SPAN)
		open_keys_d(t, &x, out, in, task, j);
	close_keys(t, &x, out, task);
	for (int64_t j = 0; x.kept_dk && j < nkb; j += SPAN) {
		struct att_range r = keys_of(t, task, j);

		store_sums(t, out[1], NULL, x.kept_dk + j * BLOCK * hd_att_padded(t), r, 1, 1);
		store_sums(t, out[2], NULL, x.kept_dv + j * BLOCK * hd_att_padded(t), r, 1, 1);
	}
}
