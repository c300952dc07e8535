/* SPDX-License-Identifier: Apache-2.0
 * Attention: cpu against ref, and ref's backward against finite differences.  If this broke, models would train on
 * wrong attention.  Typical bugs are a causal mask off by one block edge and heads that read a different head's
 * keys.  Others are gradients of grouped heads that do not add up, and tails of odd sizes.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"
#include "t/lib/kernel_props.h"
#include <omp.h>

#ifdef KT_CUDA
#define LEAST_WIDTH 16 /* narrower words are the cpu's alone */
#else
#define LEAST_WIDTH 4
#endif

static const struct shape {
	const char *what, *q, *k, *attr;
} shapes[] = {
	{ "one block", "b=1,s=64,h=1,d=64", "b=1,s=64,h=1,d=64", "causal=1" },
	{ "several blocks", "b=2,s=192,h=3,d=64", "b=2,s=192,h=3,d=64", "causal=1" },
	{ "odd seq", "b=2,s=77,h=2,d=32", "b=2,s=77,h=2,d=32", "causal=1" },
	{ "odd everything", "b=3,s=131,h=3,d=17", "b=3,s=131,h=3,d=17", "causal=1" },
	{ "not causal", "b=1,s=100,h=2,d=24", "b=1,s=100,h=2,d=24", "" },
	{ "not causal, whole blocks", "b=1,s=128,h=2,d=16", "b=1,s=128,h=2,d=16", "" },
	{ "grouped", "b=2,s=70,h=6,d=16", "b=2,s=70,kv=2,d=16", "causal=1" },
	{ "one kv head", "b=1,s=65,h=4,d=80", "b=1,s=65,kv=1,d=80", "causal=1" },
	{ "a slice of the heads", "b=1,s=40,h=4@4/12,d=16", "b=1,s=40,kv=2@2/6,d=16", "causal=1" },
	{ "a slice inside a group", "b=1,s=40,h=2@2/8,d=16", "b=1,s=40,kv=1@0/2,d=16", "causal=1" },
	{ "a slice of heads, all kv heads", "b=1,s=40,h=3@5/8,d=16", "b=1,s=40,kv=2,d=16", "causal=1" },
	{ "a kv head that no head here reads", "b=2,s=90,h=3@0/6,d=16", "b=2,s=90,kv=3,d=16", "causal=1" },
	{ "head_dim 1", "b=1,s=30,h=2,d=1", "b=1,s=30,h=2,d=1", "causal=1" },
	{ "head_dim 128", "b=1,s=130,h=1,d=128", "b=1,s=130,h=1,d=128", "causal=1" },
	{ "head_dim 256", "b=1,s=66,h=1,d=256", "b=1,s=66,h=1,d=256", "causal=1" },
	{ "scale", "b=1,s=50,h=2,d=20", "b=1,s=50,h=2,d=20", "causal=1 scale=0.7" },
	{ "large scores", "b=1,s=90,h=2,d=20", "b=1,s=90,h=2,d=20", "causal=1 scale=30" },
	{ "one position", "b=2,s=1,h=2,d=8", "b=2,s=1,h=2,d=8", "causal=1" },
	{ "later queries", "b=1,s=70@70/140,h=2,d=8", "b=1,t=140,h=2,d=8", "causal=1" },
	{ "keys of the future", "b=1,s=70@0/300,h=2,d=8", "b=1,t=150@35/300,h=2,d=8", "causal=1" },
	{ "a window of one key", "b=1,s=70,h=2,d=16", "b=1,s=70,h=2,d=16", "causal=1 window=1" },
	{ "a window inside a block", "b=2,s=150,h=2,d=24", "b=2,s=150,h=2,d=24", "causal=1 window=17" },
	{ "a window of a block", "b=1,s=256,h=1,d=16", "b=1,s=256,h=1,d=16", "causal=1 window=64" },
	{ "a window over blocks, grouped", "b=1,s=301,h=4,d=64", "b=1,s=301,kv=2,d=64", "causal=1 window=130" },
	{ "a window as long as the sequence", "b=1,s=90,h=2,d=8", "b=1,s=90,h=2,d=8", "causal=1 window=90" },
	{ "a window, later queries", "b=1,s=70@70/140,h=2,d=8", "b=1,t=140,h=2,d=8", "causal=1 window=33" },
	{ "a window that has passed all keys", "b=1,s=70@200/300,h=2,d=8", "b=1,t=150@0/300,h=2,d=8",
	  "causal=1 window=80" },
	{ "softcap", "b=1,s=77,h=2,d=16", "b=1,s=77,h=2,d=16", "causal=1 softcap=1.5 scale=2" },
	{ "softcap, not causal", "b=1,s=100,h=2,d=24", "b=1,s=100,h=2,d=24", "softcap=20" },
	{ "softcap in a window", "b=1,s=200,h=4,d=128", "b=1,s=200,kv=2,d=128",
	  "causal=1 window=70 softcap=2 scale=1" },
	{ "no sequences", "b=0,s=9,h=2,d=8", "b=0,s=9,h=2,d=8", "causal=1" },
};

