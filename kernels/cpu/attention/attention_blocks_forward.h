/* SPDX-License-Identifier: Apache-2.0
 * attention in fp32 vectors (attention_blocks.h): a span of queries at a time meets all spans of keys that it sees, one after the
 * other, with a running maximum and sum for each query.
 */

/* Running softmax of one block of queries. */
struct att_rows {
	V sum[BLOCK]; /* each lane for its columns */
	V max[BLOCK / HD_VL];
};

INLINE VS is_seen(int c, int passed, int seen)
{
	return (iota() + c < seen) & (iota() + c >= passed);
}

INLINE V visible(const float *s, int c, int passed, int seen, const int masked) /* HD_VL scores from column c on */
{
	if (!masked)
		return load(s + c);
	return choose(is_seen(c, passed, seen), load(s + c), (V){ 0 } - INFINITY);
}

static __attribute__((noinline)) void cap_scores(const struct hd_attention *t, float *s, int rows)
{
	V cap = (V){ 0 } + t->softcap, part = (V){ 0 } + 1 / t->softcap;

	for (int i = 0; i < rows * BLOCK; i += HD_VL)
		store(s + i, cap * vtanh(load(s + i) * part));
}

/* Scores of one row s -> exp(s - max); what was summed before is rescaled */
INLINE void softmax_row(const struct hd_attention *t, float *s, float *o, V *sum, float max, float by, int passed,
			int seen, const int masked)
{
	V total = *sum * by;

#pragma GCC unroll 4
	for (int c = 0; c < BLOCK; c += HD_VL) {
		V x = vexp(visible(s, c, passed, seen, masked) - max);

		store(s + c, x);
		total += x;
	}
	*sum = total;
	for (int64_t d = 0; d < hd_att_padded(t); d += HD_VL)
		store(o + d, load(o + d) * by);
}

/* HD_VL rows at once, so that their maxima come out as one vector: a maximum per row would
 * wait for its own lanes */
INLINE void softmax_rows(const struct hd_attention *t, V *sum, V *max, float *s, float *o, const int *passed,
			 const int *seen, const int masked)
{
	V x[HD_VL], now, by;

#pragma GCC unroll 16
	for (int i = 0; i < HD_VL; i++) {
		x[i] = visible(s + i * BLOCK, 0, passed[i], seen[i], masked);
		for (int c = HD_VL; c < BLOCK; c += HD_VL)
			x[i] = vmax(x[i], visible(s + i * BLOCK, c, passed[i], seen[i], masked));
	}
	now = vmax(maxima(x), *max);
	by = vexp(*max - now);
	*max = now;
	if (masked) /* nothing seen yet: all terms become 0 */
		now = choose(now > -INFINITY, now, (V){ 0 });
	for (int i = 0; i < HD_VL; i++)
		softmax_row(t, s + i * BLOCK, o + i * hd_att_padded(t), &sum[i], now[i], by[i], passed[i], seen[i],
			    masked);
}

static void softmax(const struct hd_attention *t, struct att_rows *st, float *s, float *o, const struct pair *p)
{
	if (t->softcap > 0)
		cap_scores(t, s, p->nq);
	for (int g = 0; g * HD_VL < p->nq; g++, s += HD_VL * BLOCK, o += HD_VL * hd_att_padded(t)) {
		const int *passed = p->passed + g * HD_VL, *seen = p->seen + g * HD_VL;

		if (seen[0] == BLOCK && !passed[HD_VL - 1])
			softmax_rows(t, st->sum + g * HD_VL, &st->max[g], s, o, passed, seen, 0);
		else
			softmax_rows(t, st->sum + g * HD_VL, &st->max[g], s, o, passed, seen, 1);
	}
}

