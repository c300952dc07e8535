/* SPDX-License-Identifier: Apache-2.0
 * attention_cached and rope_at on texts that arrive in pieces: each query gets the result of attention over its
 * complete text.  Each rotated head gets that of rope at its position, and device and ref leave the same caches.  If
 * this broke, generated text would be wrong.  Typical bugs are a position off by one, a text that reads its
 * neighbour's cache, an overwritten ring, and wrong padding before short texts.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"
#include "t/lib/kernel_props.h"
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 3, MOST = 40 };
static const int64_t lengths[TEXTS] = { 11, 3, 6 };

static const struct shape {
	const char *what;
	int64_t heads, kv, dim, window, past; /* past: positions of a cache */
	const char *slice[2], *attr;
} shapes[] = {
	{ "all earlier positions", 4, 2, 8, 0, 34, { "", "" }, "causal=1" },
	{ "heads of 64, softcap", 2, 2, 64, 0, 34, { "", "" }, "causal=1 softcap=1.5 scale=0.9" },
	{ "odd sizes", 3, 1, 5, 0, 35, { "", "" }, "causal=1" },
	{ "a slice of the heads", 2, 1, 16, 6, 6, { "@2/4", "@1/2" }, "causal=1 window=6" },
	{ "six heads of a kv head, in two tasks", 6, 1, 16, 0, 34, { "", "" }, "causal=1" },
	{ "a slice that begins within six heads", 5, 2, 8, 0, 34, { "@3/12", "" }, "causal=1" },
	{ "a window", 4, 2, 8, 5, 5, { "", "" }, "causal=1 window=5" },
	{ "a window of one", 2, 1, 8, 1, 1, { "", "" }, "causal=1 window=1" },
	{ "a window of a piece", 2, 2, 32, 4, 4, { "", "" }, "causal=1 window=4 softcap=2" },
	{ "a window smaller than the cache", 2, 2, 8, 5, 9, { "", "" }, "causal=1 window=5" },
	{ "a window longer than the texts", 2, 1, 8, 100, 34, { "", "" }, "causal=1 window=100" },
	{ "heads of 256", 1, 1, 256, 7, 7, { "", "" }, "causal=1 window=7" },
};

/* Returns a text's value of operand x (0: q, 1: k, 2: v) at a position, between -1 and 1. */
static double number(int x, int64_t text, int64_t position, int64_t i)
{
	uint64_t n = (uint64_t)(((text * MOST + position) * 4 + x) * 4096 + i + 1) * 0x9e3779b97f4a7c15u;

	return (double)(n >> 40) / 0x1p23 - 1;
}

/* Returns ref's attention over a complete text: (position, head, dim). */
static double *whole(const struct shape *s, uint32_t dtype, int64_t text, int64_t length)
{
	char q[80], k[80], lse[80];
	struct kt *t = KT_NEW(attention, s->attr);
	struct kt_buf *in[3], *o;
	double *out = malloc((size_t)(length * s->heads * s->dim) * sizeof(*out));

	snprintf(q, sizeof(q), "b=1,s=%d,h=%d%s,d=%d", (int)length, (int)s->heads, s->slice[0], (int)s->dim);
	snprintf(k, sizeof(k), "b=1,s=%d,kv=%d%s,d=%d", (int)length, (int)s->kv, s->slice[1], (int)s->dim);
	snprintf(lse, sizeof(lse), "b=1,h=%d%s,s=%d", (int)s->heads, s->slice[0], (int)length);
	for (int x = 0; x < 3; x++) {
		int64_t row = (x ? s->kv : s->heads) * s->dim;

		in[x] = kt_in(t, dtype, x ? k : q);
		for (int64_t i = 0; i < length * row; i++)
			kt_set(in[x], i, number(x, text, i / row, i % row));
	}
	o = kt_out(t, dtype, q);
	kt_out(t, HD_DTYPE_F32, lse);
	if (kt_run(t, KT_REF) < 0)
		ok(0, "ref's attention runs: %s", t->err.text);
	for (int64_t i = 0; i < length * s->heads * s->dim; i++)
		out[i] = kt_get(o, KT_REF, i);
	kt_free(t);
	return out;
}

