/* SPDX-License-Identifier: Apache-2.0
 * squared_relu: an op with kernels of its own, in place of every GELU of the model.
 *
 *	y = r r,  dx = 2 r dy   with r = max(x, 0)        (So et al. 2021, arXiv 2109.08668)
 *
 * An op needs two structs. hd_op defines shape, gradient and cost, and records a launch; hd_kernel_ops computes.
 * Kernels for GPUs are in squared_relu.cu. This plugin claims no axis, so [plugin NAME] loads it.
 */
#include "squared_relu.h"
#include <string.h>

/* -- kernels for the CPU ------------------------------------------------------------------------------------------- */
static float load(const void *x, int64_t i, uint32_t dtype)
{
	uint32_t bits;
	float f;

	if (dtype == HD_DTYPE_F32)
		return ((const float *)x)[i];
	bits = (uint32_t)((const uint16_t *)x)[i] << 16;
	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Stores f as float, or as bf16: the upper half of a float, rounded to nearest even. */
static void store(void *y, int64_t i, uint32_t dtype, float f)
{
	uint32_t bits;

	if (dtype == HD_DTYPE_F32) {
		((float *)y)[i] = f;
		return;
	}
	memcpy(&bits, &f, sizeof(bits));
	((uint16_t *)y)[i] = (uint16_t)(f == f ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40);
}

/* Computes y from x; or, with two inputs x and dy, computes dx. */
static int run_cpu(const struct hd_kernel_run *a)
{
	const struct sizes *s = a->state;
	const void *x = a->ins[0], *dy = s->backward ? a->ins[1] : NULL;
	void *out = a->outs[0];

#pragma omp parallel for schedule(static) num_threads(a->threads) if (s->n >= 65536)
	for (int64_t i = 0; i < s->n; i++) {
		float v = load(x, i, s->dtype), r = v > 0 ? v : 0;

		store(out, i, s->dtype, dy ? 2 * r * load(dy, i, s->dtype) : r * r);
	}
	return HD_OK;
}

/* The same in double, for the check of the gradient by finite differences. */
static int run_ref(const struct hd_kernel_run *a)
{
	const struct sizes *s = a->state;
	const double *x = a->ins[0], *dy = s->backward ? a->ins[1] : NULL;
	double *out = a->outs[0];

	for (int64_t i = 0; i < s->n; i++) {
		double r = x[i] > 0 ? x[i] : 0;

		out[i] = dy ? 2 * r * dy[i] : r * r;
	}
	return HD_OK;
}

static int check(struct hd_kernel_prepare *a, const struct hd_operand *o, const char *what)
{
	const struct hd_operand *x = a->ins[0];

	if (o->dtype != x->dtype || o->ndim != x->ndim)
		return a->fail(a, HD_EINVAL, "%s has dtype %#x and %u dims, x has %#x and %u", what, o->dtype, o->ndim,
			       x->dtype, x->ndim);
	for (uint32_t d = 0; d < o->ndim; d++)
		if (o->n[d] != x->n[d])
			return a->fail(a, HD_EINVAL, "%s has %lld of %s, x has %lld", what, (long long)o->n[d],
				       o->dims[d]->name, (long long)x->n[d]);
	return HD_OK;
}

int squared_relu_prepare(struct hd_strategy *self, struct hd_kernel_prepare *a)
{
	struct sizes *s = a->alloc(a, sizeof(*s));

	(void)self;
	if (!s)
		return a->fail(a, HD_ENOMEM, "no memory");
	s->n = 1;
	s->dtype = a->ins[0]->dtype;
	s->backward = a->nin == 2;
	for (uint32_t d = 0; d < a->ins[0]->ndim; d++)
		s->n *= a->ins[0]->n[d];
	a->state = s;
	if (s->backward && check(a, a->ins[1], "dy") < 0)
		return HD_EINVAL;
	return check(a, a->outs[0], "the result");
}

static int prepare_cpu(struct hd_strategy *self, struct hd_kernel_prepare *a)
{
	uint32_t t = a->ins[0]->dtype;

	if (t != HD_DTYPE_F32 && t != HD_DTYPE_BF16)
		return a->fail(a, HD_ENOTSUP, "x has dtype %#x, f32 (%#x) or bf16 (%#x) are possible", t, HD_DTYPE_F32,
			       HD_DTYPE_BF16);
	return squared_relu_prepare(self, a);
}

#define KERNEL(id, device_, prepare_, run_) \
	static const struct hd_kernel_ops id = { \
		.size = sizeof(id), .name = "squared_relu", .device = device_, .prepare = prepare_, .run = run_ \
	}
KERNEL(on_cpu, "cpu", prepare_cpu, run_cpu);
KERNEL(on_ref, "ref", squared_relu_prepare, run_ref);
#ifdef WITH_CUDA
KERNEL(on_cuda, "cuda", prepare_cpu, squared_relu_run_cuda);
#endif
static const struct hd_kernel_ops *const kernels[] = {
	&on_cpu,
	&on_ref,
#ifdef WITH_CUDA
	&on_cuda,
#endif
	NULL,
};

/* -- the op -------------------------------------------------------------------------------------------------------- */
static const struct hd_op backward;

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
	struct hd_tensor *in[2] = { n->ins[0], dout[0] };
	struct hd_node *d = want & 1 ? hd_basic_of(s)->h->graph->node(p, &backward, in, 2, "%s", "") : NULL;

	din[0] = d ? d->outs[0] : NULL;
	return HD_OK;
}

static int cost(struct hd_strategy *s, const struct hd_node *n, struct hd_cost *c)
{
	double elements = 1;

	(void)s;
	for (uint32_t i = 0; i < n->ins[0]->ndim; i++)
		elements *= (double)n->ins[0]->local[i];
	c->other_flops = 2 * elements;
	c->bytes = (n->nin + 1) * elements * HD_BITS(n->ins[0]->dtype) / 8;
	return HD_OK;
}

static int record(struct hd_strategy *s, struct hd_record *r, const struct hd_node *n)
{
	return hd_basic_of(s)->h->record->launch(r, "squared_relu", n->ins, n->nin, n->outs, n->nout, "%s", "");
}

/* Linear in dy, so a partial gradient may pass through. Both ops may overwrite one input. */
static const int8_t over_x[] = { 0 }, over_dy[] = { 1 };
static const struct hd_op forward = {
	.size = sizeof(forward),
	.name = "squared_relu",
	.inplace = over_x,
	.shape = shape,
	.vjp = vjp,
	.cost = cost,
	.record = record,
};
static const struct hd_op backward = {
	.size = sizeof(backward),
	.name = "squared_relu_d",
	.linear = 2,
	.inplace = over_dy,
	.shape = shape,
	.cost = cost,
	.record = record,
};

/* Replaces every gelu of the model by a squared_relu. */
static int rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_graph_api *g = hd_basic_of(s)->h->graph;
	const struct hd_match gelus = { .size = sizeof(gelus), .kind = "gelu" };
	struct hd_node *n = NULL, *mine;

	while ((n = g->node_next(p, n, &gelus))) {
		hd_cursor(g, p, n, NULL);
		mine = g->node(p, &forward, n->ins, 1, "%s", "");
		g->replace(p, n->outs[0], mine ? mine->outs[0] : NULL);
	}
	return hd_basic_of(s)->h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rewrite = rewrite };
HD_PLUGIN_TABLES("squared_relu", "1.0", .strategy = &ops, .kernels = kernels)
