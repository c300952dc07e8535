/* SPDX-License-Identifier: Apache-2.0
 * What runs beside a collective.  A reshard stands where its first reader is; here its communication moves up to where
 * its operand is made, and the weight gradients of the block, which nothing waits for, move down to between its start and
 * its reader.  The gradient of a product's input is then under way while the gradient of its weight is computed.
 *
 * What a weight gradient itself has moved (a gathered operand) starts one product earlier, for the same reason. So does
 * what is made of a leaf. A parameter that is gathered for a product is under way during the product before.
 *
 * Program order is the order of everything that follows: sharing of memory, timeline, lifetimes.  So this stands before
 * all of them, and they need not know.  Where communication is made inline the order costs nothing; where it leaves the
 * host it is hidden.  No value changes: what a node computes does not depend on when.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/passes/passes.h"
#include "engine/comm/comm.h"
#include <string.h>

#define GRADIENT (HD_UNIT_B | HD_UNIT_W)

static int is_collective(const struct node *n)
{
	return n->comm.kind && n->v.nin == 1 && n->comm.kind != HD_COMM_SEND && n->comm.kind != HD_COMM_RECV &&
	       n->made_by < 0 && n->block >= 0 && n->v.phase & (HD_UNIT_F | GRADIENT);
}

/* Of one block, in one pass over it. */
static int together(const struct node *a, const struct node *b)
{
	return a->block == b->block && (a->v.phase == b->v.phase || (a->v.phase & GRADIENT && b->v.phase & GRADIENT));
}

static int is_product(const struct node *n)
{
	struct hd_cost c = { .size = sizeof(c) };

	if (n->comm.kind || !n->v.op->cost)
		return 0;
	hd_node_cost(n, &c);
	return c.matmul_flops > 0;
}

static int reads(const struct node *r, const struct node *n)
{
	for (uint32_t i = 0; i < r->v.nin; i++)
		if (r->ins[i]->v.node == &n->v)
			return 1;
	return 0;
}

/* Brings the operand into the form that the collective moves. */
static struct node *preparation(const struct node *c)
{
	struct node *n = c->ins[0]->v.node ? N(c->ins[0]->v.node) : NULL;

	return n && n->made_by < 0 && (n->is->role == OP_ROLE_BLOCK || n->is->role == OP_ROLE_VIEW) && together(n, c)
		       ? n
		       : NULL;
}

/* -- starts --------------------------------------------------------------------------------------------------------------- */
/* Behind those that were there first: they are read first. */
static struct node *behind(struct node *maker, const struct node *first)
{
	struct node *at = maker->next;

	while (at != first &&
	       (is_collective(at) || (at->next && is_collective(at->next) && preparation(at->next) == at)))
		at = at->next;
	return at;
}

static void start_early(struct hd_plan *p, struct node *c)
{
	struct node *prepare = preparation(c), *first = prepare ? prepare : c;
	struct node *maker = first->ins[0]->v.node ? N(first->ins[0]->v.node) : NULL;

	if (!maker || !together(maker, c) || (maker->v.phase & HD_UNIT_W && !(c->v.phase & HD_UNIT_W)))
		return;
	if (prepare)
		hd_node_move(p, prepare, behind(maker, prepare));
	hd_node_move(p, c, prepare ? prepare->next : behind(maker, c));
}

static int is_needed(const struct node *n, const struct node *c)
{
	for (const struct node *r = n->next; r != c->next; r = r->next)
		if (r->mark && reads(r, n))
			return 1;
	return 0;
}

static void clear_marks(struct node *from, const struct node *to)
{
	for (struct node *n = from; n != to; n = n->next)
		n->mark = 0;
}

/* Marks c and what it needs of the weight gradients' nodes behind `product`.  -> 0: it needs something else of there. */
static int mark_needed(struct node *c, struct node *product)
{
	c->mark = 1;
	for (struct node *n = c->prev; n != product->prev; n = n->prev) {
		n->mark = is_needed(n, c);
		if (n->mark && (n->v.phase != HD_UNIT_W || n->comm.kind || n->made_by >= 0 || is_product(n))) {
			clear_marks(n, c->next);
			return 0;
		}
	}
	return 1;
}

