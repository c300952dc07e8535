/* SPDX-License-Identifier: Apache-2.0
 * Splits an op that may not shard a dim into phases that may.  A rule for kind norm asks for it with the dim that norms
 * reduce: a norm then becomes statistics of a shard, small sums, and the result (ops/norm_parts.c).  So does its
 * gradient.  Without such a rule, a norm stays one kernel, which reads memory once.
 *
 * The pass runs after autodiff: the phases form one formula, and are not differentiated one by one.
 */
#include <config.h>
#include "engine/passes/passes.h"
#include "engine/device/device.h"
#include <string.h>

static int is_asked_for(const struct hd_plan *p, const struct node *n)
{
	const struct tensor *x = n->ins[0];

	for (size_t i = 0; i < p->nrules; i++) {
		const struct rule *r = &p->rules[i];

		if (r->kind && !strcmp(r->kind, n->v.kind) && !(r->flags & HD_RULE_KEEP_REPLICATED) &&
		    r->dim == x->dims[x->v.ndim - 1])
			return 1;
	}
	return 0;
}

static void replace_all(struct hd_plan *p, const struct node *n, const struct node *with)
{
	for (uint32_t k = 0; with && k < n->v.nout; k++)
		hd_replace(p, n->outs[k], with->outs[k]);
}

static void norm_in_phases(struct hd_plan *p, struct node *n)
{
	int rms = n->v.nout == 2;
	struct node *part = hd_node_make(p, "norm_part", n->ins, 1, "rms=%d", rms);
	struct tensor *ins[5], *combine[4];
	uint32_t k = n->v.nin;

	if (!part)
		return;
	memcpy(ins, n->ins, k * sizeof(*ins));
	if (!rms) {
		combine[0] = combine[1] = ins[k++] = part->outs[0];
		combine[2] = part->outs[1];
		combine[3] = n->ins[0];
	}
	ins[k++] = rms ? part->outs[0] : hd_op1(p, "norm_combine", combine, 4, "%s", "");
	replace_all(p, n,
		    hd_node_make(p, "norm_apply", ins, k, "rms=%d eps=%.17g", rms, hd_attr_num(n->attr, "eps", 1e-5)));
}

static void gradient_in_phases(struct hd_plan *p, struct node *n)
{
	int rms = n->v.nin == 4;
	struct node *part = hd_node_make(p, "norm_d_part", n->ins, n->v.nin, "rms=%d", rms);
	struct tensor *ins[7];
	uint32_t k = n->v.nin;

	if (!part)
		return;
	memcpy(ins, n->ins, k * sizeof(*ins));
	for (uint32_t s = 0; s + 1 < part->v.nout; s++)
		ins[k++] = part->outs[s];
	replace_all(p, n, hd_node_make(p, "norm_d_apply", ins, k, "rms=%d", rms));
}

int hd_pass_decompose(struct hd_plan *p)
{
	for (struct node *n = p->first; n && !p->err->code; n = n->next) {
		int norm = n->is->role == OP_ROLE_NORM;

		if ((!norm && n->is->role != OP_ROLE_NORM_D) || !is_asked_for(p, n))
			continue;
		p->cursor = hd_cursor_before(n);
		(norm ? norm_in_phases : gradient_in_phases)(p, n);
	}
	if (!p->err->code)
		hd_drop_dead(p);
	return p->err->code;
}
