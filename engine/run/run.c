/* SPDX-License-Identifier: Apache-2.0
 * Runs a bound program.
 *
 * Compute is an in-order queue, which the cpu device runs inline. Each communicator is a queue of its own
 * (engine/comm/comm.h). A start enqueues a call, and the wait comes before the first reader, where the program put it.
 * Nothing is allocated here.
 */
#include <config.h>
#include "engine/comm/wait/control.h"
#include "engine/graph/mesh.h"
#include "engine/plugin/kernel.h"
#include "engine/run/commands.h"
#include <stdio.h>
#include <stdlib.h>

static void trace(struct hd_program *g, const struct command *c, double begin)
{
	const struct hd_request *t = c->type == CMD_WAIT ? &g->requests[c->request] : NULL;
	const struct hd_call *call = t ? &t->call : c->type == CMD_START || c->type == CMD_TRANSFER ? &c->call : NULL;

	if (g->ntrace < g->cap_trace)
		g->trace[g->ntrace++] = (struct trace_event){ begin,
							      hd_seconds(),
							      t ? t->started : 0,
							      t ? t->finished : 0,
							      c->name,
							      call ? call->what : NULL,
							      c->unit,
							      !call                        ? HD_TRACE_KERNEL
							      : call->kind >= HD_COMM_SEND ? HD_TRACE_MESSAGE
											   : HD_TRACE_GROUP,
							      g->tracing };
}

void hd_program_trace(struct hd_program *g, int32_t step, int64_t steps)
{
	if (step && !g->trace) {
		g->cap_trace = g->ncommands * (size_t)steps;
		g->trace = hd_alloc(g->cap_trace * sizeof(*g->trace));
	}
	g->tracing = step;
}

/* Returns whether this run leaves the command out. */
static int is_left_out(const struct command *c, const struct hd_run *run)
{
	return (c->period && run->step % c->period) || (run->micros && c->micro >= run->micros) ||
	       (run->again && c->gathers);
}

int hd_run_command(struct hd_program *g, const struct command *c, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	if (is_left_out(c, run))
		return HD_OK;
	switch (c->type) {
	case CMD_RUN:
		run->acc = c->acc;
		run->rows_most = c->rows_most;
		if (hd_in_host(g))
			run->rows = hd_rows_used(g, c);
		else /* the counts are in the memory of the kernels */
			run->row_counts = c->rows, run->nrow_counts = c->nrows;
		run->sample0 = g->plan->train && c->micro >= 0 ? c->micro * g->plan->batch : 0;
		c->kernel->run(c->prep, c->out, c->in, run);
		return c->kernel == &hd_plugin_kernel ? hd_plugin_kernel_failed(c->prep, &g->why) : HD_OK;
	case CMD_START: return hd_start_staged(g, c);
	case CMD_TRANSFER: return hd_start_transfer(g, c);
	case CMD_WAIT: return hd_wait_staged(g, c->request);
	default:
		HD_TRY(fill(ctx, g, c->data, c->micro, c->host ? c->host : c->out[0]));
		if (c->host)
			g->device->load(c->out[0], c->host, c->bytes);
		return HD_OK;
	}
}

int hd_run_commands(struct hd_program *g, size_t from, size_t to, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	const struct joined *j = g->joined, *end = j + g->njoined;

	while (j < end && j->from < from)
		j++;
	while (from < to) {
		if (j < end && j->from == from) {
			if (!is_left_out(&g->commands[from], run))
				g->commands[from].kernel->run_joined(j->state, run);
			from = j++->to;
			continue;
		}
		HD_TRY(hd_run_command(g, &g->commands[from++], run, fill, ctx));
	}
	return HD_OK;
}

/* Runs consecutive kernels. The first time they run as they are, because libraries allocate what they need then. The
 * second time the device records them, and later it replays the recording. */
static int run_recording(struct hd_program *g, struct recording *r, struct hd_run *run)
{
	if (is_left_out(&g->commands[r->from], run))
		return HD_OK;
	if (r->runs++ == 1 && r->to - r->from > 1 && g->device->record() >= 0) {
		int rc = hd_run_commands(g, r->from, r->to, run, NULL, NULL);

		r->replay = g->device->recorded();
		HD_TRY(rc);
	}
	return r->replay ? g->device->replay(r->replay) : hd_run_commands(g, r->from, r->to, run, NULL, NULL);
}

static int run_on_device(struct hd_program *g, size_t from, size_t to, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	struct recording *r = g->recordings, *end = g->recordings + g->nrecordings;

	g->device->begin(run);
	while (r < end && r->from < from)
		r++;
	for (size_t i = from; i < to;) {
		if (r < end && r->from == i) {
			HD_TRY(run_recording(g, r, run));
			i = r++->to;
		} else {
			HD_TRY(hd_run_command(g, &g->commands[i++], run, fill, ctx));
		}
	}
	return hd_comm_finish(g->device, &g->why);
}

static int run_part(struct hd_program *g, size_t from, size_t to, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	if (!g->tracing)
		return hd_in_host(g) ? hd_run_commands(g, from, to, run, fill, ctx)
				     : run_on_device(g, from, to, run, fill, ctx);
	if (!hd_in_host(g))
		g->device->begin(run);
	for (size_t i = from; i < to; i++) {
		const struct command *c = &g->commands[i];
		double begin = hd_seconds();

		if (is_left_out(c, run))
			continue;
		HD_TRY(hd_run_command(g, c, run, fill, ctx));
		if (!hd_in_host(g)) /* traces the kernels' times, not those of their launches */
			HD_TRY(hd_comm_finish(g->device, &g->why));
		trace(g, c, begin);
	}
	return HD_OK;
}

static int run_range(struct hd_program *g, size_t from, size_t to, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	int rc = run_part(g, from, to, run, fill, ctx);

	if (rc < 0 && !hd_in_host(g) && !g->why.code) /* a movement did not start: the device knows why */
		hd_comm_finish(g->device, &g->why);
	return rc;
}

int hd_program_compute(struct hd_program *g, struct hd_run *run, hd_fill_fn fill, void *ctx)
{
	return run_range(g, 0, g->update_at, run, fill, ctx);
}

int hd_program_update(struct hd_program *g, struct hd_run *run)
{
	return run_range(g, g->update_at, g->ncommands, run, NULL, NULL);
}

int hd_program_failed(const struct hd_program *g, int rc, const char *what, struct hd_err *err)
{
	if (g->why.code)
		hd_err_set(err, rc, "%s: %s", what, g->why.text);
	else
		hd_err_set(err, rc, "%s ended with code %d", what, rc);
	if (g->plan->ranks <= 1)
		return err->code;
	fflush(stdout);
	hd_comm_end_with(err->text);
}

int hd_program_pull(struct hd_program *g)
{
	struct hd_run run = { 0 };
	char *asked = hd_alloc(g->ncommands + 1); /* by request: whether this function started it */
	int rc = HD_OK;

	if (!hd_in_host(g))
		g->device->begin(&run);
	for (size_t i = 0; i < g->update_at && rc >= 0 && g->plan->pulls; i++) {
		const struct command *c = &g->commands[i];

		if (c->type == CMD_WAIT ? !asked[c->request] : !c->node || c->node->v.phase != HD_UNIT_G)
			continue;
		if (c->type == CMD_START || c->type == CMD_TRANSFER)
			asked[c->request] = 1;
		rc = hd_run_command(g, c, &run, NULL, NULL);
	}
	free(asked);
	return rc < 0 || hd_in_host(g) ? rc : hd_comm_finish(g->device, &g->why);
}
