/* SPDX-License-Identifier: Apache-2.0
 * add, cast, copy, accumulate, fill, gelu, swiglu.  A bug here shows as a loss that is a little worse.  Typical bugs
 * are a wrong broadcast, a missed piece at the end of an odd size, and rounding other than to nearest even.
 */
#include <config.h>
#include "t/lib/kernel_props.h"

static void add(const char *y, const char *b, const char *c, int inplace)
{
	struct kt *t = KT_NEW(add, "");
	struct kt_buf *x0 = kt_in(t, HD_DTYPE_F32, y), *x1 = kt_in(t, HD_DTYPE_F32, b),
		      *x2 = c ? kt_in(t, HD_DTYPE_F32, c) : NULL;
	struct kt_buf *out = kt_out(t, HD_DTYPE_F32, y);

	kt_ints(x0, -99, 99);
	kt_ints(x1, -99, 99);
	if (x2)
		kt_ints(x2, -99, 99);
	if (inplace)
		kt_inplace(out, x0);
	KT_CHECK(t, 0, "add %s + %s + %s%s", y, b, c ? c : "", inplace ? ", in place" : "");
	kt_free(t);
}

static void adds(void)
{
	struct kt *t = KT_NEW(add, "");

	add("batch=3,seq=5,embed=33", "batch=3,seq=5,embed=33", NULL, 0);
	add("batch=3,seq=5,embed=33", "embed=33", NULL, 1);
	add("batch=3,seq=5,embed=33", "batch=3,embed=33", "seq=5", 0);
	add("batch=3,seq=5,embed=33", "batch=3", "embed=33,seq=5", 1);
	add("batch=3,seq=5,embed=33", "", "batch=3,seq=5", 0);
	add("batch=2@3/9,seq=7,embed=1501@2/4000", "seq=7,embed=1501@2/4000", "embed=1501@2/4000", 1);
	add("", "", NULL, 0);
	kt_in(t, HD_DTYPE_F32, "a=4,b=5");
	kt_in(t, HD_DTYPE_F32, "c=5");
	kt_out(t, HD_DTYPE_F32, "a=4,b=5");
	kt_refused(t, "add: input 1 has dim c of 5, input 0 has 0");
	kt_free(t);
}

static void cast(uint32_t from, uint32_t to, int64_t n, double tol)
{
	char spec[32], name[64];
	struct kt *t = KT_NEW(cast, "");
	struct kt_buf *x;

	snprintf(spec, sizeof(spec), "a=%d", (int)n);
	x = kt_in(t, from, spec);
	kt_out(t, to, spec);
	kt_reals(x, HD_BITS(from) <= 8 ? 0 : -100, HD_BITS(from) <= 8 || to == HD_DTYPE_U8 ? 255 : 100);
	KT_CHECK(t, tol, "cast %s to %s, %d", hd_dtype_name(from), hd_dtype_name(to), (int)n);
	snprintf(name, sizeof(name), "cast %s to %s", hd_dtype_name(from), hd_dtype_name(to));
	kt_threads(t, name);
	kt_free(t);
}

/* 1 + k/256 lies halfway between two bf16 where k is odd; the even neighbour wins. */
static void cast_rounding(int which)
{
	static const struct {
		float x;
		uint16_t y;
	} want[] = {
		{ 1 + 1 / 256.f, 0x3f80 },
		{ 1 + 3 / 256.f, 0x3f82 },
		{ 1 + 1 / 256.f + 0x1p-20f, 0x3f81 },
		{ -1 - 3 / 256.f, 0xbf82 },
		{ 0, 0 },
		{ -0.0f, 0x8000 },
		{ INFINITY, 0x7f80 },
		{ 3.4e38f, 0x7f80 },
		{ 0x1p-149f, 0 },
		{ 0x1p-133f, 1 },
		{ 0x1.8p-133f, 2 },
	};
	struct kt *t = KT_NEW(cast, "");
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, "a=12"), *y = kt_out(t, HD_DTYPE_BF16, "a=12");
	int right = 0;

	x->view[KT_REF].dtype = HD_DTYPE_F32; /* only here the reference must round, too */
	y->view[KT_REF].dtype = HD_DTYPE_BF16;
	for (size_t i = 0; i < HD_LEN(want); i++)
		((float *)x->mem[which])[i] = want[i].x;
	((float *)x->mem[which])[HD_LEN(want)] = NAN;
	is_int(kt_run(t, which), 0, "cast f32 to bf16 on each device");
	for (size_t i = 0; i < HD_LEN(want); i++)
		right += ((uint16_t *)y->mem[which])[i] == want[i].y;
	is_int(right, HD_LEN(want), "... and rounds to nearest even");
	ok(isnan(kt_get(y, which, HD_LEN(want))), "... and NaN stays NaN");
	kt_free(t);
}

