/* SPDX-License-Identifier: Apache-2.0
 * The gradient of every op, compared with finite differences of the loss.  A model with a wrong gradient still trains,
 * only worse; all that anyone would see is a loss that is a little too high after days.
 *
 * Each graph passes through all stages of a plan (autodiff, place, lower, fuse, program) and runs on the reference
 * device in double.  Memory is NaN before each step, and a step has two micro-batches.  So accumulators and buffers
 * that share memory are tested too.
 */
#include <config.h>
#include "engine/ops/movement.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

static struct hd_plan *p;

static struct tensor *param(const char *name, const char *spec)
{
	return gt_param(p, name, spec);
}

static int sums; /* number of sum nodes in the last graph */

/* Checks every differentiable value of the graph through the parameters that it depends on. */
static void check(struct tensor *y, const char *name)
{
	const char *where = "";
	struct gt_run *r;
	double off;

	gt_build(p, y ? gt_loss(p, y) : NULL);
	sums = 0;
	for (const struct node *n = p->first; n; n = n->next)
		sums += n->is->role == OP_ROLE_SUM;
	r = gt_open(p, NULL);
	off = r ? gt_differences(r, 12, &where) : NAN;
	if (!ok(off <= 1, "%s", name))
		note("off by %g times the tolerance, in %s (%s)", off, where,
		     r              ? "ran"
		     : p->err->code ? p->err->text
				    : gt_why());
	gt_close(r);
}

static void begin(void)
{
	static const struct {
		const char *name;
		int64_t n;
	} dims[] = { { "batch", 2 },    { "seq", 4 },      { "embed", 6 },   { "heads", 4 },
		     { "kv_heads", 2 }, { "head_dim", 4 }, { "mlp", 5 },     { "vocab", 7 },
		     { "position", 5 }, { "expert", 3 },   { "capacity", 2 } };

	p = gt_plan(2);
	for (size_t i = 0; i < HD_LEN(dims); i++)
		hd_dim_get(p, dims[i].name, dims[i].n);
}

/* -- products -------------------------------------------------------------------------------------------------------------- */
static struct tensor *first(struct node *n, int out)
{
	return n ? n->outs[out] : NULL;
}

static void indexed(void)
{
	struct tensor *x, *few;
	struct node *top;

	for (int magnitude = 0; magnitude < 2; magnitude++) {
		begin();
		hd_dim_get(p, "k", 3);
		x = param("x", "batch,embed,seq");
		top = hd_build_topk(p, x, hd_dim_get(p, "embed", 0), hd_dim_get(p, "k", 0), magnitude);
		check(first(top, 0), "gradient of topk");
	}
	begin();
	hd_dim_get(p, "k", 3);
	x = param("x", "batch,embed,seq");
	top = hd_build_topk(p, param("by", "batch,embed,seq"), hd_dim_get(p, "embed", 0), hd_dim_get(p, "k", 0), 0);
	check(top ? hd_build_gather(p, x, first(top, 1), hd_dim_get(p, "embed", 0)) : NULL, "gradient of gather");
	begin();
	hd_dim_get(p, "k", 3);
	few = param("few", "batch,k");
	top = hd_build_topk(p, param("by", "batch,embed"), hd_dim_get(p, "embed", 0), hd_dim_get(p, "k", 0), 0);
	check(top ? hd_build_scatter(p, few, first(top, 1), hd_dim_get(p, "k", 0), hd_dim_get(p, "embed", 0), 0) : NULL,
	      "gradient of scatter");
}

/* A Gram matrix: the product of x with itself, under a second name for the dim. */
static void renamed(void)
{
	struct tensor *x;

	begin();
	hd_dim_get(p, "row", 6);
	x = param("x", "batch,embed");
	check(hd_einsum(p, x, hd_build_rename(p, x, hd_dim_get(p, "embed", 0), hd_dim_get(p, "row", 0)), "embed,row"),
	      "gradient of rename");
	begin();
	x = param("x", "batch,embed");
	check(hd_map_new(p, &x, 1, "erf(a) * a + floor(a * 0) + round(a * 0)"), "gradient of erf, floor and round");
}

