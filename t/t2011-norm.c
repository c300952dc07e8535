/* SPDX-License-Identifier: Apache-2.0
 * norm, norm_d, norm_dw.  If this broke, a variance that cancels, a column that is summed twice
 * or sums that depend on the threads would show as runs that diverge late or cannot be
 * repeated.
 */
#include <config.h>
#include "t/lib/kernel_props.h"

struct norm {
	struct kt *f, *d, *dw;
	struct kt_buf *x, *w, *b, *y, *rstd, *mean;
	struct kt_buf *dx, *dy, *gw, *gb;
};

static struct norm norm_new(const char *rows, const char *col, int rms)
{
	struct norm n = { .f = rms ? KT_NEW(norm, "eps=1e-5 rms=1") : KT_NEW(norm, "eps=1e-5"),
			  .d = rms ? KT_NEW(norm_d, "rms=1") : KT_NEW(norm_d, ""),
			  .dw = rms ? KT_NEW(norm_dw, "rms=1") : KT_NEW(norm_dw, "") };
	char spec[128];

	snprintf(spec, sizeof(spec), "%s,%s", rows, col);
	n.x = kt_in(n.f, HD_DTYPE_F32, spec);
	n.w = kt_in(n.f, HD_DTYPE_F32, col);
	n.b = rms ? NULL : kt_in(n.f, HD_DTYPE_F32, col);
	n.y = kt_out(n.f, HD_DTYPE_F32, spec);
	n.rstd = kt_out(n.f, HD_DTYPE_F32, rows);
	n.mean = rms ? NULL : kt_out(n.f, HD_DTYPE_F32, rows);
	kt_in(n.d, HD_DTYPE_F32, spec);
	kt_in(n.d, HD_DTYPE_F32, col);
	kt_in(n.dw, HD_DTYPE_F32, spec);
	for (int i = 0; i < 2 - rms; i++) {
		kt_in(n.d, HD_DTYPE_F32, rows);
		kt_in(n.dw, HD_DTYPE_F32, rows);
	}
	n.dy = kt_in(n.d, HD_DTYPE_F32, spec);
	kt_in(n.dw, HD_DTYPE_F32, spec);
	n.dx = kt_out(n.d, HD_DTYPE_F32, spec);
	n.gw = kt_out(n.dw, HD_DTYPE_F32, col);
	n.gb = rms ? NULL : kt_out(n.dw, HD_DTYPE_F32, col);
	return n;
}

/* Makes forward's results the inputs of backward, with the doubles unrounded. */
static void norm_connect(struct norm *n)
{
	int last = n->d->nin - 1;

	kt_share(n->d->in[0], n->x);
	kt_share(n->d->in[1], n->w);
	kt_share(n->d->in[2], n->rstd);
	kt_share(n->dw->in[0], n->x);
	kt_share(n->dw->in[1], n->rstd);
	if (n->mean) {
		kt_share(n->d->in[3], n->mean);
		kt_share(n->dw->in[2], n->mean);
	}
	kt_share(n->dw->in[last - 1], n->d->in[last]);
}

static void norm_free(struct norm *n)
{
	kt_free(n->f);
	kt_free(n->d);
	kt_free(n->dw);
}

/* Sums over a row or a column have so many terms; each term has a few roundings of its
 * own, hence the + 16.  If the data's offset exceeds its spread, x - mean is that much less
 * exact.  Rows have at least 9 elements: in shorter ones the projections of norm_d cancel
 * almost everything. */
