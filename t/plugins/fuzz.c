/* SPDX-License-Identifier: Apache-2.0
 * Calls of everything that a plugin can call, with arguments of anything: t1113 runs it under sanitizers.
 *
 * From a seed: in each slot calls are drawn, and each argument is one that fits, or, `wild` times in a thousand, anything: a
 * handle of another kind, of nowhere or NULL, a number of any size, a text of any length, arguments that claim another size.
 * With `wild = 0` what is built is often correct, so that it gets as far as a step.
 */
#include "../lib/fuzz_calls.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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
	s->spare = !s->stages && !draw(s, 4);
	*self = s;
	return s->wild > 500 ? some_calls(s, p, ANY) : h->status(p);
}

static void fuzz_close(struct hd_strategy *s)
{
	munmap(s->made, 4096);
}

static int fuzz_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	const struct hd_axis_args own = { sizeof(own), NULL, size ? size : left - s->spare, s->spare };

	s->axis = s->h->axis(p, &own);
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
	s->in_lower = 1;
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

static int64_t kernel_scratch(struct hd_strategy *s, const struct hd_kernel_prepare *a)
{
	return is_wild(s) ? (int64_t)any_number(s) % (1 << 20) : 8 * (int64_t)a->nin;
}

static void kernel_release(void *state)
{
	(void)state; /* of alloc: the engine's */
}

static const struct hd_kernel_ops kernel = { .size = sizeof(kernel),
					     .name = "fuzz",
					     .device = "ref",
					     .prepare = kernel_prepare,
					     .run = kernel_run,
					     .release = kernel_release,
					     .scratch = kernel_scratch };
static const struct hd_kernel_ops *const kernels[] = { &kernel, NULL };
/* -- the algorithm, for one rank ------------------------------------------------------------------------------------------------ */
/* Reads and writes what it is given, and asks for more with names and lengths of any kind.  There is no instance here. */
static int serial_update(const struct hd_serial *x)
{
	struct hd_strategy s = { .random = (uint64_t)(x->n * 31 + x->step) * 0x9e3779b97f4a7c15 + 1, .wild = 300 };
	double *mean = x->state(x, "mean", x->n), *to = malloc((size_t)x->n * sizeof(*to) + 1);

	if (!mean || !to)
		return free(to), HD_ENOMEM;
	for (int i = 0; i < 8; i++) {
		const char *name = is_wild(&s) ? any_text(&s) : "mean";
		double *kept = x->state(x, name, is_wild(&s) ? any_number(&s) : x->n);

		if (kept == mean)
			kept[x->n - 1] += 1;
		x->initial(x, is_wild(&s) ? any_text(&s) : "a", is_wild(&s) ? NULL : to,
			   is_wild(&s) ? any_number(&s) : x->n);
	}
	for (int64_t i = 0; i < x->n; i++) {
		for (uint32_t m = 0; m < x->members; m++)
			x->param[i] -= x->lr * x->gradients[m][i];
		for (uint32_t m = 0; m < x->members; m++)
			x->weights[m][i] = x->param[i];
	}
	free(to);
	return is_wild(&s) ? HD_EINVAL : HD_OK;
}

/* -- a family of models --------------------------------------------------------------------------------------------------------- */
static const struct hd_family_key keys[] = { HD_FAMILY_KEYS_LLAMA("1e-6", "no"),
					     { "hidden_act", "activation", HD_FAMILY_ACTIVATIONS, "silu", 0 },
					     { NULL, NULL, NULL, NULL, 0 } };
static const struct hd_family_ops family = { .size = sizeof(family),
					     .name = "fuzzed",
					     .model_type = "fuzzed",
					     .class_name = "FuzzedForCausalLM",
					     .keys = keys };
static const struct hd_family_ops *const families[] = { &family, NULL };

static const struct hd_serial_ops serial = { .size = sizeof(serial), .update = serial_update };
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
HD_PLUGIN_TABLES("fuzz", "1.0", .strategy = &ops, .kernels = kernels, .optimizer = &optimizer, .families = families,
		 .approximate = "wild=0", .serial = &serial)
