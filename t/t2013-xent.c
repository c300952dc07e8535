/* SPDX-License-Identifier: Apache-2.0
 * xent, xent_combine, xent_d.  In the field an overflow, padding that counts, or slices of the
 * vocabulary that do not combine to the whole would show as a loss that depends on the layout.
 */
#include <config.h>
#include "t/lib/kernel_props.h"

struct xent {
	struct kt *f, *d;
	struct kt_buf *z, *targets, *max, *sum, *target, *dnll, *dz;
};

static struct xent xent_new(const char *rows, const char *vocab)
{
	struct xent x = { .f = KT_NEW(xent, ""), .d = KT_NEW(xent_d, "") };
	char spec[128];

	snprintf(spec, sizeof(spec), "%s,%s", rows, vocab);
	x.z = kt_in(x.f, HD_DTYPE_F32, spec);
	x.targets = kt_in(x.f, HD_DTYPE_I32, rows);
	x.max = kt_out(x.f, HD_DTYPE_F32, rows);
	x.sum = kt_out(x.f, HD_DTYPE_F32, rows);
	x.target = kt_out(x.f, HD_DTYPE_F32, rows);
	kt_in(x.d, HD_DTYPE_F32, spec);
	kt_in(x.d, HD_DTYPE_I32, rows);
	kt_in(x.d, HD_DTYPE_F32, rows);
	kt_in(x.d, HD_DTYPE_F32, rows);
	x.dnll = kt_in(x.d, HD_DTYPE_F32, rows);
	x.dz = kt_out(x.d, HD_DTYPE_F32, spec);
	return x;
}

static void xent_connect(struct xent *x)
{
	kt_share(x->d->in[0], x->z);
	kt_share(x->d->in[1], x->targets);
	kt_share(x->d->in[2], x->max);
	kt_share(x->d->in[3], x->sum);
}

static void xent_free(struct xent *x)
{
	kt_free(x->f);
	kt_free(x->d);
}

/* z - max is exact to half an ulp of the range, and e^z inherits that absolute error as a
 * relative one; the sum of positive terms is short in fp32, and long in double. */
static double tolerance(double range)
{
	return kt_tol(HD_DTYPE_F32, 16) + 2 * range * 0x1p-24;
}

static void xent(const char *rows, const char *vocab, int targets_to, double range)
{
	struct xent x = xent_new(rows, vocab);

	kt_reals(x.z, -range, range);
	kt_ints(x.targets, 0, targets_to);
	kt_reals(x.dnll, 0.1, 1);
	KT_CHECK(x.f, tolerance(range), "xent %s,%s", rows, vocab);
	xent_connect(&x);
	KT_CHECK(x.d, tolerance(range), "xent_d");
	kt_threads(x.f, "xent");
	kt_threads(x.d, "xent_d");
	kt_inplace(x.dz, x.d->in[0]);
	KT_CHECK(x.d, tolerance(range), "xent_d in place");
	xent_free(&x);
}

static double nll(struct xent *x, int64_t i)
{
	return log(kt_ref(x->sum)[i]) + kt_ref(x->max)[i] - kt_ref(x->target)[i];
}

static void derivative(void)
{
	struct xent x = xent_new("batch=2,seq=3", "vocab=11/9");
	double worst = 0, h = 1e-4;

	kt_reals(x.z, -2, 2);
	kt_ints(x.targets, 0, 8);
	kt_reals(x.dnll, 0.1, 1);
	kt_run(x.f, KT_REF);
	xent_connect(&x);
	is_int(kt_run(x.d, KT_REF), 0, "backward in double");
	for (int64_t i = 0; i < x.z->count; i++) {
		double *v = &kt_ref(x.z)[i], keep = *v, up, down;

		*v = keep + h;
		kt_run(x.f, KT_REF);
		up = nll(&x, i / 11) * kt_ref(x.dnll)[i / 11];
		*v = keep - h;
		kt_run(x.f, KT_REF);
		down = nll(&x, i / 11) * kt_ref(x.dnll)[i / 11];
		*v = keep;
		worst = fmax(worst, fabs((up - down) / (2 * h) - kt_ref(x.dz)[i]));
	}
	near(worst, 0, 1e-7, "xent_d is the derivative, and 0 in the padding");
	xent_free(&x);
}

