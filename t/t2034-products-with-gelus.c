/* SPDX-License-Identifier: Apache-2.0
 * Products of bf16 with a gelu in the same launch, by Heddle's own kernel (gelu_wgmma.cu), which runs use where it
 * is the fastest.  If this broke, MLPs would be wrong on such GPUs.  Typical bugs are a tile whose products begin
 * before the last tile's sums are stored, and a box filled while it is still read.  Others are partial tiles at the
 * edges of a matrix, and a choice reused for different candidates.
 */
#include <config.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"

#ifdef KT_CUDA
static const struct shape {
	const char *what, *a, *b, *c, *bias;
	int depth, orders; /* orders: whether to run all simulated orders, which takes long */
} shapes[] = {
	{ "several tiles, weights [in,out]", "batch=2,seq=100,embed=72", "embed=72,mlp=520", "batch=2,seq=100,mlp=520",
	  "mlp=520", 72, 0 },
	{ "several tiles, weights [out,in]", "seq=200,mlp=72", "embed=392,mlp=72", "seq=200,embed=392", "embed=392", 72,
	  0 },
	{ "a part of a tile", "seq=9,embed=8", "embed=8,mlp=24", "seq=9,mlp=24", "mlp=24", 8, 1 },
	{ "a deep product", "seq=130,embed=712", "embed=712,mlp=8", "seq=130,mlp=8", "mlp=8", 712, 0 },
	{ "more rows of tiles than run at the same time", "seq=2060,embed=8", "embed=8,mlp=200", "seq=2060,mlp=200",
	  "mlp=200", 8, 0 },
};
static const struct shape odd = {
	"rows that do not begin at 16 bytes", "seq=9,embed=12", "embed=12,mlp=24", "seq=9,mlp=24", "mlp=24", 12, 0
};

/* Products for which Heddle has its own kernel */
struct forced {
	int products;
	char *keys;
};

static char *gather(void *ctx, const char *wanted)
{
	((struct forced *)ctx)->keys = hd_strdup(wanted);
	return hd_strdup(""); /* nothing is timed */
}

/* Picks the kernel, which follows the one implementation of the simulated library. */
static char *bcast(void *ctx, const char *text)
{
	struct forced *f = (struct forced *)ctx;
	char *picks = hd_strdup("");

	(void)text;
	for (char *line = strtok(f->keys, "\n"); line; line = strtok(NULL, "\n"))
		if (!strncmp(line, "gemm1w1:", 8)) {
			hd_append(&picks, "%s 1/2\n", line);
			f->products++;
		}
	free(f->keys);
	return picks;
}

/* Makes products use Heddle's kernel.  Returns how many do. */
static int force(void)
{
	struct forced f = { 0, NULL };
	const struct hd_exchange x = { &f, gather, bcast };

	free(kt_device->autotune("", &x));
	return f.products;
}

/* If gelu's input is kept, the rounded value is stored, but gelu is applied to the unrounded one. */
static void check(const struct shape *s, int bias, int keep, int forced)
{
	char name[120], attr[20];
	struct kt *t;

	snprintf(attr, sizeof(attr), "%s%s", bias ? "bias=1 " : "", keep ? "keep=1" : "");
	snprintf(name, sizeof(name), "%s, %s", s->what, *attr ? attr : "neither");
	t = KT_NEW(einsum_gelu, attr);
	kt_reals(kt_in(t, HD_DTYPE_BF16, s->a), -1, 1);
	kt_reals(kt_in(t, HD_DTYPE_BF16, s->b), -2 / sqrt(s->depth), 2 / sqrt(s->depth));
	if (bias)
		kt_reals(kt_in(t, HD_DTYPE_BF16, s->bias), -3, 3);
	for (int i = 0; i <= keep; i++)
		kt_out(t, HD_DTYPE_BF16, s->c);
	kt_prepare(t, KT_CPU);
	is_int(force(), forced, name);
	kt_in_orders(s->orders);
	KT_CHECK(t, 2 * kt_tol(HD_DTYPE_BF16, s->depth), "%s", name);
	kt_free(t);
}

/* Checks that gelu's gradient stays with the library. */
static void slope(const struct shape *s)
{
	struct kt *t = KT_NEW(einsum_gelu_d, "");

	kt_reals(kt_in(t, HD_DTYPE_BF16, s->a), -1, 1);
	kt_reals(kt_in(t, HD_DTYPE_BF16, s->b), -1, 1);
	kt_reals(kt_in(t, HD_DTYPE_BF16, s->c), -4, 4);
	kt_out(t, HD_DTYPE_BF16, s->c);
	kt_prepare(t, KT_CPU);
	is_int(force(), 0, "the library computes gelu's slope");
	kt_free(t);
}
#endif

int main(void)
{
	struct hd_err err = { 0 };

	ok(hd_device_cpu()->open(2, &err) == 0, "the device is opened%s", err.text);
#ifdef KT_CUDA
	for (size_t i = 0; i < HD_LEN(shapes); i++) {
		check(&shapes[i], 1, 1, 1);
		check(&shapes[i], i % 2, 0, 1);
	}
	check(&shapes[0], 0, 1, 1);
	check(&odd, 1, 1, 0);
	slope(&shapes[0]);
	setenv("HEDDLE_WGMMA", "0", 1);
	check(&shapes[2], 1, 1, 0);
#else
	skip("on a cpu, products and gelus are separate kernels");
#endif
	return done();
}
