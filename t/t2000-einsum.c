/* SPDX-License-Identifier: Apache-2.0
 * Products by named dims: cpu against ref.  If this broke, every linear layer of some layout would be wrong.
 * Typical bugs are a mistaken transpose, a summed batch dim, a bias on the wrong dim, and gradients that do not add
 * up over micro-batches.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"

static const struct product {
	const char *what, *a, *b, *c, *bias;
	int add;
} products[] = {
	{ "weight [in,out]", "seq=37,in=19", "in=19,out=23", "seq=37,out=23", NULL, 0 },
	{ "weight [out,in]", "seq=37,in=19", "out=23,in=19", "seq=37,out=23", NULL, 0 },
	{ "two row dims, bias", "batch=3,seq=17,in=64", "out=96,in=64", "batch=3,seq=17,out=96", "out=96", 0 },
	{ "add in place", "batch=3,seq=17,in=64", "out=96,in=64", "batch=3,seq=17,out=96", NULL, 1 },
	{ "bias, add in place", "seq=8,in=64", "in=64,out=96", "seq=8,out=96", "out=96", 1 },
	{ "bias, add out of place", "seq=8,in=64", "in=64,out=96", "seq=8,out=96", "out=96", 2 },
	{ "weight gradient [out,in]", "batch=2,seq=33,in=40", "batch=2,seq=33,out=24", "out=24,in=40", NULL, 0 },
	{ "weight gradient [in,out]", "batch=2,seq=33,in=40", "batch=2,seq=33,out=24", "in=40,out=24", NULL, 0 },
	{ "input gradient", "batch=2,seq=33,out=24", "out=24,in=40", "batch=2,seq=33,in=40", NULL, 1 },
	{ "roles swapped", "in=19,out=23", "seq=37,in=19", "seq=37,out=23", "out=23", 0 },
	{ "heads", "batch=2,seq=9,in=32", "head=4,hd=16,in=32", "batch=2,seq=9,head=4,hd=16", "head=4,hd=16", 0 },
	{ "heads joined", "batch=2,seq=9,head=4,hd=16", "head=4,hd=16,out=32", "batch=2,seq=9,out=32", "out=32", 1 },
	{ "a slice of the heads", "seq=9,in=32", "head=4@4/12,hd=16,in=32", "seq=9,head=4@4/12,hd=16",
	  "head=4@4/12,hd=16", 0 },
	{ "heads outermost", "batch=2,seq=9,in=32", "in=32,head=4,hd=16", "head=4,batch=2,seq=9,hd=16", NULL, 0 },
	{ "experts", "expert=5,slot=11,in=24", "expert=5,in=24,ff=40", "expert=5,slot=11,ff=40", "expert=5,ff=40", 0 },
	{ "experts, [out,in]", "expert=5,slot=11,in=24", "expert=5,ff=40,in=24", "expert=5,slot=11,ff=40", NULL, 0 },
	{ "experts' weights", "expert=5,slot=11,in=24", "expert=5,slot=11,ff=40", "expert=5,in=24,ff=40", NULL, 0 },
	{ "experts as an inner dim", "slot=11,expert=5,in=24", "expert=5,in=24,ff=40", "slot=11,expert=5,ff=40", NULL,
	  0 },
	{ "two batch dims", "a=2,b=3,m=7,k=5", "a=2,b=3,k=5,n=6", "b=3,a=2,m=7,n=6", NULL, 1 },
	{ "bias on rows", "seq=7,in=12", "in=12,out=9", "seq=7,out=9", "seq=7", 0 },
	{ "bias on rows of batch", "batch=3,seq=7,in=12", "in=12,out=9", "batch=3,seq=7,out=9", "seq=7,out=9", 0 },
	{ "bias without dims", "seq=7,in=12", "in=12,out=9", "seq=7,out=9", "", 0 },
	{ "summed dims that do not merge", "i=4,m=6,j=5", "j=5,i=4,n=8", "m=6,n=8", "n=8", 1 },
	{ "sum in one input", "m=6,k=5,lost=3", "k=5,n=8", "m=6,n=8", NULL, 0 },
	{ "sum in one input, swapped", "k=5,n=8", "m=6,k=5,lost=3", "m=6,n=8", NULL, 0 },
	{ "outer product", "m=6", "n=8", "m=6,n=8", NULL, 0 },
	{ "inner product", "k=77", "k=77", "", NULL, 0 },
	{ "matrix times vector", "m=50,k=33", "k=33", "m=50", NULL, 0 },
	{ "vector times matrix", "k=33", "k=33,n=50", "n=50", "n=50", 0 },
	{ "elementwise", "m=6,n=8", "m=6,n=8", "m=6,n=8", NULL, 0 },
	{ "elementwise, transposed", "m=6,n=8", "n=8,m=6", "n=8,m=6", NULL, 0 },
	{ "c transposed", "seq=37,in=19", "in=19,out=23", "out=23,seq=37", "out=23", 0 },
	{ "extents of one", "batch=1,seq=1,in=19", "out=1,in=19", "batch=1,seq=1,out=1", "out=1", 1 },
	{ "a sum over one element", "m=6,k=1", "k=1,n=8", "m=6,n=8", NULL, 0 },
	{ "one row", "m=1,k=40", "n=24,k=40", "m=1,n=24", "n=24", 0 },
	{ "a sum over no element", "m=6,k=0", "k=0,n=8", "m=6,n=8", "n=8", 0 },
	{ "no rows", "m=0,k=5", "k=5,n=8", "m=0,n=8", NULL, 0 },
	{ "few rows, [in,out]", "seq=3,in=301", "in=301,out=260", "seq=3,out=260", "out=260", 1 },
	{ "few rows, [out,in]", "seq=4,in=257", "out=300,in=257", "seq=4,out=300", "out=300", 2 },
	{ "one row of heads", "batch=1,seq=1,in=256", "head=4,hd=96,in=256", "batch=1,seq=1,head=4,hd=96",
	  "head=4,hd=96", 0 },
	{ "one long row", "seq=1,in=70", "in=70,out=1100", "seq=1,out=1100", NULL, 0 },
	{ "few rows, roles swapped", "out=300,in=257", "seq=2,in=257", "seq=2,out=300", NULL, 0 },
	{ "larger", "m=130,k=257", "n=191,k=257", "m=130,n=191", "n=191", 0 },
};

static struct kt *build(const struct product *p, uint32_t in, uint32_t out)
{
	char attr[40];
	struct kt *t;
	struct kt_buf *add = NULL, *c;

	snprintf(attr, sizeof(attr), "add=%d bias=%d", p->add != 0, p->bias != NULL);
	t = KT_NEW(einsum, attr);
	kt_ints(kt_in(t, in, p->a), -3, 3);
	kt_ints(kt_in(t, in, p->b), -3, 3);
	if (p->bias)
		kt_ints(kt_in(t, HD_DTYPE_F32, p->bias), -9, 9);
	if (p->add)
		kt_ints(add = kt_in(t, out, p->c), -9, 9);
	c = kt_out(t, out, p->c);
	kt_ints(c, -9, 9);
	if (p->add == 1)
		kt_inplace(c, add);
	return t;
}

/* Data are small integers: every order of summation yields the same bits, except where bf16 has to
 * round the result. */
