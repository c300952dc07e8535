/* SPDX-License-Identifier: Apache-2.0
 * Calls of everything that a plugin can call, with arguments of anything: t1113 runs it under sanitizers.
 *
 * From a seed: in each slot calls are drawn, and each argument is one that fits, or, `wild` times in a thousand, anything: a
 * handle of another kind, of nowhere or NULL, a number of any size, a text of any length, arguments that claim another size.
 * With `wild = 0` what is built is often correct, so that it gets as far as a step.
 */
#include "../lib/fuzz_args.h"
#include "../lib/fuzz_calls.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* -- an op of its own, of which anything may be anything ------------------------------------------------------------------- */
static int op_shape(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins,
		    uint32_t nin, struct hd_shape *outs, uint32_t *nout)
{
	(void)p, (void)attr, (void)nin;
	*nout = 1;
	outs[0].dtype = ins[0]->dtype;
	outs[0].ndim = ins[0]->ndim;
	for (uint32_t i = 0; i < ins[0]->ndim; i++)
		outs[0].dims[i] = ins[0]->dims[i];
	if (is_wild(s))
		*nout = (uint32_t)any_number(s);
	if (is_wild(s))
		outs[0].ndim = (uint32_t)any_number(s), outs[0].dtype = dtype(s);
	if (is_wild(s))
		outs[draw(s, HD_MAX_OUTS)].dims[draw(s, HD_MAX_DIMS)] = handle(s, DIM);
	if (is_wild(s))
		outs[0].local[0] = any_number(s);
	if (is_wild(s))
		outs[0].reserved[0] = 1 + (uint32_t)draw(s, 3);
	return is_wild(s) ? (int)any_number(s) : HD_OK;
}

static int op_vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		  uint64_t want, struct hd_tensor **din)
{
	for (uint32_t i = 0; i < n->nin && i < 64; i++)
		if (want >> i & 1)
			din[i] = is_wild(s) ? tensor(s) : s->g->map(p, dout, 1, "a");
	return s->h->status(p);
}

static int op_place(struct hd_strategy *s, struct hd_plan *p, const struct hd_node *n, const struct hd_axis *axis,
		    const struct hd_place *have, struct hd_place *need, struct hd_place *out)
{
	(void)p, (void)axis, (void)have;
	if (!is_wild(s))
		return HD_DEFAULT;
	need[draw(s, n->nin)] = place(s, n->ins[0]);
	out[draw(s, n->nout)] = place(s, n->ins[0]);
	return is_wild(s) ? (int)any_number(s) : HD_OK;
}

static int op_cost(struct hd_strategy *s, const struct hd_node *n, struct hd_cost *c)
{
	(void)n;
	c->other_flops = is_wild(s) ? -1e300 : 1;
	c->bytes = is_wild(s) ? NAN : 1;
	return HD_OK;
}

static int op_record(struct hd_strategy *s, struct hd_record *r, const struct hd_node *n)
{
	const struct hd_record_api *api = s->h->record;
	struct hd_tensor *ins[20];

	if (is_wild(s)) {
		for (uint32_t i = 0; i < 20; i++)
			ins[i] = tensor(s);
		api->index(r, handle(s, GROUP));
		return api->launch(r, TEXT(s, "map", "fuzz", "add", "einsum", "norm"), ins, count(s, 1, 2, 20), ins,
				   count(s, 1, 2, 20), "%s", TEXT(s, "a", "a + b", "out=batch"));
	}
	return api->launch(r, draw(s, 2) ? "fuzz" : "map", n->ins, 1, n->outs, 1, "%s", "a");
}

static struct hd_op *make_op(struct hd_strategy *s, struct hd_plan *p)
{
	static const char *const cut[] = { "seq", "nothing", NULL };
	struct args *room = s->h->alloc(p, sizeof(*room));
	int8_t *inplace = s->h->alloc(p, HD_MAX_OUTS);
	struct hd_op *op = (void *)room;

	if (!room || !inplace)
		return NULL;
	sized(s, room, sizeof(*op));
	for (int i = 0; i < HD_MAX_OUTS; i++)
		inplace[i] = (int8_t)(is_wild(s) ? any_number(s) : (int64_t)draw(s, 2) - 1);
	op->name = draw(s, 9) ? "own" : any_text(s);
	op->kind = draw(s, 9) ? NULL : TEXT(s, "map", "norm", "attention");
	op->unshardable = draw(s, 4) ? NULL : cut;
	op->linear = (uint64_t)number(s, 2);
	op->max_outputs = is_wild(s) ? (uint64_t)any_number(s) : 0;
	op->inplace = draw(s, 2) ? inplace : NULL;
	op->shape = is_wild(s) ? NULL : op_shape;
	op->vjp = is_wild(s) ? NULL : op_vjp;
	op->place = draw(s, 2) ? NULL : op_place;
	op->cost = draw(s, 2) ? NULL : op_cost;
	op->record = is_wild(s) ? NULL : op_record;
	op->flags = (uint32_t)number(s, 2);
	op->zero = is_wild(s) ? (uint32_t)draw(s, 3) : 0;
	return op;
}