static void norm(const char *rows, const char *col, int rms, double offset)
{
	struct norm n = norm_new(rows, col, rms);
	int64_t cols = n.w->count, nrows = n.rstd->count;
	double lost = 1 + fabs(offset);

	kt_reals(n.x, offset - 1, offset + 1);
	kt_reals(n.w, 0.5, 1.5);
	if (n.b)
		kt_reals(n.b, -1, 1);
	kt_reals(n.dy, -1, 1);
	KT_CHECK(n.f, lost * kt_tol(HD_DTYPE_F32, cols + 16), "norm %s of %s rms=%d around %g", col, rows, rms, offset);
	norm_connect(&n);
	KT_CHECK(n.d, lost * kt_tol(HD_DTYPE_F32, cols + 16), "norm_d");
	KT_CHECK(n.dw, lost * kt_tol(HD_DTYPE_F32, nrows + 16), "norm_dw");
	n.dw->run.acc = 1;
	KT_CHECK(n.dw, lost * kt_tol(HD_DTYPE_F32, 2 * nrows + 16), "norm_dw, added");
	kt_threads(n.f, "norm");
	kt_threads(n.d, "norm_d");
	kt_threads(n.dw, "norm_dw");
	kt_inplace(n.dx, n.dy);
	KT_CHECK(n.d, lost * kt_tol(HD_DTYPE_F32, cols + 16), "norm_d in place with dy");
	norm_free(&n);
}

/* Checks norm_d, or norm_d_add, which adds another input and may be in its place, with the further results that attr
 * asks for. */
static void backward(const char *rows, const char *col, int rms, int add, const char *attr)
{
	char spec[128], text[80], what[200];
	struct kt *t;
	struct kt_buf *r = NULL, *w, *dx;
	double tol;

	snprintf(spec, sizeof(spec), "%s,%s", rows, col);
	snprintf(text, sizeof(text), "rms=%d%s%s", rms, *attr ? " " : "", attr);
	snprintf(what, sizeof(what), "norm_d%s %s of %s %s", add ? "_add" : "", col, rows, text);
	t = add ? KT_NEW(norm_d_add, text) : KT_NEW(norm_d, text);
	if (add) {
		r = kt_in(t, HD_DTYPE_F32, spec);
		kt_reals(r, -1, 1);
	}
	kt_reals(kt_in(t, HD_DTYPE_F32, spec), -1, 1);
	w = kt_in(t, HD_DTYPE_F32, col);
	kt_reals(w, 0.5, 1.5);
	for (int i = 0; i < 2 - rms; i++)
		kt_reals(kt_in(t, HD_DTYPE_F32, rows), 0.5, 1.5);
	kt_reals(kt_in(t, HD_DTYPE_F32, spec), -1, 1);
	dx = kt_out(t, HD_DTYPE_F32, spec);
	tol = kt_tol(HD_DTYPE_F32, w->count + 16);
	if (*attr)
		tol = kt_tol(HD_DTYPE_F32, w->count + 16 + dx->count / w->count);
	for (const char *key = attr; *key; key++)
		if (!strncmp(key, "dw=1", 4) || !strncmp(key, "bias=1", 6) || !strncmp(key, "out=", 4))
			kt_out(t, HD_DTYPE_F32, col);
	KT_CHECK(t, tol, "%s", what);
	kt_threads(t, what);
	if (*attr && t->kernel[KT_CPU]->flags & HD_K_ACC_REST) {
		t->run.acc = 1;
		KT_CHECK(t, tol, "%s, added", what);
		t->run.acc = 0;
	}
	if (add) {
		kt_inplace(dx, r);
		KT_CHECK(t, tol, "%s, in place", what);
	}
	kt_free(t);
}

static void derivative(int rms)
{
	struct norm n = norm_new("batch=2,seq=3", "embed=7", rms);

	kt_reals(n.x, -1, 1);
	kt_reals(n.w, 0.5, 1.5);
	kt_reals(n.dy, -1, 1);
	kt_run(n.f, KT_REF);
	norm_connect(&n);
	ok(!kt_run(n.d, KT_REF) && !kt_run(n.dw, KT_REF), "backward runs in double, rms=%d", rms);
	kt_gradient(n.f, n.x, n.y, n.dy, n.dx, "norm_d is the derivative by x");
	kt_gradient(n.f, n.w, n.y, n.dy, n.gw, "norm_dw is the derivative by w");
	if (n.b)
		kt_gradient(n.f, n.b, n.y, n.dy, n.gb, "norm_dw is the derivative by b");
	norm_free(&n);
}

