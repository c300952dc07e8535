/* SPDX-License-Identifier: Apache-2.0
 * Data parallelism: a rule shards the batch along one axis, and the engine then makes every gradient a partial sum
 * there. This plugin decides how the sums are computed and where tensors are stored:
 *
 *   sync = ring            ring.c: reduce-scatter and all-gather over neighbours (Patarasuk and Yuan 2009; 1802.05799)
 *   sync = allreduce       one collective of the comm module per bucket
 *   sync = hierarchical    levels.c: within nodes, then across
 *   sync = server          server.c: each member serves its own pieces; servers = k, dedicated.c: k ranks only serve
 *   zero = 1, 2, 3         zero.c, pieces.c: states, gradients, parameters are sharded (ZeRO, 1910.02054)
 *   zero_size = k          groups.c: sharded within groups of k replicas (HSDP)
 *   wire = bf16, fp16      wire.c: gradients of 16 bits in transit
 *
 * In all of them gradients move in buckets (bucket.c), filled in the order in which backward computes the gradients.
 */
#include "dp.h"
#include <string.h>

static const struct hd_option options[] = {
	{ "sync", HD_OPT_CHOICE, 0, "ring", "ring|allreduce|hierarchical|server", "how gradients are summed" },
	{ "bucket", HD_OPT_BYTES, 0, "25M", "1..",
	  "bytes of gradients that are moved together; 25M: more if many members take part" },
	{ "overlap", HD_OPT_BOOL, 0, "yes", NULL, "start summing during backward; no: after it" },
	{ "wire", HD_OPT_CHOICE, 0, "fp32", "fp32|bf16|fp16", "dtype of gradients in transit; sums are in fp32" },
	{ "zero", HD_OPT_INT, 0, "0", "0..3",
	  "less memory: shards along the axis 1 optimizer states, 2 also gradients, 3 also parameters" },
	{ "zero_size", HD_OPT_INT, 0, "0", "0..",
	  "replicas of a group over which zero shards; each group has a full copy. 0: all" },
	{ "servers", HD_OPT_INT, 0, "0", "0..",
	  "sync = server: ranks, besides `size`, that hold only masters and states. 0: the workers serve" },
	{ "offload", HD_OPT_CHOICE, 0, "none", "none|states",
	  "states: optimizer states and masters are in host memory, and are updated there" },
	{ "node_size", HD_OPT_INT, 0, "0", "0..", "sync = hierarchical: ranks per node. 0: as the system reports" },
};

static int sync_of(const char *name)
{
	static const char *const names[] = { "ring", "allreduce", "hierarchical", "server" };
	int i = 3;

	while (i && strcmp(names[i], name))
		i--;
	return i;
}

static uint32_t wire_of(const char *name)
{
	return name[0] == 'b' ? HD_DTYPE_BF16 : strcmp(name, "fp16") ? HD_DTYPE_F32 : HD_DTYPE_F16;
}

static int refuse(struct hd_strategy *s, struct hd_plan *p)
{
	long long servers = (long long)s->servers;

	if (servers && s->sync != DP_SERVER)
		return s->h->fail(p, HD_EINVAL, "servers: %lld, but sync is not server", servers);
	if (servers && s->zero)
		return s->h->fail(p, HD_EINVAL,
				  "zero: %lld, but servers = %lld already have the optimizer's states: leave zero out",
				  (long long)s->zero, servers);
	if (s->zero > 1 && !s->overlap)
		return s->h->fail(p, HD_ENOTSUP,
				  "overlap: no, but zero = %lld moves gradients in each micro-batch's backward",
				  (long long)s->zero);
	if (s->sync == DP_SERVER && !s->zero && !servers)
		s->zero = 1; /* the owner of a piece stores its optimizer state */
	return dp_check_groups(s, p);
}

static int dp_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->bucket = h->opt_int(p, "bucket");
	s->zero = h->opt_int(p, "zero");
	s->node_size = h->opt_int(p, "node_size");
	s->servers = h->opt_int(p, "servers");
	s->zero_size = h->opt_int(p, "zero_size");
	s->offload = !strcmp(h->opt_str(p, "offload"), "states");
	s->overlap = h->opt_int(p, "overlap") != 0;
	s->sync = sync_of(h->opt_str(p, "sync"));
	s->wire = wire_of(h->opt_str(p, "wire"));
	*self = s;
	return refuse(s, p);
}

static int dp_rules(struct hd_strategy *s, struct hd_plan *p)
{
	if (s->inner)
		hd_rule(s->h, p, "batch", s->inner, NULL, 0);
	return hd_rule(s->h, p, "batch", s->dp, NULL, 0);
}

/* Warns about options without effect, only in plans that train: the plans of evaluations would repeat the warnings. */
static void warn_of_storage(struct hd_strategy *s, struct hd_plan *p)
{
	if (!s->g->leaf_next(p, NULL, HD_TENSOR_GRAD))
		return;
	if (s->node_size && s->sync != DP_HIERARCHICAL)
		s->h->log(p, HD_LOG_WARN, __FILE__, __LINE__, "node_size does nothing without sync = hierarchical");
	if (s->zero && s->zero_size == 1 && s->n > 1)
		s->h->log(p, HD_LOG_WARN, __FILE__, __LINE__, "zero = %lld does nothing with zero_size = 1",
			  (long long)s->zero);
}

static int dp_storage_of(struct hd_strategy *s, struct hd_plan *p)
{
	warn_of_storage(s, p);
	if (s->servers)
		dp_deal(s, p);
	else
		dp_storage(s, p);
	return s->offload ? dp_offload(s, p) : s->h->status(p);
}

/* Warns if `sync` has no effect, because zero shards everything that sync would sum, or because the nodes form no two
 * levels. ring is the default, so allreduce and hierarchical were set by the user. */
static void warn_of_sync(struct hd_strategy *s, struct hd_plan *p)
{
	const char *way = s->sync == DP_ALLREDUCE ? "allreduce" : "hierarchical";
	int is_level = s->sync == DP_HIERARCHICAL;

	if ((s->sync != DP_ALLREDUCE && !is_level) || s->node || s->n == 1 || !s->g->leaf_next(p, NULL, HD_TENSOR_GRAD))
		return;
	if (s->zero && !s->sums)
		s->h->log(p, HD_LOG_WARN, __FILE__, __LINE__,
			  "sync = %s does nothing with zero = %lld: gradients are reduce-scattered", way,
			  (long long)s->zero);
	else if (is_level && s->node_ranks)
		s->h->log(p, HD_LOG_WARN, __FILE__, __LINE__,
			  "sync = hierarchical does nothing with %lld rank%s a node: the %lld replicas do not form two "
			  "levels, so one all-reduce sums over all of them",
			  (long long)s->node_ranks, s->node_ranks == 1 ? "" : "s", (long long)s->n);
}

static int dp_lower(struct hd_strategy *s, struct hd_plan *p)
{
	s->along = s->dp;
	if (s->servers)
		dp_lower_served(s, p);
	dp_lower_scatters(s, p);
	dp_lower_sums(s, p);
	warn_of_sync(s, p);
	return dp_lower_gathers(s, p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]),
	.open = dp_open,
	.mesh = dp_mesh,
	.rules = dp_rules,
	.storage = dp_storage_of,
	.lower = dp_lower,
};
HD_PLUGIN_TABLES("dp", "0.2", .strategy = &ops, .approximate = "wire=fp32")
