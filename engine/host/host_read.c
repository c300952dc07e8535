/* SPDX-License-Identifier: Apache-2.0
 * Functions with which plugins read the graph: nodes, leaves, placements and attributes (heddle/graph.h).
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "engine/device/device.h"

/* Returns whether the section that asks may see the node, as flags say. A node of a plugin's op belongs to the section
 * that built it, which lowers it. Two sections of one plugin share the op, but not the nodes. */
static int owner_matches(const struct node *n, uint32_t flags)
{
	if (flags & HD_MATCH_MINE)
		return n->inst >= 0 && n->inst == n->plan->slot.inst;
	return n->inst < 0 || n->inst == n->plan->slot.inst || n->plan->slot.inst < 0 || flags & HD_MATCH_OTHERS;
}

/* Returns whether `one`, "key=value", is among attributes "key=value key=value ...". */
static int has_attr(const char *attr, const char *one)
{
	size_t n = strlen(one);

	for (const char *at = attr; (at = strstr(at, one)); at++)
		if ((at == attr || at[-1] == ' ') && (!at[n] || at[n] == ' '))
			return 1;
	return 0;
}

static int reads(const struct node *n, const struct hd_tensor *t)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->v.ins[i] == t)
			return 1;
	return 0;
}

/* Returns whether a node reads t. Its list of users also keeps nodes that read t only before it was replaced. */
static int is_read(const struct tensor *t)
{
	for (size_t k = 0; k < t->nusers; k++)
		if (!t->users[k]->dead && reads(t->users[k], &t->v))
			return 1;
	return 0;
}

/* Returns whether all outputs of a node have been replaced, and nothing reads them. It stays in the list until the
 * slot ends. What replaces an output may be computed from it: then the node still runs. */
static int is_replaced(const struct node *n)
{
	uint32_t k = 0;

	while (k < n->v.nout && n->outs[k]->replaced_by && !is_read(n->outs[k]))
		k++;
	return n->v.nout && k == n->v.nout;
}

static int matches(const struct node *n, const struct hd_match *m)
{
	if (is_replaced(n))
		return 0;
	if (m->op && n->v.op != m->op)
		return 0;
	if (m->kind && strcmp(m->kind, n->v.kind))
		return 0;
	if (m->axis && (!n->v.reshard || n->v.reshard->axis != m->axis))
		return 0;
	if (!owner_matches(n, m->flags) || (m->attr && !has_attr(n->attr, m->attr)) ||
	    (m->reads && !reads(n, m->reads)))
		return 0;
	return !m->phases || n->v.phase & m->phases;
}

/* Returns the index of the walk that returned prev last; a new walk if there is none. If several walks are at prev,
 * prefers one with this match, or else takes the innermost. */
static size_t walk_of(struct hd_plan *p, const struct node *prev, const struct hd_match *m)
{
	size_t found = p->nwalks;

	for (size_t i = 0; prev && i < p->nwalks; i++)
		if (p->walks[i].at == prev && (found == p->nwalks || p->walks[i].by == m || p->walks[found].by != m))
			found = i;
	if (found < p->nwalks)
		return found;
	p->walks = hd_grow(p->walks, p->nwalks, &p->cap_walks, sizeof(*p->walks));
	p->walks[p->nwalks] = (struct node_walk){ m, prev, p->nnodes };
	return p->nwalks++;
}

struct hd_node *hd_host_node_next(struct hd_plan *p, struct hd_node *prev, const struct hd_match *m)
{
	struct hd_match x;
	struct node *n;
	size_t w;

	if (!HD_TAKE(p, "node_next", &x, m, reads) ||
	    !hd_args_flags(p, "node_next", "flags", x.flags, HD_MATCH_OTHERS | HD_MATCH_MINE) ||
	    !hd_args_flags(p, "node_next", "phases", x.phases, 63))
		return NULL;
	if ((prev && !hd_arg_node(p, "node_next", "node before", prev)) ||
	    (x.axis && !hd_arg_axis(p, "node_next", "axis", x.axis)) ||
	    (x.reads && !hd_arg_tensor(p, "node_next", "tensor that is read", x.reads)))
		return NULL;
	w = walk_of(p, prev ? N(prev) : NULL, m);
	for (n = prev ? N(prev)->next : p->first; n; n = n->next)
		if (n->id < p->walks[w].limit && matches(n, &x)) {
			p->walks[w].at = n;
			return &n->v;
		}
	for (p->nwalks--; w < p->nwalks; w++)
		p->walks[w] = p->walks[w + 1];
	return NULL;
}

/* Returns whether a tensor has storage of its own. Leaves do, and so do a parameter's gradients: the sum of
 * contributions, and what the update reads. */
int hd_host_has_home(const struct tensor *t, uint32_t what)
{
	return !t->v.node || (what == HD_TENSOR_GRAD && t->v.of &&
			      (N(t->v.node)->is->role == OP_ROLE_ACCUMULATE || N(t->v.node)->is->role == OP_ROLE_SYNC));
}

struct hd_tensor *hd_host_leaf_next(struct hd_plan *p, struct hd_tensor *prev, uint32_t what)
{
	if (!hd_args_one_of(p, "leaf_next", "what", what, HD_TENSOR_MASTER) ||
	    (prev && !hd_arg_tensor(p, "leaf_next", "leaf before", prev)))
		return NULL;
	for (size_t i = prev ? (size_t)T(prev)->id + 1 : 0; i < p->ntensors; i++) {
		struct tensor *t = p->tensors[i];

		if (t->v.what == what && hd_host_has_home(t, what) && !t->source)
			return &t->v;
	}
	return NULL;
}

const struct hd_place *hd_host_place(struct hd_plan *p, const struct hd_tensor *t, const struct hd_axis *axis)
{
	static const struct hd_place whole;

	if (!t || !axis || !hd_arg_tensor(p, "place", "tensor", t) || !hd_arg_axis(p, "place", "axis", axis))
		return &whole;
	if (t->what == HD_TENSOR_GRAD && !T(t)->placed && t->of && !(T(t)->stored >> A(axis)->id & 1))
		t = t->of;
	return T(t)->stored >> A(axis)->id & 1 ? &T(t)->storage.on[A(axis)->id] : &T(t)->at.on[A(axis)->id];
}

double hd_host_attr(const char *attr, const char *key, double otherwise)
{
	return attr && key ? hd_attr_num(attr, key, otherwise)
			   : otherwise; /* without a plan there is nothing to report an error to */
}

uint32_t hd_host_attr_dims(struct hd_plan *p, const char *attr, const char *key, const struct hd_dim **dims)
{
	const char *text = attr && key && dims ? hd_attr_text(attr, key) : NULL;

	if (!attr || !key || !dims)
		return (uint32_t)(hd_plan_fail(p, HD_EBUG, "attr_dims: the %s NULL",
					       !attr ? "attributes are"
					       : key ? "array is"
						     : "key is"),
				  0);
	return text ? hd_parse_dims(p, text, dims) : 0;
}
