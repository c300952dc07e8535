/* SPDX-License-Identifier: Apache-2.0
 * A layout in one process: its plan, the programs and memory of its ranks, and steps of all ranks.
 */
#include <config.h>
#include "engine/inprocess/inprocess.h"
#include "engine/base/half.h"
#include "engine/base/rng.h"
#include "engine/graph/placement.h"
#include "engine/run/commands.h"
#include "engine/run/job.h"
#include "kernels/ref/ref.h"
#include <stdlib.h>
#include <string.h>

/* -- plan ----------------------------------------------------------------------------------------- */
static int make_plan(struct hd_inprocess *r, int64_t ranks, uint32_t compute_dtype, struct hd_err *err)
{
	int64_t needs = 0;
	struct hd_plan_options o = { .ranks = ranks ? ranks : 1,
				     .train = 1,
				     .master_dtype = r->device == hd_device_ref() ? HD_DTYPE_F64 : 0,
				     .compute_dtype = compute_dtype,
				     .needs = ranks ? NULL : &needs };
	struct hd_err why = { 0 };

	if (hd_plan_create(r->conf, &o, &r->plan, &why) >= 0)
		return HD_OK;
	if (ranks || !needs)
		return hd_err_pass(err, &why);
	o.ranks = needs;
	o.needs = NULL;
	return hd_plan_create(r->conf, &o, &r->plan, err);
}

/* -- programs --------------------------------------------------------------------------------------- */
static struct hd_communicator *join(struct hd_inprocess *r, const struct group *gr, int rank)
{
	struct hd_plan *p = r->plan;
	int *ranks = hd_alloc((size_t)gr->v.n * sizeof(*ranks));
	int64_t n = hd_group_ranks(p, gr, rank, ranks);
	struct hd_communicator *m = hd_net_in_join(r->net, ranks, (int)n, rank, gr->id, gr->name);

	free(ranks);
	return m;
}

struct data_filling {
	char *w;
	uint32_t dtype;
	uint64_t key;
	int one; /* 1: values lie around 1 (tensors of one dim, as the weights of norms are); 0: around 0 */
};

static void fill_run(void *ctx, int64_t global, int64_t local, int64_t count)
{
	const struct data_filling *f = ctx;

	for (int64_t i = 0; i < count; i++) {
		double d = f->one + 0.4 * hd_random_normal(f->key, (uint64_t)(global + i));
		float s = (float)d;
		uint16_t h = hd_bf16_of(s);

		if (f->dtype == HD_DTYPE_F64)
			memcpy(f->w + 8 * (local + i), &d, 8);
		else if (f->dtype == HD_DTYPE_F32)
			memcpy(f->w + 4 * (local + i), &s, 4);
		else
			memcpy(f->w + 2 * (local + i), &h, 2);
	}
}

static void init(struct hd_inprocess *r, int rank)
{
	for (size_t i = 0; i < r->plan->ntensors; i++) {
		const struct tensor *t = r->plan->tensors[i];
		struct data_filling f = { .dtype = t->v.dtype, .one = t->v.ndim == 1 };
		int weight = t->v.what == HD_TENSOR_PARAM || t->v.what == HD_TENSOR_MASTER;

		if (t->v.node || !hd_tensor_here(r->program[rank], t) || t->v.what == HD_TENSOR_DATA)
			continue;
		f.w = hd_program_address(r->program[rank], t, HD_STEP);
		memset(f.w, 0, (size_t)hd_local_bytes(t));
		f.key = hd_key(7, t->v.what == HD_TENSOR_MASTER ? t->v.of->name : t->v.name, 0);
		if (weight && (t->v.dtype == HD_DTYPE_F64 || t->v.dtype == HD_DTYPE_F32 || t->v.dtype == HD_DTYPE_BF16))
			hd_slice_runs(r->program[rank], t, fill_run, &f);
	}
	hd_init_states(r->program[rank], 7); /* after the parameters: some states begin as a copy of theirs */
}

