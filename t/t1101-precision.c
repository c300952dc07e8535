/* SPDX-License-Identifier: Apache-2.0
 * The pass that decides which tensors are bf16, checked on the graph: the types of activations, parameters, masters,
 * gradients and states.  No weight is cast within a step, and a cast passes its gradient on.  If this broke, a sum
 * could accumulate in bf16, a weight be rounded in every micro-batch, or two layouts hold a tensor in different
 * precisions.
 */
#include <config.h>
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"
#include <string.h>

static struct hd_plan *plan_of(const char *keys, int train)
{
	char ini[1500];
	struct hd_plan_options o = {
		.ranks = 1, .train = train, .generate = !train, .rows = train ? 0 : 3, .compute_dtype = HD_DTYPE_BF16
	};
	struct hd_err why = { 0 };
	struct hd_plan *p = NULL;
	struct hd_conf *c;

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 2\nembed = 16\nheads = 4\nvocab = 64\n%s\n"
		 "[data]\ntrain = x\n[train]\nseq = 8\nglobal_batch = 4\nmicro_batch = 1\nsteps = 1\n",
		 keys);
	c = gt_conf(ini);
	if (c && hd_plan_create(c, &o, &p, &why) < 0) {
		note("%s", why.text);
		hd_conf_destroy(c);
	}
	return p;
}

static void done_with(struct hd_plan *p)
{
	struct hd_conf *c = p->conf;

	hd_plan_destroy(p);
	hd_conf_destroy(c);
}

static int is(const struct node *n, const char *op)
{
	return !strcmp(n->v.op->name, op);
}

/* Counts the parameters, masters and states whose type differs from the rule. */
static int wrong_parameters(const struct hd_plan *p, int train)
{
	int bad = 0;

	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];
		int norm = strstr(t->v.name, "ln_") || strstr(t->v.name, "norm") || strstr(t->v.name, "moe.gate.");

		if (t->v.node || t->v.what == HD_TENSOR_DATA)
			continue;
		if (t->v.what != HD_TENSOR_PARAM) {
			bad += t->v.dtype != HD_DTYPE_F32;
			continue;
		}
		bad += t->v.dtype != (norm ? HD_DTYPE_F32 : HD_DTYPE_BF16) || !t->master != (norm || !train);
		bad += t->master && (t->master->v.what != HD_TENSOR_MASTER || t->master->v.of != &t->v);
		if (train)
			bad += !t->assign || t->assign->v.dtype != t->v.dtype || (t->master && !t->master->assign);
	}
	return bad;
}

static int reads_weight(const struct node *n)
{
	return is(n, "cast") && n->ins[0]->v.what == HD_TENSOR_PARAM;
}

static int is_statistic(const struct node *n, uint32_t k)
{
	return (is(n, "norm") && k) || (is(n, "attention") && k == 1) || is(n, "xent") || is(n, "xent_combine") ||
	       is(n, "nll") || is(n, "norm2") || is(n, "clip");
}

static void types(const char *keys, const char *what)
{
	struct hd_plan *p = plan_of(keys, 1);
	int gradients = 0, statistics = 0, activations = 0, casts = 0, low = 0;

	if (!ok(p != NULL, "%s: the model is planned", what))
		return;
	is_int(wrong_parameters(p, 1), 0, "parameters, masters and states have the right types");
	for (struct node *n = p->first; n; n = n->next) {
		casts += reads_weight(n) != 0;
		for (uint32_t k = 0; k < n->v.nout; k++) {
			const struct tensor *t = n->outs[k];

			gradients += t->v.what == HD_TENSOR_GRAD && t->v.dtype != HD_DTYPE_F32;
			statistics += is_statistic(n, k) && t->v.dtype == HD_DTYPE_BF16;
			if (n->v.phase & (HD_UNIT_F | HD_UNIT_B) && !is_statistic(n, k) && t->v.ndim > 2 &&
			    t->v.what == HD_TENSOR_ACT && !n->v.reshard && !n->comm.kind && !is(n, "fill"))
				activations += t->v.dtype != HD_DTYPE_BF16, low++;
		}
	}
	is_int(gradients, 0, "gradients of parameters are fp32, from the accumulator on");
	is_int(statistics, 0, "statistics are fp32");
	is_int(activations, 0, "activations and their gradients are bf16");
	ok(low > 40, "the plan has %d activations and their gradients in forward and backward", low);
	is_int(casts, 0, "no weight is cast within a step");
	done_with(p);
}

