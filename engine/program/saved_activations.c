/* SPDX-License-Identifier: Apache-2.0
 * Prints the saved activations: the buffers that a block's forward writes and its backward reads, for one rank and one
 * micro-batch. All other buffers of forward end with their unit. The list follows the memory plan: tensors that share
 * bytes are one buffer, and recomputed tensors are left out.
 */
#include <config.h>
#include "engine/program/program.h"
#include "engine/base/json.h"
#include "engine/ops/movement.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_backward(const struct node *n)
{
	return (n->v.phase & (HD_UNIT_B | HD_UNIT_W)) != 0;
}

/* Returns the tensor in this buffer that backward reads, or NULL. */
static const struct tensor *read_in_backward(const struct hd_program *g, const struct tensor *root)
{
	for (struct node **r = g->readers[root->id]; r && *r; r++)
		if (is_backward(*r) && hd_node_here(g, *r))
			return root;
	for (const struct tensor *t = g->members_of[root->id]; t; t = g->next[t->id]) {
		const struct tensor *read = t->v.node && is_backward(N(t->v.node)) ? NULL : read_in_backward(g, t);

		if (read)
			return read;
	}
	return NULL;
}

/* Returns the tensor that names the buffer of root t if the buffer is saved, or NULL. */
static const struct tensor *kept(const struct hd_program *g, const struct tensor *t)
{
	const struct node *maker = t->v.node ? N(t->v.node) : NULL;

	if (g->at[t->id].root != t || t->step || !maker || !(maker->v.phase & HD_UNIT_F) || !hd_node_here(g, maker))
		return NULL;
	return read_in_backward(g, t);
}

/* Returns the name of the backward op that reads t and follows `last` in alphabetical order. NULL: no more. */
static const char *next_reader(const struct hd_program *g, const struct tensor *t, const char *last)
{
	const char *next = NULL;

	for (struct node **r = g->readers[t->id]; r && *r; r++) {
		const char *op = (*r)->v.op->name;

		if (is_backward(*r) && strcmp(op, last) > 0 && (!next || strcmp(op, next) < 0))
			next = op;
	}
	return next;
}

static char *readers(const struct hd_program *g, const struct tensor *t)
{
	char *text = hd_strdup("");

	for (const char *op = ""; (op = next_reader(g, t, op));)
		hd_append(&text, "%s%s", text[0] ? ", " : "", op);
	return text;
}

static json_t *line_json(const char *block, const struct tensor *t, int64_t bytes, const char *by)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s}", "block", block, "op", t->v.node->op->name, "dims",
			 t->v.spec, "dtype", hd_dtype_name(t->v.dtype), "elements", (json_int_t)hd_local_count(t),
			 "bytes", (json_int_t)bytes, "read_by", by);
}

static void line_text(const char *block, const struct tensor *t, int64_t bytes, const char *by)
{
	printf("%-10s %-12s %-28s %12lld bytes, for %s\n", block, t->v.node->op->name, t->v.spec, (long long)bytes, by);
}

/* Prints a block's saved buffers, or appends them to `all` if it is not NULL. Returns their bytes. */
static int64_t block_bytes(const struct hd_program *g, const char *name, json_t *all)
{
	int64_t sum = 0;

	for (size_t i = 0; i < g->nmine; i++) {
		const struct node *n = g->mine[i];

		for (uint32_t k = 0; k < n->v.nout && !strcmp(n->v.block, name); k++) {
			const struct tensor *root = n->outs[k], *t = kept(g, root);
			int64_t bytes = hd_local_bytes(root);
			char *by;

			if (!t)
				continue;
			by = readers(g, t);
			if (all)
				json_array_append_new(all, line_json(name, t, bytes, by));
			else
				line_text(name, t, bytes, by);
			sum += bytes;
			free(by);
		}
	}
	return sum;
}

void hd_saved_print(const struct hd_program *g, int json)
{
	const struct hd_plan *p = g->plan;
	json_t *all = json ? json_array() : NULL;
	char *text;

	for (size_t b = 0; b < p->nblocks; b++) {
		int64_t sum = block_bytes(g, p->blocks[b].name, all);

		if (!json && sum)
			printf("%-10s %-41s %12lld bytes\n", p->blocks[b].name, "together", (long long)sum);
	}
	if (!json)
		return;
	text = hd_json_line(all);
	puts(text);
	free(text);
}
