/* SPDX-License-Identifier: Apache-2.0
 * Groups of replicas that share: zero_size neighbouring replicas cut among themselves what zero cuts, and every group
 * stores the same (HSDP; Zhao et al. 2023, 2304.11277; MiCS, Zhang et al. 2022, 2205.00119). Gradients are
 * reduce-scattered within a group, their pieces are summed across groups, and parameters are gathered within a group.
 * Across groups only 1 / zero_size of the bytes is sent, once per step.
 *
 * The axis of replicas then consists of two, as with sync = hierarchical, where the groups are the nodes. There
 * zero_size = 0 cuts along both axes: what a member sends to other nodes is a piece of its piece within the node.
 */
#include "dp.h"

int dp_check_groups(struct hd_strategy *s, struct hd_plan *p)
{
	long long k = (long long)s->zero_size;

	if (!k)
		return HD_OK;
	if (s->sync == DP_SERVER)
		return s->h->fail(p, HD_EINVAL,
				  "zero_size: %lld with sync = server: a server has its pieces for all replicas; leave "
				  "zero_size out",
				  k);
	if (!s->zero)
		return s->h->fail(p, HD_EINVAL, "zero_size: %lld, but nothing is sharded, since zero is 0", k);
	return HD_OK;
}

int dp_size_groups(struct hd_strategy *s, struct hd_plan *p, int64_t node)
{
	long long k = (long long)s->zero_size, n = (long long)s->n;

	if (!k)
		s->zero_size = s->n;
	else if (k > n || n % k)
		return s->h->fail(p, HD_EDIVIDE, "zero_size: %lld does not divide %lld replicas", k, n);
	else if (node && k != node && k != n && k != 1)
		return s->h->fail(p, HD_ENOTSUP,
				  "zero_size: %lld, but with sync = hierarchical groups are nodes, of %lld replicas, "
				  "or all %lld",
				  k, (long long)node, n);
	return HD_OK;
}

/* Lists the axes that cut, those of the outermost pieces first, and returns their number. */
int dp_cutting_axes(const struct hd_strategy *s, const struct hd_axis **axes)
{
	int n = 0;

	if (s->inner && s->zero_size > 1)
		axes[n++] = s->inner;
	if (s->zero_size == s->n)
		axes[n++] = s->dp;
	return n;
}
