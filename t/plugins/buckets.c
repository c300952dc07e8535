/* SPDX-License-Identifier: Apache-2.0
 * Replicas that sum gradients in buckets of their own, by heddle/bucket.h: for t1228.
 */
#include <heddle/strategy.h>

static const struct hd_option options[] = { { "bytes", HD_OPT_INT, 0, "1", "", "" },
					    { "scattered", HD_OPT_INT, 0, "0", "", "" } };

static int rules(struct hd_strategy *self, struct hd_plan *p)
{
	return hd_rule(hd_basic_of(self)->h, p, "batch", hd_basic_of(self)->axis, NULL, 0);
}

/* An all-reduce in two halves. */
static struct hd_tensor *scattered(void *ctx, struct hd_plan *p, const struct hd_group *members, struct hd_tensor *flat)
{
	const struct hd_graph_api *g = ((const struct hd_host *)ctx)->graph;
	const struct hd_dim *dim = flat ? flat->dims[0] : NULL;

	flat = hd_comm(g, p, HD_COMM_REDUCE_SCATTER, members, flat, dim, 0);
	return hd_comm(g, p, HD_COMM_ALL_GATHER, members, flat, dim, 0);
}

static int lower(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_basic *b = hd_basic_of(self);
	const struct hd_bucket_args a = { .size = sizeof(a),
					  .h = b->h,
					  .axis = b->axis,
					  .bytes = b->h->opt_int(p, "bytes"),
					  .sum = b->h->opt_int(p, "scattered") ? scattered : NULL,
					  .ctx = (void *)(uintptr_t)b->h };

	return hd_bucket_sums(p, &a);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops),
					    .options = options,
					    .noptions = 2,
					    .option_size = sizeof(options[0]),
					    .rules = rules,
					    .lower = lower };
HD_PLUGIN("buckets", "1.0", &ops)
