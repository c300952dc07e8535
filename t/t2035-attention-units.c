/* SPDX-License-Identifier: Apache-2.0
 * Attention in bf16 on the cpu, on matrix units and by products of pairs where the machine has them, and in fp32.
 * Each element is compared with ref, within what rounding probabilities and ds to bf16 can do to it.  If this broke,
 * models would train on wrong attention.  Typical bugs are operands packed for a different product, tails of blocks
 * of 32 and of chunks of 256, and a head_dim that is no multiple of 32.  Others are the rescaling of earlier keys'
 * sums, a mask off by one, and results that change with the pieces of threads.  Rounding of rows to bf16 is checked
 * too.
 */
#include <config.h>
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/pairs.h"
#include "kernels/prepare/attention.h"
#include "t/lib/kernel_props.h"

/* Half a unit in the last place of bf16, plus a twentieth for fp32, whose errors here are below a hundredth of that. */
#define ROUND (1.05 * 0x1p-8)

extern const struct hd_kernel hd_cpu_attention, hd_cpu_attention_d, hd_ref_attention, hd_ref_attention_d;

static const struct shape {
	const char *what, *q, *k, *attr;
} shapes[] = {
	{ "head_dim 64", "b=2,s=192,h=2,d=64", "b=2,s=192,h=2,d=64", "causal=1" },
	{ "head_dim 32, odd seq", "b=1,s=131,h=2,d=32", "b=1,s=131,h=2,d=32", "causal=1" },
	{ "head_dim 80, grouped", "b=1,s=77,h=4,d=80", "b=1,s=77,kv=2,d=80", "causal=1" },
	{ "head_dim 96, not causal", "b=1,s=100,h=1,d=96", "b=1,s=100,h=1,d=96", "" },
	{ "head_dim 128", "b=1,s=65,h=2,d=128", "b=1,s=65,h=2,d=128", "causal=1" },
	{ "head_dim 17", "b=2,s=33,h=3,d=17", "b=2,s=33,h=3,d=17", "causal=1" },
	{ "head_dim 1", "b=1,s=40,h=2,d=1", "b=1,s=40,h=2,d=1", "causal=1" },
	{ "one position", "b=2,s=1,h=2,d=64", "b=2,s=1,h=2,d=64", "causal=1" },
	{ "chunks", "b=1,s=530,h=1,d=64", "b=1,s=530,h=1,d=64", "causal=1" },
	{ "chunks, not causal, grouped", "b=1,s=300,h=3,d=32", "b=1,s=300,kv=1,d=32", "" },
	{ "a slice inside a group", "b=1,s=40,h=2@2/8,d=64", "b=1,s=40,kv=1@0/2,d=64", "causal=1" },
	{ "large scores over chunks", "b=1,s=290,h=1,d=64", "b=1,s=290,h=1,d=64", "causal=1 scale=3" },
	{ "later queries", "b=1,s=300@300/600,h=1,d=32", "b=1,t=600,h=1,d=32", "causal=1" },
	{ "keys of the future", "b=1,s=70@0/300,h=1,d=64", "b=1,t=150@35/300,h=1,d=64", "causal=1" },
	{ "a window of one key", "b=1,s=70,h=1,d=32", "b=1,s=70,h=1,d=32", "causal=1 window=1" },
	{ "a window inside a block", "b=1,s=150,h=1,d=64", "b=1,s=150,h=1,d=64", "causal=1 window=9" },
	{ "a window over chunks, grouped", "b=1,s=590,h=2,d=32", "b=1,s=590,kv=1,d=32", "causal=1 window=270" },
	{ "a window of later queries", "b=1,s=290@290/600,h=1,d=32", "b=1,t=580@10/600,h=1,d=32",
	  "causal=1 window=100" },
	{ "a window that has passed all keys", "b=1,s=70@130/300,h=1,d=64", "b=1,t=90@0/300,h=1,d=64",
	  "causal=1 window=60" },
	{ "softcap", "b=1,s=100,h=2,d=64", "b=1,s=100,kv=1,d=64", "causal=1 softcap=2" },
	{ "softcap in a window, over chunks", "b=1,s=290,h=1,d=80", "b=1,s=290,h=1,d=80",
	  "causal=1 softcap=3 scale=1 window=260" },
	{ "no sequences", "b=0,s=9,h=2,d=64", "b=0,s=9,h=2,d=64", "causal=1" },
};

