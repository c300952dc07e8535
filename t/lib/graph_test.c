/* SPDX-License-Identifier: Apache-2.0
 * Plans for tests, as described in graph_test.h.
 */
#include <config.h>
#include "t/lib/graph_test.h"
#include "engine/base/rng.h"
#include "engine/config/output_config.h"
#include "kernels/ref/ref.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct hd_err why;

const char *gt_why(void)
{
	return why.code ? why.text : "no error";
}

struct hd_conf *gt_conf(const char *text)
{
	struct hd_conf *c = NULL;
	const char *const names[] = { "model", "data", "train", "checkpoint", "log" };
	const struct hd_key_table *const tables[] = { &hd_model_keys, NULL, &hd_train_keys, &hd_checkpoint_keys,
						      &hd_log_keys };

	memset(&why, 0, sizeof(why));
	if (hd_conf_parse("test.ini", text, NULL, 0, &c, &why) < 0)
		return NULL;
	for (size_t i = 0; i < HD_LEN(names); i++)
		if (tables[i])
			hd_section_check(c, hd_conf_section(c, NULL, names[i]), tables[i], 1, &why);
	return why.code ? NULL : c;
}

struct hd_plan *gt_plan(int64_t micros)
{
	struct hd_plan *p = hd_alloc(sizeof(*p));

	p->conf = gt_conf("[model]\nfamily = gpt2\nlayers = 1\nembed = 8\nheads = 2\nvocab = 8\n"
			  "[train]\nseq = 4\nglobal_batch = 2\nsteps = 1\noptimizer = sgd\nclip = "
			  "0\nweight_decay = 0\n");
	p->err = &p->own;
	hd_train_config_read(p->conf, &p->config, p->err);
	p->ranks = p->replicas = p->chunks = 1;
	p->train = 1;
	p->micros = micros;
	p->micro_batch = p->batch = 2;
	p->slot.inst = -1;
	p->cursor = hd_cursor_end(HD_UNIT_F, -1);
	p->master_dtype = HD_DTYPE_F64;
	p->model.layers = 1;
	p->model.seq = 4;
	hd_block_begin(p, "all");
	return p;
}

struct hd_plan *gt_plan_of(const char *ini, int64_t ranks, uint32_t real)
{
	struct hd_plan_options o = { .ranks = ranks, .train = 1, .master_dtype = real };
	struct hd_conf *c = gt_conf(ini);
	struct hd_plan *p = NULL;

	if (c)
		hd_plan_create(c, &o, &p, &why);
	if (!p)
		hd_conf_destroy(c);
	return p;
}

void gt_plan_destroy(struct hd_plan *p)
{
	struct hd_conf *conf = p->conf;

	hd_plan_destroy(p);
	hd_conf_destroy(conf);
}

struct axis *gt_axis(struct hd_plan *p, const char *name, int64_t n)
{
	struct axis *a = hd_plan_alloc(p, sizeof(*a));

	a->v = (struct hd_axis){ sizeof(a->v), name, n, 0, 0 };
	a->inst = -1;
	a->id = p->naxes;
	a->stride = p->ranks;
	p->axes[p->naxes++] = a;
	p->ranks *= n;
	return a;
}

struct tensor *gt_param(struct hd_plan *p, const char *name, const char *spec)
{
	struct tensor *t = hd_leaf(p, name, HD_TENSOR_PARAM, HD_DTYPE_F64, spec);

	t->init = HD_INIT_NORMAL;
	t->init_std = 1;
	return t;
}

/* The weights differ, so that errors of a gradient do not cancel; they are a parameter too. */
struct tensor *gt_loss(struct hd_plan *p, struct tensor *y)
{
	struct tensor *ins[2] = { y, NULL };

	if (!y)
		return NULL;
	ins[1] = gt_param(p, "loss.weights", y->spec);
	return hd_map_new(p, ins, 2, "a * b");
}

