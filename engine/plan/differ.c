/* SPDX-License-Identifier: Apache-2.0
 * Helps to find where the plans of two ranks begin to differ: a hash of each node, and a node described in words.
 */
#include <config.h>
#include "engine/base/hash.h"
#include "engine/plan/plan_impl.h"
#include <stdio.h>
#include <stdlib.h>

/* Hashes what node x is and which operands it reads. Operands are named by the place of their node, not by their ids.
 * Ids also depend on nodes that were dropped, so they would make equal nodes differ. place: by id of a node. */
static void hash_node(struct hd_plan *p, const struct node *x, const int64_t *place, uint64_t *h)
{
	hd_plan_hash_op(p, x, h);
	*h = hd_hash_add(hd_hash_add_field(*h, x->v.block), x->v.phase);
	for (uint32_t i = 0; i < x->v.nin; i++) {
		const struct tensor *t = x->ins[i];
		const struct node *maker = t->v.node ? N(t->v.node) : NULL;
		uint32_t k = 0;

		while (maker && k < maker->v.nout && maker->outs[k] != t)
			k++;
		*h = hd_hash_add_field(*h,
				       maker ? hd_plan_text(p, "%lld %u", (long long)place[maker->id], k) : t->v.name);
		*h = hd_hash_add_field(*h, hd_plan_text(p, "%s %lld", t->v.spec, (long long)hd_local_count(t)));
	}
}

char *hd_plan_node_hashes(struct hd_plan *p)
{
	int64_t *place = hd_alloc(((size_t)p->nnodes + 1) * sizeof(*place));
	size_t n = 0;
	char *text, *to;

	for (const struct node *x = p->first; x; x = x->next)
		place[x->id] = (int64_t)n++;
	to = text = hd_alloc(n * HD_NODE_HASH + 1);
	for (const struct node *x = p->first; x; x = x->next, to += HD_NODE_HASH) {
		uint64_t h = HD_HASH_START;

		hash_node(p, x, place, &h);
		snprintf(to, HD_NODE_HASH + 1, "%016llx", (unsigned long long)h);
	}
	free(place);
	return text;
}

/* Returns the node's first operand or result with a name, or else its first result. */
static const struct tensor *subject(const struct node *n)
{
	for (uint32_t i = 0; i < n->v.nin + n->v.nout; i++) {
		const struct tensor *t = i < n->v.nin ? n->ins[i] : n->outs[i - n->v.nin];

		if (t->v.name[0])
			return t;
	}
	return n->v.nout ? n->outs[0] : n->ins[0];
}

char *hd_plan_node_text(const struct hd_plan *p, int64_t i)
{
	const struct node *n = p->first;
	const struct tensor *t;
	char *text = NULL;

	while (n && i-- > 0)
		n = n->next;
	if (!n)
		return hd_strdup("none");
	t = subject(n);
	hd_append(&text, "%s%s%s%s%s of %s(%s", n->v.op->name, *n->attr ? " " : "", n->attr,
		  n->v.block[0] ? " in " : "", n->v.block, t->v.name, t->v.spec);
	for (uint32_t k = 0; k < t->v.ndim; k++)
		hd_append(&text, "%s%lld", k ? " x " : ": ", (long long)t->local[k]);
	hd_append(&text, ")");
	return text;
}
