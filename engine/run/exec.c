/* SPDX-License-Identifier: Apache-2.0
 * The program bound to memory: a flat list of commands with every address resolved, and the loop that runs it.
 *
 * Compute is an in-order queue, inline on the cpu device.  Each communicator is a queue of its own (engine/comm/comm.h): a
 * start enqueues, and the wait stands before the first reader, where the program put it.  Nothing is allocated here
 * after binding.
 */
#include <config.h>
#include "engine/run/run.h"
#include "engine/graph/traffic.h"
#include "engine/ops/movement.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUN, START, WAIT, LOAD };
struct command {
	int32_t type, acc, micro;
	const struct hd_kernel *kernel;
	const struct hd_prep *prep;
	void **out, **in;
	const struct tensor *data;
	struct hd_communicator *members;
	struct hd_call call;
	int64_t ticket;
	struct hd_unit unit;
	const char *name;
	const struct node *node;
	const struct launch *launch;
	const int32_t *rows;		/* numbers of the rows in use */
	int64_t nrows, rows_most;	/* how many numbers; their largest sum */
	struct row_numbers *numbers;	/* START, of rows that are counted, where the device has their numbers */
	void *host;			/* LOAD, START: where the host puts the data first; NULL: at once where it belongs */
	size_t bytes;
};

/* Where the device's memory is not the host's: what was received lies in `host` until it is waited for. */
struct landing { void *device, *host; size_t bytes; const struct row_numbers *rows; };
/* What a movement of counted rows asks the device first: have[0 ... n - 1] of what goes, need[0 ... n - 1] of what comes. */
struct row_numbers { const int32_t *device_have, *device_need; int32_t *have, *need; int64_t n, bytes; };
struct recording { size_t from, to; void *kept; };	/* commands; kept: NULL: they are run one by one */

struct joined { size_t from, to; void *state; };	/* commands of one kernel that it runs as one */

struct waiting { int64_t *v; size_t n, cap; };

static int in_host(const struct hd_program *g) { return hd_device_in_host(g->device); }

static int64_t in_bytes(const struct node *n) { return n->comm.kind == HD_COMM_RECV ? 0 : (hd_local_bytes(n->ins[0]) + 63) / 64 * 64; }
static int64_t out_bytes(const struct node *n) { return n->comm.kind == HD_COMM_SEND ? 0 : (hd_local_bytes(n->outs[0]) + 63) / 64 * 64; }
static int64_t number_bytes(const struct node *n)
{
	return n->comm.kind == HD_COMM_ALL_TO_ALL_V ? (hd_local_count(n->ins[1]) * (int64_t)sizeof(int32_t) + 63) / 64 * 64 : 0;
}

static struct command *append(struct hd_program *g, int type, const struct entry *e)
{
	struct command *c;

	g->commands = hd_grow(g->commands, g->ncommands, &g->cap_commands, sizeof(*g->commands));
	c = &g->commands[g->ncommands++];
	*c = (struct command){ .type = type, .micro = e ? e->micro : HD_STEP, .unit = e ? e->unit : (struct hd_unit){ HD_UNIT_U, 0, HD_STEP },
		.name = e && e->node ? e->node->v.op->name : "load", .node = e ? e->node : NULL };
	return c;
}

static void addresses(struct hd_program *g, struct tensor *const *t, uint32_t n, int64_t micro, void **to)
{
	for (uint32_t i = 0; i < n; i++)
		to[i] = hd_program_address(g, t[i], micro);
}

static void run_launch(struct hd_program *g, const struct entry *e, const struct launch *l, char *written)
{
	struct command *c = append(g, RUN, e);

	c->kernel = l->kernel;
	c->prep = &l->prep;
	c->launch = l;
	c->out = hd_plan_alloc(g->plan, (l->nin + l->nout + 1) * sizeof(void *));
	c->in = c->out + l->nout;
	addresses(g, l->out, l->nout, e->micro, c->out);
	addresses(g, l->in, l->nin, e->micro, c->in);
	for (uint32_t i = 0; l->rows && i < e->node->v.nin + e->node->v.nout && !c->rows_most; i++) {
		const struct tensor *t = i < e->node->v.nin ? e->node->ins[i] : e->node->outs[i - e->node->v.nin];

		c->rows_most = t->rows ? hd_ragged_max(t) : 0;
	}
	if (c->rows_most) {
		c->rows = hd_program_address(g, l->rows, e->micro);
		c->nrows = hd_local_count(l->rows);
	}
	c->acc = l->acc;
	if (l->acc < 0) {
		c->acc = written[l->target->id];
		written[l->target->id] = 1;
	}
}

