/* SPDX-License-Identifier: Apache-2.0
 * The rules (dim -> axis) as a node sees them: the first whose dim it has and may cut.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/graph/placement.h"
#include <string.h>

static int may_cut(const struct node *n, const struct hd_dim *d)
{
	const char *const *u = n->v.op->unshardable;

	for (; u && *u; u++)
		if (!strcmp(*u, d->name))
			return 0;
	for (uint32_t i = 0; i < n->v.nin + n->v.nout; i++)
		if (hd_has_dim(i < n->v.nin ? n->ins[i] : n->outs[i - n->v.nin], d))
			return 1;
	return 0;
}

const struct rule *hd_rule_for(const struct hd_plan *p, const struct node *n, const struct axis *a)
{
	for (size_t i = 0; i < p->nrules; i++) {
		const struct rule *r = &p->rules[i];

		if (r->axis == a && (!r->kind || !strcmp(r->kind, n->v.kind)) && may_cut(n, r->dim))
			return r->flags & HD_RULE_KEEP_REPLICATED ? NULL : r;
	}
	return NULL;
}

const struct hd_dim *hd_sharded_by_rules(const struct hd_plan *p, const struct node *n, const struct axis *a)
{
	const struct rule *r = hd_rule_for(p, n, a);

	return r ? r->dim : NULL;
}
