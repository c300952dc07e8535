/* SPDX-License-Identifier: Apache-2.0
 * sumsq, clip, adamw, sgd.  If this broke, a wrong bias correction, decay that is scaled by the
 * wrong factor, or a low copy that lags behind its master would train, only worse.
 */
#include <config.h>
#include "t/lib/kernel_props.h"

static void sumsq(const char *spec)
{
	struct kt *t = KT_NEW(sumsq, "");
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, spec), *s = kt_out(t, HD_DTYPE_F64, "");
	double once;

	kt_ints(x, -99, 99);
	KT_CHECK(t, 0, "sumsq %s, integers", spec);
	once = kt_get(s, KT_CPU, 0);
	t->run.acc = 1;
	KT_CHECK(t, 0, "sumsq, added");
	near(kt_get(s, KT_CPU, 0), 2 * once, 0, "... and yields twice the sum");
	t->run.acc = 0;
	kt_reals(x, -1e30, 1e30);
	/* squares of floats are exact in double */
	KT_CHECK(t, 0x1p-53 * (double)x->count, "sumsq beyond the range of fp32");
	kt_threads(t, "sumsq");
	kt_free(t);
}

static void clip(double limited, double sum, double factor, double norm)
{
	struct kt *t = limited > 0 ? KT_NEW(clip, "clip=2.5") : KT_NEW(clip, "");
	struct kt_buf *s = kt_in(t, HD_DTYPE_F64, ""), *f = kt_out(t, HD_DTYPE_F32, ""),
		      *n = kt_out(t, HD_DTYPE_F32, "");

	kt_set(s, 0, sum);
	KT_CHECK(t, 0x1p-24, "clip of %g", sum);
	near(kt_get(f, KT_CPU, 0), factor, 0, "... with the expected factor");
	near(kt_get(n, KT_CPU, 0), norm, 0, "... and norm");
	kt_free(t);
}

struct update {
	struct kt *t;
	struct kt_buf *w, *g, *m, *v, *factor, *w1, *m1, *v1, *low;
};

static struct update adamw_new(struct kt *t, const char *spec, int low, int inplace)
{
	struct update u = { .t = t };

	u.w = kt_in(t, HD_DTYPE_F32, spec);
	u.g = kt_in(t, HD_DTYPE_F32, spec);
	u.m = kt_in(t, HD_DTYPE_F32, spec);
	u.v = kt_in(t, HD_DTYPE_F32, spec);
	u.factor = kt_in(t, HD_DTYPE_F32, "");
	u.w1 = kt_out(t, HD_DTYPE_F32, spec);
	u.m1 = kt_out(t, HD_DTYPE_F32, spec);
	u.v1 = kt_out(t, HD_DTYPE_F32, spec);
	u.low = low ? kt_out(t, HD_DTYPE_BF16, spec) : NULL;
	if (inplace) {
		kt_inplace(u.w1, u.w);
		kt_inplace(u.m1, u.m);
		kt_inplace(u.v1, u.v);
	}
	kt_reals(u.w, -1, 1);
	kt_reals(u.g, -1, 1);
	kt_reals(u.m, -1, 1);
	kt_reals(u.v, 0.01, 1);
	kt_set(u.factor, 0, 0.5);
	t->run.lr = 0.01;
	t->run.step = 7;
	return u;
}

/* Checks that bf16 copies are masters rounded to nearest even.  Computed independently: the nearest multiple of 2^-7
 * of the binade; halfway between two, the even one.  rint does that. */
static int low_is_rounded(const struct update *u)
{
	for (int64_t i = 0; i < u->w->count; i++) {
		double w = kt_get(u->w1, KT_CPU, i), unit = ldexp(1, ilogb(w) - 7);

		if (kt_get(u->low, KT_CPU, i) != rint(w / unit) * unit)
			return 0;
	}
	return 1;
}

/* A dozen operations of half an ulp each: kt_tol of 9 terms is 12. */
static void adamw(const char *spec, int low, int inplace)
{
	struct update u = adamw_new(KT_NEW(adamw, "beta1=0.9 beta2=0.95 eps=1e-8 decay=0.1"), spec, low, inplace);

	KT_CHECK(u.t, low ? 0x1p-8 : kt_tol(HD_DTYPE_F32, 9), "adamw %s low=%d in place=%d", spec, low, inplace);
	if (low)
		ok(low_is_rounded(&u), "... and the low copy is the new master, rounded");
	if (!inplace)
		kt_threads(u.t, "adamw");
	kt_free(u.t);
}

/* Computed by hand.  Step 1 from m = v = 0: m = 0.1 g', v = 0.05 g'^2, both bias corrections cancel, so
 * the move is the sign of g'. Step 2 with betas 1/2, powers of two everywhere: m = (m + g')/2,
 * v = (v + g'^2)/2, unbiased by 3/4. */
