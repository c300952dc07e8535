/* SPDX-License-Identifier: Apache-2.0
 * For bench: computes the work of a program's kernels, and measures the time of all its matrix products alone.
 */
#include <config.h>
#include "engine/run/commands.h"

/* FLOPs are added at a node's first launch, since a product is one launch. A plugin's op gives its cost for all its
 * launches together, so it is left out. */
static void add_work(const struct hd_program *g, const struct command *c, struct launch_time *t)
{
	const struct launch *l = c->launch;
	struct hd_cost cost = { .size = sizeof(cost) };

	for (uint32_t i = 0; l && i < l->nin + l->nout; i++)
		t->bytes += (double)hd_local_bytes(i < l->nin ? l->in[i] : l->out[i - l->nin]);
	if (l && l == g->launches[c->node->id].v && c->node->v.op->cost && !(c->node->is->flags & OP_FLAG_PLUGIN)) {
		c->node->v.op->cost(NULL, &c->node->v, &cost);
		t->flops += cost.matmul_flops;
	}
}

static int is_product(const struct command *c)
{
	return c->type == CMD_RUN && c->node && c->node->is->flags & OP_FLAG_MATMUL;
}

void hd_program_work(const struct hd_program *g, size_t i, int bounds, struct launch_time *t)
{
	const struct command *c = &g->commands[i];

	add_work(g, c, t);
	if (bounds && is_product(c) && c->kernel->bound)
		t->bound += c->kernel->bound(c->prep, 0);
}

double hd_program_bound(const struct hd_program *g, int any, const struct hd_node **unknown)
{
	double sum = 0;

	for (size_t i = 0; i < g->update_at; i++) {
		const struct command *c = &g->commands[i];
		double s;

		if (!is_product(c))
			continue;
		s = c->kernel->bound ? c->kernel->bound(c->prep, any) : 0;
		if (!(s > 0)) {
			*unknown = &c->node->v;
			return 0;
		}
		sum += s;
	}
	return sum;
}

double hd_program_products(struct hd_program *g, struct hd_run *run)
{
	const struct joined *j = g->joined, *end = j + g->njoined;
	double begin;

	if (!hd_in_host(g))
		g->device->begin(run);
	begin = hd_seconds();
	for (size_t i = 0, to; i < g->update_at; i = to) {
		const struct command *c = &g->commands[i];
		const struct joined *several = j < end && j->from == i ? j++ : NULL; /* joined, as the step runs them */

		to = several ? several->to : i + 1;
		if (is_product(c) && several)
			c->kernel->run_joined(several->state, run);
		else if (is_product(c))
			hd_run_command(g, c, run, NULL, NULL);
	}
	if (!hd_in_host(g))
		hd_comm_finish(g->device, &g->why);
	return hd_seconds() - begin;
}