/* Data are integers and rstd is a power of two, so sums are exact in any order. */
static void exact_columns(const char *rows, const char *col)
{
	struct norm n = norm_new(rows, col, 0);

	kt_ints(n.dw->in[0], -9, 9);
	kt_ints(n.dw->in[2], -3, 3);
	kt_ints(n.dw->in[3], -9, 9);
	for (int i = 0; i < n.dw->in[1]->count; i++)
		kt_set(n.dw->in[1], i, i % 2 ? 0.5 : 2);
	KT_CHECK(n.dw, 0, "norm_dw of integers is exact, %s of %s", col, rows);
	n.dw->run.acc = 1;
	KT_CHECK(n.dw, 0, "norm_dw of integers is exact, added");
	norm_free(&n);
}

static const char *const widths[] = { "embed=64",   "embed=512",  "embed=516",  "embed=768",
				      "embed=1000", "embed=2048", "embed=2052", "embed=4096",
				      "embed=8192", "embed=8196", "embed=8200" };

int main(void)
{
	struct norm n = norm_new("batch=3", "embed=8", 0);

	/* Memory that a device keeps between launches grows on demand: ask for a little first, then for half as much
	 * again. */
	exact_columns("seq=131", "embed=600");
	exact_columns("seq=131", "embed=900");
	norm("batch=3,seq=5", "embed=9", 0, 0);
	norm("batch=3,seq=5", "embed=33", 0, 0);
	norm("batch=3,seq=5", "embed=33", 1, 0);
	norm("batch=2@2/7,seq=71@9/200", "embed=1027", 0, 0);
	norm("batch=2@2/7,seq=71@9/200", "embed=1027", 1, 0);
	norm("batch=3,seq=67", "embed=384", 0, 100);
	derivative(0);
	derivative(1);
	backward("batch=3,seq=5", "embed=33", 0, 1, "");
	backward("batch=3,seq=5", "embed=768", 0, 1, "");
	backward("batch=3", "embed=2052", 1, 1, "");
	backward("batch=2@2/7,seq=71@9/200", "embed=1027", 1, 1, "");
	backward("batch=2,seq=71", "embed=33", 0, 1, "dw=1 bias=1 out=embed");
	backward("batch=2,seq=71", "embed=768", 0, 1, "dw=1 bias=1 out=embed");
	backward("batch=2,seq=71", "embed=768", 0, 0, "dw=1 bias=1");
	backward("batch=2,seq=71", "embed=768", 0, 0, "out=embed");
	backward("batch=2@2/7,seq=71@9/200", "embed=2048", 1, 1, "dw=1");
	backward("batch=7", "embed=8196", 1, 1, "dw=1 out=embed");
	/* a width for each way that cuda holds a row, and rows too long for that */
	for (size_t i = 0; i < HD_LEN(widths); i++) {
		norm("batch=3", widths[i], i % 2, 0);
		backward("batch=9", widths[i], i % 2, i % 2, i % 2 ? "dw=1 out=embed" : "dw=1 bias=1 out=embed");
	}
	exact_columns("batch=5,seq=131", "embed=77");
	norm_free(&n);
	n = norm_new("batch=3", "embed=8/9", 0);
	kt_refused(n.f, "norm: input 0 has 8 of the 9 elements of dim embed (from 0), but it needs all");
	norm_free(&n);
	n = norm_new("batch=3", "embed=8", 0);
	n.w->view[KT_CPU].n[0] = 7;
	kt_refused(n.f, "norm: input 1 is (embed 7), input 0 calls for (embed 8)");
	n.f->nin = 1;
	kt_refused(n.f, "norm: 1 inputs, 2 to 3 are needed");
	n.f->nin = 3;
	norm_free(&n);
	return done();
}