/* 1 + k/2048 lies halfway between two fp16 where k is odd; the smallest is 2^-24, and from 65520 on all are infinite.
 * */
static void cast_half(int which)
{
	static const struct {
		float x;
		uint16_t y;
	} want[] = {
		{ 1 + 1 / 2048.f, 0x3c00 },
		{ 1 + 3 / 2048.f, 0x3c02 },
		{ 1 + 1 / 2048.f + 0x1p-20f, 0x3c01 },
		{ -1 - 3 / 2048.f, 0xbc02 },
		{ 0, 0 },
		{ -0.0f, 0x8000 },
		{ INFINITY, 0x7c00 },
		{ 65519, 0x7bff },
		{ 65520, 0x7c00 },
		{ -1e30f, 0xfc00 },
		{ 0x1p-24f, 1 },
		{ 0x1p-25f, 0 },
		{ 0x1.8p-24f, 2 },
		{ 0x1p-14f, 0x400 },
		{ 0x1.ff8p-15f, 0x3ff },
		{ 0x1.ffep-15f, 0x400 },
		{ 0x1.fffp-1f, 0x3c00 },
	};
	struct kt *t = KT_NEW(cast, "");
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, "a=18"), *y = kt_out(t, HD_DTYPE_F16, "a=18");
	int right = 0;

	x->view[KT_REF].dtype = HD_DTYPE_F32;
	y->view[KT_REF].dtype = HD_DTYPE_F16;
	for (size_t i = 0; i < HD_LEN(want); i++)
		((float *)x->mem[which])[i] = want[i].x;
	((float *)x->mem[which])[HD_LEN(want)] = NAN;
	is_int(kt_run(t, which), 0, "cast f32 to f16 on each device");
	for (size_t i = 0; i < HD_LEN(want); i++)
		right += ((uint16_t *)y->mem[which])[i] == want[i].y;
	is_int(right, HD_LEN(want), "... and rounds to nearest even");
	ok((((uint16_t *)y->mem[which])[HD_LEN(want)] & 0x7fff) > 0x7c00, "... and NaN stays NaN");
	kt_free(t);
}

/* Casts to bytes: values out of range, halfway values, and NaN. */
static void cast_bytes(void)
{
	static const struct {
		double x, y;
	} want[] = { { -7, 0 },      { -0.4, 0 },    { 0.5, 0 },   { 1.5, 2 },        { 2.5, 2 },       { 254.49, 254 },
		     { 254.5, 254 }, { 255.4, 255 }, { 300, 255 }, { INFINITY, 255 }, { -INFINITY, 0 }, { NAN, 0 } };
	struct kt *t = KT_NEW(cast, "");
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, "a=12"), *y = kt_out(t, HD_DTYPE_U8, "a=12");
	int right = 0;

	for (int i = 0; i < 12; i++)
		kt_set(x, i, want[i].x);
	KT_CHECK(t, 0, "cast to bytes");
	for (int i = 0; i < 12; i++)
		right += kt_get(y, KT_CPU, i) == want[i].y;
	is_int(right, 12, "... and clamps, rounds and maps NaN as specified");
	kt_free(t);
}