/* Three slices, the last with padding, one whole padding: combined they give the whole. */
static void slices(void)
{
	static const char *const spec[] = { "vocab=5@0/13", "vocab=5@5/13", "vocab=5@10/13", "vocab=5@15/13" };
	struct xent whole = xent_new("batch=7", "vocab=13"), part[4];
	struct kt *c = KT_NEW(xent_combine, "");
	struct kt_buf *max = kt_in(c, HD_DTYPE_F32, "batch=7"), *top = kt_in(c, HD_DTYPE_F32, "batch=7"),
		      *sum = kt_in(c, HD_DTYPE_F32, "batch=7");
	struct kt_buf *out = kt_out(c, HD_DTYPE_F32, "batch=7");
	double total[7] = { 0 }, target[7] = { 0 };

	kt_reals(whole.z, -30, 30);
	kt_ints(whole.targets, 0, 12);
	KT_CHECK(whole.f, tolerance(30), "the whole");
	kt_share(top, whole.max);
	for (int k = 0; k < 4; k++) {
		part[k] = xent_new("batch=7", spec[k]);
		for (int i = 0; i < 35; i++)
			kt_set(part[k].z, i,
			       5 * k + i % 5 < 13 ? kt_get(whole.z, KT_CPU, i / 5 * 13 + 5 * k + i % 5) : 1e9);
		kt_share(part[k].targets, whole.targets);
		KT_CHECK(part[k].f, tolerance(30), "slice %s", spec[k]);
		kt_share(max, part[k].max);
		kt_share(sum, part[k].sum);
		KT_CHECK(c, tolerance(60), "xent_combine");
		for (int i = 0; i < 7; i++) {
			total[i] += kt_get(out, KT_CPU, i);
			target[i] += kt_get(part[k].target, KT_CPU, i);
		}
		xent_free(&part[k]);
	}
	for (int i = 0; i < 7; i++) {
		near(total[i], kt_get(whole.sum, KT_REF, i), 4 * tolerance(60),
		     "the sums of the slices make the whole");
		near(target[i], kt_get(whole.target, KT_CPU, i), 0, "one slice has the target");
	}
	kt_free(c);
	xent_free(&whole);
}

/* Exact: all logits equal, so the sum counts the columns; then one so large that it would
 * overflow alone. */
static void extremes(void)
{
	struct xent x = xent_new("batch=3", "vocab=5003/5000");

	for (int64_t i = 0; i < x.z->count; i++)
		kt_set(x.z, i, i / 5003 == 2 ? -INFINITY : 88);
	kt_set(x.z, 5003 + 2777, 1000);
	kt_set(x.z, 2 * 5003 + 4999, -1e6);
	KT_CHECK(x.f, 0, "extremes");
	near(kt_get(x.sum, KT_CPU, 0), 5000, 0, "equal logits are counted");
	near(kt_get(x.max, KT_CPU, 1), 1000, 0, "a large one is the maximum");
	near(kt_get(x.sum, KT_CPU, 1), 1, 0, "and the others vanish");
	near(kt_get(x.sum, KT_CPU, 2), 1, 0, "logits of -inf count nothing");
	kt_set(x.z, 77, NAN);
	kt_run(x.f, KT_CPU);
	ok(isnan(kt_get(x.sum, KT_CPU, 0)), "a NaN is not hidden");
	xent_free(&x);
}

int main(void)
{
	struct xent x;

	xent("batch=3,seq=5", "vocab=33", 32, 3);
	xent("batch=3,seq=5", "vocab=33@20/60", 59, 3);
	xent("batch=2,seq=7", "vocab=5024@10/5003", 5002, 20);
	xent("batch=3", "vocab=17@40/33", 32, 3);
	derivative();
	slices();
	extremes();
	x = xent_new("batch=3", "vocab=9");
	x.targets->view[KT_CPU].dtype = HD_DTYPE_I64;
	kt_refused(x.f, "xent: input 1 has dtype i64, it must be i32");
	xent_free(&x);
	return done();
}