static void finish(const struct hd_attention *t, const struct att_rows *st, void *o, int64_t at, float *lse,
		   const float *from, int64_t n)
{
	for (int64_t r = 0; r < n; r++) {
		float sum = vsum(st->sum[r]);

		unpack_rows(t, o, at + r * t->heads * t->dim, 0, from + r * hd_att_padded(t), 1, sum > 0 ? 1 / sum : 0);
		lse[r] = sum > 0 ? st->max[r / HD_VL][r % HD_VL] + logf(sum) : -INFINITY;
	}
}

/* The block of keys that the window of query block i begins in. */
static int64_t first_block(const struct hd_attention *t, int64_t i)
{
	return hd_att_passed(t, t->q0 + i * BLOCK, t->k0, t->keys) / BLOCK;
}

struct att_keys { /* a span: k as columns, v as rows */
	float *kt, *v;
	int64_t first, from, to; /* its first block; -1: none is packed.  The task needs blocks from .. to - 1 */
};

struct att_queries { /* a span of one head: each block, its result and its softmax; a block's scores */
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
	for (int64_t j = first > x->from ? first : x->from; j < hd_att_least(first + SPAN, x->to); j++) {
		int64_t n = hd_att_least(BLOCK, t->keys - j * BLOCK), at = base + j * BLOCK * step;

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
			  hd_att_least(BLOCK, t->seq - block * BLOCK), t->scale);
		for (int g = 0; g < BLOCK / HD_VL; g++)
			x->rows[i].max[g] = (V){ 0 } - INFINITY;
	}
}

/* Block i of queries with the keys that are packed */
static void meet(const struct hd_attention *t, const struct att_queries *x, const struct att_keys *y, int64_t i)
{
	int64_t w = hd_att_padded(t), panel = BLOCK * w, end = hd_att_least(y->first + SPAN, hd_att_blocks(t->keys));
	int64_t from = first_block(t, i);
	float *q = x->q + (i - x->first) * panel, *o = x->o + (i - x->first) * panel;
	struct pair p;

	for (int64_t j = from > y->first ? from : y->first; j < end && pair_set(t, &p, i, j); j++) {
		product_n(x->s, BLOCK, q, w, y->kt + (j - y->first) * panel, BLOCK, p.scores, p.tiles_q, 0);
		softmax(t, &x->rows[i - x->first], x->s, o, &p);
		product_n(o, w, x->s, BLOCK, y->v + (j - y->first) * panel, w, p.by_key, p.tiles_q, 1);
	}
}

/* The queries of a span of head h, all of it */
static void forward_span(const struct hd_attention *t, const struct att_queries *x, struct att_keys *y,
			 void *const *out, void *const *in, const struct hd_att_task *task, int64_t h)
{
	int64_t last = hd_att_least(x->end * BLOCK, t->seq) - 1, panel = BLOCK * hd_att_padded(t);
	int64_t seen = hd_att_blocks(hd_att_seen(t, t->q0 + last, t->k0, t->keys));

	open_queries(t, x, in, task->b, h);
	for (int64_t j = first_block(t, x->first) / SPAN * SPAN; j < seen; j += SPAN) {
		open_keys(t, y, in, task, j);
		for (int64_t i = x->first; i < x->end; i++)
			meet(t, x, y, i);
	}
	for (int64_t i = x->first; i < x->end; i++)
		finish(t, &x->rows[i - x->first], out[0], query_at(t, task->b, h, i),
		       (float *)out[1] + (task->b * t->heads + h) * t->seq + i * BLOCK, x->o + (i - x->first) * panel,
		       hd_att_least(BLOCK, t->seq - i * BLOCK));
}

/* -> floats */
static int64_t forward_set(const struct hd_attention *t, struct att_keys *y, struct att_queries *x, float *scratch)
{
	int64_t panel = BLOCK * hd_att_padded(t), keys = hd_att_least(SPAN, hd_att_blocks(t->keys));
	int64_t queries = hd_att_least(SPAN, hd_att_blocks(t->seq));
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
			x.end = hd_att_least(i + SPAN, end);
			forward_span(t, &x, &y, out, in, task, h);
		}
}