int gt_lower(struct hd_plan *p)
{
	HD_TRY(hd_plan_run(p, "drop-dead", "check"));
	return hd_plan_run(p, "schedule", "schedule");
}

int gt_build(struct hd_plan *p, struct tensor *nll)
{
	if (!nll)
		return p->err->code ? p->err->code : HD_EBUG;
	p->nll = nll;
	p->loss = hd_op1(p, "sum", &nll, 1, "out=");
	HD_TRY(p->err->code);
	return hd_plan_run(p, "autodiff", "check");
}

/* -- programs ------------------------------------------------------------------------------------------------------------ */
static void init_leaves(struct gt_run *r, int rank)
{
	const struct hd_program *g = r->g[rank];

	for (size_t i = 0; i < r->plan->ntensors; i++) {
		const struct tensor *t = r->plan->tensors[i];
		uint64_t key = hd_key(7, t->v.name, 0);
		int64_t at[HD_MAX_DIMS] = { 0 }, n = hd_local_count(t);
		double *w;

		if (t->v.node || t->v.what != HD_TENSOR_PARAM || !hd_tensor_here(g, t))
			continue;
		w = hd_program_address(g, t, HD_STEP);
		for (int64_t k = 0; k < n; k++) {
			int64_t global = 0, inside = 1, rest = k;

			for (uint32_t d = t->v.ndim; d-- > 0; rest /= t->local[d])
				at[d] = rest % t->local[d] + hd_offset(r->plan, t, d, rank);
			for (uint32_t d = 0; d < t->v.ndim; d++) {
				global = global * t->dims[d]->n + at[d];
				inside &= at[d] < t->dims[d]->n;
			}
			w[k] = inside ? (t->v.ndim == 1) + 0.4 * hd_random_normal(key, (uint64_t)global) : 0;
		}
	}
}

static int open_rank(struct gt_run *r, int rank, struct hd_communicator **members)
{
	struct hd_program_options o = { .rank = rank, .device = hd_device_ref(), .keep_gradients = 1 };
	struct hd_bind b = { .device = hd_device_ref(), .members = members };
	struct hd_program *g;

	HD_TRY(hd_program_build(r->plan, &o, &r->g[rank], &why));
	g = r->g[rank];
	r->persistent = g->memory.persistent;
	r->mem[rank] = aligned_alloc(4096, (size_t)(g->memory.persistent + g->memory.transient + 8191) / 4096 * 4096);
	b.persistent = r->mem[rank];
	b.transient = r->mem[rank] + g->memory.persistent;
	HD_TRY(hd_program_bind(g, &b, &why));
	init_leaves(r, rank);
	return HD_OK;
}

struct gt_run *gt_open(struct hd_plan *p, struct hd_communicator **(*members)(struct hd_plan *p, int64_t rank))
{
	struct gt_run *r = hd_alloc(sizeof(*r));
	int rc = p->err->code;

	memset(&why, 0, sizeof(why));
	if (rc)
		hd_err_set(&why, rc, "%s", p->err->text);
	r->plan = p;
	r->n = (int)p->ranks;
	r->vocab = hd_dim_get(p, "vocab", 0) ? hd_dim_get(p, "vocab", 0)->n : 5;
	r->run = (struct hd_run){ .seed = 5, .step = 1, .train = 1, .loss_scale = 1 };
	for (int k = 0; k < r->n && !rc; k++)
		rc = open_rank(r, k, members ? members(p, k) : NULL);
	if (rc < 0) {
		gt_close(r);
		return NULL;
	}
	return r;
}

void gt_close(struct gt_run *r)
{
	if (!r)
		return;
	for (int k = 0; k < r->n; k++) {
		hd_program_destroy(r->g[k]);
		free(r->mem[k]);
	}
	gt_plan_destroy(r->plan);
	free(r);
}

void gt_poison(struct gt_run *r)
{
	for (int k = 0; k < r->n; k++)
		memset(r->mem[k] + r->g[k]->memory.persistent, 0xff, (size_t)r->g[k]->memory.transient);
}

