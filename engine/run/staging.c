/* SPDX-License-Identifier: Apache-2.0
 * On a device with memory of its own: gives movements by the host, and loads, host memory to go through.
 *
 * A call works on host memory. Its operand is fetched when it starts. Its result is copied to the device when it is
 * waited for.
 */
#include <config.h>
#include "engine/run/commands.h"
#include "engine/ops/movement.h"
#include <math.h>
#include <stdlib.h>

static int64_t in_bytes(const struct node *n)
{
	return n->comm.kind == HD_COMM_RECV ? 0 : (hd_local_bytes(n->ins[0]) + 63) / 64 * 64;
}
static int64_t out_bytes(const struct node *n)
{
	return n->comm.kind == HD_COMM_SEND ? 0 : (hd_local_bytes(n->outs[0]) + 63) / 64 * 64;
}
static int64_t count_bytes(const struct node *n)
{
	return n->comm.kind == HD_COMM_ALL_TO_ALL_V
		       ? (hd_local_count(n->ins[1]) * (int64_t)sizeof(int32_t) + 63) / 64 * 64
		       : 0;
}

int64_t hd_program_staging(const struct hd_program *g)
{
	int64_t sum = 0;

	for (size_t e = 0; e < g->n; e++)
		if (g->entries[e].type == HD_ENTRY_NODE && g->entries[e].node->comm.kind)
			sum += in_bytes(g->entries[e].node) + out_bytes(g->entries[e].node) +
			       count_bytes(g->entries[e].node);
	return sum;
}

char *hd_stage_call(struct hd_program *g, struct command *c, const struct node *n, char *at)
{
	struct staged_result *l = &g->staged_results[c->request];

	*l = (struct staged_result){ c->call.out, at + in_bytes(n),
				     c->call.out ? (size_t)hd_local_bytes(n->outs[0]) : 0, c->counts };
	if (c->call.in) {
		c->host = (void *)c->call.in;
		c->bytes = (size_t)hd_local_bytes(n->ins[0]);
		c->call.in = at;
	}
	if (c->call.out)
		c->call.out = l->host;
	return at + in_bytes(n) + out_bytes(n);
}

char *hd_stage_rows(struct hd_program *g, struct command *c, struct hd_rows *r, const struct node *n, int64_t ncounts,
		    char *at)
{
	struct row_counts *k = hd_plan_alloc(g->plan, sizeof(*k));

	*k = (struct row_counts){ .device_have = r->have, .device_need = r->need, .n = ncounts, .bytes = r->bytes };
	k->have = at ? (int32_t *)(void *)at : hd_plan_alloc(g->plan, (size_t)(k->n + 1) * sizeof(*k->have));
	k->need = hd_plan_alloc(g->plan, (size_t)(k->n + 1) * sizeof(*k->need));
	r->have = k->have, r->need = k->need;
	c->counts = k;
	return at ? at + count_bytes(n) : NULL;
}

int hd_stage_loads(struct hd_program *g, struct hd_err *err)
{
	size_t bytes = 0;
	char *at;

	for (size_t i = 0; i < g->ncommands; i++)
		bytes += g->commands[i].type == CMD_LOAD ? (g->commands[i].bytes + 63) / 64 * 64 : 0;
	g->host = at = g->device->alloc_host(bytes + 64, err);
	if (!at)
		return err->code;
	for (size_t i = 0; i < g->ncommands; i++)
		if (g->commands[i].type == CMD_LOAD) {
			g->commands[i].host = at;
			at += (g->commands[i].bytes + 63) / 64 * 64;
		}
	return HD_OK;
}

/* -- a step ------------------------------------------------------------------------------------------------------ */
static int64_t sum_of(const int32_t *counts, int64_t n)
{
	int64_t sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += counts[i];
	return sum;
}

int64_t hd_rows_used(const struct hd_program *g, const struct command *c)
{
	int32_t *copy;
	int64_t n;

	if (hd_in_host(g))
		return sum_of(c->rows, c->nrows);
	copy = hd_alloc((size_t)(c->nrows + 1) * sizeof(*copy));
	g->device->get(copy, c->rows, (size_t)c->nrows * sizeof(*copy));
	n = sum_of(copy, c->nrows);
	free(copy);
	return n;
}

/* Fetches the counts of a movement. They say how many bytes it reads and writes. Returns the bytes that it reads. */
static size_t fetch_counts(const struct hd_program *g, const struct row_counts *k)
{
	g->device->get(k->have, k->device_have, (size_t)k->n * sizeof(*k->have));
	g->device->get(k->need, k->device_need, (size_t)k->n * sizeof(*k->need));
	return (size_t)(sum_of(k->have, k->n) * k->bytes);
}

/* Refuses more rows than there is memory for. Before they are sent, their number is known. */
static int check_rows(struct hd_program *g, const struct command *c)
{
	const struct hd_rows *r = c->call.rows;
	int64_t n = r ? sum_of(r->need, r->ncounts) : 0;

	if (!r || n <= r->most)
		return HD_OK;
	return hd_err_set(&g->why, HD_ENOMEM,
			  "%s: %lld choices fell on the experts of this rank, and it has memory for %lld "
			  "(train.expert_rows = %g); they need %.3g",
			  c->node->v.block, (long long)n, (long long)r->most, g->plan->config.expert_rows,
			  ceil(100 * (double)n / hd_ragged_balanced(c->node->outs[0])) / 100);
}

int hd_start_staged(struct hd_program *g, const struct command *c)
{
	size_t bytes = c->bytes;

	if (c->counts) {
		HD_TRY(hd_comm_settle(g->device, &g->why));
		bytes = fetch_counts(g, c->counts);
	}
	HD_TRY(check_rows(g, c));
	if (c->host)
		g->device->get((void *)c->call.in, c->host, bytes);
	return hd_comm_start(c->members, &c->call, &g->requests[c->request]);
}

int hd_start_transfer(struct hd_program *g, const struct command *c)
{
	struct hd_request *t = &g->requests[c->request];

	t->call = c->call;
	t->started = hd_seconds();
	g->device->move((void *)c->call.out, c->call.in, c->bytes, c->call.index, c->request);
	return HD_OK;
}

int hd_wait_staged(struct hd_program *g, int64_t request)
{
	const struct staged_result *l = &g->staged_results[request];

	if (l->transfer) {
		g->device->moved(request);
		g->requests[request].finished = hd_seconds();
		return HD_OK;
	}
	HD_TRY(hd_comm_wait(&g->requests[request]));
	if (l->device)
		g->device->put(l->device, l->host,
			       l->rows ? (size_t)(sum_of(l->rows->need, l->rows->n) * l->rows->bytes) : l->bytes);
	return HD_OK;
}