struct both { /* forward, and backward on forward's results on ref */
	struct kt *f, *d;
	struct hd_attention t;
};

static void open_both(struct both *x, const struct shape *s, const char *attr)
{
	struct hd_view in[3], out[2];
	struct hd_err err;
	char text[100];

	snprintf(text, sizeof(text), "%s %s", s->attr, attr);
	x->f = kt_new(&hd_cpu_attention, &hd_ref_attention, text);
	for (int i = 0; i < 3; i++)
		kt_reals(kt_in(x->f, HD_DTYPE_BF16, i ? s->k : s->q), i == 2 ? -1 : -1.5, i == 2 ? 1 : 1.5);
	kt_out(x->f, HD_DTYPE_BF16, s->q);
	kt_out(x->f, HD_DTYPE_F32, kt_lse_spec(s->q));
	x->d = kt_new(&hd_cpu_attention_d, &hd_ref_attention_d, text);
	for (int i = 0; i < 6; i++)
		kt_in(x->d, i == 4 ? HD_DTYPE_F32 : HD_DTYPE_BF16,
		      i == 1 || i == 2 ? s->k
		      : i == 4         ? kt_lse_spec(s->q)
				       : s->q);
	kt_reals(x->d->in[5], -1, 1);
	kt_out(x->d, HD_DTYPE_BF16, s->q);
	kt_out(x->d, HD_DTYPE_BF16, s->k);
	kt_out(x->d, HD_DTYPE_BF16, s->k);
	for (int i = 0; i < 3; i++)
		in[i] = x->f->in[i]->view[0];
	for (int i = 0; i < 2; i++)
		out[i] = x->f->out[i]->view[0];
	x->t = (struct hd_attention){ 0 };
	is_int(hd_prepare_attention(&(struct hd_kernel_desc){ s->attr, 3, 2, in, out }, 0, "cpu", HD_DTYPE_F32, &x->t,
				    &err),
	       0, s->what);
}

static void run_both(struct both *x)
{
	struct kt_buf *from[] = { x->f->in[0], x->f->in[1], x->f->in[2], x->f->out[0], x->f->out[1] };

	for (int which = 0; which < 2; which++)
		is_int(kt_run(x->f, which), 0, "forward runs");
	for (int i = 0; i < 5; i++)
		for (int64_t j = 0; j < from[i]->count; j++)
			kt_set(x->d->in[i], j, kt_get(from[i], KT_REF, j));
	for (int which = 0; which < 2; which++)
		is_int(kt_run(x->d, which), 0, "backward runs");
}

static void close_both(struct both *x)
{
	kt_free(x->f);
	kt_free(x->d);
}

/* Sums of the absolute rounded terms of o, dq, dk and dv */
struct terms {
	double *o, *dq, *dk, *dv, *lse;
};

static double dot(const struct kt_buf *a, int64_t i, const struct kt_buf *b, int64_t j, int64_t n)
{
	double sum = 0;

	for (int64_t d = 0; d < n; d++)
		sum += kt_get(a, KT_REF, i + d) * kt_get(b, KT_REF, j + d);
	return sum;
}

static int sees(const struct hd_attention *t, int64_t q, int64_t k)
{
	int64_t back = t->q0 + q - t->k0 - k;

	return !t->causal || (back >= 0 && (!t->window || back < t->window));
}

