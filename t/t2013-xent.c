/* SPDX-License-Identifier: Apache-2.0
 * xent, xent_combine, xent_d, xent_both.  If this broke, an overflow, padding that counts, or slices of the
 * vocabulary that do not combine correctly would show as a loss that depends on the layout.
 */
#include <config.h>
#include "t/lib/kernel_props.h"

struct xent {
	struct kt *f, *d;
	struct kt_buf *z, *targets, *max, *sum, *target, *dnll, *dz;
};

static struct xent xent_new(uint32_t dtype, const char *rows, const char *vocab)
{
	struct xent x = { .f = KT_NEW(xent, ""), .d = KT_NEW(xent_d, "") };
	char spec[128];

	snprintf(spec, sizeof(spec), "%s,%s", rows, vocab);
	x.z = kt_in(x.f, dtype, spec);
	x.targets = kt_in(x.f, HD_DTYPE_I32, rows);
	x.max = kt_out(x.f, HD_DTYPE_F32, rows);
	x.sum = kt_out(x.f, HD_DTYPE_F32, rows);
	x.target = kt_out(x.f, HD_DTYPE_F32, rows);
	kt_in(x.d, dtype, spec);
	kt_in(x.d, HD_DTYPE_I32, rows);
	kt_in(x.d, HD_DTYPE_F32, rows);
	kt_in(x.d, HD_DTYPE_F32, rows);
	x.dnll = kt_in(x.d, HD_DTYPE_F32, rows);
	x.dz = kt_out(x.d, dtype, spec);
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

/* z - max is exact to half an ulp of the range, and e^z inherits that absolute error as a relative one.  The sum of
 * positive terms is short in fp32, and long in double. */
static double tolerance(double range)
{
	return kt_tol(HD_DTYPE_F32, 16) + 2 * range * 0x1p-24;
}

static void xent(const char *rows, const char *vocab, int targets_to, double range)
{
	struct xent x = xent_new(HD_DTYPE_F32, rows, vocab);

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

/* -- xent_both ----------------------------------------------------------------------------------------------------- */
static struct kt *both_new(uint32_t dtype, const char *rows, const char *vocab)
{
	struct kt *b = KT_NEW(xent_both, "value=0.37");
	char spec[128];

	snprintf(spec, sizeof(spec), "%s,%s", rows, vocab);
	kt_in(b, dtype, spec);
	kt_in(b, HD_DTYPE_I32, rows);
	kt_out(b, dtype, spec);
	for (int k = 0; k < 3; k++)
		kt_out(b, HD_DTYPE_F32, rows);
	return b;
}

static int same_bits(const struct kt_buf *a, const struct kt_buf *b)
{
	return a->bytes[KT_CPU] == b->bytes[KT_CPU] && !memcmp(a->mem[KT_CPU], b->mem[KT_CPU], a->bytes[KT_CPU]);
}

/* Returns whether b, which has run, equals what xent and xent_d compute from the same logits. */
static int like_two(struct kt *b, struct xent *x)
{
	int same = 1;

	kt_share(x->z, b->in[0]);
	kt_share(x->targets, b->in[1]);
	for (int64_t i = 0; i < x->dnll->count; i++)
		kt_set(x->dnll, i, 0.37);
	if (kt_run(x->f, KT_CPU) < 0)
		return 0;
	xent_connect(x);
	if (kt_run(x->d, KT_CPU) < 0)
		return 0;
	for (int k = 0; k < 3; k++)
		same &= same_bits(b->out[k + 1], x->f->out[k]);
	return same & same_bits(b->out[0], x->dz);
}

static void both(uint32_t dtype, const char *rows, const char *vocab, int targets_to, double range)
{
	struct kt *b = both_new(dtype, rows, vocab);
	struct xent x = xent_new(dtype, rows, vocab);
	double tol = dtype == HD_DTYPE_BF16 ? kt_tol(dtype, 16) : tolerance(range);

	kt_reals(b->in[0], -range, range);
	kt_ints(b->in[1], 0, targets_to);
	KT_CHECK(b, tol, "xent_both %s %s,%s", hd_dtype_name(dtype), rows, vocab);
	ok(like_two(b, &x), "... with the same bits as xent and xent_d");
	kt_threads(b, "xent_both");
	kt_inplace(b->out[0], b->in[0]);
	KT_CHECK(b, tol, "xent_both in place");
	kt_free(b);
	xent_free(&x);
}

/* The seed of backward is value times the loss scale: 2 * 0.125 is 0.25. */
static void seed(void)
{
	struct kt *b[2] = { KT_NEW(xent_both, "value=2 loss_scale=1"), KT_NEW(xent_both, "value=0.25") };

	for (int k = 0; k < 2; k++) {
		b[k]->run.loss_scale = 0.125;
		kt_in(b[k], HD_DTYPE_F32, "batch=5,vocab=40");
		kt_in(b[k], HD_DTYPE_I32, "batch=5");
		kt_out(b[k], HD_DTYPE_F32, "batch=5,vocab=40");
		for (int i = 0; i < 3; i++)
			kt_out(b[k], HD_DTYPE_F32, "batch=5");
		kt_reals(b[k]->in[0], -3, 3);
		kt_ints(b[k]->in[1], 0, 39);
		if (k)
			kt_share(b[1]->in[0], b[0]->in[0]), kt_share(b[1]->in[1], b[0]->in[1]);
		KT_CHECK(b[k], tolerance(3), "xent_both %s", b[k]->attr);
	}
	ok(same_bits(b[0]->out[0], b[1]->out[0]), "the gradient is scaled by the step's loss scale");
	kt_free(b[0]);
	kt_free(b[1]);
}

static double nll(struct xent *x, int64_t i)
{
	return log(kt_ref(x->sum)[i]) + kt_ref(x->max)[i] - kt_ref(x->target)[i];
}

static void derivative(void)
{
	struct xent x = xent_new(HD_DTYPE_F32, "batch=2,seq=3", "vocab=11/9");
	double worst = 0, h = 1e-4;

	kt_reals(x.z, -2, 2);
	kt_ints(x.targets, 0, 8);
	kt_reals(x.dnll, 0.1, 1);
	kt_run(x.f, KT_REF);
	xent_connect(&x);
	is_int(kt_run(x.d, KT_REF), 0, "backward runs in double");
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

/* Three slices, the last with padding, and a fourth of padding alone combine to the complete result. */
static void slices(void)
{
	static const char *const spec[] = { "vocab=5@0/13", "vocab=5@5/13", "vocab=5@10/13", "vocab=5@15/13" };
	struct xent whole = xent_new(HD_DTYPE_F32, "batch=7", "vocab=13"), part[4];
	struct kt *c = KT_NEW(xent_combine, "");
	struct kt_buf *max = kt_in(c, HD_DTYPE_F32, "batch=7"), *top = kt_in(c, HD_DTYPE_F32, "batch=7"),
		      *sum = kt_in(c, HD_DTYPE_F32, "batch=7");
	struct kt_buf *out = kt_out(c, HD_DTYPE_F32, "batch=7");
	double total[7] = { 0 }, target[7] = { 0 };

	kt_reals(whole.z, -30, 30);
	kt_ints(whole.targets, 0, 12);
	KT_CHECK(whole.f, tolerance(30), "xent of the complete vocabulary");
	kt_share(top, whole.max);
	for (int k = 0; k < 4; k++) {
		part[k] = xent_new(HD_DTYPE_F32, "batch=7", spec[k]);
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
		     "the slices' sums combine to the total");
		near(target[i], kt_get(whole.target, KT_CPU, i), 0, "exactly one slice has the target");
	}
	kt_free(c);
	xent_free(&whole);
}

/* Exact cases: equal logits, whose sum counts the columns; then one so large that it would
 * overflow alone. */
static void extremes(void)
{
	struct xent x = xent_new(HD_DTYPE_F32, "batch=3", "vocab=5003/5000");

	for (int64_t i = 0; i < x.z->count; i++)
		kt_set(x.z, i, i / 5003 == 2 ? -INFINITY : 88);
	kt_set(x.z, 5003 + 2777, 1000);
	kt_set(x.z, 2 * 5003 + 4999, -1e6);
	KT_CHECK(x.f, 0, "extremes");
	near(kt_get(x.sum, KT_CPU, 0), 5000, 0, "the sum counts equal logits");
	near(kt_get(x.max, KT_CPU, 1), 1000, 0, "a large one is the maximum");
	near(kt_get(x.sum, KT_CPU, 1), 1, 0, "... and the others vanish");
	near(kt_get(x.sum, KT_CPU, 2), 1, 0, "logits of -inf add nothing");
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
	both(HD_DTYPE_F32, "batch=3,seq=5", "vocab=33", 32, 3);
	both(HD_DTYPE_BF16, "batch=3,seq=5", "vocab=33", 32, 3);
	both(HD_DTYPE_F32, "batch=2,seq=7", "vocab=5024/5003", 5002, 20);
	both(HD_DTYPE_BF16, "batch=2,seq=7", "vocab=5024/5003", 5002, 20);
	/* by vectors, with more under way on cuda than it waits for at once; and rows that its shared memory cannot
	 * hold */
	both(HD_DTYPE_BF16, "batch=2", "vocab=60416/60411", 60410, 5);
	both(HD_DTYPE_F32, "batch=2", "vocab=60000", 59999, 5);
	both(HD_DTYPE_BF16, "batch=1", "vocab=120000", 119999, 5);
	seed();
	derivative();
	slices();
	extremes();
	x = xent_new(HD_DTYPE_F32, "batch=3", "vocab=9");
	x.targets->view[KT_CPU].dtype = HD_DTYPE_I64;
	kt_refused(x.f, "xent: input 1 has dtype i64, it must be i32");
	xent_free(&x);
	return done();
}
