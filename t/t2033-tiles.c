/* SPDX-License-Identifier: Apache-2.0
 * Products on the tiles of x86-64 (AMX), forced for every shape, against ref.  What breaks here: a tail of rows, of columns or of
 * k that is not zero in a tile, a transposed operand that is packed as the other kind, sums over blocks of k that are set where
 * they should be added to or belong to another block of c, lines that go past the caches where c has a tail, bits that depend on the
 * threads.
 */
#include <config.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"
#include "kernels/cpu/tiles/tiles.h"

extern const struct hd_kernel hd_cpu_einsum, hd_ref_einsum;

static const struct product {
	const char *what, *a, *b, *c, *bias;
	int64_t terms;
	int acc;
} products[] = {
	{ "whole tiles", "seq=64,in=64", "out=96,in=64", "seq=64,out=96", NULL, 64, 0 },
	{ "tails, [out,in], bias", "seq=77,in=83", "out=51,in=83", "seq=77,out=51", "out=51", 83, 0 },
	{ "tails, [in,out], bias", "seq=45,in=33", "in=33,out=97", "seq=45,out=97", "out=97", 33, 1 },
	{ "gradient of the input", "batch=3,seq=21,out=90", "out=90,in=70", "batch=3,seq=21,in=70", NULL, 90, 1 },
	{ "gradient of the weight", "batch=3,seq=27,out=41", "batch=3,seq=27,in=53", "out=41,in=53", NULL, 81, 0 },
	{ "gradient of the weight, the other way", "seq=81,out=41", "seq=81,in=53", "in=53,out=41", NULL, 81, 1 },
	{ "k of several panels", "seq=50,in=1000", "out=70,in=1000", "seq=50,out=70", NULL, 1000, 0 },
	{ "k of several blocks", "seq=70,in=4500", "out=130,in=4500", "seq=70,out=130", "out=130", 4500, 1 },
	{ "several blocks of columns", "seq=70,in=400", "out=2111,in=400", "seq=70,out=2111", "out=2111", 400, 0 },
	{ "several of both", "out=37,seq=2500", "seq=2500,in=600", "out=37,in=600", NULL, 2500, 1 },
	{ "many rows that lie across k", "seq=70,out=615", "seq=70,in=40", "out=615,in=40", NULL, 70, 0 },
	{ "several blocks of rows, columns and k", "seq=1100,out=1500", "seq=1100,in=500", "out=1500,in=500", NULL,
	  1100, 0 },
	{ "fp32 past the caches, tails", "seq=70,out=1003", "seq=70,in=656", "out=1003,in=656", NULL, 70, 0 },
	{ "bf16 past the caches, tails", "seq=2601,in=9", "in=9,out=3264", "seq=2601,out=3264", "out=3264", 9, 0 },
	{ "batches", "expert=5,slot=37,in=40", "expert=5,in=40,ff=75", "expert=5,slot=37,ff=75", "expert=5,ff=75", 40,
	  0 },
	{ "batches inside", "slot=37,expert=5,in=40", "expert=5,in=40,ff=75", "slot=37,expert=5,ff=75", NULL, 40, 1 },
	{ "two batch dims", "a=2,b=3,m=35,k=50", "a=2,b=3,k=50,n=66", "b=3,a=2,m=35,n=66", NULL, 50, 0 },
	{ "a row of few heads", "seq=5,in=70", "head=3,hd=24,in=70", "seq=5,head=3,hd=24", NULL, 70, 0 },
	{ "short k", "m=40,k=1", "k=1,n=50", "m=40,n=50", NULL, 1, 0 },
	{ "odd k", "m=40,k=7", "k=7,n=50", "m=40,n=50", NULL, 7, 0 },
};

static struct kt *einsum(const struct product *p, uint32_t to)
{
	struct kt *t = kt_new(&hd_cpu_einsum, &hd_ref_einsum, p->bias ? "bias=1" : "");

	kt_reals(kt_in(t, HD_DTYPE_BF16, p->a), -1, 1);
	kt_reals(kt_in(t, HD_DTYPE_BF16, p->b), -1, 1);
	if (p->bias)
		kt_reals(kt_in(t, p->acc ? HD_DTYPE_BF16 : HD_DTYPE_F32, p->bias), -1, 1);
	kt_reals(kt_out(t, to, p->c), -1, 1);
	t->run.acc = p->acc;
	kt_prepare(t, KT_CPU);
	kt_pick("ab/own:amx");
	return t;
}

static void *result(struct kt *t)
{
	void *copy;

	kt_run(t, KT_CPU);
	copy = malloc(t->out[0]->bytes[KT_CPU] + 1);
	return memcpy(copy, t->out[0]->mem[KT_CPU], t->out[0]->bytes[KT_CPU]);
}

static void check(const struct product *p, uint32_t to)
{
	struct kt *right = einsum(p, to);
	void *one = NULL;

	KT_CHECK(right, 2 * kt_tol(to, p->terms), "%s to %s", p->what, hd_dtype_name(to));
	kt_free(right);
	for (int threads = 1; threads <= 5; threads++) {
		struct kt *t;
		void *now;

		omp_set_num_threads(threads);
		t = einsum(p, to);
		now = result(t);
		ok(!one || !memcmp(one, now, t->out[0]->bytes[KT_CPU]), "%s to %s: %d threads, the bits of one",
		   p->what, hd_dtype_name(to), threads);
		if (one)
			free(now);
		else
			one = now;
		kt_free(t);
	}
	free(one);
}

int main(void)
{
	struct hd_err err = { 0 };

	hd_device_cpu()->open(1, &err);
	if (!hd_amx_here())
		skip_all("no AMX here");
	for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++) {
		check(&products[i], HD_DTYPE_F32);
		check(&products[i], HD_DTYPE_BF16);
	}
	return done();
}