struct both {
	struct kt *fwd, *bwd;
	struct kt_buf *q, *k, *v, *o, *lse, *d_o, *in[6], *dq, *dk, *dv;
};

static void open_both(struct both *x, const struct shape *s, int width)
{
	char attr[80];

	snprintf(attr, sizeof(attr), "%s width=%d", s->attr, width);
	x->fwd = KT_NEW(attention, attr);
	x->q = kt_in(x->fwd, HD_DTYPE_F32, s->q);
	x->k = kt_in(x->fwd, HD_DTYPE_F32, s->k);
	x->v = kt_in(x->fwd, HD_DTYPE_F32, s->k);
	x->o = kt_out(x->fwd, HD_DTYPE_F32, s->q);
	x->lse = kt_out(x->fwd, HD_DTYPE_F32, kt_lse_spec(s->q));
	kt_reals(x->q, -1.5, 1.5);
	kt_reals(x->k, -1.5, 1.5);
	kt_reals(x->v, -1, 1);
	x->bwd = KT_NEW(attention_d, attr);
	for (int i = 0; i < 6; i++)
		x->in[i] = kt_in(x->bwd, HD_DTYPE_F32, i == 1 || i == 2 ? s->k : i == 4 ? kt_lse_spec(s->q) : s->q);
	x->dq = kt_out(x->bwd, HD_DTYPE_F32, s->q);
	x->dk = kt_out(x->bwd, HD_DTYPE_F32, s->k);
	x->dv = kt_out(x->bwd, HD_DTYPE_F32, s->k);
	kt_reals(x->in[5], -1, 1);
	x->bwd->least = 0.1; /* a query that sees one key has dq = 0 */
}

static void close_both(struct both *x)
{
	kt_free(x->fwd);
	kt_free(x->bwd);
}

/* Copies forward's results on ref to the inputs of backward. */
static void hand_over(struct both *x)
{
	const struct kt_buf *from[] = { x->q, x->k, x->v, x->o, x->lse };

	for (int n = 0; n < 5; n++)
		for (int64_t i = 0; i < from[n]->count; i++)
			kt_set(x->in[n], i, kt_get(from[n], KT_REF, i));
}

static double most(const struct kt_buf *b)
{
	double m = 0;

	for (int64_t i = 0; i < b->count; i++)
		m = fmax(m, fabs(kt_get(b, KT_REF, i)));
	return m;
}

static void check(const struct shape *s, int width)
{
	/* Scores are off by 2^-24 of their size, and exp turns that into a relative error. */
	double scale = hd_attr_num(s->attr, "scale", 0.25), tol;
	struct both x;

	open_both(&x, s, width);
	tol = kt_tol(HD_DTYPE_F32, x.q->view[0].n[1] + x.q->view[0].n[3]) * (1 + 8 * scale);
	KT_CHECK(x.fwd, tol, "%s, %d wide", s->what, width);
	hand_over(&x);
	KT_CHECK(x.bwd, 4 * tol, "%s, %d wide, backward", s->what, width);
	close_both(&x);
}