struct piece {
	struct kt *t;
	struct kt_buf *in[6], *o;
	int64_t columns;
};

static struct piece piece_new(const struct shape *s, uint32_t dtype, int64_t columns)
{
	struct piece p = { .t = KT_NEW(attention_cached, s->attr), .columns = columns };
	char q[80], k[80], cache[80], at[80];

	snprintf(q, sizeof(q), "b=%d,s=%d,h=%d%s,d=%d", TEXTS, (int)columns, (int)s->heads, s->slice[0], (int)s->dim);
	snprintf(k, sizeof(k), "b=%d,s=%d,kv=%d%s,d=%d", TEXTS, (int)columns, (int)s->kv, s->slice[1], (int)s->dim);
	snprintf(cache, sizeof(cache), "b=%d,p=%d,kv=%d%s,d=%d", TEXTS, (int)s->past, (int)s->kv, s->slice[1],
		 (int)s->dim);
	snprintf(at, sizeof(at), "b=%d,s=%d", TEXTS, (int)columns);
	for (int x = 0; x < 5; x++)
		p.in[x] = kt_in(p.t, dtype, !x ? q : x < 3 ? k : cache);
	kt_changes(p.in[3]), kt_changes(p.in[4]);
	p.in[5] = kt_in(p.t, HD_DTYPE_I32, at);
	p.o = kt_out(p.t, dtype, q);
	return p;
}

/* Fills the columns of a run whose last token stands `behind` tokens before the end of each text. */
static void fill(const struct shape *s, struct piece *p, int64_t grown, int64_t behind)
{
	for (int64_t i = 0; i < TEXTS * p->columns; i++) {
		int64_t text = i / p->columns, position = lengths[text] + grown - behind - p->columns + i % p->columns;

		kt_set(p->in[5], i, position < 0 ? -1 : (double)position);
		for (int x = 0; x < 3; x++) {
			int64_t row = (x ? s->kv : s->heads) * s->dim;

			for (int64_t e = 0; e < row; e++)
				kt_set(p->in[x], i * row + e, position < 0 ? 7 : number(x, text, position, e));
		}
	}
}

/* Returns the largest difference between the outputs of a run and those of the complete texts. */
static double apart(const struct shape *s, const struct piece *p, double *const *want)
{
	int64_t row = s->heads * s->dim;
	double most = 0;

	for (int64_t i = 0; i < TEXTS * p->columns * row; i++) {
		int64_t position = (int64_t)kt_get(p->in[5], KT_REF, i / row), text = i / row / p->columns;
		double w = position < 0 ? 0 : want[text][position * row + i % row];

		most = fmax(most, fabs(kt_get(p->o, KT_REF, i) - w));
		if (kt_get(p->o, KT_REF, i) != kt_get(p->o, KT_REF, i))
			return HUGE_VAL;
	}
	return most;
}

/* Runs prompts in pieces of four, then token by token, then a piece again. */
static void check(const struct shape *s, uint32_t dtype)
{
	static const int64_t runs[][3] = { { 4, 0, 8 }, { 4, 0, 4 }, { 4, 0, 0 }, { 1, 1, 0 },
					   { 1, 2, 0 }, { 6, 8, 0 }, { 1, 9, 0 } };
	double *want[TEXTS], *caches[2], most = 0;
	int64_t n = TEXTS * s->past * s->kv * s->dim;

	for (int k = 0; k < 2; k++)
		caches[k] = calloc((size_t)n, sizeof(double));
	for (int64_t i = 0; i < TEXTS; i++)
		want[i] = whole(s, dtype, i, lengths[i] + 10);
	for (size_t r = 0; r < HD_LEN(runs); r++) {
		struct piece p = piece_new(s, dtype, runs[r][0]);

		fill(s, &p, runs[r][1], runs[r][2]);
		for (int k = 0; k < 2; k++)
			for (int64_t i = 0; i < n; i++)
				kt_set(p.in[3 + k], i, caches[k][i]);
		p.t->least = 1;
		KT_CHECK(p.t, kt_tol(dtype, s->past + s->dim + 6), "%s, %s: run %zu, device and ref agree", s->what,
			 dtype == HD_DTYPE_BF16 ? "bf16" : "fp32", r);
		most = fmax(most, apart(s, &p, want));
		for (int k = 0; k < 2; k++)
			for (int64_t i = 0; i < n; i++)
				caches[k][i] = kt_get(p.in[3 + k], KT_REF, i);
		kt_free(p.t);
	}
	/* ref computes both in double, from the same numbers, in sums of at most 40 terms */
	ok(most <= 40 * 0x1p-52, "%s: equals attention over the complete texts (%g)", s->what, most);
	for (int i = 0; i < TEXTS; i++)
		free(want[i]);
	for (int k = 0; k < 2; k++)
		free(caches[k]);
}

