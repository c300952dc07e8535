/* SPDX-License-Identifier: Apache-2.0
 * Builders of nodes by the names of the engine's ops, for models, passes and the ops' own gradients.
 */
#include <config.h>
#include "engine/ops/build.h"
#include <stdarg.h>
#include <stdlib.h>

struct node *hd_node_make(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin, const char *fmt,
			  ...)
{
	const struct op *o = hd_op_find(op);
	struct node *n;
	char *attr;
	va_list v;

	if (!o) {
		hd_plan_fail(p, HD_EBUG, "there is no op %s", op);
		return NULL;
	}
	va_start(v, fmt);
	attr = hd_vformat(fmt, v);
	va_end(v);
	n = hd_node_new(p, &o->v, &o->is, ins, nin, attr);
	free(attr);
	return n;
}

struct tensor *hd_op1(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin, const char *fmt, ...)
{
	struct node *n;
	char *attr;
	va_list v;

	va_start(v, fmt);
	attr = hd_vformat(fmt, v);
	va_end(v);
	n = hd_node_make(p, op, ins, nin, "%s", attr);
	free(attr);
	return n ? n->outs[0] : NULL;
}

struct tensor *hd_einsum(struct hd_plan *p, struct tensor *a, struct tensor *b, const char *spec)
{
	struct tensor *ins[] = { a, b };

	return hd_op1(p, b ? "einsum" : "sum", ins, b ? 2 : 1, "out=%s", spec);
}

struct tensor *hd_map_new(struct hd_plan *p, struct tensor *const *ins, uint32_t nin, const char *expr)
{
	return hd_op1(p, "map", ins, nin, "%s", expr);
}
