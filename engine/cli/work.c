/* SPDX-License-Identifier: Apache-2.0
 * The work of a step's kernels, by unit and kind: FLOPs of matrix products, and bytes of operands, each read or written
 * once. Divided by a machine's rates, these are lower bounds of the times of such kernels.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/cli/work.h"
#include "engine/base/json.h"
#include "engine/graph/graph.h"
#include "engine/predict/work.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kernel_kind {
	uint32_t unit;
	const char *op;
	int64_t nodes;
	double flops, bytes;
};
struct kinds {
	struct kernel_kind *all;
	size_t n;
}; /* all has room for all nodes */

static struct kernel_kind *kind_of(struct kinds *k, uint32_t unit, const char *op)
{
	for (size_t i = 0; i < k->n; i++)
		if (k->all[i].unit == unit && !strcmp(k->all[i].op, op))
			return &k->all[i];
	k->all[k->n] = (struct kernel_kind){ unit, op, 0, 0, 0 };
	return &k->all[k->n++];
}

/* Counts a node. One that only renames bytes counts if they had to be copied. */
static void count(struct kinds *k, const struct hd_program *g, const struct node *n, int64_t times)
{
	struct hd_cost cost = { .size = sizeof(cost) };
	double bytes = hd_work_bytes(g, n);
	struct kernel_kind *at;

	if (n->is->flags & OP_FLAG_NAMES && bytes == 0)
		return;
	at = kind_of(k, n->v.phase, n->v.op->name);
	hd_node_cost(n, &cost);
	at->nodes += times;
	at->flops += (double)times * cost.matmul_flops;
	at->bytes += (double)times * bytes;
}

static void print(const struct kernel_kind *k, json_t *all)
{
	if (all)
		json_array_append_new(all, json_pack("{s:s, s:s, s:I, s:f, s:f}", "unit", hd_unit_name(k->unit),
						     "kernel", k->op, "nodes", (json_int_t)k->nodes, "product_flops",
						     k->flops, "bytes", k->bytes));
	else
		printf("%-15s %-14s %6lld nodes %14.3f GFLOP %14.3f MB\n", hd_unit_name(k->unit), k->op,
		       (long long)k->nodes, k->flops / 1e9, k->bytes / 1e6);
}

void hd_work_print(struct hd_plan *p, const struct hd_program *g, int json)
{
	struct kinds k = { NULL, 0 };
	json_t *all = json ? json_array() : NULL;
	size_t nodes = 0;

	for (const struct node *n = p->first; n; n = n->next)
		nodes++;
	k.all = hd_alloc((nodes + 1) * sizeof(*k.all));
	for (const struct node *n = p->first; n; n = n->next)
		if (!n->comm.kind && !(n->v.phase & (HD_UNIT_G | HD_UNIT_S)) &&
		    hd_node_here(g, n)) /* G and S units give tensors to movements */
			count(&k, g, n, n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) ? p->micros : 1);
	for (size_t i = 0; i < k.n; i++)
		print(&k.all[i], all);
	if (all) {
		char *text = hd_json_line(all);

		puts(text);
		free(text);
	}
	free(k.all);
}
