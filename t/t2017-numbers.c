/* SPDX-License-Identifier: Apache-2.0
 * scalar, iota and random have no inputs.  If a slice were not that of the complete tensor, a layout would train a
 * different model than one rank.  If random numbers did not follow the step, or changed where they must not, so would
 * a resumed run.
 */
#include <config.h>
#include "t/lib/kernel_test.h"
#include "t/lib/tap.h"

static void scalar(const char *attr, double want)
{
	struct kt *t = KT_NEW(scalar, attr);
	struct kt_buf *y = kt_out(t, HD_DTYPE_F32, "");

	t->run.lr = 0.375;
	t->run.step = 7;
	KT_CHECK(t, 0, "scalar %s", attr);
	near(kt_get(y, KT_CPU, 0), want, 0, attr);
	kt_free(t);
}

static void iota(void)
{
	struct kt *t = KT_NEW(iota, "along=1");
	struct kt_buf *y = kt_out(t, HD_DTYPE_F32, "batch=3,seq=4@8/20,embed=70");
	int wrong = 0;

	KT_CHECK(t, 0, "iota");
	for (int64_t i = 0; i < y->count; i++)
		wrong += kt_get(y, KT_CPU, i) != (double)(8 + i / 70 % 4);
	is_int(wrong, 0, "iota has no element other than the global index");
	kt_free(t);
}

/* Draws the numbers of a slice at this seed and step, and checks that device and reference agree to the bit. */
static void draw(const char *spec, const char *attr, uint64_t seed, int64_t step, double *out)
{
	struct kt *t = KT_NEW(uniform, attr);
	struct kt_buf *y = kt_out(t, HD_DTYPE_F32, spec);

	t->run.seed = seed;
	t->run.step = step;
	KT_CHECK(t, 0, "random %s %s", spec, attr);
	for (int64_t i = 0; i < y->count; i++)
		out[i] = kt_get(y, KT_CPU, i);
	kt_free(t);
}

#define N 20000
static double x[N], z[N];

static int same(int64_t n)
{
	int k = 0;

	for (int64_t i = 0; i < n; i++)
		k += x[i] == z[i];
	return k;
}

static void draws(void)
{
	double mean = 0, square = 0, low = 1, high = 0;
	int wrong = 0;

	draw("seq=100,embed=200", "key=123", 5, 1, x);
	for (int i = 0; i < N; i++) {
		mean += x[i] / N;
		square += x[i] * x[i] / N;
		low = fmin(low, x[i]);
		high = fmax(high, x[i]);
	}
	/* five standard deviations of the mean of N uniform numbers, and of their squares */
	near(mean, 0.5, 5 * sqrt(1. / 12 / N), "the mean is that of uniform numbers");
	near(square, 1. / 3, 5 * sqrt(4. / 45 / N), "the mean square is that of uniform numbers");
	ok(low >= 0 && high < 1, "all numbers are in [0, 1)");
	draw("seq=10@30/100,embed=50@150/200", "key=123", 5, 1, z);
	for (int i = 0; i < 10; i++)
		for (int j = 0; j < 50; j++)
			wrong += z[i * 50 + j] != x[(30 + i) * 200 + 150 + j];
	is_int(wrong, 0, "a slice has no element that differs from the complete tensor's");
	draw("seq=100,embed=200", "key=123", 5, 2, z);
	is_int(same(N), N, "without each_step all numbers stay from step to step");
	draw("seq=100,embed=200", "key=123 each_step=1", 5, 1, x);
	draw("seq=100,embed=200", "key=123 each_step=1", 5, 2, z);
	ok(same(N) < 10, "with each_step they change in each step");
	draw("seq=100,embed=200", "key=124 each_step=1", 5, 2, x);
	ok(same(N) < 10, "a different key gives different numbers");
	draw("seq=100,embed=200", "key=124 each_step=1", 6, 2, z);
	ok(same(N) < 10, "... and so does a different seed");
}

int main(void)
{
	scalar("what=lr number=0", 0.375);
	scalar("what=step number=1", 7);
	iota();
	draws();
	return done();
}
