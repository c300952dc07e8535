/* SPDX-License-Identifier: Apache-2.0
 * Buckets: gradients are packed, summed as one tensor and unpacked.  Gradients of one site and dtype are taken in program
 * order, which is the order in which backward completes them, so a bucket moves while backward goes on.
 */
#include "dp.h"

struct bucket {
	struct hd_node **in;
	struct hd_tensor **x;		/* inputs, then results */
	uint32_t n;
	int64_t bytes;
};

static int64_t bytes_of(const struct hd_tensor *t)
{
	int64_t bits = HD_BITS(t->dtype);

	for (uint32_t i = 0; i < t->ndim; i++)
		bits *= t->local[i];
	return (bits + 7) / 8;
}

static int sums_gradient(const struct hd_node *n)
{
	const struct hd_reshard *r = n->reshard;

	return n->ins[0]->what == HD_GRAD && r->have.kind == HD_PARTIAL && r->have.red == HD_SUM && r->need.kind == HD_WHOLE;
}

static int flush(struct hd_strategy *s, struct hd_plan *p, struct bucket *b)
{
	const struct hd_group *g = s->h->group(p, &s->dp, 1, HD_CORE);
	struct hd_tensor *flat;

	if (!b->n)
		return s->h->status(p);
	for (uint32_t i = 0; i < b->n; i++)
		b->x[i] = b->in[i]->ins[0];
	s->g->cursor(p, b->in[b->n - 1], g, 0);
	flat = s->g->pack(p, b->x, b->n, s->dp->n);
	flat = s->ring ? dp_ring(s, p, g, flat) : s->g->comm(p, HD_ALL_REDUCE, g, flat, NULL, 0);
	s->g->unpack(p, flat, b->x, b->n, b->x + b->n);
	for (uint32_t i = 0; i < b->n; i++)
		s->g->replace(p, b->in[i]->outs[0], b->x[b->n + i]);
	b->n = 0;
	b->bytes = 0;
	return s->h->status(p);
}

static int fits(const struct hd_strategy *s, const struct bucket *b, const struct hd_node *n)
{
	return !b->n || (b->bytes < s->bucket && n->site == b->in[0]->site && n->ins[0]->dtype == b->in[0]->ins[0]->dtype);
}

int dp_lower_buckets(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match m = { .size = sizeof(m), .kind = "reshard", .axis = s->dp };
	struct hd_node *n = NULL;
	struct bucket b = { 0 };
	uint32_t count = 0;

	while ((n = s->g->node_next(p, n, &m)))
		count++;
	b.in = s->h->alloc(p, (count + 1) * sizeof(*b.in));
	b.x = s->h->alloc(p, (2 * count + 1) * sizeof(*b.x));
	if (!b.in || !b.x)
		return HD_ENOMEM;
	while ((n = s->g->node_next(p, n, &m))) {
		if (!sums_gradient(n))
			continue;
		if (!fits(s, &b, n))
			flush(s, p, &b);
		b.in[b.n++] = n;
		b.bytes += bytes_of(n->ins[0]);
	}
	return flush(s, p, &b);
}
