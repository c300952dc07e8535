/* SPDX-License-Identifier: Apache-2.0
 * map: an expression over inputs with different layouts.  If this broke, a bias, a mask or a third
 * party's op would read another row's element, or be off by more than fp32 rounding.
 */
#include <config.h>
#include "engine/base/expr.h"
#include "t/lib/kernel_test.h"
#include "t/lib/tap.h"
#include <float.h>
#include <omp.h>

struct layout {
	const char *expr, *out, *in[4];
	int inplace; /* input that the output replaces; -1: none */
};

static const struct layout layouts[] = {
	{ "a", "x=7", { "x=7" }, -1 },
	{ "0.25", "x=7", { "x=7" }, -1 },
	{ "a + b", "", { "", "" }, -1 },
	{ "a + b", "x=1", { "x=1", "" }, -1 },
	{ "a * b + c", "x=1031", { "x=1031", "x=1031", "" }, -1 },
	{ "a * b + c", "x=1031", { "x=1031", "x=1031", "" }, 1 },
	{ "a - b", "batch=5,seq=31,embed=17", { "batch=5,seq=31,embed=17", "embed=17" }, 0 },
	{ "a - b", "batch=5,seq=31,embed=17", { "batch=5,seq=31,embed=17", "batch=5" }, -1 },
	{ "a - b", "batch=5,seq=31,embed=17", { "batch=5,seq=31,embed=17", "seq=31" }, -1 },
	{ "a - b * c",
	  "batch=5,seq=31,embed=17",
	  { "batch=5,seq=31,embed=17", "batch=5,seq=31", "seq=31,embed=17" },
	  0 },
	{ "a - b", "batch=5,seq=31,embed=17", { "batch=5,seq=31,embed=17", "batch=5,embed=17" }, -1 },
	{ "a - b", "batch=5,seq=31,embed=17", { "seq=31,batch=5,embed=17", "embed=17,seq=31" }, -1 },
	{ "a - b", "x=600,y=700", { "y=700,x=600", "x=600,y=700" }, 1 },
	{ "a - b - c", "x=3,y=1,z=1300", { "y=1,x=3", "z=1300,y=1", "y=1" }, -1 },
	{ "c - a", "x=0,y=5", { "x=0,y=5", "x=0", "y=5" }, -1 },
	{ "a + b", "x=2,y=2,z=2,u=2,v=2,w=2,p=2,q=3", { "q=3,w=2,u=2,y=2", "p=2,v=2,z=2,x=2" }, -1 },
	{ "where(b, min(a, b), max(a, -b)) * sign(a) / (abs(b) + 1)", "x=40,y=50", { "x=40,y=50", "y=50" }, 0 },
	{ "exp(-a * a) * tanh(b) + sqrt(abs(a)) * log(1 + abs(b))", "x=40,y=50", { "x=40,y=50", "x=40" }, 0 },
	{ "erf(a * 2.5) + erf(b * 0.25) * 0.5", "x=40,y=50", { "x=40,y=50", "y=50" }, 0 },
	{ "erf(a * 1e-6) * 1e6 + erf(b * 100)", "x=40,y=50", { "x=40,y=50", "y=50" }, -1 },
	{ "round(a * 64) + floor(b * 16) * 3", "x=40,y=50", { "x=40,y=50", "y=50" }, 0 },
	{ "round(a * 134217728) - floor(a * 134217728)", "x=1031", { "x=1031" }, -1 },
	{ "a - b", "x=135171", { "x=135171", "x=135171" }, 0 },
	{ "exp(a) + b + c + d", "x=70000", { "x=70000", "", "x=70000", "" }, 2 },
};

/* Each operation may be off by two units of 2^-24 of the largest value. */
static double bound(const char *expr)
{
	struct hd_expr e;

	return hd_expr_compile(expr, &e, NULL) < 0 ? -1 : 4 * 0x1p-24 * e.n;
}

