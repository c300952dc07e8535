/* SPDX-License-Identifier: Apache-2.0
 * Kernels with bf16 operands, above all cuda's tensor-core attention.  If this broke, bf16 models would train worse
 * without a message.  Typical bugs are a fragment assembled from the wrong rows, a mask off by one at a tile's edge,
 * and a tile read before its copy has arrived.  Others are the tail of a vector or of a converted piece.
 */
#include <config.h>
#include "t/lib/kernel_props.h"
#include "engine/base/half.h"
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/pairs.h"
#include "kernels/cpu/elementwise/gelu_table.h"

#define ROUND 0x1p-8 /* twice the error of one rounding to bf16 */

static const struct shape {
	const char *what, *q, *k, *attr;
} shapes[] = {
	{ "one tile", "b=1,s=64,h=1,d=64", "b=1,s=64,h=1,d=64", "causal=1" },
	{ "several tiles", "b=2,s=192,h=2,d=64", "b=2,s=192,h=2,d=64", "causal=1" },
	{ "odd seq", "b=1,s=131,h=2,d=64", "b=1,s=131,h=2,d=64", "causal=1" },
	{ "not causal", "b=1,s=100,h=1,d=64", "b=1,s=100,h=1,d=64", "" },
	{ "head_dim 128", "b=1,s=130,h=1,d=128", "b=1,s=130,h=1,d=128", "causal=1" },
	{ "head_dim 128, not causal, grouped", "b=1,s=70,h=4,d=128", "b=1,s=70,kv=2,d=128", "" },
	{ "grouped", "b=2,s=70,h=6,d=64", "b=2,s=70,kv=2,d=64", "causal=1" },
	{ "a slice inside a group", "b=1,s=40,h=2@2/8,d=64", "b=1,s=40,kv=1@0/2,d=64", "causal=1" },
	{ "large scores", "b=1,s=90,h=1,d=64", "b=1,s=90,h=1,d=64", "causal=1 scale=3" },
	{ "one position", "b=1,s=1,h=2,d=64", "b=1,s=1,h=2,d=64", "causal=1" },
	{ "later queries", "b=1,s=70@70/140,h=1,d=64", "b=1,t=140,h=1,d=64", "causal=1" },
	{ "all but one see a tile", "b=1,s=70@62/140,h=1,d=64", "b=1,t=140,h=1,d=64", "causal=1" },
	{ "all but one see a tile, head_dim 128", "b=1,s=70@62/140,h=1,d=128", "b=1,t=140,h=1,d=128", "causal=1" },
	{ "keys of the future", "b=1,s=70@0/300,h=1,d=64", "b=1,t=150@35/300,h=1,d=64", "causal=1" },
	{ "many tiles of keys", "b=1,s=30@570/600,h=1,d=64", "b=1,t=600,h=1,d=64", "causal=1" },
	{ "any head_dim", "b=2,s=50,h=2,d=24", "b=2,s=50,h=2,d=24", "causal=1" },
	{ "a window inside a tile", "b=1,s=150,h=1,d=64", "b=1,s=150,h=1,d=64", "causal=1 window=9" },
	{ "a window over tiles, grouped", "b=2,s=290,h=2,d=64", "b=2,s=290,kv=1,d=64", "causal=1 window=130" },
	{ "a window, head_dim 128", "b=1,s=200,h=1,d=128", "b=1,s=200,h=1,d=128", "causal=1 window=64" },
	{ "a window that has passed all keys", "b=1,s=70@130/300,h=1,d=64", "b=1,t=90@0/300,h=1,d=64",
	  "causal=1 window=60" },
	{ "softcap", "b=1,s=100,h=2,d=64", "b=1,s=100,kv=1,d=64", "causal=1 softcap=2" },
	{ "softcap in a window, head_dim 128", "b=1,s=140,h=1,d=128", "b=1,s=140,h=1,d=128",
	  "causal=1 softcap=3 window=50" },
	{ "softcap in a window, any head_dim", "b=1,s=60,h=2,d=24", "b=1,s=60,h=2,d=24",
	  "causal=1 softcap=3 window=20" },
};

