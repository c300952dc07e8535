/* SPDX-License-Identifier: Apache-2.0
 * topk, gather and scatter along any dim, with equal and negative values and both zeros.  If this broke, a compressed
 * gradient would be wrong, and different on each device.
 */
#include <config.h>
#include "t/lib/kernel_props.h"
#include "t/lib/tap.h"

static const struct {
	const char *x, *few, *along;
} shapes[] = {
	{ "a=300", "k=7", "along=0" },        { "a=300", "k=300", "along=0" },
	{ "a=1", "k=1", "along=0" },          { "a=3,b=37", "a=3,k=5", "along=1" },
	{ "b=37,a=3", "k=5,a=3", "along=0" }, { "a=5,b=600,c=11", "a=5,k=256,c=11", "along=1" },
	{ "a=4000", "k=400", "along=0" },
};

/* Data are whole numbers, so most values occur several times. */
static void topk(size_t i, int magnitude, int range)
{
	char attr[40];
	struct kt *t;

	snprintf(attr, sizeof(attr), "%s magnitude=%d", shapes[i].along, magnitude);
	t = KT_NEW(largest, attr);
	if (range)
		kt_ints(kt_in(t, HD_DTYPE_F32, shapes[i].x), -range, range);
	else
		kt_reals(kt_in(t, HD_DTYPE_F32, shapes[i].x), -1, 1);
	kt_out(t, HD_DTYPE_F32, shapes[i].few);
	kt_out(t, HD_DTYPE_I32, shapes[i].few);
	KT_CHECK(t, 0, "topk %s of (%s), %s", shapes[i].few, shapes[i].x, attr);
	kt_free(t);
}

/* Some indices occur twice, and some are out of range.  Sums of whole numbers are exact in any order. */
static void by_index(size_t i, int n)
{
	struct kt *g = KT_NEW(take, shapes[i].along), *s = KT_NEW(put, shapes[i].along);

	kt_reals(kt_in(g, HD_DTYPE_F32, shapes[i].x), -1, 1);
	kt_ints(kt_in(g, HD_DTYPE_I32, shapes[i].few), -1, n);
	kt_out(g, HD_DTYPE_F32, shapes[i].few);
	KT_CHECK(g, 0, "gather %s", shapes[i].few);
	kt_free(g);
	kt_ints(kt_in(s, HD_DTYPE_F32, shapes[i].few), -50, 50);
	kt_ints(kt_in(s, HD_DTYPE_I32, shapes[i].few), -1, n);
	kt_out(s, HD_DTYPE_F32, shapes[i].x);
	KT_CHECK(s, 0, "scatter %s", shapes[i].x);
	kt_free(s);
}

static void refused(void)
{
	struct kt *t = KT_NEW(largest, "along=1");

	kt_in(t, HD_DTYPE_F32, "a=3,b=4");
	kt_out(t, HD_DTYPE_F32, "a=3,k=5");
	kt_out(t, HD_DTYPE_I32, "a=3,k=5");
	kt_refused(t, "largest: the 5 largest of 4");
	kt_free(t);
	t = KT_NEW(take, "along=0");
	kt_in(t, HD_DTYPE_F32, "a=3,b=4");
	kt_in(t, HD_DTYPE_I32, "k=2,c=4");
	kt_out(t, HD_DTYPE_F32, "k=2,c=4");
	kt_refused(t, "take: input 1 is (k 2, c 4), input 0 is (a 3, b 4): they differ in more than dim 0");
	kt_free(t);
	t = KT_NEW(take, "along=0");
	kt_in(t, HD_DTYPE_F32, "a=2@1/3");
	kt_in(t, HD_DTYPE_I32, "k=2");
	kt_out(t, HD_DTYPE_F32, "k=2");
	kt_refused(t, "take: input 0 has 2 of the 3 elements of dim a (from 1), but it needs all");
	kt_free(t);
	t = KT_NEW(largest, "along=0");
	kt_in(t, HD_DTYPE_BF16, "a=4");
	kt_out(t, HD_DTYPE_BF16, "k=2");
	kt_out(t, HD_DTYPE_I32, "k=2");
	kt_refused(t, "largest: input 0 has dtype bf16, it must be f32");
	kt_free(t);
}

int main(void)
{
	static const int n[] = { 300, 300, 1, 37, 37, 600, 4000 };

	for (size_t i = 0; i < HD_LEN(shapes); i++) {
		for (int magnitude = 0; magnitude < 2; magnitude++) {
			topk(i, magnitude, 0);
			topk(i, magnitude, 20);
		}
		by_index(i, n[i]);
	}
	refused();
	return done();
}