static void check(const struct product *p, uint32_t in, uint32_t out, const char *dtypes)
{
	struct kt *t = build(p, in, out);
	double tol = out == HD_DTYPE_BF16 ? 0x1p-8 : 0;

	KT_CHECK(t, tol, "%s, %s", p->what, dtypes);
	kt_free(t);
	if (p->add)
		return;
	t = build(p, in, out);
	t->run.acc = 1;
	KT_CHECK(t, 2 * tol, "%s, %s, added", p->what, dtypes);
	kt_free(t);
}

static void check_real(void)
{
	struct kt *t = KT_NEW(einsum, "bias=1");

	kt_reals(kt_in(t, HD_DTYPE_F32, "m=70,k=500"), -1, 1);
	kt_reals(kt_in(t, HD_DTYPE_F32, "n=90,k=500"), -1, 1);
	kt_reals(kt_in(t, HD_DTYPE_F32, "n=90"), -1, 1);
	kt_out(t, HD_DTYPE_F32, "m=70,n=90");
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 500), "real numbers");
	kt_free(t);
}

static void refuses(void)
{
	struct kt *t = KT_NEW(einsum, "");

	kt_in(t, HD_DTYPE_F32, "m=2,k=3");
	kt_in(t, HD_DTYPE_F32, "k=4,n=2");
	kt_out(t, HD_DTYPE_F32, "m=2,n=2");
	is_int(kt_prepare(t, KT_CPU), HD_EINVAL, "different extents are refused");
	is_str(t->err.text, "einsum: dim k is 3 in a and 4 in b", "... and the message has both numbers");
	kt_free(t);
#ifndef KT_CUDA
	t = KT_NEW(einsum, "");
	kt_in(t, HD_DTYPE_F64, "a=2,b=3");
	kt_out(t, HD_DTYPE_F64, "a=2");
	is_str(kt_prepare(t, KT_REF) < 0 ? t->err.text : "accepted", "einsum: 1 inputs, not 2",
	       "the reference refuses a missing input");
	kt_free(t);
#endif
}

#ifndef KT_CUDA
static void settles(void)
{
	const struct product *p = &products[2];
	struct kt *t = build(p, HD_DTYPE_F32, HD_DTYPE_F32);
	char *text, *again;

	kt_prepare(t, KT_CPU);
	text = hd_device_cpu()->autotune("", NULL);
	ok(strstr(text, "product:") == text && strchr(text, '\n'), "autotune returns the choices in force");
	again = hd_device_cpu()->autotune(text, NULL);
	is_str(again, text, "known choices stay");
	KT_CHECK(t, 0, "the product is right with a settled choice");
	t->run.acc = 1;
	KT_CHECK(t, 0, "... and right when added to its output");
	free(text);
	free(again);
	kt_free(t);
}