/* -- slots ------------------------------------------------------------------------------------------------------------------- */
/* Where a call is no mistake: everywhere, or where nodes are built; and what there must be for it. */
enum { ANY = 1, BUILDS = 2, OF_TENSOR = 4 | BUILDS };
static const struct {
	void (*make)(struct hd_strategy *s, struct hd_plan *p);
	int where;
} calls[] = {
	{ call_opt, ANY },          { call_query, ANY },
	{ call_alloc, ANY },        { call_log, ANY },
	{ call_fail, ANY },         { call_dim, ANY },
	{ call_dim_new, ANY },      { call_axis, ANY },
	{ call_axis_next, ANY },    { call_group, ANY },
	{ call_rule, ANY },         { call_block_next, ANY },
	{ call_stage, ANY },        { call_unit, ANY },
	{ call_node_next, ANY },    { call_leaf_next, ANY },
	{ call_attr, ANY },         { call_attr_dims, ANY },
	{ call_op, ANY },           { call_storage, ANY },
	{ call_place, OF_TENSOR },  { call_replace, OF_TENSOR },
	{ call_cursor, OF_TENSOR }, { call_after, OF_TENSOR },
	{ call_node, OF_TENSOR },   { call_einsum, OF_TENSOR },
	{ call_map, OF_TENSOR },    { call_cast, OF_TENSOR },
	{ call_chunk, OF_TENSOR },  { call_join, OF_TENSOR },
	{ call_pick, OF_TENSOR },   { call_pack, OF_TENSOR },
	{ call_comm, OF_TENSOR },   { call_reshard, OF_TENSOR },
	{ call_state, OF_TENSOR },  { call_only, BUILDS },
	{ call_either, OF_TENSOR }, { call_scalar, BUILDS },
	{ call_made, OF_TENSOR },   { call_rename, OF_TENSOR },
	{ call_index, OF_TENSOR },  { call_updated, BUILDS },
	{ call_every, BUILDS },     { call_local, OF_TENSOR },
	{ call_own, OF_TENSOR },    { call_pack_pieces, OF_TENSOR },
};
enum { NCALLS = sizeof(calls) / sizeof(*calls) };

static int some_calls(struct hd_strategy *s, struct hd_plan *p, int where)
{
	for (int64_t i = 0; i < s->calls; i++) {
		uint64_t k = draw(s, NCALLS);

		if ((!(calls[k].where & where) || (calls[k].where & 4 && !s->n[TENSOR])) && !is_wild(s))
			continue;
		s->made[k]++;
		calls[k].make(s, p);
	}
	return is_wild(s) ? (int)any_number(s) : s->h->status(p);
}

/* The test maps the same file. */
static uint32_t *shared(const char *path)
{
	int f = open(path, O_RDWR);
	void *at = f < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);

	if (f >= 0)
		close(f);
	return at == MAP_FAILED ? NULL : at;
}

static int fuzz_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));
	uint32_t *made = shared(h->opt_str(p, "counts"));

	if (!s || !made)
		return h->fail(p, HD_EIO, "counts: %s is no file of 4096 bytes", h->opt_str(p, "counts"));
	s->h = h;
	s->g = h->graph;
	s->made = made;
	s->random = (uint64_t)h->opt_int(p, "seed") * 0x9e3779b97f4a7c15 + 1;
	s->wild = h->opt_int(p, "wild");
	s->calls = h->opt_int(p, "calls");
	s->stages = !draw(s, 3);
	*self = s;
	return s->wild > 500 ? some_calls(s, p, ANY) : h->status(p);
}

static void fuzz_close(struct hd_strategy *s)
{
	munmap(s->made, 4096);
}

static int fuzz_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->axis = hd_axis_new(s->h, p, NULL, size ? size : left);
	keep(s, AXIS, s->axis);
	if (s->axis)
		keep(s, GROUP, hd_group_of(s->h, p, &s->axis, 1));
	return some_calls(s, p, ANY);
}

/* Handles of an earlier slot may be of nodes that are gone. */
static void forget(struct hd_strategy *s, struct hd_plan *p)
{
	if (is_wild(s))
		return;
	memset(s->n, 0, sizeof(s->n));
	keep(s, AXIS, s->axis);
	keep(s, GROUP, hd_group_of(s->h, p, &s->axis, 1));
}

static int fuzz_rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	struct hd_match m = { .size = sizeof(m) };
	struct hd_node *n = s->g->node_next(p, NULL, &m);

	forget(s, p);
	for (uint64_t k = draw(s, 30); n && k--;)
		n = s->g->node_next(p, n, &m);
	if (n)
		keep(s, NODE, n), hd_cursor(s->g, p, n, NULL), keep(s, TENSOR, n->ins[0]);
	return some_calls(s, p, ANY | BUILDS);
}