/* The rows of a movement between samples and experts.  Whoever moves them reads their numbers in the host's memory. */
static void describe_rows(struct hd_program *g, const struct node *n, int64_t micro, struct command *command, char **staging)
{
	struct hd_rows *r = hd_plan_alloc(g->plan, sizeof(*r));
	const struct tensor *many = n->ins[n->comm.index ? 1 : 2];	/* of all experts: (expert, batch) */

	r->have = hd_program_address(g, n->ins[1], micro);
	r->need = hd_program_address(g, n->ins[2], micro);
	r->experts = many->local[0] / n->comm.group->v.n;
	r->samples = many->local[1];
	r->bytes = hd_ragged_row_elements(n->ins[0]) * HD_BITS(n->ins[0]->v.dtype) / 8;
	if (!hd_device_in_host(g->device)) {
		struct row_numbers *k = hd_plan_alloc(g->plan, sizeof(*k));

		*k = (struct row_numbers){ .device_have = r->have, .device_need = r->need, .n = hd_local_count(many), .bytes = r->bytes };
		k->have = *staging ? (int32_t *)(void *)*staging : hd_plan_alloc(g->plan, (size_t)(k->n + 1) * sizeof(*k->have));
		k->need = hd_plan_alloc(g->plan, (size_t)(k->n + 1) * sizeof(*k->need));
		*staging += *staging ? number_bytes(n) : 0;
		r->have = k->have, r->need = k->need;
		command->numbers = k;
	}
	command->call.rows = r;
	hd_comm_rows_room(g->members[n->comm.group->id], r->experts);
}

/* -- memory of the device's own ---------------------------------------------------------------------------------------------- */
int64_t hd_program_staging(const struct hd_program *g)
{
	int64_t sum = 0;

	for (size_t e = 0; e < g->n; e++)
		if (g->entries[e].type == HD_ENTRY_NODE && g->entries[e].node->comm.kind)
			sum += in_bytes(g->entries[e].node) + out_bytes(g->entries[e].node) + number_bytes(g->entries[e].node);
	return sum;
}

/* The call works on host memory; what it reads is fetched when it starts, what it makes is put in place when it is waited for. */
static void stage(struct hd_program *g, struct command *c, const struct node *n, char **staging)
{
	struct landing *l = &g->landings[c->ticket];

	*l = (struct landing){ c->call.out, *staging + in_bytes(n), c->call.out ? (size_t)hd_local_bytes(n->outs[0]) : 0, c->numbers };
	if (c->call.in) {
		c->host = (void *)c->call.in;
		c->bytes = (size_t)hd_local_bytes(n->ins[0]);
		c->call.in = *staging;
	}
	if (c->call.out)
		c->call.out = l->host;
	*staging += in_bytes(n) + out_bytes(n);
}

static void start_comm(struct hd_program *g, const struct entry *e, int64_t ticket, char **staging)
{
	struct command *c = append(g, START, e);
	struct node *n = e->node;
	const struct tensor *x = n->ins[0];
	int64_t count = hd_comm_node_count(n);

	if (HD_BITS(x->v.dtype) < 8)
		count = (count + 7) / 8;
	c->members = g->members[n->comm.group->id];
	c->call = (struct hd_call){ .kind = n->comm.kind, .dtype = HD_BITS(x->v.dtype) < 8 ? HD_DTYPE_U8 : x->v.dtype,
		.index = (int32_t)n->comm.index, .count = count, .fixed = (uint32_t)g->fixed_order };
	if (n->comm.kind != HD_COMM_RECV && !(n->comm.kind == HD_COMM_BROADCAST && hd_communicator_me(c->members) != n->comm.index))
		c->call.in = hd_program_address(g, x, e->micro);
	if (n->comm.kind != HD_COMM_SEND)
		c->call.out = hd_program_address(g, n->outs[0], e->micro);
	if (n->comm.kind == HD_COMM_ALL_TO_ALL_V)
		describe_rows(g, n, e->micro, c, staging);
	c->call.what = hd_plan_text(g->plan, "%s of %s (%s)%s%s", hd_comm_kind_name(n->comm.kind),
				    hd_comm_node_subject_name(n), hd_comm_node_subject(n)->v.spec, n->v.block[0] ? " in " : "",
				    n->v.block);
	if (n->comm.kind >= HD_COMM_SEND)	/* the sender's unit says which way the message goes */
		c->call.lane = ((n->comm.kind == HD_COMM_SEND ? n : N(x->v.node))->v.phase & (HD_UNIT_B | HD_UNIT_W)) != 0;
	c->name = hd_comm_kind_name(n->comm.kind);
	c->ticket = ticket;
	if (*staging)
		stage(g, c, n, staging);
}