static void casts(void)
{
	struct kt *t = KT_NEW(cast, "");

	cast(HD_DTYPE_F32, HD_DTYPE_BF16, 70001, 0x1p-8);
	cast(HD_DTYPE_BF16, HD_DTYPE_F32, 70001, 0);
	cast(HD_DTYPE_F32, HD_DTYPE_F64, 70001, 0);
	cast(HD_DTYPE_F64, HD_DTYPE_F32, 70001, 0x1p-24);
	cast(HD_DTYPE_BF16, HD_DTYPE_F64, 70001, 0);
	cast(HD_DTYPE_F64, HD_DTYPE_BF16, 70001, 0x1p-8);
	cast(HD_DTYPE_F64, HD_DTYPE_F64, 70001, 0);
	cast(HD_DTYPE_F32, HD_DTYPE_F16, 70001, 0x1p-11);
	cast(HD_DTYPE_F16, HD_DTYPE_F32, 70001, 0);
	cast(HD_DTYPE_F64, HD_DTYPE_F16, 70001, 0x1p-11);
	cast(HD_DTYPE_F16, HD_DTYPE_BF16, 70001, 0x1p-8);
	cast(HD_DTYPE_F32, HD_DTYPE_B1, 70001, 0);
	cast(HD_DTYPE_B1, HD_DTYPE_F32, 70001, 0);
	cast(HD_DTYPE_B1, HD_DTYPE_F32, 3, 0); /* nothing is written after it */
	cast(HD_DTYPE_BF16, HD_DTYPE_B1, 13, 0);
	cast(HD_DTYPE_B1, HD_DTYPE_BF16, 13, 0);
	cast(HD_DTYPE_F32, HD_DTYPE_U8, 70001, 0);
	cast(HD_DTYPE_U8, HD_DTYPE_F32, 70001, 0);
	cast(HD_DTYPE_BF16, HD_DTYPE_U8, 13, 0);
	cast(HD_DTYPE_U8, HD_DTYPE_BF16, 13, 0);
	cast_bytes();
	cast_rounding(KT_CPU);
	cast_rounding(KT_REF);
	cast_half(KT_CPU);
	cast_half(KT_REF);
	kt_in(t, HD_DTYPE_F32, "a=4");
	kt_out(t, HD_DTYPE_I32, "a=4");
	kt_refused(t, "cast: output 0 has dtype i32, it must be f32, f64, bf16, f16, u8, i8, e4m3, e5m2 or b1");
	kt_free(t);
}

static void copy(uint32_t dtype, const char *x, const char *y, const char *attr)
{
	struct kt *t = KT_NEW(copy, attr);
	struct kt_buf *in = kt_in(t, dtype, x), *out = kt_out(t, dtype, y);

	kt_ints(in, 1, 99);
	kt_ints(out, 100, 199);
	t->leaves = 1;
	KT_CHECK(t, 0, "copy %s %s", hd_dtype_name(dtype), attr);
	if (!*attr)
		ok(kt_get(out, KT_CPU, 5) == kt_get(in, KT_CPU, 5), "... and every element arrives");
	kt_free(t);
}

static void copies(void)
{
	struct kt *t = KT_NEW(copy, "runs=3 run=4 dst_step=5");

	copy(HD_DTYPE_F32, "a=7,b=9", "c=63", "");
	copy(HD_DTYPE_F32, "a=300,b=301", "c=90300", "");
	copy(HD_DTYPE_I32, "a=100", "b=40", "runs=4 run=3 src=2 src_step=20 dst=1 dst_step=7");
	copy(HD_DTYPE_F32, "a=100", "b=40", "runs=4 run=3 src=60 src_step=-20 dst=1 dst_step=7");
	copy(HD_DTYPE_F32, "a=70000", "b=140000", "runs=2 run=30011 src_step=35000 dst=19 dst_step=70000");
	copy(HD_DTYPE_B1, "a=77", "b=77", "");
	kt_in(t, HD_DTYPE_F32, "a=12");
	kt_out(t, HD_DTYPE_F32, "b=13");
	kt_refused(t, "copy: output 0's pieces cover elements 0 to 14, it has 13");
	kt_free(t);
}

static void accumulate(const char *spec, int64_t last)
{
	struct kt *t = KT_NEW(accumulate, "");
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, spec), *y = kt_out(t, HD_DTYPE_F32, spec);

	kt_ints(x, 1, 99);
	KT_CHECK(t, 0, "accumulate, first, %s", spec);
	t->run.acc = 1;
	KT_CHECK(t, 0, "accumulate, second");
	is_int((int)kt_get(y, KT_CPU, last), 2 * (int)kt_get(x, KT_CPU, last), "... and yields the sum of both");
	kt_free(t);
}

static void accumulate_and_fill(void)
{
	struct kt *f = KT_NEW(fill, "value=3 loss_scale=1");
	struct kt_buf *y;

	accumulate("a=131,b=257", 33666);
	accumulate("a=1", 0);
	y = kt_out(f, HD_DTYPE_F32, "a=131,b=257");
	f->run.loss_scale = 0.25;
	KT_CHECK(f, 0, "fill");
	near(kt_get(y, KT_CPU, 33666), 0.75, 0, "... with the loss scale");
	kt_free(f);
}

