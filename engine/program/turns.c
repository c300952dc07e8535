/* SPDX-License-Identifier: Apache-2.0
 * Two micro-batches by turns (train.overlap_micro_batches).  The timeline appends the same unit of both, in turns that
 * end where one of them would wait for a collective.  So the collective is under way while the other computes:
 *
 *   one at a time:  F0 product, all-reduce, wait, norm, product ...                      F1 product, all-reduce, wait ...
 *   by turns:       F0 product, all-reduce;  F1 product, all-reduce;  F0 wait, norm, product ...;  F1 wait, norm ...
 *
 * A turn without a product, between two collectives, comes in the middle of the other's turn: F0 wait, norm, all-gather
 * comes between two products of F1.  So both collectives are hidden.
 *
 * Each node still runs for the first micro-batch before it runs for the second.  So sums have the same order and bits.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/program/program.h"
#include <stdlib.h>

struct turns { /* of one micro-batch */
	const struct hd_program *g;
	struct node *const *v;
	size_t *from, n; /* turn k: nodes from[k]..from[k + 1] */
	char *products;  /* by turn: whether it has some */
	struct unit_part *to;
	size_t nto, cap;
};

/* Returns whether node `at` reads the result of a collective that is among the nodes from..at. */
static int ends_turn(const struct turns *t, size_t from, size_t at)
{
	for (uint32_t i = 0; i < t->v[at]->v.nin; i++) {
		const struct node *m = t->v[at]->ins[i]->v.node ? N(t->v[at]->ins[i]->v.node) : NULL;

		if (m && hd_node_moves(m) && m->comm.group && m->comm.group->v.n > 1 &&
		    m->v.phase & t->v[at]->v.phase && t->g->position[m->id] >= t->g->position[t->v[from]->id])
			return 1;
	}
	return 0;
}

static void divide(struct turns *t, size_t n)
{
	t->from = hd_alloc((n + 1) * sizeof(*t->from));
	t->products = hd_alloc(n + 1);
	for (size_t i = 0; i < n; i++) {
		if (!i || ends_turn(t, t->from[t->n - 1], i))
			t->from[t->n++] = i;
		t->products[t->n - 1] |= hd_node_product_flops(t->v[i]) > 0;
	}
	t->from[t->n] = n;
}

static void put(struct turns *t, int which, size_t from, size_t to)
{
	t->to = hd_grow(t->to, t->nto, &t->cap, sizeof(*t->to));
	t->to[t->nto++] = (struct unit_part){ which, from, to };
}

/* Returns the node after the product with which turn k has computed half of its FLOPs, or the turn's end. */
static size_t middle(const struct turns *t, size_t k)
{
	double all = 0, sum = 0;
	size_t i;

	for (i = t->from[k]; i < t->from[k + 1]; i++)
		all += hd_node_product_flops(t->v[i]);
	for (i = t->from[k]; i < t->from[k + 1] && sum < all / 2; i++)
		sum += hd_node_product_flops(t->v[i]);
	return i;
}

/* Puts turn k of a micro-batch, and in its middle the turns of the other, from *other on and before `end`, that have no
 * products. */
static void put_turn(struct turns *t, int which, size_t k, size_t *other, size_t end)
{
	size_t half = middle(t, k);

	put(t, which, t->from[k], half);
	for (; *other < end && t->products[k] && !t->products[*other]; (*other)++)
		put(t, !which, t->from[*other], t->from[*other + 1]);
	put(t, which, half, t->from[k + 1]);
}

struct unit_part *hd_turns(const struct hd_program *g, struct node *const *v, size_t n, size_t *count)
{
	struct turns t = { .g = g, .v = v };
	size_t first = 0, second = 0;

	divide(&t, n);
	while (second < t.n) {
		if (first < t.n) {
			put_turn(&t, 0, first, &second, first);
			first++;
		}
		if (second < first)
			put_turn(&t, 1, second++, &first, t.n);
	}
	free(t.from), free(t.products);
	*count = t.nto;
	return t.to;
}