static void check_layout(const struct layout *l, uint32_t second)
{
	struct kt *t = KT_NEW(map, l->expr);
	struct kt_buf *out;

	for (int i = 0; i < 4 && l->in[i]; i++)
		kt_reals(kt_in(t, i == 1 ? second : HD_DTYPE_F32, l->in[i]), -2, 2);
	out = kt_out(t, HD_DTYPE_F32, l->out);
	if (l->inplace >= 0)
		kt_inplace(out, t->in[l->inplace]);
	KT_CHECK(t, bound(l->expr), "%s: (%s) from (%s) (%s) (%s)%s%s", l->expr, l->out, l->in[0],
		 l->in[1] ? l->in[1] : "", l->in[2] ? l->in[2] : "", l->inplace >= 0 ? ", in place" : "",
		 second == HD_DTYPE_F64 ? ", second is f64" : "");
	kt_free(t);
}

/* Returns the largest error in units in the last place of the fp32 result (for denormals, of the smallest one). */
static double ulps(const char *expr, double low, double high, int by_bits)
{
	struct kt *t = KT_NEW(map, expr);
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, "x=200003"), *y = kt_out(t, HD_DTYPE_F32, "x=200003");
	double worst = 0;

	kt_reals(x, low, high);
	for (int64_t i = 0; by_bits && i < x->count; i++)
		kt_set(x, i, ldexp(1 + kt_get(x, KT_CPU, i), (int)(i % 270) - 145));
	if (kt_run(t, KT_CPU) < 0 || kt_run(t, KT_REF) < 0)
		worst = INFINITY;
	for (int64_t i = 0; i < x->count; i++) {
		double got = kt_get(y, KT_CPU, i), want = kt_get(y, KT_REF, i);
		double unit = fmax(fabs(nextafterf((float)want, INFINITY) - (float)want), 0x1p-149);

		if ((float)want != got)
			worst = fmax(worst, fabs(got - want) / unit);
	}
	kt_free(t);
	return worst;
}

static void check_accuracy(void)
{
	ok(ulps("exp(a)", -104, 88.7, 0) <= 2, "exp within 2 ulp");
	ok(ulps("exp(a)", -1e-3, 1e-3, 0) <= 2, "exp within 2 ulp near 0");
	ok(ulps("log(a)", 0, 1, 1) <= 2, "log within 2 ulp, denormals included");
	ok(ulps("log(a)", 0.9, 1.1, 0) <= 2, "log within 2 ulp near 1");
	ok(ulps("tanh(a)", -10, 10, 0) <= 2, "tanh within 2 ulp");
	ok(ulps("tanh(a)", 0, 1, 1) <= 2, "tanh within 2 ulp from tiny to huge");
	ok(ulps("sqrt(a)", 0, 1, 1) <= 0.5, "sqrt correctly rounded");
	ok(ulps("a / 3", 0, 1, 1) <= 0.51, "division correctly rounded");
}

static void check_special(const char *expr)
{
	static const double v[] = { 0,       -0.0,     INFINITY, -INFINITY, NAN,    1,  -1,
				    FLT_MAX, -FLT_MAX, FLT_MIN,  1e-40,     -1e-40, 89, -105 };
	struct kt *t = KT_NEW(map, expr);
	struct kt_buf *a = kt_in(t, HD_DTYPE_F32, "x=196"), *b = kt_in(t, HD_DTYPE_F32, "x=196");
	struct kt_buf *y = kt_out(t, HD_DTYPE_F32, "x=196");
	int wrong = -1;

	for (int i = 0; i < 196; i++) {
		kt_set(a, i, v[i / 14]);
		kt_set(b, i, v[i % 14]);
	}
	if (kt_run(t, KT_CPU) < 0 || kt_run(t, KT_REF) < 0)
		wrong = 0;
	for (int i = 0; i < 196; i++) {
		float got = (float)kt_get(y, KT_CPU, i), want = (float)kt_get(y, KT_REF, i);

		if (isnan(want) ? !isnan(got) : fabsf(got - want) > 4e-7f * fabsf(want) + 2e-45f && got != want)
			wrong = i;
	}
	ok(wrong < 0, "%s of zeros, infinities, nan, denormals (element %d)", expr, wrong);
	kt_free(t);
}