/* -- rope_at ------------------------------------------------------------------------------------------------------- */
static void check_rope(const char *attr, int64_t dim, uint32_t dtype)
{
	static const int positions[] = { 3, -1, 0, 19, 7, 7, -1, 12 };
	struct kt *all = KT_NEW(rope, attr), *t;
	struct kt_buf *x, *y, *to, *from, *at;
	char with[200], spec[80];
	double most = 0;

	snprintf(with, sizeof(with), "%s%smost=20", attr, *attr ? " " : "");
	snprintf(spec, sizeof(spec), "b=1,s=20,h=2,d=%d", (int)dim);
	x = kt_in(all, dtype, spec), y = kt_out(all, dtype, spec);
	for (int64_t i = 0; i < 20 * 2 * dim; i++)
		kt_set(x, i, number(0, 0, i / (2 * dim), i % (2 * dim)));
	if (kt_run(all, KT_REF) < 0)
		ok(0, "rope runs: %s", all->err.text);
	t = KT_NEW(rope_at, with);
	snprintf(spec, sizeof(spec), "b=4,s=2,h=2,d=%d", (int)dim);
	from = kt_in(t, dtype, spec), at = kt_in(t, HD_DTYPE_I32, "b=4,s=2"), to = kt_out(t, dtype, spec);
	for (int64_t i = 0; i < 8 * 2 * dim; i++) {
		int p = positions[i / (2 * dim)];

		kt_set(at, i / (2 * dim), p);
		kt_set(from, i, number(0, 0, p < 0 ? 0 : p, i % (2 * dim)));
	}
	/* a sum of two products; the angle itself is rounded to fp32 */
	KT_CHECK(t, kt_tol(dtype, 2), "rope_at %s of %d: device and ref agree", attr, (int)dim);
	for (int64_t i = 0; i < 8 * 2 * dim; i++) {
		int p = positions[i / (2 * dim)];

		most = fmax(most,
			    fabs(kt_get(to, KT_REF, i) - kt_get(y, KT_REF, (p < 0 ? 0 : p) * 2 * dim + i % (2 * dim))));
	}
	ok(most == 0, "rope_at %s of %d: equals rope at each position (%g)", attr, (int)dim, most);
	kt_free(t);
	kt_free(all);
}

static void check_refusals(void)
{
	struct shape s = shapes[0];
	struct piece p;

	s.attr = "";
	p = piece_new(&s, HD_DTYPE_F32, 2);
	ok(kt_prepare(p.t, KT_CPU) == HD_ENOTSUP && strstr(p.t->err.text, "only causal"),
	   "attention that is not causal is refused: %s", p.t->err.text);
	kt_free(p.t);
}

int main(void)
{
	for (size_t i = 0; i < HD_LEN(shapes); i++) {
		check(&shapes[i], HD_DTYPE_F32);
		if (i % 2 || whole_sweep())
			check(&shapes[i], HD_DTYPE_BF16);
	}
	check_rope("theta=500", 8, HD_DTYPE_F32);
	check_rope("theta=500", 64, HD_DTYPE_BF16);
	check_rope("theta=500 rotary=6", 10, HD_DTYPE_F32);
	check_rope("theta=500 rotary=4 scaling=linear factor=2", 12, HD_DTYPE_BF16);
	check_refusals();
	return done();
}