static void products(void)
{
	static const struct {
		const char *a, *b, *c;
	} of[] = {
		{ "batch,seq,embed", "embed,mlp", "batch,seq,mlp" },
		{ "batch,seq,embed", "embed,heads,head_dim", "batch,seq,heads,head_dim" },
		{ "batch,seq,heads,head_dim", "heads,head_dim,embed", "batch,seq,embed" },
		{ "batch,seq,embed", "vocab,embed", "batch,seq,vocab" }, /* a tied head */
		{ "batch,expert,capacity,embed", "expert,embed,mlp", "batch,expert,capacity,mlp" },
		{ "batch,seq,expert,capacity", "batch,seq,embed", "batch,expert,capacity,embed" },
		{ "batch,seq,expert,capacity", "batch,expert,capacity,embed", "batch,seq,embed" },
		{ "batch,embed", "embed,batch", "" },      /* transposed operands, no result dims */
		{ "embed", "mlp", "embed,mlp" },           /* an outer product */
		{ "batch,seq,embed", "embed,mlp", "mlp" }, /* dims that only one operand has */
	};

	for (size_t i = 0; i < HD_LEN(of); i++) {
		char name[200];

		begin();
		snprintf(name, sizeof(name), "einsum (%s) (%s) -> (%s)", of[i].a, of[i].b, of[i].c);
		check(hd_einsum(p, param("a", of[i].a), param("b", of[i].b), of[i].c), name);
	}
	begin();
	{
		struct tensor *a = param("a", "batch,embed");

		check(hd_einsum(p, a, a, "batch"), "einsum of a tensor with itself");
	}
	begin();
	check(hd_einsum(p, param("a", "batch,seq,embed"), NULL, "embed,batch"),
	      "sum over a dim, with the others transposed");
	begin();
	check(hd_einsum(p, param("a", "batch,seq"), NULL, ""), "sum over all dims");
}

/* -- elementwise ------------------------------------------------------------------------------------------------------------- */
static void maps(void)
{
	static const char *const of[] = { "exp(a) * b - c",
					  "a / (1 + b * b) + tanh(c)",
					  "log(1 + a * a) * sqrt(1 + b * b) - c",
					  "where(a - 0.1, b * c, a * a)",
					  "max(a, b) * min(b, c)",
					  "abs(a) + b * 3 - a * c * c",
					  "-a * -a * a + 2" };

	for (size_t i = 0; i < HD_LEN(of); i++) {
		struct tensor *ins[3];
		char name[200];

		begin();
		ins[0] = param("a", "batch,seq,embed");
		ins[1] = param("b", "batch,seq,embed");
		ins[2] = param("c", i & 1 ? "embed" : "batch,embed");
		snprintf(name, sizeof(name), "map %s, c broadcast", of[i]);
		check(hd_map_new(p, ins, 3, of[i]), name);
	}
}

static void adds(void)
{
	struct tensor *ins[4], *x;

	begin();
	ins[0] = param("a", "batch,seq,embed"), ins[1] = param("b", "embed"), ins[2] = param("c", "batch,seq,embed");
	ins[3] = param("d", "seq,embed");
	check(hd_op1(p, "add", ins, 4, "%s", ""), "add of four, two of them broadcast");
	begin();
	ins[0] = param("a", "embed"), ins[1] = param("b", "batch,seq,embed");
	ok(!hd_op1(p, "add", ins, 2, "%s", "") &&
		   strstr(p->own.text, "input 1 has dim batch, which input 0 (embed) does not have"),
	   "add is refused if its second operand has more dims than the first");
	gt_plan_destroy(p);
	begin();
	x = ins[0] = param("a", "batch,embed");
	ins[1] = hd_map_new(p, &x, 1, "a * a"), ins[2] = x;
	check(hd_op1(p, "add", ins, 3, "%s", ""), "add of a tensor with itself and its square");
	begin();
	x = hd_einsum(p, param("x", "batch,seq,embed"), param("w", "embed,mlp"), "batch,seq,mlp");
	ins[0] = x, ins[1] = param("bias", "mlp");
	ins[0] = hd_op1(p, "add", ins, 2, "%s", "");
	ins[1] = param("r", "batch,seq,mlp");
	ins[0] = hd_op1(p, "add", ins, 2, "%s", "");
	check(hd_op1(p, "gelu", ins, 1, "%s", ""), "product, bias and residual in one kernel");
	is_int(sums, 1, "the bias' gradient is computed with gelu's, so only the loss is a sum");
	begin();
	x = param("x", "batch,seq,embed");
	ins[0] = hd_einsum(p, x, param("w", "embed,mlp"), "batch,seq,mlp");
	ins[1] = hd_einsum(p, x, param("v", "embed,mlp"), "batch,seq,mlp");
	check(hd_op1(p, "add", ins, 2, "%s", ""), "sum of two products of one tensor");
}