/* Adds the terms of one query q and one key k of a head; their rows begin at elements i and j. */
static void add_terms(const struct both *x, struct terms *to, int64_t i, int64_t j, int64_t row)
{
	const struct hd_attention *t = &x->t;
	struct kt_buf *const *in = x->d->in;
	double s = t->exact_scale * dot(in[0], i, in[1], j, t->dim), cap = t->exact_softcap, p, ds;
	double slope = t->exact_scale, capped = cap > 0 ? cap * tanh(s / cap) : s;

	slope *= cap > 0 ? 1 - capped / cap * (capped / cap) : 1;
	to->lse[row] = fmax(to->lse[row], fabs(s));
	p = exp(capped - kt_get(x->f->out[1], KT_REF, row));
	ds = fabs(dot(in[5], i, in[2], j, t->dim) - dot(in[5], i, in[3], i, t->dim));
	ds += kt_tol(HD_DTYPE_F32, t->dim) * (double)t->dim / ROUND; /* a difference of two sums in fp32 */
	ds *= fabs(p * slope);
	for (int64_t d = 0; d < t->dim; d++) {
		to->o[i + d] += p * fabs(kt_get(in[2], KT_REF, j + d));
		to->dq[i + d] += ds * fabs(kt_get(in[1], KT_REF, j + d));
		to->dk[j + d] += ds * fabs(kt_get(in[0], KT_REF, i + d));
		to->dv[j + d] += p * fabs(kt_get(in[5], KT_REF, i + d));
	}
}

static void make_terms(const struct both *x, struct terms *to)
{
	const struct hd_attention *t = &x->t;

	for (int64_t b = 0; b < t->batch; b++)
		for (int64_t h = 0; h < t->heads; h++)
			for (int64_t q = 0; q < t->seq; q++)
				for (int64_t k = 0; k < t->keys; k++)
					if (sees(t, q, k))
						add_terms(x, to, ((b * t->seq + q) * t->heads + h) * t->dim,
							  ((b * t->keys + k) * t->kv_heads + (t->head0 + h) / t->group -
							   t->kv0) *
								  t->dim,
							  (b * t->heads + h) * t->seq + q);
}

/* Returns the largest error, relative to what rounding the terms, which add up to `terms`, and the result may cause. */
static double worst(const struct kt_buf *b, const double *terms)
{
	double most = 0;

	for (int64_t i = 0; i < b->count; i++) {
		double want = kt_get(b, KT_REF, i), off = fabs(kt_get(b, KT_CPU, i) - want);

		most = fmax(most, off == off ? off / (ROUND * (terms[i] + fabs(want)) + 1e-7) : INFINITY);
	}
	return most;
}

/* lse is fp32 throughout: a score has the errors of the sum over head_dim, and the sum of powers those of its terms. */
static double worst_lse(const struct both *x, const double *largest)
{
	const struct kt_buf *b = x->f->out[1];
	double most = 0;

	for (int64_t i = 0; i < b->count; i++) {
		double want = kt_get(b, KT_REF, i), got = kt_get(b, KT_CPU, i);

		if (got != want)
			most = fmax(most, fabs(got - want) / (kt_tol(HD_DTYPE_F32, x->t.dim) * (2 + 4 * largest[i])));
	}
	return most;
}

static double *zeros(const struct kt_buf *b)
{
	double *x = hd_alloc(((size_t)b->count + 1) * sizeof(*x));

	memset(x, 0, ((size_t)b->count + 1) * sizeof(*x));
	return x;
}

static void check(const struct shape *s, const char *attr)
{
	struct terms e;
	struct both x;
	double *all[5];

	open_both(&x, s, attr);
	run_both(&x);
	e = (struct terms){ zeros(x.f->out[0]), zeros(x.d->out[0]), zeros(x.d->out[1]), zeros(x.d->out[2]),
			    zeros(x.f->out[1]) };
	memcpy(all, &e, sizeof(all));
	make_terms(&x, &e);
	near(worst(x.f->out[0], e.o), 0, 1, "o is within its bound");
	near(worst_lse(&x, e.lse), 0, 1, "lse is within its bound");
	near(worst(x.d->out[0], e.dq), 0, 1, "dq is within its bound");
	near(worst(x.d->out[1], e.dk), 0, 1, "dk is within its bound");
	near(worst(x.d->out[2], e.dv), 0, 1, "dv is within its bound");
	for (int i = 0; i < 5; i++)
		free(all[i]);
	close_both(&x);
}

