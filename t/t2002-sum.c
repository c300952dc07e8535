/* SPDX-License-Identifier: Apache-2.0
 * Sums over named dims, cpu against ref: bias gradients, and whatever a plugin reduces.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"
#include "t/lib/kernel_props.h"
#include <omp.h>

static const char *const sums[][3] = {
	{ "columns", "row=37,col=300", "col=300" },
	{ "columns of two dims", "batch=3,seq=50,col=129", "col=129" },
	{ "columns of two kept dims", "batch=3,seq=50,head=4,hd=8", "head=4,hd=8" },
	{ "many rows, few columns", "row=9001,col=3", "col=3" },
	{ "rows and columns in pieces", "row=1201,col=1030", "col=1030" },
	{ "the middle in pieces", "batch=2,row=777,col=1100", "batch=2,col=1100" },
	{ "rows", "row=37,col=300", "row=37" },
	{ "long rows", "row=2,col=70001", "row=2" },
	{ "all", "batch=3,seq=50,col=129", "" },
	{ "all, long", "row=70001", "" },
	{ "the middle", "batch=3,seq=50,col=129", "batch=3,col=129" },
	{ "both ends", "batch=3,seq=50,col=129", "seq=50" },
	{ "nothing", "batch=3,seq=50", "batch=3,seq=50" },
	{ "nothing, transposed", "batch=3,seq=50", "seq=50,batch=3" },
	{ "transposed", "batch=3,seq=50,col=129", "col=129,batch=3" },
	{ "extents of one", "batch=1,seq=1,col=7", "col=7,batch=1" },
	{ "no rows", "row=0,col=7", "col=7" },
	{ "no columns", "row=7,col=0", "col=0" },
	{ "without dims", "", "" },
};

static void check(const char *const *s, uint32_t dtype, int acc)
{
	struct kt *t = KT_NEW(sum, "");

	kt_ints(kt_in(t, dtype, s[1]), -3, 3);
	kt_ints(kt_out(t, HD_DTYPE_F32, s[2]), -9, 9);
	t->run.acc = acc;
	KT_CHECK(t, 0, "%s%s%s", s[0], dtype == HD_DTYPE_BF16 ? ", bf16" : "", acc ? ", added" : "");
	kt_free(t);
}

static void threads_do_not_matter(const char *a, const char *c)
{
	struct kt *t = KT_NEW(sum, "");
	struct kt_buf *out;
	int same = 1;
	double *one;

	kt_reals(kt_in(t, HD_DTYPE_F32, a), -1, 1);
	out = kt_out(t, HD_DTYPE_F32, c);
	one = hd_alloc((size_t)out->count * sizeof(*one));
	omp_set_num_threads(1);
	kt_run(t, KT_CPU);
	for (int64_t i = 0; i < out->count; i++)
		one[i] = kt_get(out, KT_CPU, i);
	omp_set_num_threads(3);
	KT_CHECK(t, kt_tol(HD_DTYPE_F32, 1000), "%s to %s", a, c);
	for (int64_t i = 0; i < out->count; i++)
		same &= one[i] == kt_get(out, KT_CPU, i);
	ok(same, "the same on 1 and on 3 threads");
	free(one);
	kt_free(t);
}

static void refusals(void)
{
	struct kt *t = KT_NEW(sum, ""), *two = KT_NEW(sum, "");

	kt_in(t, HD_DTYPE_F32, "row=3,col=4");
	kt_out(t, HD_DTYPE_F32, "depth=4");
	kt_refused(t, "sum: c has dim depth, which a does not have in that size");
	kt_in(two, HD_DTYPE_F32, "row=3");
	kt_in(two, HD_DTYPE_F32, "row=3");
	kt_out(two, HD_DTYPE_F32, "row=3");
	kt_refused(two, "sum: 2 inputs and 1 outputs, not 1 and 1");
	kt_free(t);
	kt_free(two);
	t = KT_NEW(sum, "");
	kt_in(t, HD_DTYPE_I32, "row=3");
	kt_out(t, HD_DTYPE_F32, "");
	kt_refused(t, "sum: no i32 to f32 on " KT_DEVICE);
	kt_free(t);
}

int main(void)
{
	omp_set_num_threads(2);
	for (size_t i = 0; i < HD_LEN(sums); i++)
		for (int k = 0; k < 4; k++)
			check(sums[i], k & 1 ? HD_DTYPE_BF16 : HD_DTYPE_F32, k >> 1);
	threads_do_not_matter("row=1201,col=1030", "col=1030");
	threads_do_not_matter("row=1000,col=333", "col=333");
	threads_do_not_matter("row=9000,col=5", "col=5");
	threads_do_not_matter("row=5,col=90000", "row=5");
	refusals();
	return done();
}