/* Forward, backward in and out of place, and finite differences.  A value takes about ten
 * operations, of half an ulp each (kt_tol of 4 terms is 8 ulp-halves); backward twice that. */
static void gelu(const char *spec, double range)
{
	struct kt *t = KT_NEW(gelu, ""), *d = KT_NEW(gelu_d, "");
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, spec), *y = kt_out(t, HD_DTYPE_F32, spec);
	struct kt_buf *x2 = kt_in(d, HD_DTYPE_F32, spec), *dy = kt_in(d, HD_DTYPE_F32, spec),
		      *dx = kt_out(d, HD_DTYPE_F32, spec);

	kt_reals(x, -range, range);
	kt_reals(dy, -1, 1);
	kt_share(x2, x);
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 4), "gelu %s", spec);
	KT_CHECK(d, kt_tol(HD_DTYPE_F32, 16), "gelu_d %s", spec);
	if (x->count < 1000)
		kt_gradient(t, x, y, dy, dx, "gelu_d is the derivative");
	kt_threads(t, "gelu");
	kt_threads(d, "gelu_d");
	kt_inplace(y, x);
	kt_inplace(dx, dy);
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 4), "gelu in place");
	KT_CHECK(d, kt_tol(HD_DTYPE_F32, 16), "gelu_d in place");
	kt_free(t);
	kt_free(d);
}

#ifndef KT_CUDA /* on cuda, products compute gelu themselves */
/* y and the slope from one pass are gelu's, and dy times the slope is gelu_d.  A pass that misses a row's end, or sums
 * values before they are rounded, would make a bias' gradient a little wrong. */
static void gelu_slope(const char *rows, const char *cols, double range)
{
	char spec[128];
	struct kt *t = KT_NEW(gelu_slope, ""), *d = KT_NEW(gelu_slope_d, ""), *s = KT_NEW(gelu_slope_d, "");
	struct kt_buf *x, *y, *slope, *k, *dy, *dx, *sums;

	snprintf(spec, sizeof(spec), "%s,%s", rows, cols);
	x = kt_in(t, HD_DTYPE_F32, spec);
	y = kt_out(t, HD_DTYPE_F32, spec);
	slope = kt_out(t, HD_DTYPE_F32, spec);
	k = kt_in(d, HD_DTYPE_F32, spec);
	dy = kt_in(d, HD_DTYPE_F32, spec);
	dx = kt_out(d, HD_DTYPE_F32, spec);
	kt_reals(x, -range, range);
	kt_reals(dy, -1, 1);
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 16), "gelu and its slope, %s", spec);
	kt_share(k, slope);
	KT_CHECK(d, kt_tol(HD_DTYPE_F32, 17), "... dy times the slope is right");
	if (x->count <= 200)
		kt_gradient(t, x, y, dy, dx, "... and is the derivative");
	kt_threads(t, "gelu and its slope");
	kt_inplace(slope, x);
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 16), "... with the slope in place of x");
	kt_reals(kt_in(s, HD_DTYPE_F32, spec), -1, 1);
	kt_reals(kt_in(s, HD_DTYPE_F32, spec), -1, 1);
	dx = kt_out(s, HD_DTYPE_F32, spec);
	sums = kt_out(s, HD_DTYPE_F32, cols);
	kt_threads(s, "times the slope, with sums");
	kt_inplace(dx, s->in[1]);
	KT_CHECK(s, kt_tol(HD_DTYPE_F32, x->count / sums->count + 2), "... with its sums over %s", rows);
	s->run.acc = 1;
	KT_CHECK(s, kt_tol(HD_DTYPE_F32, x->count / sums->count + 3), "... and the sums are added to the output");
	kt_free(t);
	kt_free(d);
	kt_free(s);
}

static void gelu_slopes(void)
{
	struct kt *t = KT_NEW(gelu_slope_d, "");

	gelu_slope("batch=3,seq=5", "mlp=7", 4);
	gelu_slope("batch=2,seq=331", "mlp=1021@3/4096", 12);
	gelu_slope("batch=3,seq=2731", "heads=2,head_dim=3", 4); /* blocks of more rows */
	kt_in(t, HD_DTYPE_F32, "batch=4,mlp=5");
	kt_in(t, HD_DTYPE_F32, "batch=4,mlp=5");
	kt_out(t, HD_DTYPE_F32, "batch=4,mlp=5");
	kt_out(t, HD_DTYPE_F32, "batch=4");
	kt_refused(t, "gelu_slope_d: output 1 is (batch 4), input 0 calls for (mlp 5)");
	kt_free(t);
}