static void adamw_by_hand(void)
{
	struct update u = adamw_new(KT_NEW(adamw, "beta1=0.9 beta2=0.95 eps=0 decay=0.1"), "a=2", 0, 0);

	for (int i = 0; i < 2; i++) {
		kt_set(u.w, i, 3);
		kt_set(u.g, i, i ? -8 : 4);
		kt_set(u.m, i, 0);
		kt_set(u.v, i, 0);
	}
	u.t->run.step = 1;
	KT_CHECK(u.t, kt_tol(HD_DTYPE_F32, 9), "adamw of the first step");
	near(kt_get(u.w1, KT_CPU, 0), 3 - 0.01 * (1 + 0.3), 3 * kt_tol(HD_DTYPE_F32, 9), "... moves by lr, and decays");
	near(kt_get(u.w1, KT_CPU, 1), 3 - 0.01 * (-1 + 0.3), 3 * kt_tol(HD_DTYPE_F32, 9), "... against the gradient");
	near(kt_get(u.m1, KT_REF, 0), 0.1 * 0.5 * 4, 1e-15, "... m holds the scaled gradient");
	near(kt_get(u.v1, KT_REF, 0), 0.05 * 4, 1e-15, "... v holds its square");
	kt_free(u.t);

	u = adamw_new(KT_NEW(adamw, "beta1=0.5 beta2=0.5 eps=1 decay=0.5"), "a=1", 0, 0);
	kt_set(u.w, 0, 2);
	kt_set(u.g, 0, 8); /* times factor: 4 */
	kt_set(u.m, 0, 2);
	kt_set(u.v, 0, 2);
	u.t->run.step = 2;
	KT_CHECK(u.t, kt_tol(HD_DTYPE_F32, 9), "adamw of the second step");
	near(kt_get(u.m1, KT_CPU, 0), 3, 0, "... m as computed by hand");
	near(kt_get(u.v1, KT_CPU, 0), 9, 0, "... v as computed by hand");
	/* m^ = 4, v^ = 12: 2 - 0.01 (4 / (sqrt 12 + 1) + 1) */
	near(kt_get(u.w1, KT_REF, 0), 2 - 0.01 * (4 / (sqrt(12) + 1) + 1), 1e-15, "... w as computed by hand");
	kt_free(u.t);
}

static void sgd(const char *spec, int low, int inplace)
{
	struct kt *t = KT_NEW(sgd, "decay=0.5");
	struct update u = { .t = t,
			    .w = kt_in(t, HD_DTYPE_F32, spec),
			    .g = kt_in(t, HD_DTYPE_F32, spec),
			    .factor = kt_in(t, HD_DTYPE_F32, ""),
			    .w1 = kt_out(t, HD_DTYPE_F32, spec) };
	double want;

	u.low = low ? kt_out(t, HD_DTYPE_BF16, spec) : NULL;
	if (inplace)
		kt_inplace(u.w1, u.w);
	kt_ints(u.w, -8, 8);
	kt_ints(u.g, -8, 8);
	kt_set(u.w, 1, 2);
	kt_set(u.factor, 0, 0.25);
	t->run.lr = 0.125;
	want = 2 - 0.125 * (0.25 * kt_get(u.g, KT_CPU, 1) + 0.5 * 2);
	KT_CHECK(t, low ? 0x1p-8 : 0, "sgd %s low=%d in place=%d", spec, low, inplace);
	near(kt_get(u.w1, KT_CPU, 1), want, 0, "... and matches a value computed by hand");
	kt_free(t);
}

int main(void)
{
	struct kt *t = KT_NEW(adamw, "");

	sumsq("a=1");
	sumsq("a=131,b=1031");
	clip(2.5, 100, 0.25, 10);
	clip(2.5, 4, 1, 2);
	clip(0, 100, 1, 10);
	adamw("a=5,b=7", 0, 1);
	adamw("a=131,b=257", 0, 0);
	adamw("a=131,b=257", 1, 0);
	adamw("a=4", 1, 0);
	adamw_by_hand();
	sgd("a=5,b=7", 0, 1);
	sgd("a=131,b=257", 1, 0);
	kt_in(t, HD_DTYPE_F32, "a=4");
	kt_in(t, HD_DTYPE_BF16, "a=4");
	for (int i = 0; i < 3; i++)
		kt_in(t, HD_DTYPE_F32, i < 2 ? "a=4" : "");
	for (int i = 0; i < 3; i++)
		kt_out(t, HD_DTYPE_F32, "a=4");
#ifndef KT_CUDA /* on cuda, gradients may be bf16 */
	kt_refused(t, "adamw: input 1 has dtype bf16, it must be f32");
#endif
	kt_free(t);
	return done();
}