/* Returns d(sum of o do) by central differences on ref, to compare with ref's own backward; f64 throughout. */
static double difference(struct both *x, struct kt_buf *b, int64_t i)
{
	double *at = (double *)b->mem[KT_REF] + i, was = *at, step = 1e-5, f[2];

	for (int side = 0; side < 2; side++) {
		*at = was + (side ? step : -step);
		kt_run(x->fwd, KT_REF);
		f[side] = 0;
		for (int64_t j = 0; j < x->o->count; j++)
			f[side] += kt_get(x->o, KT_REF, j) * kt_get(x->in[5], KT_REF, j);
	}
	*at = was;
	return (f[1] - f[0]) / (2 * step);
}

static void check_differences(const struct shape *s)
{
	struct both x;
	double worst = 0;

	open_both(&x, s, 16);
	kt_run(x.fwd, KT_REF);
	for (int n = 0; n < 5; n++) {
		const struct kt_buf *from[] = { x.q, x.k, x.v, x.o, x.lse };

		memcpy(x.in[n]->mem[KT_REF], from[n]->mem[KT_REF], from[n]->bytes[KT_REF]);
	}
	kt_run(x.bwd, KT_REF);
	for (int n = 0; n < 3; n++) {
		struct kt_buf *in[] = { x.q, x.k, x.v }, *d[] = { x.dq, x.dk, x.dv };

		for (int64_t i = 0; i < in[n]->count; i += 7) {
			double got = kt_get(d[n], KT_REF, i), want = difference(&x, in[n], i);

			worst = fmax(worst, fabs(got - want) / (1e-3 + most(d[n])));
		}
	}
	near(worst, 0, 1e-7, "ref's backward matches finite differences");
	close_both(&x);
}

/* Returns how many NaNs of ref are missing; a kernel may spread them to masked neighbours. */
static int hidden(const struct kt_buf *b)
{
	int n = 0;

	for (int64_t i = 0; i < b->count; i++)
		n += isnan(kt_get(b, KT_REF, i)) && !isnan(kt_get(b, KT_CPU, i));
	return n;
}

/* An operand that is not a number must show: an evaluation would go on with finite numbers otherwise. */
static void nan_is_not_hidden(int width)
{
	static const struct shape s = { "", "b=1,s=150,h=2,d=20", "b=1,s=150,h=2,d=20", "causal=1" };
	static const double values[] = { NAN, INFINITY };

	for (size_t v = 0; v < HD_LEN(values); v++)
		for (int n = 0; n < 3; n++) {
			struct both x;

			open_both(&x, &s, width);
			kt_set(n == 0 ? x.q : n == 1 ? x.k : x.v, 70 * 40 + 5, values[v]);
			kt_run(x.fwd, KT_REF);
			kt_run(x.fwd, KT_CPU);
			ok(!(hidden(x.o) + hidden(x.lse)), "%g in operand %d, %d wide: no NaN is hidden", values[v], n,
			   width);
			hand_over(&x);
			kt_run(x.bwd, KT_REF);
			kt_run(x.bwd, KT_CPU);
			ok(!(hidden(x.dq) + hidden(x.dk) + hidden(x.dv)), "... backward");
			close_both(&x);
		}
}

static void threads_do_not_matter(void)
{
	struct both x;
	float *one;

	open_both(&x, &shapes[3], 16);
	omp_set_num_threads(1);
	kt_run(x.fwd, KT_REF);
	hand_over(&x);
	kt_run(x.bwd, KT_CPU);
	one = hd_alloc(x.dk->bytes[KT_CPU]);
	memcpy(one, x.dk->mem[KT_CPU], x.dk->bytes[KT_CPU]);
	omp_set_num_threads(3);
	kt_prepare(x.bwd, KT_CPU);
	kt_run(x.bwd, KT_CPU);
	ok(!memcmp(one, x.dk->mem[KT_CPU], x.dk->bytes[KT_CPU]), "1 and 3 threads yield the same bits");
	free(one);
	close_both(&x);
}

