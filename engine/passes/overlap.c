/* SPDX-License-Identifier: Apache-2.0
 * Overlaps collectives with computation.  A reshard precedes its first reader; here its communication moves up to
 * directly after the node that computes its operand.  The weight gradients of the block, which nothing waits for, move
 * down into the gap before the reader.  So the gradient of a product's input is in flight while that of its weight is
 * computed:
 *
 *   before: einsum dy, w -> dx;   einsum x, dy -> dw;   all-reduce dx -> dz;   norm_d dz
 *   after:  einsum dy, w -> dx;   all-reduce dx -> dz;   einsum x, dy -> dw;   norm_d dz
 *
 * A collective that a weight gradient itself needs (a gathered operand) starts one product earlier, for the same
 * reason.  So does the collective of a leaf: a parameter is gathered for a product while the product before runs.  If
 * it comes from other hosts, it is gathered while the complete block before computes.
 * What reads a reduce-scattered gradient moves down behind the next block, so that the sum is in flight while that
 * block computes:
 *
 *   before: pack dw -> g;   reduce-scatter g -> h;   unpack h -> dw';   block below
 *   after:  pack dw -> g;   reduce-scatter g -> h;   block below;   unpack h -> dw'
 *
 * Sharing of memory, the timeline and lifetimes all follow program order.  This pass runs before them, so they need not
 * know about it.  If communication runs inline, the order costs nothing; if it leaves the host, its time is hidden.  No
 * value changes, because the result of a node does not depend on when the node runs.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/passes/passes.h"
#include "engine/comm/comm.h"
#include "engine/ops/build.h"
#include <string.h>

#define GRADIENT (HD_UNIT_B | HD_UNIT_W)

static int is_collective(const struct node *n)
{
	return n->comm.kind && n->v.nin == 1 && n->comm.kind != HD_COMM_SEND && n->comm.kind != HD_COMM_RECV &&
	       n->made_by < 0 && n->block >= 0 && n->v.phase & (HD_UNIT_F | GRADIENT);
}

/* Returns whether a strategy made this all-gather, such as that of a bucket of parameters (zero = 3). */
static int is_gather_of_strategy(const struct node *n)
{
	return n->comm.kind == HD_COMM_ALL_GATHER && n->v.nin == 1 && n->made_by >= 0 && n->block >= 0;
}

/* Returns whether both are in one block, and both in its forward or both in its backward. */
static int same_direction(const struct node *a, const struct node *b)
{
	return a->block == b->block && (a->v.phase == b->v.phase || (a->v.phase & GRADIENT && b->v.phase & GRADIENT));
}

static int is_product(const struct node *n)
{
	return hd_node_product_flops(n) > 0;
}

static int reads(const struct node *r, const struct node *n)
{
	for (uint32_t i = 0; i < r->v.nin; i++)
		if (r->ins[i]->v.node == &n->v)
			return 1;
	return 0;
}

/* Returns the node that brings the operand of collective c into the form that is sent, or NULL. */
static struct node *preparation(const struct node *c)
{
	struct node *n = c->ins[0]->v.node ? N(c->ins[0]->v.node) : NULL;

	return n && n->made_by < 0 && (n->is->role == OP_ROLE_BLOCK || n->is->role == OP_ROLE_VIEW) &&
			       same_direction(n, c)
		       ? n
		       : NULL;
}

/* -- starts --------------------------------------------------------------------------------------------------------------- */
/* Returns the place after the node `maker` and after the collectives that are already there: their readers come
 * first. */
static struct node *place_after(struct node *maker, const struct node *first)
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

	if (!maker || !same_direction(maker, c) || (maker->v.phase & HD_UNIT_W && !(c->v.phase & HD_UNIT_W)))
		return;
	if (prepare)
		hd_node_move(p, prepare, place_after(maker, prepare));
	hd_node_move(p, c, prepare ? prepare->next : place_after(maker, c));
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

/* Marks c, and the nodes after `product` that it needs, if they belong to weight gradients.  Returns 0 if c needs any
 * other node from there. */
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

