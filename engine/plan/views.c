/* SPDX-License-Identifier: Apache-2.0
 * The views that plugins get are the engine's own memory.  If a plugin wrote to one, this is reported when its slot
 * ends.
 */
#include <config.h>
#include "engine/host/host.h"
#include "engine/plan/plan_impl.h"
#include <string.h>
#include <stdlib.h>

struct shown_tensor {
	struct hd_tensor v;
	int64_t local[HD_MAX_DIMS];
};
struct shown_node {
	const struct node *at;
	struct hd_node v;
};
struct hd_views {
	struct hd_axis *axes;
	struct hd_dim *dims;
	struct hd_group *groups;
	struct hd_block *blocks;
	struct shown_tensor *tensors;
	struct shown_node *nodes;
	int naxes;
	size_t ndims, ngroups, nblocks, ntensors, nnodes;
};

static void take_graph(const struct hd_plan *p, struct hd_views *v)
{
	v->ntensors = p->ntensors;
	v->tensors = hd_alloc((p->ntensors + 1) * sizeof(*v->tensors));
	for (size_t i = 0; i < p->ntensors; i++) {
		v->tensors[i].v = p->tensors[i]->v;
		memcpy(v->tensors[i].local, p->tensors[i]->local, sizeof(v->tensors[i].local));
	}
	v->nodes = hd_alloc(((size_t)p->nnodes + 1) * sizeof(*v->nodes));
	for (const struct node *n = p->first; n; n = n->next)
		v->nodes[v->nnodes++] = (struct shown_node){ n, n->v };
}

struct hd_views *hd_views_take(const struct hd_plan *p)
{
	struct hd_views *v = hd_alloc(sizeof(*v));

	v->naxes = p->naxes;
	v->axes = hd_alloc(((size_t)p->naxes + 1) * sizeof(*v->axes));
	for (int i = 0; i < p->naxes; i++)
		v->axes[i] = p->axes[i]->v;
	v->ndims = p->ndims;
	v->dims = hd_alloc((p->ndims + 1) * sizeof(*v->dims));
	for (size_t i = 0; i < p->ndims; i++)
		v->dims[i] = p->dims[i]->v;
	v->ngroups = p->ngroups;
	v->groups = hd_alloc((p->ngroups + 1) * sizeof(*v->groups));
	for (size_t i = 0; i < p->ngroups; i++)
		v->groups[i] = p->groups[i]->v;
	v->nblocks = p->nblocks;
	v->blocks = hd_alloc((p->nblocks + 1) * sizeof(*v->blocks));
	for (size_t i = 0; i < p->nblocks; i++)
		v->blocks[i] = p->blocks[i].v;
	take_graph(p, v);
	return v;
}

static int written(struct hd_plan *p, const char *what, const char *name, const char *field, int64_t is, int64_t was)
{
	return hd_plan_fail(p, HD_EBUG, "%s %s: the view was written to: %s is %lld but was %lld", what, name, field,
			    (long long)is, (long long)was);
}

static int same(struct hd_plan *p, const char *what, const char *name, const char *field, int64_t is, int64_t was)
{
	return is == was ? HD_OK : written(p, what, name, field, is, was);
}

static int same_address(struct hd_plan *p, const char *what, const char *name, const char *field, const void *is,
			const void *was)
{
	return same(p, what, name, field, (intptr_t)is, (intptr_t)was);
}

static int check_mesh(struct hd_plan *p, const struct hd_views *v)
{
	for (int i = 0; i < v->naxes; i++) {
		const struct hd_axis *a = &p->axes[i]->v, *was = &v->axes[i];

		HD_TRY(same(p, "axis", was->name, "n", a->n, was->n));
		HD_TRY(same(p, "axis", was->name, "spare", a->spare, was->spare));
		HD_TRY(same_address(p, "axis", was->name, "name", a->name, was->name));
	}
	for (size_t i = 0; i < v->ndims; i++) {
		HD_TRY(same(p, "dim", v->dims[i].name, "n", p->dims[i]->v.n, v->dims[i].n));
		HD_TRY(same_address(p, "dim", v->dims[i].name, "name", p->dims[i]->v.name, v->dims[i].name));
	}
	for (size_t i = 0; i < v->ngroups; i++)
		HD_TRY(same(p, "group", p->groups[i]->name, "n", p->groups[i]->v.n, v->groups[i].n));
	for (size_t i = 0; i < v->nblocks; i++)
		if (memcmp(&p->blocks[i].v, &v->blocks[i], sizeof(v->blocks[i])))
			return written(p, "block", v->blocks[i].name, "param_bytes", p->blocks[i].v.param_bytes,
				       v->blocks[i].param_bytes);
	return HD_OK;
}

