/* SPDX-License-Identifier: Apache-2.0
 * Products of bf16 on a processor without instructions for them; oneDNN is told so, whatever this one has.  Operands
 * are converted to fp32 around the product, and the bias is in the result before the product is added.  If this
 * broke, bf16 runs on older processors would be wrong.  Typical bugs are a bias that is added twice, a sum rounded
 * before it is complete, and a lost addend.
 */
#include <config.h>
#include "kernels/cpu/matmul/matmul.h"
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"
#include <stdlib.h>

static const struct product {
	const char *what, *a, *b, *c, *bias;
	int64_t terms;
} products[] = {
	{ "few rows, a weight [in,out]", "seq=16,in=257", "in=257,out=1091", "seq=16,out=1091", "out=1091", 257 },
	{ "few rows, a weight [out,in]", "seq=16,in=257", "out=1091,in=257", "seq=16,out=1091", "out=1091", 257 },
	{ "roles swapped", "out=700,in=128", "seq=13,in=128", "seq=13,out=700", "out=700", 128 },
	{ "a slice of the heads", "seq=9,in=256", "head=4@4/12,hd=96,in=256", "seq=9,head=4@4/12,hd=96",
	  "head=4@4/12,hd=96", 256 },
	{ "no bias", "seq=16,in=257", "in=257,out=1091", "seq=16,out=1091", NULL, 257 },
	{ "many rows", "seq=130,in=67", "in=67,out=200", "seq=130,out=200", "out=200", 67 },
};

static void check(const struct product *p, const char *pick, uint32_t to, int acc)
{
	struct kt *t = KT_NEW(einsum, p->bias ? "bias=1" : "");

	kt_reals(kt_in(t, HD_DTYPE_BF16, p->a), -1, 1);
	kt_reals(kt_in(t, HD_DTYPE_BF16, p->b), -1, 1);
	if (p->bias)
		kt_reals(kt_in(t, HD_DTYPE_F32, p->bias), -1, 1);
	kt_reals(kt_out(t, to, p->c), -1, 1);
	t->run.acc = acc;
	kt_prepare(t, KT_CPU);
	kt_pick(pick);
	KT_CHECK(t, 2 * kt_tol(to, p->terms), "%s, %s to %s%s", p->what, *pick ? pick : "the fastest",
		 hd_dtype_name(to), acc ? ", added" : "");
	kt_free(t);
}

int main(void)
{
	static const char *const picks[] = { "", "ab/own:thin" };

	setenv("DNNL_MAX_CPU_ISA", "SSE41", 1); /* with AVX2, own products would read bf16 without copies */
	ok(hd_mm_slow(HD_DTYPE_BF16) != NULL, "oneDNN has no products of bf16");
	for (size_t i = 0; i < HD_LEN(products); i++)
		for (size_t k = 0; k < HD_LEN(picks); k++)
			for (int acc = 0; acc < 2; acc++) {
				check(&products[i], picks[k], HD_DTYPE_F32, acc);
				check(&products[i], picks[k], HD_DTYPE_BF16, acc);
			}
	return done();
}
