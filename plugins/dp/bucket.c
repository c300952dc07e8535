/* SPDX-License-Identifier: Apache-2.0
 * Buckets: tensors of the same unit and dtype are packed and moved as one. Buckets are filled in program order, which
 * for gradients is the order in which backward completes them. So one bucket moves while backward computes the next.
 * Tensors of another dtype in between do not end a bucket.
 */
#include "dp.h"
#include <math.h>
#include <string.h>

#define DEFAULT (25 << 20) /* of option `bucket` */
#define IN_FLIGHT 4e5      /* bytes that a link of 400 Gbit/s carries within its latency of 8 us */
#define COPIED 1e6         /* bytes that a GPU copies while a message is passed on once; most of that time is hidden */

int64_t dp_bytes(const struct hd_tensor *t)
{
	int64_t bits = HD_BITS(t->dtype);

	for (uint32_t i = 0; i < t->ndim; i++)
		bits *= t->local[i];
	return (bits + 7) / 8;
}

/* Returns the bytes of the whole tensor that node n scatters, gathers or sums. */
static int64_t whole_bytes(const struct hd_node *n)
{
	int64_t before = dp_bytes(n->ins[0]), after = dp_bytes(n->outs[0]);

	return before > after ? before : after;
}

static int same_unit(const struct hd_node *a, const struct hd_node *b)
{
	const uint32_t once = HD_UNIT_G | HD_UNIT_S | HD_UNIT_U;

	return a->stage == b->stage && a->phase == b->phase && (a->phase & once || a->block == b->block);
}

/* Tells whether the bucket ends before node n. */
static int ends(const struct hd_strategy *s, const struct dp_bucket *b, const struct hd_node *n)
{
	return b->n && (b->bytes >= s->full || !same_unit(n, b->in[0]));
}

/* Returns the tensor that a bucket moves for node n. A sum over two levels is two reshards: n is the second, and the
 * operand is that of the first. */
static struct hd_tensor *operand(const struct hd_strategy *s, const struct hd_node *n)
{
	return dp_is_two_levels(s, n) ? n->ins[0]->node->ins[0] : n->ins[0];
}

/* Returns a code for the placement of a tensor along an axis other than that of the movement. Tensors in one bucket
 * must have equal codes. */
static int64_t placement_code(const struct hd_place *at)
{
	if (at->role == HD_ROLE_SPARE)
		return at->kind == HD_PLACE_PINNED ? 3 + at->index : 2;
	return at->kind == HD_PLACE_PARTIAL;
}

/* Returns how far x is on its way: 0 for a leaf, 1 for a tensor computed from a leaf, plus one per movement since. */
static int distance(const struct hd_tensor *x)
{
	static const char *const layout[] = { "view", "pack", "unpack",
					      "pulled" }; /* these ops change only the layout, not the values */
	int n = 0;

	for (; x->node && x->node->nin; x = x->node->ins[0]) {
		const char *kind = x->node->kind;
		int moves = !strcmp(kind, "reshard") || !strcmp(kind, "comm");
		size_t i = 0;

		while (i < sizeof(layout) / sizeof(layout[0]) && strcmp(layout[i], kind))
			i++;
		if (!moves && i == sizeof(layout) / sizeof(layout[0]))
			return n + 1;
		n += moves;
	}
	return n;
}

/* Tells whether both nodes move one dtype on the same ranks, and whether their operands are equally far along the other
 * axes. Otherwise two buckets could wait for each other: one tensor may be summed along this axis first, another along a
 * different one. */
static int moves_with(const struct hd_strategy *s, struct hd_plan *p, const struct hd_node *m, const struct hd_node *n)
{
	const struct hd_tensor *x = operand(s, m), *y = operand(s, n);
	const struct hd_axis *a = NULL;

	if (m->ins[0]->dtype != n->ins[0]->dtype || dp_is_two_levels(s, m) != dp_is_two_levels(s, n))
		return 0;
	while ((a = s->h->axis_next(p, a)))
		if (placement_code(s->g->place(p, x, a)) != placement_code(s->g->place(p, y, a)))
			return 0;
	return m->reshard->have.kind == HD_PLACE_PARTIAL || distance(x) == distance(y);
}

/* Tells whether this sync must not start before backward ends (overlap = no). It then follows, and waits for, all
 * gradients of the stage. */
static int is_late(const struct hd_strategy *s, const struct dp_bucket *b)
{
	return !s->overlap && b->in[0]->phase & HD_UNIT_S;
}

static struct hd_node *place_of(const struct hd_strategy *s, const struct dp_bucket *b, struct hd_node *const *all,
				uint32_t n)
{
	struct hd_node *at = b->in[b->n - 1];

	for (uint32_t i = 0; is_late(s, b) && i < n; i++)
		at = all[i]->stage == at->stage ? all[i] : at;
	return at;
}

static int flush(struct hd_strategy *s, struct hd_plan *p, struct dp_bucket *b, dp_move_fn *move,
		 struct hd_node *const *all, uint32_t n)
{
	const struct hd_group *g = hd_group_of(s->h, p, &s->along, 1);