static int open_rank(struct hd_inprocess *r, int rank, struct hd_err *err)
{
	struct hd_program_options o = { .rank = rank, .device = r->device, .keep_gradients = 1 };
	struct hd_bind b = { .device = r->device };
	struct hd_program *g;
	size_t bytes;

	HD_TRY(hd_program_build(r->plan, &o, &r->program[rank], err));
	g = r->program[rank];
	bytes = (size_t)(g->memory.persistent + g->memory.transient + 8191) / 4096 * 4096;
	r->memory[rank] = aligned_alloc(4096, bytes);
	if (!r->memory[rank])
		return hd_err_set(err, HD_ENOMEM, "rank %d: %zu bytes", rank, bytes);
	b.persistent = r->memory[rank];
	b.transient = r->memory[rank] + g->memory.persistent;
	b.members = hd_plan_alloc(r->plan, (r->plan->ngroups + 1) * sizeof(*b.members));
	for (size_t i = 0; i < r->plan->ngroups; i++)
		b.members[i] = join(r, r->plan->groups[i], rank);
	HD_TRY(hd_program_bind(g, &b, err));
	init(r, rank);
	return HD_OK;
}

static int open_all(struct hd_inprocess *r, const char *ini, int64_t ranks, uint32_t compute_dtype, int *planned,
		    struct hd_err *err)
{
	*planned = 0;
	HD_TRY(hd_conf_parse("layout", ini, NULL, 0, &r->conf, err));
	HD_TRY(make_plan(r, ranks, compute_dtype, err));
	*planned = 1;
	r->n = (int)r->plan->ranks;
	r->net = hd_net_in_open(r->n);
	r->program = hd_alloc((size_t)r->n * sizeof(*r->program));
	r->memory = hd_alloc((size_t)r->n * sizeof(*r->memory));
	r->vocab = r->plan->model.vocab;
	r->run = (struct hd_run){ .seed = 5, .step = 1, .train = 1 };
	r->run.loss_scale = 1.0 / (double)(r->plan->micros * r->plan->batch * r->plan->model.seq);
	for (int k = 0; k < r->n; k++)
		HD_TRY(open_rank(r, k, err));
	return HD_OK;
}

static int open_on(const char *ini, int64_t ranks, const struct hd_device_ops *device, uint32_t compute_dtype,
		   struct hd_inprocess **out, int *planned, struct hd_err *err)
{
	struct hd_inprocess *r = hd_alloc(sizeof(*r));
	int rc;

	r->device = device;
	rc = open_all(r, ini, ranks, compute_dtype, planned, err);
	*out = rc < 0 ? NULL : r;
	if (rc < 0)
		hd_inprocess_close(r);
	return rc;
}

int hd_inprocess_open(const char *ini, int64_t ranks, struct hd_inprocess **out, int *planned, struct hd_err *err)
{
	return open_on(ini, ranks, hd_device_ref(), 0, out, planned, err);
}

int hd_inprocess_open_on(const char *ini, const struct hd_device_ops *device, uint32_t compute_dtype,
			 struct hd_inprocess **out, int *planned, struct hd_err *err)
{
	return open_on(ini, 0, device, compute_dtype, out, planned, err);
}

static size_t slots(const struct hd_inprocess *r)
{
	return (size_t)r->n * r->plan->ntensors * (size_t)(r->plan->micros + 1);
}

static void forget(struct hd_inprocess *r)
{
	for (size_t i = 0; r->seen && i < slots(r); i++)
		free(r->seen[i].value);
	free(r->seen);
	r->seen = NULL;
}

void hd_inprocess_close(struct hd_inprocess *r)
{
	if (!r)
		return;
	forget(r);
	for (int k = 0; k < r->n && r->program; k++) {
		hd_program_destroy(r->program[k]);
		free(r->memory[k]);
	}
	hd_net_in_close(r->net);
	hd_plan_destroy(r->plan);
	hd_conf_destroy(r->conf);
	free(r->program), free(r->memory);
	free(r);
}

