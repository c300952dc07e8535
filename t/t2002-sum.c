/* SPDX-License-Identifier: Apache-2.0
 * Sums over named dims, cpu against ref: bias gradients, and sums in plugins.  If this broke, biases would learn
 * wrongly.  A GPU may compute consecutive sums in one launch, with the same bits as each alone.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"
#include "t/lib/kernel_props.h"
#include <omp.h>
#include <string.h>

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
	ok(same, "... 1 and 3 threads yield the same bits");
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

#ifdef KT_CUDA
enum { MOST = 6 };

static const struct several {
	const char *what, *a[MOST], *c;
	int one; /* some of them can share a launch */
} several[] = {
	{ "three, of many slabs", { "row=700,col=264", "row=700,col=264", "row=700,col=264" }, "col=264", 1 },
	{ "two, of few slabs and parts of vectors", { "p=2,row=250,col=35", "p=2,row=250,col=35" }, "p=2,col=35", 1 },
	{ "more than one launch can hold",
	  { "row=70,col=64", "row=70,col=64", "row=70,col=64", "row=70,col=64", "row=70,col=64", "row=70,col=64" },
	  "col=64",
	  1 },
	{ "between others", { "col=64", "row=70,col=64", "row=70,col=64", "row=71,col=64" }, "col=64", 1 },
	{ "no two consecutive ones with the same number of rows",
	  { "row=70,col=64", "row=71,col=64", "row=70,col=64" },
	  "col=64",
	  0 },
	{ "rows", { "row=7,col=64", "row=7,col=64" }, "row=7", 0 },
	{ "without rows", { "row=0,col=64", "row=0,col=64" }, "col=64", 0 },
};

static struct kt *one_of(const struct several *s, int i, uint32_t dtype, int acc)
{
	struct kt *t = KT_NEW(sum, "");

	t->seed += (uint64_t)i;
	kt_reals(kt_in(t, dtype, s->a[i]), -1, 1);
	kt_reals(kt_out(t, HD_DTYPE_F32, s->c), -1, 1);
	t->run.acc = acc;
	kt_prepare(t, KT_CPU);
	return t;
}

static void *there(const struct kt_buf *b, struct hd_err *err)
{
	void *p = kt_device->alloc(b->bytes[KT_CPU] + 1, err);

	if (p)
		kt_device->put(p, b->mem[KT_CPU], b->bytes[KT_CPU]);
	return p;
}

static void run_together(void *joined, struct kt **t, int n, void *const *c)
{
	const struct hd_kernel *k = t[0]->kernel[KT_CPU];
	struct hd_run run = t[0]->run;
	struct hd_err err = { 0 };
	int same = 1;

	run.acc = !run.acc; /* each joined sum has its own flag */
	kt_in_orders(1);
	kt_device->begin(&run);
	k->run_joined(joined, &run);
	ok(kt_device->finish(&err) == 0, "... joined sums run%s", err.text);
	for (int i = 0; i < n; i++) {
		struct kt_buf *b = t[i]->out[0];
		void *got = hd_alloc(b->bytes[KT_CPU] + 1);

		kt_device->get(got, c[i], b->bytes[KT_CPU]);
		kt_run(t[i], KT_CPU);
		same &= !memcmp(got, b->mem[KT_CPU], b->bytes[KT_CPU]);
		free(got);
	}
	ok(same, "... with the bits that each has alone");
}

static void check_several(const struct several *s, uint32_t dtype, int acc)
{
	struct kt *t[MOST];
	struct hd_joint l[MOST];
	struct hd_err err = { 0 };
	void *a[MOST], *c[MOST], *joined;
	int n = 0;

	for (; n < MOST && s->a[n]; n++) {
		t[n] = one_of(s, n, dtype, acc);
		a[n] = there(t[n]->in[0], &err);
		c[n] = there(t[n]->out[0], &err);
		l[n] = (struct hd_joint){ &t[n]->prep[KT_CPU], &c[n], &a[n], acc };
	}
	joined = t[0]->kernel[KT_CPU]->join(l, (size_t)n);
	ok(!joined == !s->one, "%s%s%s: %s", s->what, dtype == HD_DTYPE_BF16 ? ", bf16" : "", acc ? ", added" : "",
	   s->one ? "can be joined" : "cannot be joined");
	if (joined) {
		run_together(joined, t, n, c);
		t[0]->kernel[KT_CPU]->unjoin(joined);
	}
	while (n--) {
		kt_device->free(a[n]);
		kt_device->free(c[n]);
		kt_free(t[n]);
	}
}

/* Checks that sums stay separate if only one adds, if both have the same result, or if one's result overlaps the
 * other's input. */
static void stay_apart(void)
{
	struct kt *t = one_of(&several[0], 0, HD_DTYPE_F32, 0);
	struct hd_err err = { 0 };
	void *a = there(t->in[0], &err), *c = there(t->out[0], &err), *other = there(t->out[0], &err);
	struct hd_joint x = { &t->prep[KT_CPU], &c, &a, 0 }, y = { &t->prep[KT_CPU], &other, &a, 1 },
			over = { &t->prep[KT_CPU], &a, &a, 0 };
	const struct hd_kernel *k = t->kernel[KT_CPU];

	ok(!k->join((struct hd_joint[]){ x, y }, 2), "not joined if only one adds to its output");
	ok(!k->join((struct hd_joint[]){ x, x }, 2), "not joined if both have the same result");
	ok(!k->join((struct hd_joint[]){ over, x }, 2), "not joined if the first's result overlaps the second's input");
	ok(!k->join((struct hd_joint[]){ x, over }, 2), "not joined if the second's result overlaps the first's input");
	kt_free(t);
	kt_device->free(a);
	kt_device->free(c);
	kt_device->free(other);
}

static void joined(void)
{
	for (size_t i = 0; i < HD_LEN(several); i++)
		for (int k = 0; k < 4; k++)
			check_several(&several[i], k & 1 ? HD_DTYPE_BF16 : HD_DTYPE_F32, k >> 1);
	stay_apart();
}
#endif

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
#ifdef KT_CUDA
	joined();
#endif
	return done();
}