/* Checks backward with forward's results on ref as inputs, rounded as the device gets them. */
static void backward(const struct shape *s, const char *by, struct kt *f, double tol)
{
	struct kt *t = KT_NEW(attention_d, s->attr);
	struct kt_buf *from[] = { f->in[0], f->in[1], f->in[2], f->out[0], f->out[1] };

	for (int i = 0; i < 6; i++) {
		struct kt_buf *b = kt_in(t, i == 4 ? HD_DTYPE_F32 : HD_DTYPE_BF16,
					 i == 1 || i == 2 ? s->k
					 : i == 4         ? kt_lse_spec(s->q)
							  : s->q);

		for (int64_t j = 0; i < 5 && j < b->count; j++)
			kt_set(b, j, kt_get(from[i], KT_REF, j));
	}
	kt_reals(t->in[5], -1, 1);
	kt_out(t, HD_DTYPE_BF16, s->q);
	kt_out(t, HD_DTYPE_BF16, s->k);
	kt_out(t, HD_DTYPE_BF16, s->k);
	t->least = 0.1; /* a query that sees one key has dq = 0 */
	KT_CHECK(t, tol, "attention backward, %s%s", s->what, by);
	kt_free(t);
}

/* Probabilities are rounded to bf16 before the second product, as is the result; in backward so are o (in delta)
 * and ds, whose terms cancel.  Each term of the sum is off by its own rounding. */
static void attention(const struct shape *s, const char *by)
{
	struct kt *f = KT_NEW(attention, s->attr);
	double scale = hd_attr_num(s->attr, "scale", 0.125);

	kt_reals(kt_in(f, HD_DTYPE_BF16, s->q), -1.5, 1.5);
	kt_reals(kt_in(f, HD_DTYPE_BF16, s->k), -1.5, 1.5);
	kt_reals(kt_in(f, HD_DTYPE_BF16, s->k), -1, 1);
	kt_out(f, HD_DTYPE_BF16, s->q);
	kt_out(f, HD_DTYPE_F32, kt_lse_spec(s->q));
	KT_CHECK(f, 2 * ROUND, "attention, %s%s", s->what, by);
	backward(s, by, f, 4 * ROUND * (1 + scale));
	kt_free(f);
}

/* Adds a kernel's operands, given as "dtype spec" with b, f or i for the dtype. */
static struct kt *build(struct kt *t, const char *const *ins, const char *const *outs)
{
	for (; *ins; ins++) {
		struct kt_buf *b = kt_in(t,
					 **ins == 'b'   ? HD_DTYPE_BF16
					 : **ins == 'i' ? HD_DTYPE_I32
							: HD_DTYPE_F32,
					 *ins + 2);

		if (**ins == 'i')
			kt_ints(b, 0, 60);
		else
			kt_reals(b, -1, 1);
	}
	for (; *outs; outs++)
		kt_out(t, **outs == 'b' ? HD_DTYPE_BF16 : HD_DTYPE_F32, *outs + 2);
	return t;
}

#define LIST(...) \
	(const char *const[]) \
	{ \
		__VA_ARGS__, NULL \
	}
