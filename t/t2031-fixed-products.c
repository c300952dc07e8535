/* SPDX-License-Identifier: Apache-2.0
 * With train.deterministic products depend on their shape and the processor alone: the same bits with any number of
 * threads, and right at every edge of a piece.  If this broke, two runs of one INI would differ, or a corner of
 * a result would be left uncomputed.
 */
#include <config.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"

extern const struct hd_kernel hd_cpu_einsum, hd_ref_einsum, hd_cpu_grouped, hd_ref_grouped;

static const struct product {
	const char *what, *a, *b, *c, *bias;
	int64_t terms;
	int acc;
} products[] = {
	{ "one piece", "seq=37,in=19", "in=19,out=23", "seq=37,out=23", NULL, 19, 0 },
	{ "tails in rows and columns", "seq=517,in=130", "out=331,in=130", "seq=517,out=331", "out=331", 130, 0 },
	{ "a tail of one row and one column", "seq=513,in=64", "in=64,out=513", "seq=513,out=513", NULL, 64, 1 },
	{ "weight gradient, a long sum", "seq=4099,in=96", "seq=4099,out=80", "out=80,in=96", NULL, 4099, 1 },
	{ "a sum longer than one piece", "seq=20011,in=40", "seq=20011,out=40", "in=40,out=40", NULL, 20011, 0 },
	{ "batch", "expert=7,slot=70,in=96", "expert=7,in=96,ff=130", "expert=7,slot=70,ff=130", "expert=7,ff=130", 96,
	  0 },
	{ "one row", "m=1,k=1500", "n=3001,k=1500", "m=1,n=3001", NULL, 1500, 0 },
	{ "one column", "m=3001,k=1500", "k=1500", "m=3001", NULL, 1500, 0 },
};

static struct kt *einsum(const struct product *p, uint32_t dtype, uint32_t to)
{
	struct kt *t = kt_new(&hd_cpu_einsum, &hd_ref_einsum, p->bias ? "add=0 bias=1" : "add=0 bias=0");
	struct kt_buf *c;

	kt_reals(kt_in(t, dtype, p->a), -1, 1);
	kt_reals(kt_in(t, dtype, p->b), -1, 1);
	if (p->bias)
		kt_reals(kt_in(t, HD_DTYPE_F32, p->bias), -1, 1);
	c = kt_out(t, to, p->c);
	kt_reals(c, -1, 1);
	t->run.acc = p->acc;
	return t;
}

/* Experts' rows are counted at run time: 600, 0 and 95 of 700. */
static struct kt *grouped(uint32_t dtype, int weights)
{
	struct kt *t = kt_new(&hd_cpu_grouped, &hd_ref_grouped, "rows=1");
	const char *w = "expert=3,embed=140,mlp=270", *x = "expert=1@0/3,batch=1@0/1,slot=700,mlp=270";
	struct kt_buf *counts;

	kt_reals(kt_in(t, dtype, "expert=1@0/3,batch=1@0/1,slot=700,embed=140"), -1, 1);
	kt_reals(kt_in(t, dtype, weights ? x : w), -1, 1);
	counts = kt_in(t, HD_DTYPE_I32, "expert=3,batch=1");
	kt_set(counts, 0, 600), kt_set(counts, 1, 0), kt_set(counts, 2, 95);
	kt_out(t, weights ? HD_DTYPE_F32 : dtype, weights ? w : x);
	t->leaves = !weights;
	return t;
}

/* Returns a copy of the cpu's result with so many threads; the caller frees it. */
static void *result(struct kt *t, int threads)
{
	void *copy = malloc(t->out[0]->bytes[KT_CPU] + 1);

	omp_set_num_threads(threads);
	kt_run(t, KT_CPU);
	return memcpy(copy, t->out[0]->mem[KT_CPU], t->out[0]->bytes[KT_CPU]);
}

/* make_ is evaluated for each number of threads: primitives are made for it. */
#define THREADS(make_, tol, name) \
	do { \
		struct kt *t_ = make_; \
		size_t bytes_ = t_->out[0]->bytes[KT_CPU]; \
		void *one_ = result(t_, 1); \
		kt_free(t_); \
		for (int n_ = 2; n_ <= 4; n_++) { \
			void *many_; \
			t_ = make_; \
			many_ = result(t_, n_); \
			ok(!memcmp(one_, many_, bytes_), "%s: %d threads yield the bits of one", name, n_); \
			free(many_); \
			kt_free(t_); \
		} \
		free(one_); \
		t_ = make_; \
		KT_CHECK(t_, tol, "%s: the result is right", name); \
		kt_free(t_); \
	} while (0)

int main(void)
{
	struct hd_err err = { 0 };

	hd_device_cpu()->open(1, &err);
	hd_device_cpu()->fixed(1);
	for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++) {
		const struct product *p = &products[i];

		THREADS(einsum(p, HD_DTYPE_F32, HD_DTYPE_F32), kt_tol(HD_DTYPE_F32, p->terms), p->what);
		THREADS(einsum(p, HD_DTYPE_BF16, HD_DTYPE_F32), kt_tol(HD_DTYPE_F32, p->terms), p->what);
		THREADS(einsum(p, HD_DTYPE_BF16, HD_DTYPE_BF16), kt_tol(HD_DTYPE_BF16, p->terms), p->what);
	}
	THREADS(grouped(HD_DTYPE_F32, 0), kt_tol(HD_DTYPE_F32, 140), "experts");
	THREADS(grouped(HD_DTYPE_BF16, 0), kt_tol(HD_DTYPE_BF16, 140), "experts in bf16");
	THREADS(grouped(HD_DTYPE_F32, 1), kt_tol(HD_DTYPE_F32, 600), "experts' weights");
	THREADS(grouped(HD_DTYPE_BF16, 1), kt_tol(HD_DTYPE_F32, 600), "experts' weights in bf16");
	return done();
}