/* A sample's ids depend only on its number in the step; targets are shifted by one. */
int gt_fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	const struct gt_run *r = ctx;
	int64_t s0 = micro * g->plan->batch + hd_offset(g->plan, t, 0, g->rank);
	int64_t shift = !strcmp(t->v.name, "targets");
	struct hd_pieces s = hd_pieces_of(g->plan, t, 1, g->rank);

	for (int64_t i = 0; i < t->local[0]; i++)
		for (int64_t k = 0; k < t->local[1]; k++)
			out[i * t->local[1] + k] =
				(int32_t)(hd_hash64((uint64_t)((s0 + i) * 1000 + shift + hd_pieces_index(&s, k))) %
					  (uint64_t)r->vocab);
	return HD_OK;
}

double gt_compute(struct gt_run *r)
{
	gt_poison(r);
	if (hd_program_compute(r->g[0], &r->run, gt_fill, r) < 0)
		return NAN;
	return *gt_address(r, r->plan->loss, 0);
}

double *gt_address(struct gt_run *r, const struct tensor *t, int rank)
{
	return hd_program_address(r->g[rank], t, 0);
}

struct tensor *gt_param_named(const struct hd_plan *p, const char *name)
{
	for (size_t i = 0; i < p->ntensors; i++)
		if (!p->tensors[i]->v.node && p->tensors[i]->v.what == HD_TENSOR_PARAM &&
		    !strcmp(p->tensors[i]->v.name, name))
			return p->tensors[i];
	return NULL;
}

struct tensor *gt_gradient_of(const struct hd_plan *p, const struct tensor *param)
{
	for (struct node *n = p->first; n; n = n->next)
		if ((!strcmp(n->v.op->name, "sgd") || !strcmp(n->v.op->name, "adamw")) && n->ins[1]->v.of == &param->v)
			return n->ins[1];
	return NULL;
}

/* -- finite differences -------------------------------------------------------------------------------------------------- */
/* The errors of (L(x + h) - L(x - h)) / 2h are rounding, eps |L| / h, and truncation, h^2 |L'''| / 6.  With h =
 * eps^(1/3) both are eps^(2/3), or 4e-11, of the scale of L and its derivatives.  The factor 300 allows for third
 * derivatives and sums of many terms. */
double gt_differences(struct gt_run *r, int entries, const char **where)
{
	double loss = gt_compute(r), h = cbrt(DBL_EPSILON), worst = loss == loss ? 0 : NAN;

	*where = "";
	for (size_t i = 0; i < r->plan->ntensors && worst == worst; i++) {
		struct tensor *t = r->plan->tensors[i],
			      *gt = t->v.node || t->v.what != HD_TENSOR_PARAM ? NULL : gt_gradient_of(r->plan, t);
		int64_t n = hd_local_count(t), step = n > entries ? n / entries : 1;
		double *w, *g, scale = 1 + fabs(loss);

		if (!gt)
			continue;
		w = gt_address(r, t, 0);
		g = hd_alloc((size_t)n * sizeof(*g));
		gt_compute(r);
		memcpy(g, gt_address(r, gt, 0), (size_t)n * sizeof(*g));
		for (int64_t k = 0; k < n; k++)
			scale = fabs(g[k]) > scale ? fabs(g[k]) : scale;
		for (int64_t k = n > entries ? (int64_t)(i % (size_t)step) : 0; k < n; k += step) {
			double x = w[k], up, down, off;

			w[k] = x + h;
			up = gt_compute(r);
			w[k] = x - h;
			down = gt_compute(r);
			w[k] = x;
			off = fabs((up - down) / (2 * h) - g[k]) / (300 * h * h * scale);
			if (!(off <= worst)) {
				worst = off;
				*where = t->v.name;
			}
		}
		free(g);
	}
	return worst;
}