/* The engine itself changes the fields what, of and name of a tensor, and in slot storage the local sizes of leaves. */
static int check_tensors(struct hd_plan *p, const struct hd_views *v)
{
	for (size_t i = 0; i < v->ntensors; i++) {
		const struct hd_tensor *t = &p->tensors[i]->v, *was = &v->tensors[i].v;

		HD_TRY(same(p, "tensor", was->spec, "ndim", t->ndim, was->ndim));
		HD_TRY(same(p, "tensor", was->spec, "dtype", t->dtype, was->dtype));
		HD_TRY(same_address(p, "tensor", was->spec, "dims", t->dims, was->dims));
		HD_TRY(same_address(p, "tensor", was->spec, "local", t->local, was->local));
		HD_TRY(same_address(p, "tensor", was->spec, "spec", t->spec, was->spec));
		HD_TRY(same_address(p, "tensor", was->spec, "node", t->node, was->node));
		for (uint32_t k = 0; k < was->ndim && !hd_in_slot(p, "storage"); k++)
			HD_TRY(same(p, "tensor", was->spec, "local", p->tensors[i]->local[k], v->tensors[i].local[k]));
	}
	return HD_OK;
}

static int check_operands(struct hd_plan *p, const struct node *n, const char *list, struct tensor *const *at,
			  uint32_t count)
{
	uint32_t i = 0;

	while (i < count && at[i] == at[count + i])
		i++;
	if (i == count)
		return HD_OK;
	return hd_plan_fail(p, HD_EBUG, "node %s: the view was written to: %s[%u] is %s but was %s", n->v.op->name,
			    list, i,
			    hd_handle_kind(p, at[i]) == HANDLE_TENSOR ? at[i]->v.spec : "not a tensor of this plan",
			    at[count + i]->v.spec);
}

static int check_nodes(struct hd_plan *p, const struct hd_views *v)
{
	for (size_t i = 0; i < v->nnodes; i++) {
		const struct hd_node *n = &v->nodes[i].at->v, *was = &v->nodes[i].v;

		HD_TRY(same_address(p, "node", was->op->name, "op", n->op, was->op));
		HD_TRY(same_address(p, "node", was->op->name, "kind", n->kind, was->kind));
		HD_TRY(same_address(p, "node", was->op->name, "attr", n->attr, was->attr));
		HD_TRY(same_address(p, "node", was->op->name, "block", n->block, was->block));
		HD_TRY(same_address(p, "node", was->op->name, "ins", n->ins, was->ins));
		HD_TRY(same_address(p, "node", was->op->name, "outs", n->outs, was->outs));
		HD_TRY(same_address(p, "node", was->op->name, "owner", n->owner, was->owner));
		HD_TRY(same(p, "node", was->op->name, "nin", n->nin, was->nin));
		HD_TRY(same(p, "node", was->op->name, "nout", n->nout, was->nout));
		HD_TRY(same(p, "node", was->op->name, "phase", n->phase, was->phase));
		HD_TRY(same(p, "node", was->op->name, "stage", n->stage, was->stage));
	}
	for (const struct node *n = p->first; n; n = n->next) {
		HD_TRY(check_operands(p, n, "ins", n->ins, n->v.nin));
		HD_TRY(check_operands(p, n, "outs", n->outs, n->v.nout));
	}
	return HD_OK;
}

int hd_views_check(struct hd_plan *p, struct hd_views *v)
{
	int rc = check_mesh(p, v);

	rc = rc < 0 ? rc : check_tensors(p, v);
	rc = rc < 0 ? rc : check_nodes(p, v);
	free(v->axes), free(v->dims), free(v->groups), free(v->blocks), free(v->tensors), free(v->nodes), free(v);
	return rc;
}
