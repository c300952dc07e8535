/* SPDX-License-Identifier: Apache-2.0
 * An op of two inputs with kernels of its own, a tanh(a) in place of gelu(a) or W_KIND(a); and with -D what such kernels can do wrong
 * (t1301-conform-ops.sh builds it so, one fault at a time).
 */
#include <heddle/strategy.h>
#include <stdlib.h>
#include <string.h>

#ifndef W_NOUT
#define W_NOUT 1
#endif
#ifndef W_RUN
#define W_RUN
#endif
#ifndef W_LAST
#define W_LAST
#endif
#ifndef W_CPU
#define W_CPU
#endif
#ifndef W_VJP
#define W_VJP "a * b"
#endif
#ifndef W_KIND
#define W_KIND "gelu"
#endif
#ifndef W_SHAPED
#define W_SHAPED HD_OK
#endif
#ifndef W_REWRITTEN
#define W_REWRITTEN hd_basic_of(s)->h->status(p)
#endif

/* -- the op ---------------------------------------------------------------------------------------- */
static int shape(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins, uint32_t nin,
		 struct hd_shape *outs, uint32_t *nout)
{
	(void)s, (void)p, (void)attr, (void)nin;
	*nout = W_NOUT;
	outs[0].dtype = ins[0]->dtype;
	outs[0].ndim = ins[0]->ndim;
	memcpy(outs[0].dims, ins[0]->dims, ins[0]->ndim * sizeof(*ins[0]->dims));
#ifdef W_SHAPE
	outs[0].ndim--;
#endif
	return W_SHAPED;
}

static int vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
	       uint64_t want, struct hd_tensor **din)
{
	const struct hd_graph_api *g = hd_basic_of(s)->h->graph;
	struct hd_tensor *in[] = { n->ins[1], dout[0] };

#ifdef W_VJP_FAILS
	return HD_EINVAL;
#endif
	if (want & 1)
		din[0] = g->map(p, in, 2, "a * b");
	in[0] = n->ins[0];
	if (want & 2)
		din[1] = g->map(p, in, 2, W_VJP);
#ifdef W_BEYOND
	din[W_BEYOND] = din[0];
#endif
#ifdef W_DIMS
	din[1] = g->einsum(p, in, 2, n->ins[0]->dims, 1);
#endif
	return hd_basic_of(s)->h->status(p);
}

static int record(struct hd_strategy *s, struct hd_record *r, const struct hd_node *n)
{
	const struct hd_record_api *a = hd_basic_of(s)->h->record;

#ifdef W_RECORD
	W_RECORD;
#endif
	return a->launch(r, "product", n->ins, 2, n->outs, 1, "%s", "");
}

#ifdef W_PLACE
static const int8_t inplace[] = { W_PLACE };
#else
static const int8_t inplace[] = { 1 };
#endif
static const struct hd_op product = {
	.size = sizeof(product),
	.name = "product",
	.inplace = inplace,
#ifdef W_LINEAR
	.linear = W_LINEAR,
#endif
	.shape = shape,
#ifndef W_NO_VJP
	.vjp = vjp,
#endif
#ifndef W_NO_RECORD
	.record = record,
#endif
};

/* -- its kernels ----------------------------------------------------------------------------------- */
struct prepared {
	int64_t n, calls;
	void *more;
};

static int prepare(struct hd_strategy *s, struct hd_kernel_prepare *a)
{
	struct prepared *k = a->alloc(a, sizeof(*k));

	(void)s;
	if (!k)
		return HD_ENOMEM;
	k->n = 1;
	for (uint32_t i = 0; i < a->ins[0]->ndim; i++)
		k->n *= a->ins[0]->n[i];
	a->state = k;
#ifdef W_PREPARED
	W_PREPARED;
#endif
	return HD_OK;
}

static int prepare_f32(struct hd_strategy *s, struct hd_kernel_prepare *a)
{
	if (a->ins[0]->dtype != HD_DTYPE_F32)
		return a->fail(a, HD_ENOTSUP, "product: input 0 has %u bits, it must be fp32",
			       HD_BITS(a->ins[0]->dtype));
	return prepare(s, a);
}

#define KERNEL(name, real, last) \
	static int name(const struct hd_kernel_run *a) \
	{ \
		const real *x = a->ins[0], *z = a->ins[1]; \
		struct prepared *k = a->state; \
		real *y = a->outs[0]; \
		int64_t n = k->n; \
\
		k->calls++; \
		(void)x, (void)z, (void)y; \
		W_RUN; \
		for (int64_t i = 0; i < n; i++) \
			y[i] = x[i] * z[i]; \
		last; \
		W_LAST; \
		return HD_OK; \
	}
KERNEL(run_f32, float, W_CPU)
KERNEL(run_f64, double, )

#ifdef W_RELEASE
static void release(void *state)
{
	W_RELEASE;
}
#else
#define release NULL
#endif

#ifdef W_SCRATCH
static int64_t scratch(struct hd_strategy *s, const struct hd_kernel_prepare *a)
{
	(void)s, (void)a;
	return W_SCRATCH;
}
#else
#define scratch NULL
#endif

static const struct hd_kernel_ops on_cpu = { sizeof(on_cpu), "product", "cpu", prepare_f32, run_f32, release, scratch };
static const struct hd_kernel_ops on_ref = { sizeof(on_ref), "product", "ref", prepare, run_f64, release, scratch };
#ifdef W_REF_ALONE
static const struct hd_kernel_ops *const kernels[] = { &on_ref, NULL };
#else
static const struct hd_kernel_ops *const kernels[] = { &on_cpu, &on_ref, NULL };
#endif

static int rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_graph_api *g = hd_basic_of(s)->h->graph;
	const struct hd_match gelus = { .size = sizeof(gelus), .kind = W_KIND };

	for (struct hd_node *n = NULL, *mine; (n = g->node_next(p, n, &gelus));) {
		struct hd_tensor *in[2] = { n->ins[0] };

		hd_cursor(g, p, n, NULL);
		in[1] = g->map(p, in, 1, "tanh(a)");
#ifdef W_LATER
		for (struct hd_node *k = n; (k = g->node_next(p, k, &gelus));)
			in[1] = k->ins[0];
#endif
		mine = g->node(p, &product, in, 2, "fp32=1");
		g->replace(p, n->outs[0], mine ? mine->outs[0] : NULL);
	}
	return W_REWRITTEN;
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rewrite = rewrite };
HD_PLUGIN_TABLES("product", "1.0", .strategy = &ops, .kernels = kernels)