/* Moves a collective of a weight gradient to before the preceding product, on which it does not depend. */
static void start_before_product(struct hd_plan *p, struct node *c)
{
	struct node *product = c->prev;

	while (product && same_direction(product, c) && !(product->v.phase & HD_UNIT_B && is_product(product)))
		product = product->prev;
	if (product && same_direction(product, c) && mark_needed(c, product))
		move_marked(p, product->next, c->next, product);
}

/* -- what runs in between -------------------------------------------------------------------------------------------------- */
static struct node *first_reader(struct node *c)
{
	for (struct node *r = c->next; r; r = r->next)
		if (reads(r, c))
			return r;
	return NULL;
}

/* Returns whether a node after n, up to and including c, reads n and does not move. */
static int has_unmoved_reader(const struct node *n, const struct node *c)
{
	for (const struct node *r = n->next; r != c->next; r = r->next)
		if (!r->mark && reads(r, n))
			return 1;
	return 0;
}

/* Returns whether n, a node of unit B, waits for a collective.  Nodes before it already overlap with that
 * collective. */
static int waits_for_collective(const struct node *n)
{
	for (uint32_t i = 0; n->v.phase == HD_UNIT_B && i < n->v.nin; i++)
		if (n->ins[i]->v.node && is_collective(N(n->ins[i]->v.node)))
			return 1;
	return 0;
}

/* Moves the products of weight gradients since the last wait, and what only they need, to after c. */
static void compute_during(struct hd_plan *p, struct node *c)
{
	struct node *reader = first_reader(c), *n;

	if (!reader || !same_direction(reader, c))
		return;
	for (n = c->prev; n && same_direction(n, c) && !waits_for_collective(n); n = n->prev)
		n->mark = n->v.phase == HD_UNIT_W && n->made_by < 0 && !n->comm.kind && !has_unmoved_reader(n, c) &&
			  (is_product(n) || is_needed(n, c));
	move_marked(p, n ? n->next : p->first, c, c->next);
}

/* -- collectives of leaves ------------------------------------------------------------------------------------------------- */
static int same_unit(const struct hd_plan *p, const struct node *a, const struct node *b)
{
	return a->block >= 0 && a->v.phase == b->v.phase && p->blocks[a->block].chunk == p->blocks[b->block].chunk &&
	       p->blocks[a->block].coord == p->blocks[b->block].coord;
}

/* Returns the node that packs parameters for collective c of a strategy, or NULL. */
static struct node *packed_leaves(const struct node *c)
{
	struct node *n = c->ins[0]->v.node ? N(c->ins[0]->v.node) : NULL;

	for (uint32_t i = 0; n && i < n->v.nin; i++)
		if (n->ins[i]->v.node)
			return NULL;
	return n && same_direction(n, c) ? n : NULL;
}

static int is_gathered_from_hosts(const struct hd_plan *p, const struct node *c)
{
	int leaves = 0;

	for (uint32_t a = 0; a < c->comm.group->n; a++)
		leaves |= hd_may_leave_host(p, c->comm.group->axes[a]);
	return leaves && c->comm.kind == HD_COMM_ALL_GATHER;
}

/* Returns the preceding product of the same unit and chunk, or NULL.  Nodes of other units in between do not count. */
static struct node *product_before(const struct hd_plan *p, const struct node *c, struct node *at)
{
	while (at && !(same_unit(p, at, c) && is_product(at)))
		at = at->prev;
	return at;
}

/* Returns the first node of the preceding block in the same unit and chunk, or NULL. */
static struct node *block_before(const struct hd_plan *p, const struct node *c, struct node *at)
{
	struct node *found = NULL;

	for (; at && (!found || found->block == at->block || !same_unit(p, at, c)); at = at->prev)
		if (same_unit(p, at, c) && at->block != c->block)
			found = at;
	return found;
}

/* Moves a leaf's collective up, so that it is in flight during the product before, or between hosts during the block
 * before. */
static void start_in_advance(struct hd_plan *p, struct node *c)
{
	struct node *prepare = c->made_by < 0 ? preparation(c) : packed_leaves(c), *first = prepare ? prepare : c,
		    *at = NULL;

	if (first->ins[0]->v.node)
		return;
	if (is_gathered_from_hosts(p, c))
		at = block_before(p, c, first->prev);
	at = at ? at : product_before(p, c, first->prev);
	if (!at)
		return;
	if (prepare)
		hd_node_move(p, prepare, at);
	hd_node_move(p, c, at);
}