/* -- a step ----------------------------------------------------------------------------------------- */
/* Fills in token ids, which depend only on the position and the sample's number in the step.
 * Targets are shifted by 1. */
static int fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	const struct hd_inprocess *r = ctx;
	int64_t share = r->members ? micro * r->members + r->member : micro;
	int64_t s0 = share * g->plan->batch + hd_offset(g->plan, t, 0, g->rank);
	struct hd_pieces q = hd_pieces_of(g->plan, t, 1, g->rank); /* a rank may have two pieces of a sequence */
	int64_t shift = !strcmp(t->v.name, "targets");

	for (int64_t i = 0; i < t->local[0]; i++)
		for (int64_t k = 0; k < t->local[1]; k++) {
			int64_t at = hd_pieces_index(&q, k) + shift;

			out[i * t->local[1] + k] =
				(int32_t)(hd_hash64((uint64_t)((s0 + i) * 1000 + at)) % (uint64_t)r->vocab);
		}
	return HD_OK;
}

static struct hd_seen *seen_at(const struct hd_inprocess *r, const struct tensor *t, int rank, int64_t micro)
{
	size_t k = micro < 0 ? (size_t)r->plan->micros : (size_t)micro;

	return &r->seen[((size_t)rank * r->plan->ntensors + (size_t)t->id) * (size_t)(r->plan->micros + 1) + k];
}

const struct hd_seen *hd_inprocess_seen(const struct hd_inprocess *r, const struct tensor *t, int rank, int64_t micro)
{
	return r->seen ? seen_at(r, t, rank, micro) : NULL;
}

static void keep_value(struct hd_inprocess *r, int rank, const struct tensor *t, int64_t micro, int again)
{
	const struct tensor *root = r->program[rank]->at[t->id].root;
	struct hd_seen *s;

	if (t->v.dtype != HD_DTYPE_F64 || t->ragged_counts || !root || !r->program[rank]->at[root->id].here ||
	    (root->step && !t->step))
		return; /* the last condition: t was added to a sum of the step, so its own value is not in memory */
	s = seen_at(r, t, rank, t->step ? HD_STEP : micro);
	if (s->value && !again)
		return;
	s->n = hd_local_count(t);
	s->value = s->value ? s->value : hd_alloc((size_t)s->n * sizeof(double) + 1);
	memcpy(s->value, hd_program_address(r->program[rank], t, micro), (size_t)s->n * sizeof(double));
}

/* Keeps the outputs that a node has just computed. A movement's outputs are kept when it has been waited for. */
static void keep_outputs(struct hd_inprocess *r, int rank, const struct node *n, int64_t micro)
{
	for (uint32_t i = 0; n && i < n->v.nout; i++)
		keep_value(r, rank, n->outs[i], micro, 1);
}

/* Keeps what a kernel is about to read. A tensor that is part of another has no command that computes it, so this is
 * where it is seen. */
static void keep_inputs(struct hd_inprocess *r, int rank, const struct command *c)
{
	for (uint32_t i = 0; c->launch && i < c->launch->nin; i++) {
		if (c->launch->in[i]->v.node)
			keep_value(r, rank, c->launch->in[i], c->micro, 0);
	}
}

struct started {
	const struct node *node;
	int64_t micro;
};