static void slope_of_extremes(const struct kt_buf *x)
{
	struct kt *t = KT_NEW(gelu_slope, "");

	kt_share(kt_in(t, HD_DTYPE_F32, "a=10"), x);
	kt_out(t, HD_DTYPE_F32, "a=10");
	kt_out(t, HD_DTYPE_F32, "a=10");
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 16), "gelu and its slope of extremes");
	kt_free(t);
}
#else
static void gelu_slopes(void)
{
}
static void slope_of_extremes(const struct kt_buf *x)
{
	(void)x;
}
#endif

static void gelu_extremes(void)
{
	static const double v[] = { 1e30, -1e30, 1e5, -1e5, 20, -20, -9, 1e-30, 0, NAN };
	struct kt *t = KT_NEW(gelu, ""), *d = KT_NEW(gelu_d, "");
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, "a=10"), *x2 = kt_in(d, HD_DTYPE_F32, "a=10"),
		      *dy = kt_in(d, HD_DTYPE_F32, "a=10");

	kt_out(t, HD_DTYPE_F32, "a=10");
	kt_out(d, HD_DTYPE_F32, "a=10");
	for (int i = 0; i < 10; i++) {
		kt_set(x, i, v[i]);
		kt_set(dy, i, 1);
	}
	kt_share(x2, x);
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 4), "gelu of extremes");
	KT_CHECK(d, kt_tol(HD_DTYPE_F32, 16), "gelu_d of extremes");
	slope_of_extremes(x);
	kt_free(t);
	kt_free(d);
}

static void swiglu(const char *attr, const char *spec)
{
	struct kt *t = KT_NEW(swiglu, attr), *d = KT_NEW(swiglu_d, attr);
	struct kt_buf *a = kt_in(t, HD_DTYPE_F32, spec), *b = kt_in(t, HD_DTYPE_F32, spec),
		      *y = kt_out(t, HD_DTYPE_F32, spec);
	struct kt_buf *a2 = kt_in(d, HD_DTYPE_F32, spec), *b2 = kt_in(d, HD_DTYPE_F32, spec),
		      *dy = kt_in(d, HD_DTYPE_F32, spec);
	struct kt_buf *da = kt_out(d, HD_DTYPE_F32, spec), *db = kt_out(d, HD_DTYPE_F32, spec);

	kt_reals(a, -12, 12);
	kt_reals(b, -3, 3);
	kt_reals(dy, -1, 1);
	kt_share(a2, a);
	kt_share(b2, b);
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 4), "swiglu %s %s", attr, spec);
	KT_CHECK(d, kt_tol(HD_DTYPE_F32, 16), "swiglu_d %s %s", attr, spec);
	if (a->count < 1000) {
		kt_gradient(t, a, y, dy, da, "swiglu_d is the derivative by a");
		kt_gradient(t, b, y, dy, db, "swiglu_d is the derivative by b");
	}
	kt_threads(d, "swiglu_d");
	kt_inplace(da, a2);
	kt_inplace(db, dy);
	KT_CHECK(d, kt_tol(HD_DTYPE_F32, 16), "swiglu_d in place");
	kt_free(t);
	kt_free(d);
}

int main(void)
{
	static const char *const gates[] = { "", "gelu=1", "gelu=2" };
	struct kt *t = KT_NEW(gelu_d, "");

	adds();
	casts();
	copies();
	accumulate_and_fill();
	gelu("batch=3,seq=5,mlp=7", 4);
	gelu("batch=3,seq=7,mlp=1021@3/4096", 12);
	gelu_slopes();
	gelu_extremes();
	for (size_t i = 0; i < HD_LEN(gates); i++) {
		swiglu(gates[i], "batch=3,seq=5,mlp=7");
		swiglu(gates[i], "batch=3,seq=7,mlp=1021@3/4096");
	}
	kt_in(t, HD_DTYPE_F32, "a=4,b=3");
	kt_in(t, HD_DTYPE_BF16, "a=4,b=3");
	kt_out(t, HD_DTYPE_F32, "a=4,b=3");
	kt_refused(t, "gelu_d: input 1 has dtype bf16, it must be f32");
	kt_free(t);
	return done();
}
