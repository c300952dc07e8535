/* SPDX-License-Identifier: Apache-2.0
 * dropout.  If this broke, a mask that depends on where an element lies would make every layout
 * a different run, and one that backward cannot reproduce would yield a wrong gradient.
 */
#include <config.h>
#include "kernels/dropout_key.h"
#include "t/lib/kernel_props.h"

#define P 0.3

static struct kt *dropout_new(const char *spec, const char *attr)
{
	struct kt *t = KT_NEW(dropout, attr);
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, spec);

	kt_out(t, HD_DTYPE_F32, spec);
	kt_reals(x, 1, 2);
	t->run.seed = 42;
	t->run.step = 9;
	t->run.sample0 = 16;
	return t;
}

/* ref divides once; cpu multiplies by a rounded factor: two roundings. */
static void against_ref(const char *spec)
{
	struct kt *t = dropout_new(spec, "p=0.3 site=5");

	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 1), "dropout %s", spec);
	kt_threads(t, "dropout");
	kt_inplace(t->out[0], t->in[0]);
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 1), "dropout in place");
	kt_free(t);
}

/* A slice uses element (b, s, e) of the complete (batch, 6, 40), with batches counted from the first sample of the
 * step. */
static void by_global_index(void)
{
	struct kt *t = dropout_new("batch=3@2/8,seq=4@2/6,embed=33@5/40", "p=0.3 site=5");
	uint64_t key = hd_dropout_key(42, 9, 5);
	int same = 1;

	kt_run(t, KT_CPU);
	for (int i = 0; i < 3 * 4 * 33; i++) {
		uint64_t b = (uint64_t)(16 + 2 + i / 132), s = (uint64_t)(2 + i / 33 % 4), e = (uint64_t)(5 + i % 33);

		same &= (kt_get(t->out[0], KT_CPU, i) != 0) == hd_dropout_keeps(key, (b * 6 + s) * 40 + e, P);
	}
	ok(same, "a slice keeps the same elements as the complete tensor, by global index");
	kt_free(t);
}

static int64_t kept(struct kt *t, double *agree, const struct kt *other)
{
	int64_t n = 0, same = 0;

	kt_run(t, KT_CPU);
	for (int64_t i = 0; i < t->out[0]->count; i++) {
		int k = kt_get(t->out[0], KT_CPU, i) != 0;

		n += k;
		same += other && k == (kt_get(other->out[0], KT_CPU, i) != 0);
	}
	*agree = (double)same / (double)t->out[0]->count;
	return n;
}

/* Counts of independent draws stay within 5 standard deviations (once in a million draws they
 * would not). */
static void statistics(void)
{
	const char *spec = "batch=4,seq=64,embed=512";
	struct kt *t = dropout_new(spec, "p=0.3 site=5"), *u;
	double n = 4 * 64 * 512, agree, chance = P * P + (1 - P) * (1 - P), wide = 5 * sqrt(chance * (1 - chance) / n);

	near((double)kept(t, &agree, NULL) / n, 1 - P, 5 * sqrt(P * (1 - P) / n),
	     "the share of kept elements is 1 - p");
	for (int k = 0; k < 4; k++) {
		u = dropout_new(spec, k == 0 ? "p=0.3 site=6" : "p=0.3 site=5");
		u->run.step += k == 1;
		u->run.seed += k == 2;
		u->run.sample0 += k == 3;
		kept(u, &agree, t);
		near(agree, chance, wide,
		     k == 0   ? "a different site has an independent mask"
		     : k == 1 ? "a different step has an independent mask"
		     : k == 2 ? "a different seed has an independent mask"
			      : "different samples have an independent mask");
		kt_free(u);
	}
	u = dropout_new(spec, "p=0.3 site=5");
	kept(u, &agree, t);
	near(agree, 1, 0, "backward reproduces the mask of forward");
	kt_free(u);
	kt_free(t);
}

static void written_out(void)
{
	static const double p[] = { 0, 0.1, 0.3, 0.5, 1 - 0x1p-20, 0x1p-60 };
	int same = 1;

	for (size_t k = 0; k < HD_LEN(p); k++)
		for (uint64_t i = 0; i < 20000; i++) {
			uint64_t key = hd_hash64(i * 31 + k), index = i % 3 ? i : ~i;

			same &= hd_dropout_keeps(key, index, p[k]) ==
				!hd_dropout_mask(key, index, hd_dropout_limit(p[k]));
		}
	ok(same, "the form for vector loops is hd_random_uniform >= p");
}

int main(void)
{
	struct kt *t = dropout_new("batch=3,embed=5", "p=1");

	against_ref("batch=3,seq=5,embed=33");
	against_ref("batch=3@2/8,seq=17@3/30,embed=1001");
	against_ref("heads=3,batch=3@2/8,embed=5");
	by_global_index();
	statistics();
	written_out();
	kt_refused(t, "dropout: p is 1, it must be from 0 to 0.999999");
	kt_free(t);
	t = dropout_new("batch=3,embed=5", "p=0.3");
	t->run.train = 0;
	KT_CHECK(t, 0, "dropout outside training");
	near(kt_get(t->out[0], KT_CPU, 7), kt_get(t->in[0], KT_CPU, 7), 0, "... is the identity");
	kt_free(t);
	return done();
}