/* -- gradients that nothing waits for ------------------------------------------------------------------------------------- */
static int is_gradient_of(const struct hd_plan *p, const struct node *n, const struct node *c)
{
	uint32_t phases = p->separate_w ? HD_UNIT_W : GRADIENT;

	return n->block >= 0 && n->v.phase & phases && p->blocks[n->block].chunk == p->blocks[c->block].chunk &&
	       p->blocks[n->block].coord == p->blocks[c->block].coord;
}

/* Returns whether n is a gather that may have moved up out of its block, or prepares one. */
static int is_gather(const struct node *n)
{
	const struct node *r = n->outs[0]->nusers ? n->outs[0]->users[0] : NULL;

	return n->comm.kind == HD_COMM_ALL_GATHER || (r && r->comm.kind == HD_COMM_ALL_GATHER);
}

/* Returns the last node that computes in the block after that of c, in the same unit, or NULL. */
static struct node *end_of_next_block(const struct hd_plan *p, const struct node *c)
{
	struct node *last = NULL;
	int block = -1;

	for (struct node *n = c->next; n; n = n->next) {
		if (!is_gradient_of(p, n, c) || n->block == c->block || is_gather(n))
			continue;
		if (block >= 0 && n->block != block)
			break;
		block = n->block;
		if (n->made_by < 0 && !n->comm.kind)
			last = n;
	}
	return last;
}

static int reads_marked(const struct node *r)
{
	for (uint32_t i = 0; i < r->v.nin; i++)
		if (r->ins[i]->v.node && N(r->ins[i]->v.node)->mark)
			return 1;
	return 0;
}

/* Marks c and the nodes up to `end` that need its result.  Returns whether they only take gradients apart. */
static int mark_readers(struct node *c, const struct node *end)
{
	c->mark = 1;
	for (struct node *r = c->next; r != end->next; r = r->next) {
		r->mark = reads_marked(r);
		if (r->mark && (r->block != c->block || !(r->v.phase & HD_UNIT_W) || r->comm.kind || is_product(r)))
			return 0;
	}
	return 1;
}

static int is_accumulated(const struct tensor *t)
{
	for (size_t k = 0; k < t->nusers; k++)
		if (!t->users[k]->dead && t->users[k]->is->role == OP_ROLE_ACCUMULATE)
			return 1;
	return 0;
}

/* Lets the readers of what c moves read a view of it: a node, which can move, while accumulators follow what they
 * read. */
static void insert_view(struct hd_plan *p, struct node *c)
{
	struct tensor *x = c->outs[0], *y;

	p->cursor = hd_cursor_after(c);
	y = hd_op1(p, "view", &x, 1, "%s", "");
	if (!y)
		return;
	hd_placed_like(y, x);
	hd_tensor_inherit(y, x);
	hd_replace(p, x, y);
}

static void wait_after_next_block(struct hd_plan *p, struct node *c)
{
	struct node *end = end_of_next_block(p, c), *after;

	if (!end)
		return;
	after = end->next;
	if (is_accumulated(c->outs[0]))
		insert_view(p, c);
	if (mark_readers(c, end)) {
		c->mark = 0;
		move_marked(p, c->next, after, after);
	}
	clear_marks(c, after);
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
		else if (n->v.phase & (HD_UNIT_F | HD_UNIT_B) && (is_collective(n) || is_gather_of_strategy(n)))
			start_in_advance(p, n);
	}
	for (struct node *n = p->first; n; n = n->next)
		if (is_collective(n) && n->v.phase == HD_UNIT_B)
			compute_during(p, n);
	for (struct node *n = p->last; n; n = n->prev) /* the last first, so that no block has readers of another yet */
		if (n->comm.kind == HD_COMM_REDUCE_SCATTER && n->v.phase == HD_UNIT_W && n->block >= 0)
			wait_after_next_block(p, n);
	return p->err->code;
}