/* An axis of stages, or of replicas. */
static int fuzz_rules(struct hd_strategy *s, struct hd_plan *p)
{
	hd_rule(s->h, p, s->stages ? "layer" : "batch", s->axis, NULL, 0);
	return some_calls(s, p, ANY);
}

static int fuzz_storage(struct hd_strategy *s, struct hd_plan *p)
{
	forget(s, p);
	return some_calls(s, p, ANY);
}

static int fuzz_schedule(struct hd_strategy *s, struct hd_plan *p, int64_t micro_batches)
{
	for (int64_t coord = 0; coord < s->axis->n && !is_wild(s); coord++)
		for (int64_t m = 0; m < micro_batches; m++) {
			hd_unit(s->h, p, s->axis, coord, HD_UNIT_F, 0, m);
			hd_unit(s->h, p, s->axis, coord, HD_UNIT_B, 0, m);
		}
	forget(s, p);
	return some_calls(s, p, ANY);
}

static int fuzz_lower(struct hd_strategy *s, struct hd_plan *p)
{
	struct hd_match m = { .size = sizeof(m), .kind = draw(s, 2) ? "reshard" : NULL };
	struct hd_node *n = s->g->node_next(p, NULL, &m);

	forget(s, p);
	for (uint64_t k = draw(s, 60); n && k--;)
		n = s->g->node_next(p, n, &m);
	if (n)
		keep(s, NODE, n), hd_cursor(s->g, p, n, NULL), keep(s, TENSOR, n->ins[0]);
	s->lowering = n && n->phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W);
	s->once = n && !s->lowering;
	return some_calls(s, p, n ? ANY | BUILDS : ANY);
}

static int fuzz_update(struct hd_strategy *s, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	struct hd_tensor *ins[] = { u->param, u->gradient, u->factor };
	int rc;

	forget(s, p);
	keep(s, TENSOR, u->param), keep(s, TENSOR, u->gradient);
	rc = draw(s, 4) ? s->h->status(p) : some_calls(s, p, ANY | BUILDS);
	*value = is_wild(s) ? tensor(s) : s->g->map(p, ins, 2, "a - 0.01 * b");
	return rc;
}

/* -- a kernel ------------------------------------------------------------------------------------------------------------------ */
struct kept {
	double *to;
	int64_t n;
};

static int kernel_prepare(struct hd_strategy *s, struct hd_kernel_prepare *a)
{
	struct kept *k = a->alloc(a, sizeof(*k));
	int64_t n = 1;

	if (is_wild(s))
		return a->fail(a, (int32_t)any_number(s), "%s", "wild");
	if (a->nin != 1 || a->nout != 1 || a->ins[0]->dtype != HD_DTYPE_F64 || a->outs[0]->dtype != HD_DTYPE_F64)
		return a->fail(a, HD_EINVAL, "fuzz: %u operands of double", a->nin + a->nout);
	for (uint32_t i = 0; i < a->ins[0]->ndim; i++)
		n *= a->ins[0]->n[i];
	k->n = n;
	a->state = k;
	return HD_OK;
}

static int kernel_run(const struct hd_kernel_run *a)
{
	const struct kept *k = a->state;

	memmove(a->outs[0], a->ins[0], (size_t)k->n * sizeof(double));
	return HD_OK;
}

static const struct hd_kernel_ops kernel = {
	.size = sizeof(kernel), .name = "fuzz", .device = "ref", .prepare = kernel_prepare, .run = kernel_run
};
static const struct hd_kernel_ops *const kernels[] = { &kernel, NULL };
static const struct hd_optimizer_ops optimizer = { .size = sizeof(optimizer), .update = fuzz_update };

static const struct hd_option options[] = {
	{ "seed", HD_OPT_INT, 0, "1", "1..", "of all that is drawn" },
	{ "wild", HD_OPT_INT, 0, "0", "0..1000", "arguments of a thousand that are anything" },
	{ "calls", HD_OPT_INT, 0, "20", "0..", "in each slot" },
	{ "ratio", HD_OPT_NUM, 0, "0.5", "0..1", "a number to be read" },
	{ "counts", HD_OPT_STR, 0, NULL, NULL, "a file of 4096 bytes: how often each call was made" },
	{ "file", HD_OPT_STR, 0, "/dev/null", NULL, "a text to be read" },
};

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(*options),
	.option_size = sizeof(options[0]),
	.open = fuzz_open,
	.close = fuzz_close,
	.mesh = fuzz_mesh,
	.rewrite = fuzz_rewrite,
	.rules = fuzz_rules,
	.storage = fuzz_storage,
	.lower = fuzz_lower,
	.schedule = fuzz_schedule,
};
HD_PLUGIN_TABLES("fuzz", "1.0", .strategy = &ops, .kernels = kernels, .optimizer = &optimizer)
