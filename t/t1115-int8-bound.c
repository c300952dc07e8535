/* SPDX-License-Identifier: Apache-2.0
 * examples/int8-boundary: the error of 8 bits stays within a bound that is derived, not measured.  If this broke, a
 * reader would copy an example that loses more precision than it claims.
 *
 * A row x of activations is sent as integers -127..127, the nearest to x 127 / s, where s is the row's largest |x|.  So
 * each element is off by at most half a step, s / 254, except for the rounding of three operations in double.
 *
 * To first order, the loss L then changes by at most sum |dL/dx_i| s_i / 254, where dL/dx is what the second stage
 * sends back.  The second-order term is smaller by another 1/254 or so.  The bound has room for it, because the errors
 * of many elements have mixed signs while the sum assumes the worst for all; the gradient is the larger one of both
 * ends.
 *
 * All ranks in this process, in double on the reference device.
 */
#include <config.h>
#include "engine/inprocess/inprocess.h"
#include "t/lib/tap.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[] = "/tmp/heddle-t1115.XXXXXX";

static int build(void)
{
	char command[2000];

	snprintf(command, sizeof(command),
		 "${CC:-cc} -std=gnu11 -O1 -fPIC -shared -fvisibility=hidden -I '%s/include' -o '%s/int8_boundary.so' "
		 "'%s/examples/int8-boundary/int8_boundary.c'",
		 HD_TEST_SRC, dir, HD_TEST_SRC);
	return system(command);
}

/* Opens two stages whose results are all kept. */
static struct hd_inprocess *stages(int bits)
{
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	char ini[2000];
	int planned;

	snprintf(
		ini, sizeof(ini),
		"[model]\nfamily = gpt2\nlayers = 4\nheads = 2\nembed = 8\nmlp = 12\nvocab = 11\n[data]\ntrain = none\n"
		"[train]\nseq = 4\nglobal_batch = 12\nmicro_batch = 2\nsteps = 1\noptimizer = sgd\nclip = 0\n"
		"[strategy p]\nplugin = " HD_TEST_BUILD "/plugins/pp/.libs/pp.so\nsize = 2\nsplit = 2,2\n"
		"[plugin b]\nfile = %s/int8_boundary.so\nbits = %d\n",
		dir, bits);
	if (!ok(hd_inprocess_open(ini, 0, &r, &planned, &err) >= 0 && hd_inprocess_observe(r, &err) >= 0,
		"two stages with %d bits are planned", bits)) {
		note("%s", err.text);
		exit(done());
	}
	return r;
}

static const struct node *find(const struct hd_inprocess *r, const char *text, uint32_t kind, uint32_t phase)
{
	for (const struct node *n = r->plan->first; n; n = n->next)
		if (n->v.phase == phase && n->comm.kind == kind && (!text || !strcmp(n->attr, text)))
			return n;
	ok(0, "there is a node %s of kind %u", text ? text : "", kind);
	exit(done());
}

static double *value(const struct hd_inprocess *r, const struct tensor *t, int64_t micro)
{
	double *x = hd_inprocess_assemble(r, t, &micro, NULL);

	if (!x && ok(0, "the value of (%s) is kept", t->spec))
		return NULL;
	return x ? x : (exit(done()), NULL);
}

static double largest(const double *row, int64_t n)
{
	double most = 0;

	for (int64_t i = 0; i < n; i++)
		most = fmax(most, fabs(row[i]));
	return most;
}

struct off {
	double most, least; /* in units of s / 254: the largest error of any element; the smallest of any row */
	double loss;        /* sum |dL/dx_i| s_i / 254 */
};

static void add_rows(const double *x, const double *y, const double *g, const double *h, int64_t rows, int64_t n,
		     struct off *o)
{
	for (int64_t r = 0; r < rows; r++) {
		double half = largest(x + r * n, n) / 254, row = 0;

		for (int64_t i = r * n; i < (r + 1) * n; i++) {
			row = fmax(row, fabs(x[i] - y[i]) / half);
			o->loss += fmax(fabs(g[i]), fabs(h[i])) * half;
		}
		o->most = fmax(o->most, row);
		o->least = fmin(o->least, row);
	}
}

int main(void)
{
	struct hd_inprocess *r, *exact;
	const struct node *sent, *arrived, *back, *back_exact;
	struct off o = { .least = 1 };
	double off;

	if (!ok(mkdtemp(dir) && !build(), "the example is built"))
		return done();
	r = stages(8);
	exact = stages(32);
	sent = find(r, "a * 127 / b", 0, HD_UNIT_F);
	arrived = find(r, "a * b / 127", 0, HD_UNIT_F);
	back = find(r, NULL, HD_COMM_SEND, HD_UNIT_B);
	back_exact = find(exact, NULL, HD_COMM_SEND, HD_UNIT_B);
	for (int64_t m = 0; m < r->plan->micros; m++) {
		double *x = value(r, sent->ins[0], m), *y = value(r, arrived->outs[0], m);
		double *g = value(r, back->ins[0], m), *h = value(exact, back_exact->ins[0], m);
		int64_t n = sent->ins[0]->dims[sent->ins[0]->v.ndim - 1]->n;

		add_rows(x, y, g, h, hd_global_count(sent->ins[0]) / n, n, &o);
		free(x), free(y), free(g), free(h);
	}
	ok(o.most <= 1 + 254 * 8 * 0x1p-52, "no element is off by more than half a step (%g of it)", o.most);
	ok(o.least > 0, "each row is rounded");
	off = fabs(hd_inprocess_scalar(r, r->plan->loss, 0) - hd_inprocess_scalar(exact, exact->plan->loss, 0));
	off *= r->run.loss_scale; /* the loss is the sum over all tokens, gradients are those of the mean */
	ok(off > 0 && off <= o.loss, "the loss is off by %.3g, at most %.3g is allowed", off, o.loss);
	hd_inprocess_close(r);
	hd_inprocess_close(exact);
	return done();
}
