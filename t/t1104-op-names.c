/* SPDX-License-Identifier: Apache-2.0
 * A plugin's op that has the name of an engine's op is still the plugin's: passes, the memory plan and the executor
 * look at the op's properties, not its name.  If this broke, a plugin's op "view" that computes something would compute
 * nothing.
 */
#include <config.h>
#include "engine/ops/build.h"
#include "engine/graph/op.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

static int shape(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins, uint32_t nin,
		 struct hd_shape *outs, uint32_t *nout)
{
	(void)s, (void)p, (void)attr, (void)nin;
	outs[0].dtype = ins[0]->dtype;
	outs[0].ndim = ins[0]->ndim;
	for (uint32_t i = 0; i < ins[0]->ndim; i++)
		outs[0].dims[i] = ins[0]->dims[i];
	*nout = 1;
	return HD_OK;
}

static int vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
	       uint64_t want, struct hd_tensor **din)
{
	struct tensor *g = T(dout[0]);

	(void)s, (void)n;
	g = want & 1 ? hd_map_new(p, &g, 1, "a * 2") : NULL;
	din[0] = g ? &g->v : NULL;
	return HD_OK;
}

static int record(struct hd_strategy *s, struct hd_record *r, const struct hd_node *n)
{
	(void)s;
	return r->api->launch(r, "map", n->ins, 1, n->outs, 1, "a * 2");
}

/* Returns the loss of twice a parameter; *differs tells whether its gradient differs from finite differences. */
static double loss_with(const char *name, int *differs)
{
	struct hd_op op = { .size = sizeof(op), .name = name, .shape = shape, .vjp = vjp, .record = record };
	struct hd_plan *p = gt_plan(2);
	const char *where = "";
	struct tensor *x;
	struct node *n;
	struct gt_run *r;
	double loss;

	hd_dim_get(p, "row", 7);
	x = gt_param(p, "x", "row");
	n = hd_node_new(p, &op, hd_op_traits(&op), &x, 1, "");
	gt_build(p, gt_loss(p, n ? n->outs[0] : NULL));
	r = gt_open(p, NULL);
	if (!r) {
		note("%s: %s", name, gt_why());
		return -1;
	}
	loss = gt_compute(r);
	*differs = !(gt_differences(r, 7, &where) <= 1);
	gt_close(r);
	return loss;
}

/* Names of ops whose properties the engine looks at. */
static const char *const taken[] = { "accumulate", "add",    "attention", "block",  "cast",    "chunk",
				     "comm",       "einsum", "fill",      "gelu",   "join",    "map",
				     "norm",       "norm2",  "pack",      "pick",   "reshard", "route",
				     "sync",       "total",  "unblock",   "unpack", "update",  "view" };

int main(void)
{
	int differs = 1;
	double want = loss_with("twice", &differs);

	ok(want > 0 && !differs, "an op with a name of its own has a loss and the right gradient");
	for (size_t i = 0; i < HD_LEN(taken); i++) {
		double got = loss_with(taken[i], &differs);

		ok(got == want && !differs, "an op named %s has the same loss and gradient", taken[i]);
	}
	return done();
}