static const char foreign[] =
	"product:dims=3:bits=32,32,32,0:n=20,30,40:a=40,0,1:b=0,1,30:c=30,1,0:sum=0:threads=2:isa=";

static char *gather(void *ctx, const char *wanted)
{
	const char *isa = strstr(wanted, ":isa=") + 5;

	(void)ctx;
	return hd_format("%s%s%.*s\n", wanted, foreign, (int)strcspn(isa, "\n"), isa);
}

static char *bcast(void *ctx, const char *text)
{
	(void)ctx;
	return hd_strdup(text);
}

/* Checks that rank 0 times a product that only another rank needs, from its key alone. */
static void settles_for_others(void)
{
	const struct hd_exchange x = { NULL, gather, bcast };
	struct kt *t = build(&products[2], HD_DTYPE_F32, HD_DTYPE_F32);
	char *text, *line;

	kt_prepare(t, KT_CPU);
	text = hd_device_cpu()->autotune("", &x);
	line = strstr(text, foreign);
	ok(line && strchr(line, ' ') && strchr(line, ' ') < strchr(line, '\n'), "a key of another rank gets a value");
	free(text);
	kt_free(t);
}

#endif

#ifdef KT_CUDA
/* Products with a gelu: the library computes both where bf16 lies in whole pieces, else there are two steps.  If
 * gelu's input is kept, the rounded value is stored, but gelu is applied to the unrounded one: they differ by a
 * rounding. */
static void with_gelu(int rows, int k, int n, uint32_t dtype, int inside)
{
	char a[60], b[60], c[60], bias[20], name[60];
	char *before = kt_device->autotune("", NULL), *after;
	double tol = 4 * kt_tol(dtype, k);

	snprintf(a, sizeof(a), "batch=2,seq=%d,embed=%d", rows, k);
	snprintf(b, sizeof(b), "embed=%d,mlp=%d", k, n);
	snprintf(c, sizeof(c), "batch=2,seq=%d,mlp=%d", rows, n);
	snprintf(bias, sizeof(bias), "mlp=%d", n);
	snprintf(name, sizeof(name), "%d x %d x %d %s", rows, k, n, hd_dtype_name(dtype));
	for (int how = 0; how < 5; how++) { /* 0 to 3: with a bias, kept; 4: backward */
		struct kt *t = how == 4 ? KT_NEW(einsum_gelu_d, "")
					: KT_NEW(einsum_gelu, how == 3   ? "bias=1 keep=1"
							      : how == 2 ? "keep=1"
							      : how == 1 ? "bias=1"
									 : "");

		kt_reals(kt_in(t, dtype, a), -1, 1), kt_reals(kt_in(t, dtype, b), -0.5, 0.5);
		if (how < 4 && how & 1)
			kt_reals(kt_in(t, dtype, bias), -1, 1);
		if (how == 4)
			kt_reals(kt_in(t, dtype, c), -3, 3);
		kt_out(t, dtype, c);
		if (how == 2 || how == 3)
			kt_out(t, dtype, c);
		t->least = 1;
		KT_CHECK(t, tol, "%s, %s", how == 4 ? "a product times gelu's slope" : "gelu of a product", name);
		kt_free(t);
	}
	after = kt_device->autotune("", NULL);
	is_int(atoi(strstr(after, "with_gelu ") + 10) - atoi(strstr(before, "with_gelu ") + 10), inside,
	       "... the library computed the expected number of them");
	free(before), free(after);
}

/* The library refuses a product that is described wrongly; loops then compute it: correct, but a thousand times
 * slower. */
static void by_the_library(void)
{
	char *text = kt_device->autotune("", NULL);
	const char *products = strstr(text, "einsum.products "), *loops = strstr(text, "einsum.in_loops ");

	ok(products && atoi(products + 16) > 50, "products are counted: %s", text);
	/* the two sums in one input, six times each: no dim of that input has stride 1 */
	is_int(loops ? atoi(loops + 16) : -1, 12, "only those with a sum in one input are computed in loops");
	free(text);
}
#endif

int main(void)
{
	struct hd_err err = { 0 };

	ok(hd_device_cpu()->open(2, &err) == 0, "the device is opened%s", err.text);
	for (size_t i = 0; i < HD_LEN(products); i++) {
		check(&products[i], HD_DTYPE_F32, HD_DTYPE_F32, "f32");
		check(&products[i], HD_DTYPE_BF16, HD_DTYPE_F32, "bf16 to f32");
		check(&products[i], HD_DTYPE_BF16, HD_DTYPE_BF16, "bf16");
	}
	check_real();
#ifdef KT_CUDA
	by_the_library();
	with_gelu(5, 24, 40, HD_DTYPE_BF16, 5);
	with_gelu(5, 23, 37, HD_DTYPE_BF16, 2); /* the kept input must be in whole pieces */
	with_gelu(5, 24, 40, HD_DTYPE_F32, 0);
#endif
	refuses();
#ifndef KT_CUDA
	settles();
	settles_for_others();
#endif
	return done();
}
