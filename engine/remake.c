/* SPDX-License-Identifier: Apache-2.0
 * Kept or made again: the output of a cheap op whose inputs stay anyway for the op's own backward (gelu, swiglu, norm) is
 * made again where backward reads it - one pass over memory - instead of being kept from forward.  A logical rewrite,
 * before placement; the same kernel on the same operands, so nothing changes by a bit.
 *
 * A GPT-2 layer keeps 10 instead of 16 tensors of batch x seq x embed this way.
 */
#include <config.h>
#include "engine/plan.h"
#include <string.h>

static int is_cheap(const struct node *n)
{
	static const char *const cheap[] = { "gelu", "swiglu", "norm" };

	for (size_t i = 0; i < HD_LEN(cheap); i++)
		if (!strcmp(n->v.op->name, cheap[i]))
			return n->v.phase == HD_F;
	return 0;
}

static int reads(const struct node *n, const struct tensor *t)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->ins[i] == t)
			return 1;
	return 0;
}

static void make_again(struct hd_plan *p, struct node *n)
{
	struct tensor *y = n->outs[0];
	struct node *copy = NULL;

	for (struct node *r = n->next; r && !p->err->code; r = r->next) {
		if (!(r->v.phase & (HD_B | HD_W)) || !reads(r, y))
			continue;
		if (!copy) {
			p->anchor = r;
			p->phase = r->v.phase;
			p->block = n->block;
			copy = hd_node_new(p, n->v.op, n->ins, n->v.nin, n->attr);
			if (!copy)
				break;
		}
		if (r->v.phase == HD_B)			/* weight gradients may run later, activations' may not wait for them */
			copy->v.phase = HD_B;
		for (uint32_t i = 0; i < r->v.nin; i++)
			if (r->ins[i] == y)
				r->ins[i] = copy->outs[0];
	}
	p->anchor = NULL;
	p->block = -1;
}

int hd_remake(struct hd_plan *p)
{
	struct node *n, *next;

	for (n = p->first; n && n->v.phase == HD_F; n = next) {
		next = n->next;
		if (is_cheap(n))
			make_again(p, n);
	}
	return p->err->code;
}