/* before: the entry, or NULL at the end. */
static void wait_here(struct hd_program *g, struct waiting *w, const struct entry *before)
{
	for (size_t i = 0; i < w->n; i++) {
		struct command *c = append(g, WAIT, before);

		c->node = NULL;
		c->ticket = w->v[i];
		c->name = "wait";
	}
}

/* The values that leaves take, where the update could not write them in place. */
static int assign(struct hd_program *g, const struct hd_bind *b, struct hd_err *err)
{
	for (size_t i = 0; i < g->plan->ntensors; i++) {
		struct tensor *t = g->plan->tensors[i], *v = t->assign;
		struct hd_view view[2] = { { .dtype = t->v.dtype, .ndim = t->v.ndim }, { .dtype = t->v.dtype, .ndim = t->v.ndim } };
		struct hd_kernel_desc d = { "", 1, 1, &view[0], &view[1] };
		struct hd_prep *prep;
		struct command *c;

		if (t->v.node || !v || !hd_tensor_here(g, t) || g->at[v->id].root == t)
			continue;
		for (uint32_t k = 0; k < t->v.ndim; k++) {
			view[0].dims[k] = view[1].dims[k] = t->dims[k];
			view[0].n[k] = view[1].n[k] = t->local[k];
		}
		prep = hd_plan_alloc(g->plan, sizeof(*prep));
		c = append(g, RUN, NULL);
		c->kernel = b->device->kernel("copy");
		c->name = "copy";
		c->prep = prep;
		c->out = hd_plan_alloc(g->plan, 2 * sizeof(void *));
		c->in = c->out + 1;
		c->out[0] = hd_program_address(g, t, HD_STEP);
		c->in[0] = hd_program_address(g, v, HD_STEP);
		HD_TRY(c->kernel->prepare(&d, prep, err));
	}
	return HD_OK;
}

static void open_entry(struct hd_program *g, const struct entry *e, int64_t ticket, char *written, char **staging)
{
	const struct launches *l;
	struct command *c;

	if (e->type == HD_ENTRY_LOAD) {
		c = append(g, LOAD, e);
		c->data = e->data;
		c->out = hd_plan_alloc(g->plan, sizeof(void *));
		c->out[0] = hd_program_address(g, e->data, e->micro);
		c->bytes = (size_t)hd_local_bytes(e->data);
		return;
	}
	l = &g->launches[e->node->id];
	if (e->type == HD_ENTRY_ACC) {
		if (g->at[e->node->ins[e->input]->id].root != g->at[e->node->outs[0]->id].root)
			run_launch(g, e, &l->v[e->input], written);
		return;
	}
	if (e->node->comm.kind)
		start_comm(g, e, ticket, staging);
	else if (e->node->is->role != ROLE_ACCUMULATE)
		for (size_t i = 0; i < l->n; i++)
			run_launch(g, e, &l->v[i], written);
}

/* Launches of one kernel behind each other, as one where it has a way to. */
static void join_commands(struct hd_program *g)
{
	struct hd_joint *l = hd_alloc((g->ncommands + 1) * sizeof(*l));

	for (size_t i = 0, to; i < g->ncommands; i = to) {
		const struct hd_kernel *k = g->commands[i].type == RUN ? g->commands[i].kernel : NULL;
		void *state;

		for (to = i + 1; k && to < g->ncommands && to != g->update_at && g->commands[to].type == RUN && g->commands[to].kernel == k;)
			to++;
		if (!k || !k->join || to - i < 2)
			continue;
		for (size_t c = i; c < to; c++)
			l[c - i] = (struct hd_joint){ g->commands[c].prep, g->commands[c].out, g->commands[c].in, g->commands[c].acc };
		state = k->join(l, to - i);
		if (!state)
			continue;
		g->joined = hd_grow(g->joined, g->njoined, &g->cap_joined, sizeof(*g->joined));
		g->joined[g->njoined++] = (struct joined){ i, to, state };
	}
	free(l);
}