/* Keeps so many values alive that the buffers of a block no longer fit at full length. */
static void check_wide(void)
{
	char text[4000] = "";
	struct kt *t;

	for (int i = 0; i < 60; i++)
		sprintf(text + strlen(text), "a * %d - (", i);
	strcat(text, "b");
	for (int i = 0; i < 60; i++)
		strcat(text, ")");
	t = KT_NEW(map, text);
	kt_reals(kt_in(t, HD_DTYPE_F32, "x=3000"), -1, 1);
	kt_reals(kt_in(t, HD_DTYPE_F32, "x=3000"), -1, 1);
	kt_out(t, HD_DTYPE_F32, "x=3000");
	KT_CHECK(t, bound(text), "an expression with 60 constants and 60 live values");
	kt_free(t);
}

static void check_threads(void)
{
	struct kt *t = KT_NEW(map, "tanh(a * b) + exp(c)");
	struct kt_buf *y;
	float *one;

	kt_reals(kt_in(t, HD_DTYPE_F32, "x=333,y=501"), -2, 2);
	kt_reals(kt_in(t, HD_DTYPE_F32, "y=501"), -2, 2);
	kt_reals(kt_in(t, HD_DTYPE_F32, "x=333"), -2, 2);
	y = kt_out(t, HD_DTYPE_F32, "x=333,y=501");
	omp_set_num_threads(1);
	kt_run(t, KT_CPU);
	one = malloc(y->bytes[0]);
	memcpy(one, y->mem[0], y->bytes[0]);
	omp_set_num_threads(2);
	memset(y->mem[0], 0, y->bytes[0]);
	kt_run(t, KT_CPU);
	ok(!memcmp(one, y->mem[0], y->bytes[0]), "one and two threads yield the same bits");
	free(one);
	kt_free(t);
}

static void refused(const char *expr, const char *in, uint32_t dtype, const char *text)
{
	struct kt *t = KT_NEW(map, expr);

	kt_in(t, HD_DTYPE_F32, in);
	kt_in(t, dtype, "x=4");
	kt_out(t, HD_DTYPE_F32, "x=4");
	kt_prepare(t, KT_CPU);
	is_str(t->err.text, text, expr);
	kt_free(t);
}

int main(void)
{
	static const char *const special[] = { "exp(a)",  "log(a)", "tanh(a)",   "sqrt(a)",   "abs(a)",
					       "sign(a)", "-a",     "min(a, b)", "max(a, b)", "where(a, b, -b)",
					       "a + b",   "a - b",  "a * b",     "a / b" };

	for (size_t i = 0; i < HD_LEN(layouts); i++)
		check_layout(&layouts[i], HD_DTYPE_F32);
	for (size_t i = 2; i < HD_LEN(layouts); i += 4)
		check_layout(&layouts[i], HD_DTYPE_F64);
	check_accuracy();
	for (size_t i = 0; i < HD_LEN(special); i++)
		check_special(special[i]);
	check_wide();
	check_threads();
	refused("a + c", "x=4", HD_DTYPE_F32, "map: \"a + c\" reads input c, but the node has 2 inputs");
	refused("a + b", "y=4", HD_DTYPE_F32, "map: input a has dim y, which the output does not have");
#ifndef KT_CUDA /* on cuda the wording differs */
	refused("a * b", "x=4", HD_DTYPE_I32, "map: input b is i32, only f32, f64 and bf16 are possible");
#endif
	refused("a * b", "x=5", HD_DTYPE_F32, "map: dim x has 5 elements in input a and 4 in the output");
	refused("a *", "x=4", HD_DTYPE_F32, "expression \"a *\": a value expected at position 4 (\"end\")");
	return done();
}