static void activations(void)
{
	struct tensor *x, *ins[2];

	begin();
	x = param("x", "batch,embed");
	check(hd_op1(p, "gelu", &x, 1, "%s", ""), "gelu");
	begin();
	ins[0] = param("a", "batch,mlp"), ins[1] = param("b", "batch,mlp");
	check(hd_op1(p, "swiglu", ins, 2, "%s", ""), "swiglu");
	for (int gelu = 1; gelu < 3; gelu++) {
		begin();
		ins[0] = param("a", "batch,mlp"), ins[1] = param("b", "batch,mlp");
		check(hd_op1(p, "swiglu", ins, 2, "gelu=%d", gelu), gelu == 1 ? "GeGLU, by tanh" : "GeGLU, by erf");
	}
	begin();
	x = param("x", "batch,seq,embed");
	check(hd_op1(p, "dropout", &x, 1, "p=0.3 site=2"),
	      "dropout: backward has the same mask, each micro-batch a different one");
	begin();
	x = param("x", "batch,seq,heads,head_dim");
	check(hd_op1(p, "rope", &x, 1, "theta=100"), "rope");
	begin();
	x = param("x", "batch,seq,heads,head_dim");
	check(hd_op1(p, "rope", &x, 1, "theta=100 rotary=2 scaling=yarn factor=4 original=9 beta_fast=2 attention=1.2"),
	      "rope of a part of head_dim, with YaRN scaling");
	begin();
	x = param("x", "batch,embed");
	x = hd_map_new(p, &x, 1, "a * a");
	x = hd_op1(p, "cast", &x, 1, "dtype=%u", HD_DTYPE_F64);
	check(x, "cast");
}

/* A value with several readers: its gradient is a sum, and memory that is shared must not be overwritten too early. */
static void sharing(void)
{
	struct tensor *x, *y, *ins[3];

	begin();
	x = hd_map_new(p, (struct tensor *[]){ param("x", "batch,seq,embed") }, 1, "a * 2");
	y = hd_op1(p, "gelu", &x, 1, "%s", "");
	ins[0] = hd_map_new(p, &y, 1, "a * a"), ins[1] = x, ins[2] = hd_map_new(p, &x, 1, "exp(a)");
	check(hd_op1(p, "add", ins, 3, "%s", ""), "gradient of a value that three nodes read");
	begin();
	x = hd_map_new(p, (struct tensor *[]){ param("x", "batch,seq,embed") }, 1, "a * 2");
	y = x;
	for (int i = 0; i < 40; i++) {
		ins[0] = y, ins[1] = hd_map_new(p, &x, 1, i % 2 ? "a * a" : "tanh(a)");
		y = hd_op1(p, "add", ins, 2, "%s", "");
	}
	check(y, "gradient of a value that 41 nodes read: more than one addition takes");
	begin();
	check(hd_einsum(p, param("a", "batch,embed"), param("b", "seq,embed,mlp"), "batch,embed"),
	      "gradients of a product that sums two dims of one operand");
	begin();
	x = param("w", "embed,mlp");
	ins[0] = hd_einsum(p, param("a", "batch,embed"), x, "batch,mlp");
	ins[1] = hd_einsum(p, param("b", "batch,embed"), x, "batch,mlp");
	ins[0] = hd_map_new(p, ins, 2, "tanh(a) * b");
	hd_block_begin(p, "second");
	check(hd_einsum(p, ins[0], x, "batch,embed"), "gradient of a parameter that two blocks use, one of them twice");
}