/* Host memory for what is loaded, and the runs of kernels that a device can keep as one. */
static int bind_device(struct hd_program *g, struct hd_err *err)
{
	size_t bytes = 0;
	char *at;

	for (size_t i = 0; i < g->ncommands; i++)
		bytes += g->commands[i].type == LOAD ? (g->commands[i].bytes + 63) / 64 * 64 : 0;
	g->host = at = g->device->alloc_host(bytes + 64, err);
	if (!at)
		return err->code;
	g->recordings = hd_plan_alloc(g->plan, (g->ncommands + 1) * sizeof(*g->recordings));
	for (size_t i = 0; i < g->ncommands; i++) {
		struct recording *r = g->nrecordings ? &g->recordings[g->nrecordings - 1] : NULL;

		if (g->commands[i].type == LOAD) {
			g->commands[i].host = at;
			at += (g->commands[i].bytes + 63) / 64 * 64;
		}
		if (g->commands[i].type == RUN && r && r->to == i && i != g->update_at)
			r->to++;
		else if (g->commands[i].type == RUN)
			g->recordings[g->nrecordings++] = (struct recording){ i, i + 1, NULL };
	}
	return HD_OK;
}

/* What binding has made; the program itself is not bound memory's (engine/program/program.c). */
static void release(struct hd_program *g)
{
	for (int i = 0; g->launches && i <= g->plan->nnodes; i++) {
		for (size_t k = 0; k < g->launches[i].n; k++)
			if (g->launches[i].v[k].prep.release)
				g->launches[i].v[k].prep.release(g->launches[i].v[k].prep.state);
		free(g->launches[i].v);
	}
	for (size_t i = 0; i < g->nrecordings; i++)
		if (g->recordings[i].kept)
			g->device->forget(g->recordings[i].kept);
	for (size_t i = 0; i < g->njoined; i++)
		g->commands[g->joined[i].from].kernel->unjoin(g->joined[i].state);
	free(g->joined);
	if (g->host)
		g->device->free_host(g->host);
	free(g->launches), free(g->commands);
}

int hd_program_bind(struct hd_program *g, const struct hd_bind *b, struct hd_err *err)
{
	struct waiting *w = hd_alloc((g->n + 1) * sizeof(*w));
	char *written = hd_alloc(g->plan->ntensors + 1);
	char *staging = b->staging;
	int64_t tickets = 0;
	int rc;

	g->release = release;
	g->persistent = b->persistent;
	g->transient = b->transient;
	g->members = b->members;
	g->landings = hd_plan_alloc(g->plan, (g->n + 1) * sizeof(*g->landings));
	rc = hd_pass_record(g, b, err);
	for (size_t e = 0; e < g->n && rc >= 0; e++) {
		wait_here(g, &w[e], &g->entries[e]);
		if (g->entries[e].wait >= 0) {
			struct waiting *at = &w[g->entries[e].wait];

			at->v = hd_grow(at->v, at->n, &at->cap, sizeof(*at->v));
			at->v[at->n++] = tickets;
		}
		open_entry(g, &g->entries[e], tickets, written, &staging);
		tickets += g->entries[e].wait >= 0;
	}
	wait_here(g, &w[g->n], NULL);
	for (g->update_at = 0; g->update_at < g->ncommands; g->update_at++) {
		const struct node *n = g->commands[g->update_at].node;

		if (n && n->is->role == ROLE_UPDATE)
			break;
	}
	if (rc >= 0)
		rc = assign(g, b, err);
	if (rc >= 0 && !in_host(g))
		rc = bind_device(g, err);
	if (rc >= 0)
		join_commands(g);
	g->tickets = hd_plan_alloc(g->plan, (size_t)(tickets + 1) * sizeof(*g->tickets));
	for (size_t e = 0; e <= g->n; e++)
		free(w[e].v);
	free(w);
	free(written);
	return rc;
}