#define ONE(name, attr, ins, outs, terms) \
	do { \
		struct kt *t_ = build(KT_NEW(name, attr), ins, outs); \
		KT_CHECK(t_, 2 * kt_tol(HD_DTYPE_BF16, terms), "%s in bf16", #name); \
		kt_threads(t_, #name); \
		kt_free(t_); \
	} while (0)

#ifndef KT_CUDA /* on cuda, products compute gelu themselves */
/* The reference's 1 + tanh u loses all digits where tanh u is near -1. */
static double gelu_of(double x)
{
	return x / (1 + exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

/* Every number of bf16 is compared on its own, since on the scale of the largest one small results would not matter. 
 * A result is rounded by 2^-8 of itself, and the exponential is off by 3e-6.  The slope is a sum of two terms, at most
 * 2 together, which cancel at one point.  Below -9.98 all results equal that at -9.98, less than 2^-120.  A row of
 * 65543 numbers leaves a tail. */
static void all_gelus(void)
{
	struct kt *t = KT_NEW(gelu_slope, ""), *g = KT_NEW(gelu, ""), *d = KT_NEW(gelu_d, "");
	struct kt_buf *x = kt_in(t, HD_DTYPE_BF16, "n=65543"), *y = kt_out(t, HD_DTYPE_BF16, "n=65543"),
		      *slope = kt_out(t, HD_DTYPE_BF16, "n=65543");
	struct kt_buf *x2 = kt_in(g, HD_DTYPE_BF16, "n=65543"), *y2 = kt_out(g, HD_DTYPE_BF16, "n=65543");
	struct kt_buf *x3 = kt_in(d, HD_DTYPE_BF16, "n=65543"), *dy = kt_in(d, HD_DTYPE_BF16, "n=65543"),
		      *dx = kt_out(d, HD_DTYPE_BF16, "n=65543");
	int bad[3] = { 0 }, other = 0;

	for (int i = 0; i < 65543; i++) {
		double v = hd_of_bf16((uint16_t)i);

		kt_set(x, i, v == v && fabs(v) < INFINITY ? v : 1);
		kt_set(x2, i, kt_get(x, KT_CPU, i));
		kt_set(x3, i, kt_get(x, KT_CPU, i));
		kt_set(dy, i, 1);
	}
	ok(!kt_run(t, KT_CPU) && !kt_run(t, KT_REF) && !kt_run(g, KT_CPU) && !kt_run(d, KT_CPU),
	   "gelu of all bf16 numbers runs");
	for (int i = 0; i < 65543; i++) {
		double a = kt_get(y, KT_CPU, i), of = kt_get(x, KT_CPU, i), b = gelu_of(of),
		       k = kt_get(slope, KT_REF, i);

		bad[0] += !(fabs(a - b) <= (0x1p-8 + 0x1p-14) * fabs(b) + 0x1p-120);
		bad[1] += !(fabs(kt_get(slope, KT_CPU, i) - k) <= (0x1p-8 + 0x1p-14) * fabs(k) + 0x1p-16);
		bad[2] += !(fabs(kt_get(dx, KT_CPU, i) - k) <= (0x1p-8 + 0x1p-14) * fabs(k) + 0x1p-16);
		other += memcmp((uint16_t *)y->mem[KT_CPU] + i, (uint16_t *)y2->mem[KT_CPU] + i, 2) != 0;
	}
	is_int(bad[0], 0, "... each result is rounded once");
	is_int(bad[1], 0, "... and each slope");
	is_int(bad[2], 0, "... and each gradient");
	is_int(other, 0, "... and gelu alone yields the same bits");
	for (int i = 0; i < 3; i++)
		kt_set(x, i, i == 0 ? NAN : i == 1 ? INFINITY : -INFINITY);
	ok(!kt_run(t, KT_CPU), "gelu of numbers that are not finite runs");
	ok(isnan(kt_get(y, KT_CPU, 0)) && isnan(kt_get(slope, KT_CPU, 0)), "... NaN stays NaN");
	ok(kt_get(y, KT_CPU, 1) == INFINITY && kt_get(slope, KT_CPU, 1) == 1, "... infinity stays infinity");
	ok(fabs(kt_get(y, KT_CPU, 2)) < 1e-30, "... and minus infinity yields 0");
	kt_free(t), kt_free(g), kt_free(d);
}

/* A machine computes gelu or looks it up, whichever is faster; the result must not depend on that. */
static void looked_up(void)
{
	enum { N = 65536 + 7 };
	static uint16_t x[N], way[2][2][N];
	static float wide[N], y[N], slope[N];
	int64_t done;

	if (!hd_pairs_here()) {
		skip("this processor has no vectors to look up with");
		return;
	}
	hd_gelu_table_fast(); /* fills the table */
	for (int i = 0; i < N; i++)
		wide[i] = hd_of_bf16(x[i] = (uint16_t)i);
	hd_gelu_slope(y, slope, wide, N);
	hd_store_bf16(way[0][0], y, N);
	hd_store_bf16(way[0][1], slope, N);
	done = hd_gelu_look_up(way[1][0], way[1][1], x, N);
	is_int(done, 65536, "gelu of bf16 is looked up in full vectors");
	is_int(memcmp(way[0][0], way[1][0], 2 * 65536) || memcmp(way[0][1], way[1][1], 2 * 65536), 0,
	       "... with the bits of the computation");
}

/* Checks the gates of swiglu likewise: bf16 against fp32, which is always computed, with the same operands. */
static void gates_of(const char *attr)
{
	struct kt *t[2] = { KT_NEW(swiglu, attr), KT_NEW(swiglu, attr) };
	struct kt *d[2] = { KT_NEW(swiglu_d, attr), KT_NEW(swiglu_d, attr) };
	int other = 0;

	for (int low = 0; low < 2; low++) {
		struct kt_buf *in[5];

		for (int i = 0; i < 5; i++)
			in[i] = kt_in(i < 2 ? t[low] : d[low], low ? HD_DTYPE_BF16 : HD_DTYPE_F32, "n=65543");
		for (int i = 0; i < 3; i++)
			kt_out(i ? d[low] : t[low], low ? HD_DTYPE_BF16 : HD_DTYPE_F32, "n=65543");
		for (int i = 0; i < 5; i++)
			for (int j = 0; j < 65543; j++)
				kt_set(in[i], j, i == 0 || i == 2 ? hd_of_bf16((uint16_t)j) : (j % 37 - 18) * 0x1p-3);
		ok(!kt_run(t[low], KT_CPU) && !kt_run(d[low], KT_CPU), "swiglu %s of all bf16 numbers runs", attr);
	}
	for (int i = 0; i < 3; i++) {
		const uint16_t *low = (i ? d[1] : t[1])->out[i ? i - 1 : 0]->mem[KT_CPU];
		const float *wide = (i ? d[0] : t[0])->out[i ? i - 1 : 0]->mem[KT_CPU];

		for (int j = 0; j < 65543; j++)
			other += low[j] != hd_bf16_of(wide[j]);
	}
	is_int(other, 0, "... and results are those in fp32, rounded");
	for (int low = 0; low < 2; low++)
		kt_free(t[low]), kt_free(d[low]);
}
#endif

static void others(const char *x, const char *rows, const char *col)
{
	char bx[80], fx[80], brows[80], bcol[80], fcol[80], irows[80];

	snprintf(bx, sizeof(bx), "b %s", x);
	snprintf(fx, sizeof(fx), "f %s", x);
	snprintf(brows, sizeof(brows), "f %s", rows);
	snprintf(bcol, sizeof(bcol), "b %s", col);
	snprintf(fcol, sizeof(fcol), "f %s", col);
	snprintf(irows, sizeof(irows), "i %s", rows);
	ONE(norm, "eps=1e-5", LIST(bx, fcol, fcol), LIST(bx, brows, brows), 100);
	ONE(norm, "eps=1e-5 rms=1", LIST(bx, bcol), LIST(bx, brows), 100);
	ONE(norm_d, "", LIST(bx, fcol, brows, brows, bx), LIST(bx), 100);
	ONE(norm_dw, "", LIST(bx, brows, brows, bx), LIST(fcol, fcol), 100);
	ONE(norm_d_add, "", LIST(bx, bx, fcol, brows, brows, bx), LIST(bx), 100);
	ONE(norm_d_add, "rms=1", LIST(bx, bx, bcol, brows, bx), LIST(bx), 100);
	ONE(norm_d_add, "dw=1 bias=1 out=e", LIST(bx, bx, fcol, brows, brows, bx), LIST(bx, fcol, fcol, fcol), 300);
	ONE(norm_d, "rms=1 dw=1", LIST(bx, bcol, brows, bx), LIST(bx, fcol), 300);
	ONE(gelu, "", LIST(bx), LIST(bx), 1);
	ONE(gelu_d, "", LIST(bx, bx), LIST(bx), 1);
#ifndef KT_CUDA
	ONE(gelu_slope, "", LIST(bx), LIST(bx, bx), 1);
	ONE(gelu_slope_d, "", LIST(bx, bx), LIST(bx), 1);
	ONE(gelu_slope_d, "", LIST(bx, bx), LIST(bx, fcol), 500);
#endif
	ONE(swiglu, "", LIST(bx, bx), LIST(bx), 1);
	ONE(swiglu_d, "", LIST(bx, bx, bx), LIST(bx, bx), 1);
	ONE(add, "", LIST(bx, bx, bcol), LIST(bx), 1);
	ONE(accumulate, "", LIST(bx), LIST(fx), 1);
	ONE(sum, "", LIST(bx), LIST(fcol), 500);
	ONE(map, "a * b + exp(c)", LIST(bx, bx, fcol), LIST(bx), 1);
	ONE(xent, "", LIST(bx, irows), LIST(brows, brows, brows), 100);
	ONE(xent_d, "", LIST(bx, irows, brows, brows, brows), LIST(bx), 100);
	ONE(xent_both, "value=1", LIST(bx, irows), LIST(bx, brows, brows, brows), 100);
	ONE(dropout, "p=0.3 site=4", LIST(bx), LIST(bx), 1);
}

/* Rows of several pieces, the last of which is not a full vector. */
static void long_rows(void)
{
	const char *x = "b batch=2,seq=3,embed=2083", *w = "b embed=2083", *f = "f embed=2083", *r = "f batch=2,seq=3";

	ONE(norm, "eps=1e-5", LIST(x, w, w), LIST(x, r, r), 2083);
	ONE(norm, "eps=1e-5", LIST(x, f, f), LIST(x, r, r), 2083);
	ONE(norm_d, "", LIST(x, w, r, r, x), LIST(x), 2083);
	ONE(norm_d, "", LIST(x, f, r, r, x), LIST(x), 2083);
	ONE(norm_d_add, "", LIST(x, x, f, r, r, x), LIST(x), 2083);
	ONE(norm_d_add, "dw=1 bias=1 out=embed", LIST(x, x, f, r, r, x), LIST(x, f, f, f), 2083);
	/* by vectors: more than a cuda block reads at once, and padding that begins in the middle of one */
	ONE(xent, "", LIST("b b=2,vocab=9008/9003", "i b=2"), LIST("f b=2", "f b=2", "f b=2"), 100);
	ONE(xent_d, "", LIST("b b=2,vocab=9008/9003", "i b=2", "f b=2", "f b=2", "f b=2"),
	    LIST("b b=2,vocab=9008/9003"), 100);
}

/* Widths at which cuda distributes rows differently, some without a last vector. */
static void wide_norms(void)
{
	static const int wide[] = { 504, 648, 768, 1024, 1992, 4096, 8184 };

	for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
		int rows = wide[i] < 1024 ? 61 : 11;
		char x[80], w[80], r[80];

		snprintf(x, sizeof(x), "b batch=%d,embed=%d", rows, wide[i]);
		snprintf(w, sizeof(w), "f embed=%d", wide[i]);
		snprintf(r, sizeof(r), "f batch=%d", rows);
		ONE(norm, "eps=1e-5", LIST(x, w, w), LIST(x, r, r), wide[i]);
		ONE(norm, "eps=1e-5 rms=1", LIST(x, w), LIST(x, r), wide[i]);
		ONE(norm_d_add, "dw=1 bias=1 out=embed", LIST(x, x, w, r, r, x), LIST(x, w, w, w), wide[i]);
		ONE(norm_d, "rms=1 dw=1", LIST(x, w, r, x), LIST(x, w), wide[i]);
	}
}

static void tables(void)
{
	ONE(embedding, "", LIST("i b=2,s=37", "b v=61,e=40"), LIST("b b=2,s=37,e=40"), 1);
	ONE(embedding, "", LIST("i b=2,s=37", "f v=61,e=41"), LIST("b b=2,s=37,e=41"), 1);
	ONE(embedding_dw, "", LIST("i b=2,s=37", "b b=2,s=37,e=40"), LIST("f v=61,e=40"), 8);
	ONE(position, "", LIST("b b=2,s=37,e=40", "f p=50,e=40"), LIST("b b=2,s=37,e=40"), 1);
	ONE(position_dw, "", LIST("b b=3,s=37,e=40"), LIST("f p=50,e=40"), 3);
	ONE(rope, "", LIST("b b=2,s=9,h=3,d=16"), LIST("b b=2,s=9,h=3,d=16"), 2);
}

/* Products of experts: three of five experts have rows, one of them more than a tile.  Some sums are deeper than
 * copies run ahead; some sizes are multiples of 16 bytes.  Data are integers, so that every sum is exact. */
static void products(int rows, int k, int n, int how, const char *what)
{
	static const int numbers[] = { 3, 130, 0, 0, 20, 47, 0, 0, 9, 1 };
	int weights = how / 2 == 1, turned = how % 2, add = how == 4;
	char lead[60], a[100], w[100], x[100];
	struct kt *t = KT_NEW(grouped, add ? "rows=1 add=1" : "rows=1");
	struct kt_buf *in[3] = { 0 }, *c;

	snprintf(lead, sizeof(lead), "expert=1@0/5,batch=1@0/2,slot=%d", rows);
	snprintf(a, sizeof(a), "%s,embed=%d", lead, k);
	snprintf(x, sizeof(x), "%s,mlp=%d", lead, n);
	snprintf(w, sizeof(w), turned ? "expert=5,mlp=%d,embed=%d" : "expert=5,embed=%d,mlp=%d", turned ? n : k,
		 turned ? k : n);
	in[0] = kt_in(t, HD_DTYPE_BF16, a);
	in[1] = kt_in(t, HD_DTYPE_BF16, weights ? x : w);
	if (add)
		in[2] = kt_in(t, HD_DTYPE_BF16, x);
	for (int i = 0; i < 3 && in[i]; i++)
		kt_ints(in[i], -3, 3);
	kt_in(t, HD_DTYPE_I32, "expert=5,batch=2");
	for (int i = 0; i < 10; i++)
		kt_set(t->in[t->nin - 1], i, numbers[i]);
	c = kt_out(t, weights ? HD_DTYPE_F32 : HD_DTYPE_BF16, weights ? w : x);
	if (add)
		kt_inplace(c, in[2]);
	t->leaves = !weights;
	KT_CHECK(t, weights ? 0 : ROUND, "products of experts in bf16, %s, %s%s", what,
		 weights ? "weights"
		 : add   ? "rows, added"
			 : "rows",
		 turned ? ", the other way" : "");
	if (weights) {
		t->run.acc = 1;
		KT_CHECK(t, 0, "... and added to the output");
	}
	kt_free(t);
}

/* Tokens move to the experts and back; the router's scores and the gates are fp32 (engine/passes/precision.c). */
static void experts(const char *embed)
{
	static const char *const z = "f batch=4,seq=16,choice=8", *const g = "f batch=4,seq=16,best=2";
	char x[80], d[80];
	struct kt *t = KT_NEW(route, "aux_group=16 group=16 capacity=4 normalize=1 aux=0.5");
	struct kt_buf *gates, *slots;

	snprintf(x, sizeof(x), "b batch=4,seq=16,embed=%s", embed);
	snprintf(d, sizeof(d), "b expert=8,batch=4,slot=4,embed=%s", embed);
	kt_reals(kt_in(t, HD_DTYPE_F32, z + 2), -2, 2);
	gates = kt_out(t, HD_DTYPE_F32, g + 2);
	slots = kt_out(t, HD_DTYPE_I32, g + 2);
	kt_out(t, HD_DTYPE_F32, "stat=11");
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 64), "route");
	for (int which = 0; which < 3; which++) {
		static const char *const attr = "group=16 capacity=4 gates=1";
		struct kt *u = which == 0   ? KT_NEW(dispatch, attr)
			       : which == 1 ? KT_NEW(combine, attr)
					    : KT_NEW(combine_dg, "group=16 capacity=4");
		const char *in = which == 1 ? d : x, *out = which == 0 ? d : which == 1 ? x : g;

		kt_reals(kt_in(u, HD_DTYPE_BF16, in + 2), -1, 1);
		if (which == 2)
			kt_reals(kt_in(u, HD_DTYPE_BF16, d + 2), -1, 1);
		kt_share(kt_in(u, HD_DTYPE_I32, g + 2), slots);
		if (which < 2) {
			struct kt_buf *b = kt_in(u, HD_DTYPE_F32, g + 2);

			for (int64_t i = 0; i < b->count; i++)
				kt_set(b, i, kt_get(gates, KT_REF, i));
		}
		kt_out(u, *out == 'b' ? HD_DTYPE_BF16 : HD_DTYPE_F32, out + 2);
		KT_CHECK(u, 2 * kt_tol(HD_DTYPE_BF16, 40), "%s in bf16, embed %s", u->kernel[0]->name, embed);
		kt_free(u);
	}
	kt_free(t);
}

/* A sum that reaches 2296 before it ends at -8: a partial sum in bf16 would be off by 8. */
static void deep_product(const char *in, const char *out)
{
	struct kt *t = KT_NEW(einsum, "");
	struct kt_buf *a = kt_in(t, HD_DTYPE_BF16, in), *b = kt_in(t, HD_DTYPE_BF16, "k=512,n=24");

	for (int64_t i = 0; i < a->count; i++)
		kt_set(a, i, i % 512 == 0 ? 1.0 / 3 : i % 512 < 256 ? 3 : -3);
	for (int64_t i = 0; i < b->count; i++)
		kt_set(b, i, 3);
	kt_out(t, HD_DTYPE_BF16, out);
	KT_CHECK(t, ROUND, "a deep product is summed in fp32");
	kt_free(t);
}

/* Matrices of 3 x 5 elements: all but the first are aligned to a single element only. */
static void odd_products(void)
{
	struct kt *t = KT_NEW(einsum, "");

	kt_ints(kt_in(t, HD_DTYPE_BF16, "a=3,b=3,m=3,k=5"), -3, 3);
	kt_ints(kt_in(t, HD_DTYPE_BF16, "a=3,b=3,k=5,n=7"), -3, 3);
	kt_out(t, HD_DTYPE_BF16, "b=3,a=3,m=3,n=7");
	KT_CHECK(t, ROUND, "products that begin at odd elements");
	kt_free(t);
}

/* Counts products that the library does not compute, since loops are hundreds of times slower. */
static void counted(void)
{
	char *text;
	long long products = 0, loops = 0, refused = 0;

	if (!kt_device || !kt_device->autotune)
		return;
	text = kt_device->autotune("", NULL);
	is_int(sscanf(text, "einsum.products %lld\neinsum.in_loops %lld\neinsum.with_gelu %*d\neinsum.refused %lld",
		      &products, &loops, &refused),
	       3, "the device counts its products");
	ok(products == 2 && loops == 0 && refused == 0, "%lld products, %lld in loops, %lld refused by the library",
	   products, loops, refused);
	free(text);
}

int main(void)
{
#ifdef KT_CUDA
	const int simulated = 1;
#else
	const int simulated = 0;
#endif

	deep_product("m=16,k=512", "m=16,n=24");
	odd_products();
	counted();
	for (size_t i = 0; i < HD_LEN(shapes); i++)
		if (!simulated || whole_sweep() || i % 2 == 0)
			attention(&shapes[i], "");
	others("a=3,b=7,e=64", "a=3,b=7", "e=64");
	others("a=3,b=29,e=77", "a=3,b=29", "e=77");
	others("a=1,b=3,e=2100", "a=1,b=3", "e=2100");
	others("a=2,b=70,e=296", "a=2,b=70",
	       "e=296"); /* more vectors of columns than a block has; several slabs of rows */
	long_rows();
	wide_norms();
	tables();
	for (int how = 0; how < 5; how++) {
		products(230, 40, 136, how, "40 x 136");
		products(230, 264, 24, how, "264 x 24");
		products(215, 37, 70, how, "37 x 70");
	}
	experts("40");
	experts("37");
#ifndef KT_CUDA
	all_gelus();
	looked_up();
	gates_of(""), gates_of("gelu=1"), gates_of("gelu=2");
#else
	/* The code of other GPUs: above, groups of warps run. */
	setenv("HEDDLE_WGMMA", "0", 1);
	for (size_t i = 0; i < HD_LEN(shapes); i++)
		if (whole_sweep() || i % 2)
			attention(&shapes[i], ", by single warps");
#endif
	return done();
}