/* -- ops of transformers --------------------------------------------------------------------------------------- */
static void norms(void)
{
	for (int rms = 0; rms < 2; rms++)
		for (int bias = 0; bias < 2; bias++) {
			struct tensor *ins[3];

			begin();
			ins[0] = param("x", "batch,seq,embed"), ins[1] = param("w", "embed"),
			ins[2] = param("b", "embed");
			check(hd_op1(p, "norm", ins, 2 + (uint32_t)bias, "eps=1e-5 rms=%d", rms),
			      rms    ? bias ? "RMS norm with bias" : "RMS norm"
			      : bias ? "layer norm"
				     : "layer norm without bias");
		}
}

static void attentions(void)
{
	for (int grouped = 0; grouped < 2; grouped++)
		for (int causal = 0; causal < 2; causal++) {
			struct tensor *ins[3];
			const char *kv = grouped ? "batch,seq,kv_heads,head_dim" : "batch,seq,heads,head_dim";
			char name[80];

			begin();
			ins[0] = param("q", "batch,seq,heads,head_dim"), ins[1] = param("k", kv),
			ins[2] = param("v", kv);
			snprintf(name, sizeof(name), "%sattention%s", causal ? "causal " : "",
				 grouped ? ", grouped keys" : "");
			check(hd_op1(p, "attention", ins, 3, "causal=%d", causal), name);
		}
	for (int capped = 0; capped < 2; capped++) {
		struct tensor *ins[3];

		begin();
		ins[0] = param("q", "batch,seq,heads,head_dim");
		ins[1] = param("k", "batch,seq,kv_heads,head_dim"), ins[2] = param("v", "batch,seq,kv_heads,head_dim");
		check(hd_op1(p, "attention", ins, 3, "causal=1 window=2%s", capped ? " softcap=0.5 scale=0.7" : ""),
		      capped ? "attention with a window, a cap and a scale" : "attention with a window");
	}
}

static void embeddings(void)
{
	struct tensor *ins[2];

	begin();
	ins[0] = hd_leaf(p, "ids", HD_TENSOR_DATA, HD_DTYPE_I32, "batch,seq");
	ins[1] = param("wte", "vocab,embed");
	ins[0] = hd_op1(p, "embedding", ins, 2, "%s", "");
	ins[1] = param("wpe", "position,embed");
	check(hd_op1(p, "position", ins, 2, "%s", ""), "embedding and position");
}

/* Cross entropy in several ops; nll is the loss itself. */
static void cross_entropy(void)
{
	struct tensor *z, *ins[5];
	struct node *x;
	const char *where;
	struct gt_run *r;
	double off;

	begin();
	z = param("z", "batch,seq,vocab");
	z = hd_map_new(p, &z, 1, "a * 3");
	ins[0] = z, ins[1] = hd_leaf(p, "targets", HD_TENSOR_DATA, HD_DTYPE_I32, "batch,seq");
	x = hd_node_make(p, "xent", ins, 2, "%s", "");
	ins[4] = ins[1];
	ins[0] = ins[1] = x->outs[0], ins[2] = x->outs[1];
	ins[1] = hd_op1(p, "xent_combine", ins, 3, "%s", "");
	ins[2] = x->outs[2], ins[3] = z;
	gt_build(p, hd_op1(p, "nll", ins, 5, "%s", ""));
	r = gt_open(p, NULL);
	off = r ? gt_differences(r, 20, &where) : NAN;
	ok(off <= 1, "cross entropy");
	gt_close(r);
}