/* -- a step ------------------------------------------------------------------------------------------------------------------------ */
static void trace(struct hd_program *g, const struct command *c, double begin)
{
	const struct hd_request *t = c->type == WAIT ? &g->tickets[c->ticket] : NULL;
	const struct hd_call *call = t ? &t->call : c->type == START ? &c->call : NULL;

	if (g->ntrace < g->cap_trace)
		g->trace[g->ntrace++] = (struct trace_event){ begin, hd_seconds(), t ? t->started : 0, t ? t->finished : 0, c->name,
			call ? call->what : NULL, c->unit,
			!call ? HD_TRACE_KERNEL : call->kind >= HD_COMM_SEND ? HD_TRACE_MESSAGE : HD_TRACE_GROUP, g->tracing };
}

void hd_program_trace(struct hd_program *g, int32_t step, int64_t steps)
{
	if (step && !g->trace) {
		g->cap_trace = g->ncommands * (size_t)steps;
		g->trace = hd_alloc(g->cap_trace * sizeof(*g->trace));
	}
	g->tracing = step;
}

static int64_t sum_of(const int32_t *numbers, int64_t n)
{
	int64_t sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += numbers[i];
	return sum;
}

static int64_t rows_used(const struct hd_program *g, const struct command *c)
{
	int32_t *copy;
	int64_t n;

	if (in_host(g))
		return sum_of(c->rows, c->nrows);
	copy = hd_alloc((size_t)(c->nrows + 1) * sizeof(*copy));
	g->device->get(copy, c->rows, (size_t)c->nrows * sizeof(*copy));
	n = sum_of(copy, c->nrows);
	free(copy);
	return n;
}

/* What a movement reads and writes is as much as the numbers say. */
static size_t fetch_numbers(const struct hd_program *g, const struct row_numbers *k)
{
	g->device->get(k->have, k->device_have, (size_t)k->n * sizeof(*k->have));
	g->device->get(k->need, k->device_need, (size_t)k->n * sizeof(*k->need));
	return (size_t)(sum_of(k->have, k->n) * k->bytes);
}

static int start(struct hd_program *g, const struct command *c)
{
	size_t bytes = c->numbers ? fetch_numbers(g, c->numbers) : c->bytes;

	if (c->host)
		g->device->get((void *)c->call.in, c->host, bytes);
	return hd_comm_start(c->members, &c->call, &g->tickets[c->ticket]);
}

static int wait_for(struct hd_program *g, int64_t ticket)
{
	const struct landing *l = &g->landings[ticket];

	HD_TRY(hd_comm_wait(&g->tickets[ticket]));
	if (l->device)
		g->device->put(l->device, l->host, l->rows ? (size_t)(sum_of(l->rows->need, l->rows->n) * l->rows->bytes) : l->bytes);
	return HD_OK;
}

static int run_command(struct hd_program *g, const struct command *c, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	switch (c->type) {
	case RUN:
		run->acc = c->acc;
		run->rows_most = c->rows_most;
		if (in_host(g))
			run->rows = rows_used(g, c);
		else		/* the numbers lie where the kernels are */
			run->row_counts = c->rows, run->nrow_counts = c->nrows;
		run->sample0 = c->micro >= 0 ? c->micro * g->plan->batch : 0;
		c->kernel->run(c->prep, c->out, c->in, run);
		return HD_OK;
	case START:
		return start(g, c);
	case WAIT:
		return wait_for(g, c->ticket);
	default:
		HD_TRY(fill(ctx, g, c->data, c->micro, c->host ? c->host : c->out[0]));
		if (c->host)
			g->device->load(c->out[0], c->host, c->bytes);
		return HD_OK;
	}
}

static int run_plain(struct hd_program *g, size_t from, size_t to, struct hd_run *run)
{
	const struct joined *j = g->joined, *end = j + g->njoined;

	while (j < end && j->from < from)
		j++;
	while (from < to) {
		if (j < end && j->from == from) {
			g->commands[from].kernel->run_joined(j->state, run);
			from = j++->to;
			continue;
		}
		HD_TRY(run_command(g, &g->commands[from++], run, NULL, NULL));
	}
	return HD_OK;
}

/* A run of kernels: the first time as it is (libraries make what they need), then kept by the device and run as one. */
static int run_kept(struct hd_program *g, struct recording *r, struct hd_run *run)
{
	if (g->runs == 1 && r->to - r->from > 1 && g->device->record() >= 0) {
		run_plain(g, r->from, r->to, run);
		r->kept = g->device->recorded();
	}
	return r->kept ? g->device->replay(r->kept) : run_plain(g, r->from, r->to, run);
}