static const struct refusal {
	const char *q, *k, *v, *text;
} refusals[] = {
	{ "b=1,s=8,h=3,d=4", "b=1,s=8,kv=2,d=4", "b=1,s=8,kv=2,d=4",
	  "attention: 3 heads do not divide into 2 kv heads" },
	{ "b=1,s=8,h=2,d=4", "b=1,s=8,h=2,d=5", "b=1,s=8,h=2,d=5",
	  "attention: q, k and v differ in batch or head_dim" },
	{ "b=1,s=8,h=2,d=4", "b=1,s=8,h=2,d=4", "b=1,s=7,h=2,d=4",
	  "attention: q, k and v differ in batch or head_dim" },
	{ "s=8,h=2,d=4", "b=1,s=8,h=2,d=4", "b=1,s=8,h=2,d=4", "attention: q, k, v have 3, 4, 4 dims, not 4" },
	{ "b=1,s=8,h=2@6/8,d=4", "b=1,s=8,kv=1@0/2,d=4", "b=1,s=8,kv=1@0/2,d=4",
	  "attention: heads 6 to 7 do not read kv heads 0 to 0" },
};

static void refused_with(const char *attr, const char *text)
{
	struct kt *t = KT_NEW(attention, attr);

	for (int i = 0; i < 3; i++)
		kt_in(t, HD_DTYPE_F32, "b=1,s=8,h=2,d=4");
	kt_out(t, HD_DTYPE_F32, "b=1,s=8,h=2,d=4");
	kt_out(t, HD_DTYPE_F32, "b=1,h=2,s=8");
	kt_refused(t, text);
	kt_free(t);
}

static void check_refusals(void)
{
	struct kt *t;

	for (size_t i = 0; i < HD_LEN(refusals); i++) {
		const struct refusal *r = &refusals[i];

		t = KT_NEW(attention, "");
		kt_in(t, HD_DTYPE_F32, r->q);
		kt_in(t, HD_DTYPE_F32, r->k);
		kt_in(t, HD_DTYPE_F32, r->v);
		kt_out(t, HD_DTYPE_F32, r->q);
		kt_out(t, HD_DTYPE_F32, "b=1,z=2,s=8");
		kt_refused(t, r->text);
		kt_free(t);
	}
	t = KT_NEW(attention_d, "");
	kt_in(t, HD_DTYPE_F32, "b=1,s=8,h=2,d=4");
	kt_refused(t, "attention: 1 inputs and 0 outputs, not 6 and 3");
	kt_free(t);
	t = KT_NEW(attention, "");
	for (int i = 0; i < 3; i++)
		kt_in(t, i == 1 ? HD_DTYPE_BF16 : HD_DTYPE_F32, "b=1,s=8,h=2,d=4");
	kt_out(t, HD_DTYPE_F32, "b=1,s=8,h=2,d=4");
	kt_out(t, HD_DTYPE_F32, "b=1,h=2,s=8");
	kt_refused(t, "attention: operand 1 is bf16, on " KT_DEVICE " it must be f32 with this q");
	kt_free(t);
	refused_with("window=4", "attention: a window of 4 keys, and the mask is not causal");
	refused_with("causal=1 window=-2", "attention: a window of -2 keys");
	refused_with("softcap=-1", "attention: softcap is -1, it must not be negative");
}

int main(void)
{
	static const struct shape tiny[] = {
		{ "", "b=2,s=5,h=4,d=3", "b=2,s=5,kv=2,d=3", "causal=1" },
		{ "", "b=1,s=4,h=2,d=3", "b=1,s=4,h=2,d=3", "scale=0.4" },
		{ "", "b=1,s=6,h=2,d=3", "b=1,s=6,kv=1,d=3", "causal=1 window=3 softcap=0.7" },
	};

	omp_set_num_threads(2);
	for (size_t i = 0; i < HD_LEN(shapes); i++)
		for (int width = LEAST_WIDTH; width <= 16; width *= 2)
			if (whole_sweep() || i < 4 || (width == 16 ? LEAST_WIDTH < 16 || i % 2 : width == LEAST_WIDTH))
				check(&shapes[i], width);
	for (size_t i = 0; i < HD_LEN(tiny); i++)
		check_differences(&tiny[i]);
	for (int width = LEAST_WIDTH; width <= 16; width *= 2)
		nan_is_not_hidden(width);
	threads_do_not_matter();
	check_refusals();
	return done();
}
