/* SPDX-License-Identifier: Apache-2.0
 * Finds the result that is not finite: it computes a step once more and checks every result.
 */
#include <config.h>
#include "engine/run/commands.h"
#include "engine/ops/movement.h"
#include <math.h>
#include <stdlib.h>

static int64_t count_not_finite(const struct tensor *t, const void *data, int64_t n)
{
	int64_t bad = 0;

	if (t->v.dtype == HD_DTYPE_F32)
		for (int64_t i = 0; i < n; i++)
			bad += !isfinite(((const float *)data)[i]);
	if (t->v.dtype == HD_DTYPE_F64)
		for (int64_t i = 0; i < n; i++)
			bad += !isfinite(((const double *)data)[i]);
	if (t->v.dtype == HD_DTYPE_BF16)
		for (int64_t i = 0; i < n; i++)
			bad += (((const uint16_t *)data)[i] & 0x7f80) == 0x7f80;
	if (t->v.dtype == HD_DTYPE_F16)
		for (int64_t i = 0; i < n; i++)
			bad += (((const uint16_t *)data)[i] & 0x7c00) == 0x7c00;
	return bad;
}

static int all_finite(const struct hd_program *g, const struct command *c, const struct tensor *t, const void *data)
{
	int64_t n = t->ragged_counts ? hd_rows_used(g, c) * hd_ragged_row_elements(t) : hd_local_count(t);

	return !count_not_finite(t, data, n);
}

static void name_result(const struct command *c, const struct tensor *t, struct hd_err *err)
{
	const struct node *n = c->node;
	const char *of = "";
	char *micro = c->micro < 0 ? hd_format("%s", "") : hd_format(", in micro-batch %d", c->micro);

	for (uint32_t i = 0; i < n->v.nin && !of[0]; i++)
		of = n->ins[i]->v.what == HD_TENSOR_PARAM ? n->ins[i]->v.name : "";
	hd_err_set(err, HD_EINVAL, "%s%s%s%s%s%s computed a value of (%s) that is not finite%s%s", n->v.op->name,
		   of[0] ? " with " : "", of, n->v.block[0] ? " in " : "", n->v.block,
		   n->v.phase & (HD_UNIT_B | HD_UNIT_W) ? " (backward)" : "", t->spec,
		   t->v.dtype == HD_DTYPE_F16 ? " in fp16" : "", micro);
	free(micro);
}

/* Returns whether t is a leaf, or a copy of one on another stage. */
static int is_leaf(const struct tensor *t)
{
	return !t->v.node || t->v.what == HD_TENSOR_PARAM;
}

static int is_finite_now(struct hd_program *g, const struct command *c, const struct tensor *t)
{
	void *data = hd_program_map(g, t, c->micro, HD_MAP_READ);
	int yes = all_finite(g, c, t, data);

	hd_program_unmap(g, t, c->micro, data, HD_MAP_READ);
	return yes;
}

/* Returns the end of a node's kernels that begin at `from`. A result is complete only after the last of them. */
static size_t end_of_node(const struct hd_program *g, size_t from)
{
	const struct command *c = &g->commands[from];
	size_t to = from + 1;

	while (c->type == CMD_RUN && to < g->update_at && g->commands[to].type == CMD_RUN &&
	       g->commands[to].node == c->node && g->commands[to].micro == c->micro)
		to++;
	return to;
}

static int computed_within(const struct hd_program *g, size_t from, size_t to, const struct tensor *t)
{
	for (size_t i = from; i < to; i++)
		for (uint32_t k = 0; g->commands[i].launch && k < g->commands[i].launch->nout; k++)
			if (g->commands[i].launch->out[k] == t)
				return 1;
	return 0;
}

/* Returns whether the computed operands of these commands are finite. Leaves are
 * not checked: the error would have begun in them. */
static int reads_finite(struct hd_program *g, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		const struct launch *l = g->commands[i].launch;

		for (uint32_t k = 0; l && k < l->nin; k++)
			if (!is_leaf(l->in[k]) && (!l->in[k]->ragged_counts || l->in[k]->ragged_counts == l->rows) &&
			    !computed_within(g, from, i, l->in[k]) && !is_finite_now(g, &g->commands[i], l->in[k]))
				return 0;
	}
	return 1;
}

int hd_program_find_nan(struct hd_program *g, struct hd_run *run, hd_fill_fn fill, void *ctx, int *received,
			struct hd_err *err)
{
	if (!hd_in_host(g))
		g->device->begin(run);
	for (size_t from = 0, to; from < g->update_at; from = to) {
		int began;

		to = end_of_node(g, from);
		began = err->code || reads_finite(g, from, to);
		for (size_t i = from; i < to; i++)
			HD_TRY(hd_run_command(g, &g->commands[i], run, fill, ctx));
		for (size_t i = from; i < to; i++) {
			const struct command *c = &g->commands[i];

			for (uint32_t k = 0; c->launch && k < c->launch->nout && !err->code; k++)
				if (!is_finite_now(g, c, c->launch->out[k])) {
					name_result(c, c->launch->out[k], err);
					*received = !began;
				}
		}
	}
	return HD_OK;
}

char *hd_program_spoilt_text(const struct hd_program *g)
{
	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *p = g->plan->tensors[i], *t = hd_written(g, p);
		int64_t n, bad;
		void *data;

		if (!t || p->v.node || p->v.what != HD_TENSOR_PARAM)
			continue;
		data = hd_program_map(g, t, HD_STEP, HD_MAP_READ);
		n = hd_local_count(t);
		bad = count_not_finite(t, data, n);
		hd_program_unmap(g, t, HD_STEP, data, HD_MAP_READ);
		if (bad)
			return hd_format("%lld of the %lld values of %s", (long long)bad, (long long)n, p->v.name);
	}
	return NULL;
}