static int run_on_device(struct hd_program *g, size_t from, size_t to, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	struct recording *r = g->recordings, *end = g->recordings + g->nrecordings;

	g->device->begin(run);
	while (r < end && r->from < from)
		r++;
	for (size_t i = from; i < to;) {
		if (r < end && r->from == i) {
			HD_TRY(run_kept(g, r, run));
			i = r++->to;
		} else {
			HD_TRY(run_command(g, &g->commands[i++], run, fill, ctx));
		}
	}
	return hd_comm_finish(g->device, &g->why);
}

static int run_part(struct hd_program *g, size_t from, size_t to, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	if (!in_host(g) && !g->tracing)
		return run_on_device(g, from, to, run, fill, ctx);
	if (!in_host(g))
		g->device->begin(run);
	for (size_t i = from; i < to; i++) {
		const struct command *c = &g->commands[i];
		double begin = g->tracing ? hd_seconds() : 0;

		HD_TRY(run_command(g, c, run, fill, ctx));
		if (g->tracing && !in_host(g))	/* a trace of the kernels' times, not of their launches */
			HD_TRY(hd_comm_finish(g->device, &g->why));
		if (g->tracing)
			trace(g, c, begin);
	}
	return HD_OK;
}

static int run_range(struct hd_program *g, size_t from, size_t to, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	int rc = run_part(g, from, to, run, fill, ctx);

	if (rc < 0 && !in_host(g) && !g->why.code)	/* a movement that did not begin: the device knows why */
		hd_comm_finish(g->device, &g->why);
	return rc;
}

int hd_program_compute(struct hd_program *g, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	HD_TRY(run_range(g, 0, g->update_at, run, fill, ctx));
	g->runs += g->ncommands == g->update_at;	/* no update: that was all */
	return HD_OK;
}

int hd_program_update(struct hd_program *g, struct hd_run *run)
{
	HD_TRY(run_range(g, g->update_at, g->ncommands, run, NULL, NULL));
	g->runs++;
	return HD_OK;
}

static void add_work(struct hd_program *g, const struct command *c, struct launch_time *t)
{
	const struct launch *l = c->launch;
	struct hd_cost cost = { .size = sizeof(cost) };

	for (uint32_t i = 0; l && i < l->nin + l->nout; i++)
		t->bytes += (double)hd_local_bytes(i < l->nin ? l->in[i] : l->out[i - l->nin]);
	if (c->node && c->node->v.op->cost && !strcmp(c->kernel->name, c->node->v.op->name)) {
		c->node->v.op->cost(NULL, &c->node->v, &cost);
		t->flops += cost.product_flops;
	}
	(void)g;
}

int hd_program_times(struct hd_program *g, struct hd_run *run, int repeats, void (*each)(void *ctx, const struct launch_time *t),
		     void *ctx)
{
	const struct joined *j = g->joined, *end = j + g->njoined;

	g->device->begin(run);
	for (size_t i = 0, to; i < g->ncommands; i = to) {
		struct launch_time t = { g->commands[i].name, 0, 0, 0 };

		to = j < end && j->from == i ? j++->to : i + 1;
		if (g->commands[i].type != RUN)
			continue;
		for (size_t k = i; k < to; k++)
			add_work(g, &g->commands[k], &t);
		HD_TRY(hd_comm_finish(g->device, &g->why));
		t.seconds = hd_seconds();
		for (int k = 0; k < repeats; k++)
			HD_TRY(run_plain(g, i, to, run));
		HD_TRY(hd_comm_finish(g->device, &g->why));
		t.seconds = (hd_seconds() - t.seconds) / repeats;
		each(ctx, &t);
	}
	return HD_OK;
}

double hd_program_products(struct hd_program *g, struct hd_run *run)
{
	double begin;

	if (!in_host(g))
		g->device->begin(run);
	begin = hd_seconds();
	for (size_t i = 0; i < g->update_at; i++)
		if (g->commands[i].type == RUN && g->commands[i].node && g->commands[i].node->is->flags & OP_MATMUL)
			run_command(g, &g->commands[i], run, NULL, NULL);
	if (!in_host(g))
		hd_comm_finish(g->device, &g->why);
	return hd_seconds() - begin;
}