	if (!b->n || !g)
		return s->h->status(p);
	for (uint32_t i = 0; i < b->n; i++)
		b->x[i] = operand(s, b->in[i]);
	b->at = place_of(s, b, all, n);
	b->flat = NULL;
	move(s, p, g, b);
	for (uint32_t i = 0; is_late(s, b) && i < n; i++)
		if (all[i]->stage == b->at->stage)
			s->g->after(p, b->flat, operand(s, all[i]));
	b->n = 0;
	b->bytes = 0;
	return s->h->status(p);
}

struct choice {
	struct hd_node *const *all;
	unsigned char *taken;
	uint32_t n;
};

/* Fills a bucket from the first node that no bucket has taken, until it is full or a node belongs to a different
 * unit. */
static void fill(const struct hd_strategy *s, struct hd_plan *p, struct dp_bucket *b, const struct choice *c,
		 uint32_t first)
{
	for (uint32_t i = first; i < c->n && !ends(s, b, c->all[i]); i++) {
		if (c->taken[i] || !moves_with(s, p, c->all[i], c->all[first]))
			continue;
		b->in[b->n++] = c->all[i];
		b->bytes += whole_bytes(c->all[i]);
		c->taken[i] = 1;
	}
}

/* Returns the bytes of the gradients that a rank computes. A stage has the parameters that are pinned to it, and all
 * stages about as many. With zero = 3, w is a piece. */
static double gradient_bytes(const struct hd_strategy *s, struct hd_plan *p)
{
	double bytes = 0, of;

	for (struct hd_tensor *w = NULL; (w = s->g->leaf_next(p, w, HD_TENSOR_PARAM));) {
		of = (double)dp_bytes(w) / HD_BITS(w->dtype) * HD_BITS(HD_DTYPE_F32);
		for (const struct hd_axis *a = NULL; (a = s->h->axis_next(p, a));) {
			uint32_t kind = s->g->place(p, w, a)->kind;

			if (kind == HD_PLACE_PINNED)
				of /= (double)a->n;
			else if (kind == HD_PLACE_SHARD && (a == s->dp || a == s->inner))
				of *= (double)a->n;
		}
		bytes += of;
	}
	return bytes;
}

/* Returns the bytes from which a bucket is full. A ring of n members passes a bucket on n - 1 times, each time with the
 * latency of a link. To move S bytes of gradients in buckets of b takes S / b times n latencies. A link would have
 * carried S n IN_FLIGHT / b bytes in that time. But nothing overlaps with the last bucket, of b bytes. The sum of both
 * is least for b = sqrt(S n IN_FLIGHT). Up and down a tree, a bucket is passed on 2 log2 n times. */
static int64_t full_from(const struct hd_strategy *s, struct hd_plan *p)
{
	double n = (double)s->along->n, passes = s->by_tree ? 2 * log2(n) : n,
	       best = sqrt(gradient_bytes(s, p) * passes * IN_FLIGHT);

	return s->bucket == DEFAULT && !s->servers && best > DEFAULT ? (int64_t)best : s->bucket;
}

/* Returns the bytes from which a reduce-scatter or gather moves a tensor alone, without a copy into a bucket. Between
 * nodes a copy costs less than the latencies of one more message to each member. */
static int64_t alone_from(const struct hd_strategy *s, struct hd_plan *p)
{
	double part = (double)s->full / 16, all = (double)s->full;
	int64_t members = s->along == s->inner ? s->inner->n : s->n;

	return (int64_t)(dp_between_nodes(s, p, members) ? fmin(all, fmax(part, COPIED * (double)members)) : part);
}

int dp_each_bucket(struct hd_strategy *s, struct hd_plan *p, dp_wanted_fn *wanted, dp_move_fn *move)
{
	const struct hd_match m = { .size = sizeof(m), .kind = "reshard", .axis = s->along };
	struct hd_node *n = NULL, **all;
	struct dp_bucket b = { 0 };
	unsigned char *taken;
	uint32_t count = 0, k = 0;

	s->full = full_from(s, p);
	s->alone = alone_from(s, p);
	while ((n = s->g->node_next(p, n, &m)))
		count++;
	all = s->h->alloc(p, (count + 1) * sizeof(*all));
	b.in = s->h->alloc(p, (count + 1) * sizeof(*b.in));
	b.x = s->h->alloc(p, (2 * count + 1) * sizeof(*b.x));
	taken = s->h->alloc(p, count + 1);
	if (!all || !b.in || !b.x || !taken)
		return HD_ENOMEM;
	while ((n = s->g->node_next(p, n, &m)))
		if (wanted(s, n))
			all[k++] = n;
	for (uint32_t i = 0; i < k; i++) {
		if (taken[i])
			continue;
		fill(s, p, &b, &(struct choice){ all, taken, k }, i);
		flush(s, p, &b, move, all, k);
	}
	return s->h->status(p);
}