/* -- a model -------------------------------------------------------------------------------------------------------------------- */
static void gpt2(const char *extra, const char *name)
{
	char ini[600];
	const char *where = "";
	struct gt_run *r;
	double off;

	snprintf(ini, sizeof(ini),
		 "[model]\nfamily = gpt2\nlayers = 2\nembed = 8\nheads = 2\nvocab = "
		 "11\n%s\n[data]\ntrain = none\n"
		 "[train]\nseq = 5\nglobal_batch = 4\nmicro_batch = 2\nsteps = 1\noptimizer = "
		 "sgd\nclip = 0\n",
		 extra);
	p = gt_plan_of(ini, 1, HD_DTYPE_F64);
	r = p ? gt_open(p, NULL) : NULL;
	off = r ? gt_differences(r, 4, &where) : NAN;
	if (!ok(off <= 1, "%s", name))
		note("off by %g times the tolerance, in %s (%s)", off, where, gt_why());
	gt_close(r);
}

/* Results that may take the memory of an input, where the kernel would read that memory again. */
static void in_place(void)
{
	struct tensor *ins[4], *x;

	begin();
	hd_dim_get(p, "row", 40), hd_dim_get(p, "column", 30); /* more than a map computes at once */
	ins[0] = param("x", "row,column");
	ins[1] = hd_einsum(p, param("a", "batch,column"), param("b", "batch,row"), "column,row");
	check(hd_map_new(p, ins, 2, "a + b"), "a map of a product whose dims have another order");
	for (int rms = 0; rms < 2; rms++) {
		begin();
		x = param("x", "batch,seq,embed");
		ins[0] = hd_map_new(p, &x, 1, "exp(a)");
		ins[1] = param("w", "embed");
		ins[2] = param("b", "embed");
		ins[1] = hd_op1(p, "norm", ins, rms ? 2 : 3, "eps=1e-5 rms=%d", rms);
		check(hd_op1(p, "add", ins, 2, "%s", ""),
		      rms ? "an RMS norm added to its own input" : "a layer norm added to its own input");
	}
}

/* The derivative of a map reads only the inputs that it uses, because they are kept until then. */
static void derivatives_of_maps(void)
{
	static const struct {
		const char *text;
		int times;
		uint32_t nin;
	} want[] = { { "(exp(a)) * b", 1, 2 }, { "(b) * a", 2, 2 }, { "(3.5) * a", 1, 1 } };
	struct tensor *ins[4];

	begin();
	ins[0] = param("x", "seq,embed"), ins[1] = param("b", "embed"), ins[2] = param("c", "seq,embed");
	ins[3] = param("d", "seq");
	gt_build(p, hd_map_new(p, ins, 4, "exp(a) + b * c + 3.5 * d"));
	for (size_t i = 0; i < HD_LEN(want); i++) {
		int found = 0;

		for (const struct node *n = p->first; n; n = n->next)
			found +=
				n->is->role == OP_ROLE_MAP && !strcmp(n->attr, want[i].text) && n->v.nin == want[i].nin;
		ok(found == want[i].times, "a derivative that reads %u tensors: %s", want[i].nin, want[i].text);
	}
	gt_plan_destroy(p);
}

/* Two norms with one weight and two biases: a kernel sets or adds all its gradients. */
static void shared_weight(void)
{
	struct tensor *ins[4], *y[2];

	begin();
	ins[1] = param("w", "embed");
	for (int i = 0; i < 2; i++) {
		ins[0] = param(i ? "x1" : "x0", "batch,seq,embed");
		ins[2] = param(i ? "b1" : "b0", "embed");
		y[i] = hd_op1(p, "norm", ins, 3, "eps=1e-5 rms=%d", 0);
	}
	check(hd_map_new(p, y, 2, "a * b"), "two norms that share a weight, but not the bias");
}

int main(void)
{
	in_place();
	shared_weight();
	derivatives_of_maps();
	renamed();
	indexed();
	products();
	maps();
	adds();
	activations();
	sharing();
	norms();
	attentions();
	embeddings();
	cross_entropy();
	gpt2("", "gradient of every parameter of gpt2");
	gpt2("dropout = 0.3\ntie_embeddings = no",
	     "gradient of every parameter of gpt2 with dropout and an untied head");
	return done();
}