/* -- which result is not finite ------------------------------------------------------------------------------------------------------ */
static int all_finite(const struct hd_program *g, const struct command *c, const struct tensor *t, const void *data)
{
	int64_t n = t->rows ? rows_used(g, c) * hd_ragged_row_elements(t) : hd_local_count(t);

	if (t->v.dtype == HD_DTYPE_F32)
		for (int64_t i = 0; i < n; i++)
			if (!isfinite(((const float *)data)[i]))
				return 0;
	if (t->v.dtype == HD_DTYPE_F64)
		for (int64_t i = 0; i < n; i++)
			if (!isfinite(((const double *)data)[i]))
				return 0;
	if (t->v.dtype == HD_DTYPE_BF16)
		for (int64_t i = 0; i < n; i++)
			if ((((const uint16_t *)data)[i] & 0x7f80) == 0x7f80)
				return 0;
	return 1;
}

static void name_it(const struct command *c, const struct tensor *t, struct hd_err *err)
{
	const struct node *n = c->node;
	const char *of = "";

	for (uint32_t i = 0; i < n->v.nin && !of[0]; i++)
		of = n->ins[i]->v.what == HD_TENSOR_PARAM ? n->ins[i]->v.name : "";
	hd_err_set(err, HD_EINVAL, "%s%s%s%s%s%s made a value of (%s) that is not finite, in micro-batch %d", n->v.op->name,
		   of[0] ? " with " : "", of, n->v.block[0] ? " in " : "", n->v.block,
		   n->v.phase & (HD_UNIT_B | HD_UNIT_W) ? " (backward)" : "", t->spec, c->micro);
}

/* Or a copy of one, on another stage. */
static int is_leaf(const struct tensor *t) { return !t->v.node || t->v.what == HD_TENSOR_PARAM; }

static int is_finite_now(struct hd_program *g, const struct command *c, const struct tensor *t)
{
	void *data = hd_program_map(g, t, c->micro, HD_MAP_READ);
	int yes = all_finite(g, c, t, data);

	hd_program_unmap(g, t, c->micro, data, HD_MAP_READ);
	return yes;
}

/* The kernels of one node, from `from` on: a result is whole behind the last of them. */
static size_t end_of_node(const struct hd_program *g, size_t from)
{
	const struct command *c = &g->commands[from];
	size_t to = from + 1;

	while (c->type == RUN && to < g->update_at && g->commands[to].type == RUN && g->commands[to].node == c->node &&
	       g->commands[to].micro == c->micro)
		to++;
	return to;
}

static int made_within(const struct hd_program *g, size_t from, size_t to, const struct tensor *t)
{
	for (size_t i = from; i < to; i++)
		for (uint32_t k = 0; g->commands[i].launch && k < g->commands[i].launch->nout; k++)
			if (g->commands[i].launch->out[k] == t)
				return 1;
	return 0;
}

/* What a node reads that was computed; a parameter that is not finite is where it began. */
static int reads_finite(struct hd_program *g, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		const struct launch *l = g->commands[i].launch;

		for (uint32_t k = 0; l && k < l->nin; k++)
			if (!is_leaf(l->in[k]) && (!l->in[k]->rows || l->in[k]->rows == l->rows) &&
			    !made_within(g, from, i, l->in[k]) && !is_finite_now(g, &g->commands[i], l->in[k]))
				return 0;
	}
	return 1;
}

int hd_program_find_nan(struct hd_program *g, struct hd_run *run, hd_fill_fn fill, void *ctx, int *received, struct hd_err *err)
{
	if (!in_host(g))
		g->device->begin(run);
	for (size_t from = 0, to; from < g->update_at; from = to) {
		int began;

		to = end_of_node(g, from);
		began = err->code || reads_finite(g, from, to);
		for (size_t i = from; i < to; i++)
			HD_TRY(run_command(g, &g->commands[i], run, fill, ctx));
		for (size_t i = from; i < to; i++) {
			const struct command *c = &g->commands[i];

			for (uint32_t k = 0; c->launch && k < c->launch->nout && !err->code; k++)
				if (!is_finite_now(g, c, c->launch->out[k])) {
					name_it(c, c->launch->out[k], err);
					*received = !began;
				}
		}
	}
	return HD_OK;
}
