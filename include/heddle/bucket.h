/* SPDX-License-Identifier: Apache-2.0
 * heddle/bucket.h - sums gradients in buckets, for strategies that reduce gradients themselves. heddle/strategy.h
 * includes it. It uses the calls of heddle/graph.h and is compiled into the plugin.
 *
 * A single gradient is often a short message, and each message costs a latency. So gradients that are neighbours in
 * program order are packed into one flat tensor, a bucket, until it has at least `bytes` bytes. A bucket is smaller if
 * the next gradient differs in stage, unit or dtype, or if there is none. Backward completes the gradients in that
 * order, so the sum of one bucket runs while backward computes the next.
 */
#ifndef HEDDLE_BUCKET_H
#define HEDDLE_BUCKET_H
#include <heddle/strategy.h>
#ifdef __cplusplus
extern "C" {
#endif

struct hd_bucket_args {
	size_t size;
	const struct hd_host *h;
	const struct hd_axis *axis; /* buckets take the gradients that are partial sums along this axis */
	int64_t bytes;              /* size from which a bucket is full; 1: one gradient per bucket */
	/* Returns the sum of the members' flat tensors, on all members. The length of flat is a multiple of their
	 * number. After a failure flat is NULL, and builders return NULL too. If the function is NULL, an all-reduce is
	 * used. */
	struct hd_tensor *(*sum)(void *ctx, struct hd_plan *p, const struct hd_group *members, struct hd_tensor *flat);
	void *ctx;
};

static inline int64_t hd_bucket_bytes(const struct hd_tensor *t)
{
	int64_t bits = HD_BITS(t->dtype);

	for (uint32_t i = 0; i < t->ndim; i++)
		bits *= t->local[i];
	return (bits + 7) / 8;
}

static inline int hd_bucket_takes(const struct hd_node *n)
{
	return n->ins[0]->what == HD_TENSOR_GRAD && n->reshard->have.kind == HD_PLACE_PARTIAL &&
	       n->reshard->have.red == HD_RED_SUM && n->reshard->need.kind == HD_PLACE_REPLICATED;
}

/* Tells whether both gradients have the same stage, unit and dtype. */
static inline int hd_bucket_alike(const struct hd_node *a, const struct hd_node *b)
{
	const uint32_t once = HD_UNIT_G | HD_UNIT_S | HD_UNIT_U;

	return a->stage == b->stage && a->phase == b->phase && (a->phase & once || a->block == b->block) &&
	       a->ins[0]->dtype == b->ins[0]->dtype;
}

/* Replaces the reshards of these n gradients by one bucket's sum. x has room for 2 n tensors. */
static inline int hd_bucket_sum(const struct hd_bucket_args *a, struct hd_plan *p, struct hd_node *const *in,
				uint32_t n, struct hd_tensor **x)
{
	const struct hd_graph_api *g = a->h->graph;
	const struct hd_group *members = hd_group_of(a->h, p, &a->axis, 1);
	struct hd_tensor *flat;

	if (!n || !members)
		return a->h->status(p);
	for (uint32_t i = 0; i < n; i++)
		x[i] = in[i]->ins[0];
	hd_cursor(g, p, in[n - 1], members);
	flat = g->pack(p, x, n, a->axis->n);
	flat = a->sum ? a->sum(a->ctx, p, members, flat) : hd_comm(g, p, HD_COMM_ALL_REDUCE, members, flat, NULL, 0);
	g->unpack(p, flat, x, n, x + n);
	for (uint32_t i = 0; i < n; i++)
		g->replace(p, in[i]->outs[0], x[n + i]);
	return a->h->status(p);
}

/* Replaces all such reshards along the axis by sums of buckets; for slot lower. Returns HD_OK or the plan's error. */
static inline int hd_bucket_sums(struct hd_plan *p, const struct hd_bucket_args *a)
{
	const struct hd_match moves = { sizeof(moves), NULL, "reshard", a->axis, 0, 0, NULL, NULL };
	const struct hd_graph_api *g = a->h->graph;
	struct hd_node *n = NULL, **in;
	struct hd_tensor **x;
	uint32_t all = 0, from = 0, k = 0;
	int64_t bytes = 0;

	while ((n = g->node_next(p, n, &moves)))
		all += (uint32_t)hd_bucket_takes(n);
	in = (struct hd_node **)a->h->alloc(p, (all + 1) * sizeof(*in));
	x = (struct hd_tensor **)a->h->alloc(p, (2 * (size_t)all + 1) * sizeof(*x));
	if (!in || !x)
		return HD_ENOMEM;
	while ((n = g->node_next(p, n, &moves)))
		if (hd_bucket_takes(n))
			in[k++] = n;
	for (k = 0; k < all; k++) {
		if (k > from && (bytes >= a->bytes || !hd_bucket_alike(in[from], in[k]))) {
			hd_bucket_sum(a, p, in + from, k - from, x);
			from = k;
			bytes = 0;
		}
		bytes += hd_bucket_bytes(in[k]->ins[0]);
	}
	return hd_bucket_sum(a, p, in + from, all - from, x);
}

#ifdef __cplusplus
}
#endif
#endif