static void move_marked(struct hd_plan *p, struct node *from, const struct node *to, struct node *before)
{
	for (struct node *n = from, *next; n != to; n = next) {
		next = n->next;
		if (n->mark)
			hd_node_move(p, n, before);
		n->mark = 0;
	}
}

/* What is moved for a weight gradient does not depend on the product in front of it. */
static void start_before_product(struct hd_plan *p, struct node *c)
{
	struct node *product = c->prev;

	while (product && together(product, c) && !(product->v.phase & HD_UNIT_B && is_product(product)))
		product = product->prev;
	if (product && together(product, c) && mark_needed(c, product))
		move_marked(p, product->next, c->next, product);
}

/* -- what stands between --------------------------------------------------------------------------------------------------- */
static struct node *first_reader(struct node *c)
{
	for (struct node *r = c->next; r; r = r->next)
		if (reads(r, c))
			return r;
	return NULL;
}

/* Whether anything behind n, up to and with c, reads it and stays. */
static int is_missed(const struct node *n, const struct node *c)
{
	for (const struct node *r = n->next; r != c->next; r = r->next)
		if (!r->mark && reads(r, n))
			return 1;
	return 0;
}

/* Waits for a collective, so what is behind it has been computed beside that one, or comes later. */
static int waits(const struct node *n)
{
	for (uint32_t i = 0; n->v.phase == HD_UNIT_B && i < n->v.nin; i++)
		if (n->ins[i]->v.node && is_collective(N(n->ins[i]->v.node)))
			return 1;
	return 0;
}

/* The weight gradients' products since the last wait, with what they alone need, go behind c. */
static void compute_beside(struct hd_plan *p, struct node *c)
{
	struct node *reader = first_reader(c), *n;

	if (!reader || !together(reader, c))
		return;
	for (n = c->prev; n && together(n, c) && !waits(n); n = n->prev)
		n->mark = n->v.phase == HD_UNIT_W && n->made_by < 0 && !n->comm.kind && !is_missed(n, c) &&
			  (is_product(n) || is_needed(n, c));
	move_marked(p, n ? n->next : p->first, c, c->next);
}

/* -- of leaves ------------------------------------------------------------------------------------------------------------- */
static int same_unit(const struct hd_plan *p, const struct node *a, const struct node *b)
{
	return a->block >= 0 && a->v.phase == b->v.phase && p->blocks[a->block].chunk == p->blocks[b->block].chunk &&
	       p->blocks[a->block].coord == p->blocks[b->block].coord;
}

/* Of one chunk: what belongs to other units may stand between, and does not count. */
static void start_beside_product(struct hd_plan *p, struct node *c)
{
	struct node *prepare = preparation(c), *first = prepare ? prepare : c, *at = first->prev;

	if (first->ins[0]->v.node)
		return;
	while (at && !(same_unit(p, at, c) && is_product(at)))
		at = at->prev;
	if (!at)
		return;
	if (prepare)
		hd_node_move(p, prepare, at);
	hd_node_move(p, c, at);
}

int hd_pass_overlap(struct hd_plan *p)
{
	struct node *next;

	for (struct node *n = p->first; n; n = next) {
		next = n->next;
		n->mark = 0;
		if (is_collective(n))
			start_early(p, n);
	}
	for (struct node *n = p->first; n; n = next) {
		next = n->next;
		if (is_collective(n) && n->v.phase == HD_UNIT_W)
			start_before_product(p, n);
		else if (is_collective(n) && n->v.phase & (HD_UNIT_F | HD_UNIT_B))
			start_beside_product(p, n);
	}
	for (struct node *n = p->first; n; n = n->next)
		if (is_collective(n) && n->v.phase == HD_UNIT_B)
			compute_beside(p, n);
	return p->err->code;
}