/* Routers choose in fp32 and gates are fp32; experts compute in bf16. */
static void experts(const char *keys, const char *what)
{
	struct hd_plan *p = plan_of(keys, 1);
	int routers = 0, gates = 0, products = 0, seen = 0;

	if (!ok(p != NULL, "%s: the model is planned", what))
		return;
	is_int(wrong_parameters(p, 1), 0,
	       "parameters, masters and states have the right types; the router's weight is fp32");
	for (struct node *n = p->first; n; n = n->next) {
		if (is(n, "route") || is(n, "route_d"))
			routers += n->ins[0]->v.dtype != HD_DTYPE_F32 || n->outs[0]->v.dtype != HD_DTYPE_F32, seen++;
		if (is(n, "combine") && hd_attr_num(n->attr, "gates", 0) != 0)
			gates += n->ins[2]->v.dtype != HD_DTYPE_F32 || n->ins[0]->v.dtype != HD_DTYPE_BF16;
		if (is(n, "combine_dg"))
			gates += n->outs[0]->v.dtype != HD_DTYPE_F32;
		for (uint32_t i = 0; is(n, "einsum") && i < 2; i++)
			if (n->ins[i]->v.ndim == 4 && !strncmp(n->ins[i]->v.spec, "expert", 6))
				products += n->ins[i]->v.dtype != HD_DTYPE_BF16, seen++;
	}
	is_int(routers, 0, "routers choose in fp32");
	is_int(gates, 0, "gates and their gradients are fp32");
	is_int(products, 0, "experts compute in bf16");
	ok(seen > 10, "the plan has %d operands of routers and experts", seen);
	done_with(p);
}

static void forward_only(void)
{
	struct hd_plan *p = plan_of("", 0);

	if (!ok(p != NULL, "generation is planned"))
		return;
	is_int(wrong_parameters(p, 0), 0, "parameters have no masters, and the right types");
	is_int(p->logits->v.dtype, HD_DTYPE_F32, "logits are fp32 for the run that reads them");
	is_int(p->micro_batch, 3, "a micro-batch has one sequence per row to continue");
	done_with(p);
}

/* x -> fp32 -> double: the gradient is the loss' weight, rounded to fp32 on the way back. */
static void cast_gradient(void)
{
	struct hd_plan *p = gt_plan(2);
	struct tensor *x, *y;
	struct gt_run *r;
	double *g, *w, worst = 0;

	hd_dim_get(p, "row", 5);
	x = gt_param(p, "x", "row");
	y = hd_op1(p, "cast", &x, 1, "dtype=%u", HD_DTYPE_F32);
	y = hd_op1(p, "cast", &y, 1, "dtype=%u", HD_DTYPE_F64);
	gt_build(p, gt_loss(p, y));
	r = gt_open(p, NULL);
	if (!ok(r != NULL, "cast: the graph runs: %s", gt_why()))
		return;
	gt_compute(r);
	g = gt_address(r, gt_gradient_of(p, x), 0);
	w = gt_address(r, gt_param_named(p, "loss.weights"), 0);
	for (int i = 0; i < 5; i++)
		worst = fmax(worst, fabs(g[i] - 2 * w[i]) / fabs(2 * w[i])); /* for two micro-batches */
	ok(worst <= 0x1p-24, "cast: the gradient is passed on, rounded once: %.3g", worst);
	ok(worst > 0, "... and it was fp32 in between");
	gt_close(r);
}

int main(void)
{
	types("", "gpt2");
	types("tie_embeddings = no\ndropout = 0.1", "gpt2 with an untied head");
	types("family = llama\nkv_heads = 2", "llama");
	experts("family = mixtral\nexperts = 4", "experts with counted rows");
	experts("experts = 4\nmoe_every = 2\nfamily = llama\nrouter = gshard", "experts with places");
	forward_only();
	cast_gradient();
	return done();
}
