/* SPDX-License-Identifier: Apache-2.0
 * What can be wrong with a plan although each of its steps was right, and what nobody can have meant.
 */
#include <config.h>
#include "engine/models/experts.h"
#include "engine/plan/plan_impl.h"
#include <string.h>

/* A node runs where all its inputs are, so two of them on two stages would be a node that runs nowhere right. */
int hd_check_stages(struct hd_plan *p)
{
	for (struct node *n = p->first; p->stages && n; n = n->next) {
		int64_t at = -1;

		for (uint32_t i = 0; i < n->v.nin && n->is->role != OP_ROLE_NORM2; i++) {
			const struct hd_place *w = &n->ins[i]->at.on[p->stages->id];

			if (w->kind == HD_PLACE_PINNED && at >= 0 && w->index != at)
				return hd_plan_fail(p, HD_EINVAL,
						    "%s (made by %s) joins tensors of stages %lld and %d: %s (%s)",
						    n->v.op->name,
						    n->inst >= 0 ? p->inst[n->inst].name : "the engine or a lowering",
						    (long long)at, w->index, n->ins[i]->v.name, n->ins[i]->v.spec);
			at = w->kind == HD_PLACE_PINNED ? w->index : at;
		}
	}
	return HD_OK;
}

/* Correct, and a waste that nobody can have meant: a rule for a dim that the model has not looks like this. */
static void warn_of_idle_axes(const struct hd_plan *p)
{
	for (int a = 0; a < p->naxes; a++) {
		int used = p->axes[a]->v.n == 1 || p->stages == p->axes[a];

		for (size_t i = 0; i < p->ntensors && !used; i++)
			used = p->tensors[i]->at.on[a].kind != HD_PLACE_REPLICATED;
		if (!used)
			hd_log(HD_LOG_WARN,
			       "[strategy %s] axis %s: nothing is sharded along it: its %lld members all compute the same",
			       p->inst[p->axes[a]->inst].name, p->axes[a]->v.name, (long long)p->axes[a]->v.n);
	}
}

static int is_kind(const struct hd_plan *p, const char *kind)
{
	const struct node *n = p->first;

	while (n && strcmp(n->v.kind, kind))
		n = n->next;
	return n || hd_op_find(kind);
}

/* A rule for a kind that no op has does nothing, and the layout works all the same, in another way than was meant. */
static void warn_of_strange_kinds(const struct hd_plan *p)
{
	for (size_t i = 0; i < p->nrules; i++)
		if (p->rules[i].kind && !is_kind(p, p->rules[i].kind))
			hd_log(HD_LOG_WARN,
			       "[strategy %s] rule: no op is of kind %s, so the rule for %s shards nothing",
			       p->inst[p->rules[i].axis->inst].name, p->rules[i].kind, p->rules[i].dim->name);
}

int hd_check_placed(struct hd_plan *p)
{
	HD_TRY(hd_experts_check(p));
	warn_of_idle_axes(p);
	warn_of_strange_kinds(p);
	return HD_OK;
}