static void threads_do_not_matter(const char *q, const char *k, const char *attr)
{
	const struct shape s = { "threads", q, k, attr };
	struct both x;

	open_both(&x, &s, "");
	is_int(kt_run(x.f, KT_CPU), 0, "forward runs");
	for (int i = 0; i < 5; i++) {
		const struct kt_buf *from[] = { x.f->in[0], x.f->in[1], x.f->in[2], x.f->out[0], x.f->out[1] };

		memcpy(x.d->in[i]->mem[KT_CPU], from[i]->mem[KT_CPU], from[i]->bytes[KT_CPU]);
	}
	kt_threads(x.f, "forward runs");
	kt_threads(x.d, "backward runs");
	close_both(&x);
}

static const char *const forms[] = { "amx=1 pairs=0", "amx=0 pairs=1", "amx=0 pairs=0" };

static int has_form(int i)
{
	return i == 2 || (i ? hd_pairs_here() : hd_amx_allowed());
}

/* Checks that tiles are used: without the rounding of probabilities some results would differ. */
static void tiles_are_used(int form)
{
	struct both x, y;
	int64_t others = 0;

	if (!has_form(form)) {
		skip(form ? "this machine has no products of bf16 pairs" : "this machine has no AMX with bf16");
		return;
	}
	open_both(&x, &shapes[0], forms[form]);
	open_both(&y, &shapes[0], forms[2]);
	run_both(&x);
	run_both(&y);
	for (int i = 0; i < 4; i++) {
		const struct kt_buf *a = i ? x.d->out[i - 1] : x.f->out[0], *b = i ? y.d->out[i - 1] : y.f->out[0];

		others += memcmp(a->mem[KT_CPU], b->mem[KT_CPU], a->bytes[KT_CPU]) != 0;
	}
	is_int(others, 4, "o, dq, dk and dv in tiles of bf16 differ from those of fp32");
	close_both(&x);
	close_both(&y);
}

/* Rounds rows of every length, with each sign and exponent and fractions around half the last place, to the bits of
 * single numbers. */
static void bits_of_bf16(void)
{
	static const uint32_t fractions[] = { 0,       0x1,     0x7fff,   0x8000,   0x8001,   0xffff,  0x10000,
					      0x17fff, 0x18000, 0x3fffff, 0x400000, 0x7f8000, 0x7fffff };
	enum { N = 2 * 256 * HD_LEN(fractions) };
	static float x[N];
	static uint16_t low[N + 1];
	int64_t wrong = 0;

	for (uint32_t i = 0; i < N; i++) /* so that runs of 32 with and without subnormal numbers follow each other */
		x[i] = hd_float_of(i % 2 << 31 | (i / 2 / HD_LEN(fractions)) << 23 |
				   fractions[i / 2 % HD_LEN(fractions)]);
	for (int64_t from = 0; from < N; from += 97)
		for (int64_t n = 0; n <= 70 && from + n <= N; n++) {
			low[n] = 0x1234;
			hd_store_bf16(low, x + from, n);
			for (int64_t j = 0; j < n; j++)
				wrong += low[j] != hd_bf16_of(x[from + j]);
			wrong += low[n] != 0x1234;
		}
	hd_store_bf16(low, x, N);
	for (int64_t j = 0; j < N; j++)
		wrong += low[j] != hd_bf16_of(x[j]);
	is_int(wrong, 0, "rows are rounded to bf16 as single numbers are");
}

int main(void)
{
	omp_set_num_threads(2);
	bits_of_bf16();
	for (size_t i = 0; i < HD_LEN(shapes); i++) {
		check(&shapes[i], "");
		for (int f = 0; f < 3; f++)
			if (has_form(f) && ((i + (size_t)f) % 4 == 0 || f == 1 || whole_sweep()))
				check(&shapes[i], forms[f]);
	}
	threads_do_not_matter("b=1,s=1100,h=1,d=64", "b=1,s=1100,h=1,d=64", "causal=1");
	threads_do_not_matter("b=2,s=700,h=2,d=32", "b=2,s=700,kv=1,d=32", "causal=1 window=300");
	tiles_are_used(0);
	tiles_are_used(1);
	return done();
}