static int step_of_rank(void *ctx, int rank)
{
	struct hd_inprocess *r = ctx;
	struct hd_program *g = r->program[rank];
	struct hd_run run = r->run;
	struct started *started = hd_alloc((g->update_at + 1) * sizeof(*started));
	int rc = HD_OK;

	for (size_t i = 0; i < g->update_at && rc >= 0; i++) {
		const struct command *c = &g->commands[i];

		if (r->looks)
			keep_inputs(r, rank, c);
		rc = hd_run_command(g, c, &run, fill, r);
		if (c->type == CMD_START)
			started[c->request] = (struct started){ c->node, c->micro };
		if (r->normed && rc >= 0 && c->node && r->plan->norm && &c->node->v == r->plan->norm->v.node)
			r->normed(r->ctx, r, rank);
		if (r->looks && rc >= 0 && c->type == CMD_RUN)
			keep_outputs(r, rank, c->node, c->micro);
		if (r->looks && rc >= 0 && c->type == CMD_WAIT)
			keep_outputs(r, rank, started[c->request].node, started[c->request].micro);
	}
	free(started);
	return rc;
}

int hd_inprocess_step(struct hd_inprocess *r, struct hd_err *err)
{
	for (int k = 0; k < r->n; k++) /* so that whatever is read before it is computed is NaN */
		memset(r->memory[k] + r->program[k]->memory.persistent, 0xff, (size_t)r->program[k]->memory.transient);
	return hd_net_in_run(r->net, step_of_rank, r, err);
}

/* Waits, before the update, for movements that the program waits for only during the update. The update depends on the
 * norm of all gradients, so what it overwrites has arrived everywhere. But at each wait the net checks that the sent
 * data are unchanged. made: by request; 1: started and not waited for, 2: waited for here. */
static int waits_before_update(struct hd_inprocess *r, int rank, char *made)
{
	struct hd_program *g = r->program[rank];
	struct hd_run run = r->run;

	for (size_t i = 0; i < g->update_at; i++) {
		if (g->commands[i].type == CMD_START)
			made[g->commands[i].request] = 1;
		if (g->commands[i].type == CMD_WAIT)
			made[g->commands[i].request] = 0;
	}
	for (size_t i = g->update_at; i < g->ncommands; i++)
		if (g->commands[i].type == CMD_WAIT && made[g->commands[i].request] == 1) {
			HD_TRY(hd_run_command(g, &g->commands[i], &run, NULL, NULL));
			made[g->commands[i].request] = 2;
		}
	return HD_OK;
}

static int rest_of_rank(struct hd_inprocess *r, int rank, const char *made)
{
	struct hd_program *g = r->program[rank];
	struct hd_run run = r->run;

	for (size_t i = g->update_at; i < g->ncommands; i++)
		if (g->commands[i].type != CMD_WAIT || made[g->commands[i].request] != 2)
			HD_TRY(hd_run_command(g, &g->commands[i], &run, NULL, NULL));
	return hd_program_pull(g);
}

static int update_of_rank(void *ctx, int rank)
{
	struct hd_inprocess *r = ctx;
	struct hd_program *g = r->program[rank];
	struct hd_run run = r->run;

	for (size_t i = g->update_at; i < g->ncommands; i++)
		HD_TRY(hd_run_command(g, &g->commands[i], &run, NULL, NULL));
	return hd_program_pull(g);
}

int hd_inprocess_update(struct hd_inprocess *r, struct hd_err *err)
{
	return hd_net_in_run(r->net, update_of_rank, r, err);
}

static int all_of_rank(void *ctx, int rank)
{
	struct hd_inprocess *r = ctx;
	char *made = hd_alloc(r->program[rank]->ncommands + 1);
	int rc = step_of_rank(r, rank);

	if (rc >= 0)
		rc = waits_before_update(r, rank, made);
	if (rc >= 0)
		rc = rest_of_rank(r, rank, made);
	free(made);
	return rc;
}

int hd_inprocess_train(struct hd_inprocess *r, struct hd_err *err)
{
	return hd_net_in_run(r->net, all_of_rank, r, err);
}

int hd_inprocess_observe(struct hd_inprocess *r, struct hd_err *err)
{
	int rc;

	forget(r);
	r->seen = hd_alloc(slots(r) * sizeof(*r->seen));
	r->looks = 1;
	rc = hd_inprocess_step(r, err);
	r->looks = 0;
	return rc;
}
