/* SPDX-License-Identifier: Apache-2.0
 * Helps to find where the plans of two ranks begin to differ: a hash of each node, and a node described in words.
 */
#include <config.h>
#include "engine/base/hash.h"
#include "engine/plan/plan.h"
#include <stdio.h>

char *hd_plan_node_hashes(struct hd_plan *p)
{
	size_t n = 0;
	char *text, *to;

	for (const struct node *x = p->first; x; x = x->next)
		n++;
	to = text = hd_alloc(n * HD_NODE_HASH + 1);
	for (const struct node *x = p->first; x; x = x->next, to += HD_NODE_HASH) {
		uint64_t h = HD_HASH_START;

		hd_plan_hash_node(p, x, &h);
		snprintf(to, HD_NODE_HASH + 1, "%016llx", (unsigned long long)h);
	}
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
