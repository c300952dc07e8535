/* SPDX-License-Identifier: Apache-2.0
 * Prices of kernels and movements.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/graph/mesh.h"
#include "engine/graph/traffic.h"
#include "engine/predict/whole_layers.h"
#include "engine/predict/here.h"
#include "engine/predict/work.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void hd_pricing_begin(struct hd_pricing *x, const struct hd_machine *m, const struct hd_style *style,
		      const struct hd_program *g)
{
	*x = (struct hd_pricing){ .m = m, .style = style, .g = g };
	x->spread = hd_alloc((g->plan->ngroups + 1) * sizeof(*x->spread));
	x->layers = hd_layers_sent(x);
}

void hd_pricing_end(struct hd_pricing *x)
{
	free(x->spread), free(x->layers);
	x->spread = NULL;
	x->layers = NULL;
}

/* -- kernels ------------------------------------------------------------------------------------------------------- */
/* Returns the share of a node that counts for each step: less than 1 if it runs only every few steps. */
static double of_steps(const struct node *n)
{
	return n->period > 1 ? 1 / (double)n->period : 1;
}

double hd_price_elements(const struct tensor *t)
{
	double n = 1;

	for (uint32_t i = 0; i < t->v.ndim; i++)
		n *= (double)t->local[i];
	return n;
}

/* Returns the smallest extent of a product: of its rows, its columns, or what is summed over. Rows are the dims that
 * only the first operand has, columns those that only the second has. Dims of all three tensors do not count. */
static double smallest_extent(const struct node *n)
{
	const struct tensor *a = n->ins[0], *b = n->ins[1], *y = n->outs[0];
	double rows = 1, columns = 1, summed = 1;

	for (uint32_t i = 0; i < a->v.ndim; i++) {
		int in_b = hd_has_dim(b, a->dims[i]), in_y = hd_has_dim(y, a->dims[i]);

		if (in_b && !in_y)
			summed *= (double)a->local[i];
		else if (!in_b)
			rows *= (double)a->local[i];
	}
	for (uint32_t i = 0; i < b->v.ndim; i++)
		if (!hd_has_dim(a, b->dims[i]))
			columns *= (double)b->local[i];
	return fmin(summed, fmin(rows, columns));
}

static double product_seconds(const struct hd_pricing *x, const struct node *n, double flops, double extent)
{
	const struct hd_machine *m = x->m;
	double rate = n->v.nin && n->ins[0]->v.dtype == HD_DTYPE_BF16 ? m->flops_bf16 : m->flops_fp32;

	return flops /
	       (rate * m->sustained_clock * hd_curve_at(&m->efficiency, flops) * hd_curve_at(&m->extent, extent));
}

static double memory_seconds(const struct hd_pricing *x, double bytes)
{
	return bytes > 0 ? bytes / (x->m->memory_bandwidth * hd_curve_at(&x->m->transfer, bytes)) : 0;
}

double hd_price_scores(const struct node *n)
{
	return hd_price_elements(n->ins[0]) / (double)n->ins[0]->local[3] * (double)n->ins[1]->local[1];
}

/* Returns the seconds of attention with separate kernels, for all scores, even those that the causal mask hides.
 * Forward has two products, the mask with the softmax, and the dropout; backward has four products, the dropout and the
 * softmax. Each product writes or reads 2 bytes a score. The other two kernels together move 4 + 5 bytes a score in
 * forward, and 5 + 6 in backward. */
static double scores_seconds(const struct hd_pricing *x, const struct node *n, int backward)
{
	double scores = hd_price_scores(n), width = (double)n->ins[0]->local[3], products = backward ? 4 : 2;
	double each = product_seconds(x, n, 2 * scores * width, fmin(width, (double)n->ins[1]->local[1]));
	double moved = memory_seconds(x, 2 * scores);

	return products * (x->m->kernel_latency + fmax(each, moved)) +
	       2 * (x->m->kernel_latency + x->style->kernels * memory_seconds(x, (backward ? 5.5 : 4.5) * scores));
}

/* Returns the bytes that the style's kernels move in addition to Heddle's. */
static double style_bytes(const struct hd_pricing *x, const struct node *n)
{
	int forward = n->v.phase & HD_UNIT_F || n->recompute_of;

	if (x->style->norms_twice && (n->is->role == OP_ROLE_NORM || n->is->role == OP_ROLE_NORM_D))
		return hd_work_bytes(x->g, n) - (double)hd_local_bytes(n->outs[0]);
	/* forward: a mask; backward: the mask, and the gradient read and written */
	if (x->style->dropout && n->is->role == OP_ROLE_ADD && n->v.phase & (HD_UNIT_F | HD_UNIT_B))
		return (forward ? 1 : 5) * hd_price_elements(n->outs[0]);
	/* 6 bytes: the residual and the addend read, the sum written. With dropout also the masks of forward and
	 * backward, and in backward the gradient read and written. */
	if (x->style->separate_residual_adds && forward && n->is->role == OP_ROLE_EINSUM &&
	    hd_attr_num(n->attr, "add", 0) > 0)
		return (6 + (x->style->dropout ? (n->recompute_of ? 1 : 6) : 0)) * hd_price_elements(n->outs[0]);
	/* In fp32: the logits computed, their maximum, the difference to it, its exponential and sum, and all of it
	 * again for the gradient. */
	if (x->style->unfused_loss && n->is->role == OP_ROLE_XENT)
		return 40 * hd_price_elements(n->ins[0]);
	/* Gradients scaled back, checked, clipped, and cleared for the next step; 16-bit weights copied from the
	 * master. */
	if (x->style->unfused_optimizer && n->is->role == OP_ROLE_UPDATE)
		return 26 * hd_price_elements(n->ins[0]);
	return 0;
}

static int is_attention(const struct node *n)
{
	return n->is->role == OP_ROLE_ATTENTION || n->is->role == OP_ROLE_ATTENTION_D;
}

/* Returns the seconds that a fused attention takes in addition to its products. It scales, compares, sums and rounds
 * each score and takes its exponential, which runs at a quarter of the rate. That is 24 FLOPs, or 28 in backward. It
 * does so between the products, on the same data, so the times add up. */
static double softmax_seconds(const struct hd_pricing *x, const struct node *n, double product_flops)
{
	int backward = n->is->role == OP_ROLE_ATTENTION_D;
	double scores = product_flops / ((backward ? 10 : 4) * (double)n->ins[0]->local[3]);

	return (backward ? 28 : 24) * scores / x->m->flops_fp32;
}

/* Returns the seconds of a fused attention. If the style has a share of the peak, that was measured for
 * the whole kernel. */
static double attention_seconds(const struct hd_pricing *x, const struct node *n, double flops)
{
	double share = x->style->attention_share[n->is->role == OP_ROLE_ATTENTION_D];

	if (share > 0)
		return flops / (x->m->flops_bf16 * x->m->older_instructions * share);
	return product_seconds(x, n, flops, fmin((double)n->ins[0]->local[3], (double)n->ins[1]->local[1])) +
	       softmax_seconds(x, n, flops);
}

static double kernel(const struct hd_pricing *x, const struct node *n)
{
	struct hd_cost c = { .size = sizeof(c) };
	double compute, extent = INFINITY, bytes, own, known;

	if (n->v.nout && n->outs[0]->v.space == HD_SPACE_HOST)
		return hd_work_bytes(x->g, n) / x->m->host_memory_bandwidth;
	if (x->style->attention == HD_ATTENTION_SCORES && is_attention(n))
		return scores_seconds(x, n, n->is->role == OP_ROLE_ATTENTION_D);
	known = hd_known_kernel(x, n);
	if (known >= 0)
		return known;
	hd_node_cost(n, &c);
	if (!n->v.op->cost && n->is->flags & OP_FLAG_NAMES && hd_work_bytes(x->g, n) <= 0)
		return 0;
	if (n->is->role == OP_ROLE_EINSUM && n->v.nin > 1)
		extent = smallest_extent(n);
	compute = c.other_flops / x->m->flops_fp32;
	if (is_attention(n) && n->ins[0]->local[3])
		compute += attention_seconds(x, n, c.matmul_flops);
	else if (c.matmul_flops > 0)
		compute += product_seconds(x, n, c.matmul_flops, extent);
	bytes = c.bytes > 0 ? c.bytes : hd_work_bytes(x->g, n);
	own = x->style->own_elementwise && c.matmul_flops <= 0 ? x->style->kernels : 1;
	return x->m->kernel_latency + fmax(compute, own * memory_seconds(x, bytes)) +
	       x->style->kernels * memory_seconds(x, style_bytes(x, n));
}

double hd_price_more_flops(const struct hd_pricing *x, const struct node *n)
{
	struct hd_cost c = { .size = sizeof(c) };
	double products = n->is->role == OP_ROLE_ATTENTION_D ? 4 : 2;

	if (x->style->attention != HD_ATTENTION_SCORES || !is_attention(n))
		return 0;
	hd_node_cost(n, &c);
	return of_steps(n) * (products * 2 * hd_price_scores(n) * (double)n->ins[0]->local[3] - c.matmul_flops);
}

/* Returns a node's part of the style's time for a pass over a layer. A ring computes a layer's attention in several
 * nodes, which share it. */
static double of_pass(const struct hd_pricing *x, const struct node *n)
{
	double parts = 0;

	if (!is_attention(n) || x->style->pass <= 0)
		return 0;
	for (size_t i = 0; i < x->g->nmine; i++) {
		const struct node *m = x->g->mine[i];

		parts += m->block == n->block && m->v.phase == n->v.phase && m->is->role == n->is->role;
	}
	return x->style->pass / parts;
}

double hd_price_kernel(const struct hd_pricing *x, const struct node *n)
{
	return of_steps(n) * kernel(x, n) + of_pass(x, n);
}

/* Returns the seconds of adding a term to an accumulator. A product adds as it computes; other terms are read,
 * added and written. */
double hd_price_accumulate(const struct hd_pricing *x, const struct entry *e)
{
	const struct tensor *t = e->node->ins[e->input];
	double bytes = 3 * (double)hd_local_bytes(t), known = hd_known_added(x, t, e->node->outs[0]);

	if (known >= 0)
		return x->style->kernels * known;
	if (t->v.node && N(t->v.node)->is->role == OP_ROLE_EINSUM) {
		if (!x->style->separate_weight_gradient_adds)
			return 0;
		bytes = 10 * hd_price_elements(t); /* 2 bytes read, 4 read and 4 written */
	}
	return x->style->kernels * (x->m->kernel_latency + memory_seconds(x, bytes));
}

/* -- movements ----------------------------------------------------------------------------------------------------- */
int hd_over_stages(const struct hd_plan *p, const struct group *g)
{
	for (uint32_t i = 0; i < g->n; i++)
		if (g->axes[i] == p->stages)
			return 1;
	return 0;
}

static struct hd_spread spread_of(const struct hd_pricing *x, const struct group *g)
{
	const struct hd_plan *p = x->g->plan;
	int64_t first = x->g->rank, node = x->g->rank / x->m->ranks_per_node, count = 0;
	struct hd_spread s = { 0, 0 };

	if (x->spread[g->id].nodes)
		return x->spread[g->id];
	for (uint32_t i = 0; i < g->n; i++)
		first -= hd_plan_coord(p, x->g->rank, g->axes[i]) * g->axes[i]->stride;
	for (int64_t k = 0; k < g->v.n; k++) {
		int64_t rank = first, rest = k;

		for (uint32_t i = 0; i < g->n; i++) {
			rank += rest % hd_role_count(g->axes[i], g->role) * g->axes[i]->stride;
			rest /= hd_role_count(g->axes[i], g->role);
		}
		s.here += rank / x->m->ranks_per_node == node;
		count++;
	}
	s.here = s.here ? s.here : 1;
	s.nodes = (count + s.here - 1) / s.here;
	return x->spread[g->id] = s;
}

static double rate(const struct hd_link *l, double bytes)
{
	return l->bandwidth * hd_curve_at(&l->efficiency, bytes > 0 ? bytes : 1);
}

/* Returns the rate of a rank's share of its node's cards. */
static double card_rate(const struct hd_machine *m, double bytes)
{
	double share = (double)m->cards / (double)m->ranks_per_node;

	return rate(&m->links[HD_LINK_NETWORK], bytes) * fmin(share, 1);
}

/* Returns the price of sending bytes within a node and out of it at the same time. through: how many bytes the card's
 * time is for: `out`, or more if several ranks send to one. */
static struct hd_movement_price carried(const struct hd_machine *m, double within, double out, double through)
{
	struct hd_movement_price v = { .sent = { [HD_LINK_NODE] = within, [HD_LINK_NETWORK] = out } };

	v.occupied[HD_LINK_NODE] = within / rate(&m->links[HD_LINK_NODE], within);
	v.occupied[HD_LINK_NETWORK] = through / card_rate(m, through);
	v.seconds = fmax(v.occupied[HD_LINK_NODE], v.occupied[HD_LINK_NETWORK]);
	return v;
}

/* Returns the price of rings. Each passes through all members of a node and leaves it through a different member's
 * card. Within the node each rank's link carries `sent` in any case. */
static struct hd_movement_price rings(const struct hd_pricing *x, struct hd_spread s, double sent)
{
	double out = s.nodes > 1 ? sent / (double)s.here : 0;
	struct hd_movement_price v = carried(x->m, s.here > 1 ? sent : 0, out, out);

	v.sent[HD_LINK_NODE] = sent - out;
	return v;
}

/* Returns the price of sending from member to member. One member of each node sends all its bytes to the next node. */
static struct hd_movement_price to_next(const struct hd_pricing *x, struct hd_spread s, double sent)
{
	return s.nodes > 1 ? carried(x->m, 0, sent, sent) : carried(x->m, sent, 0, 0);
}

/* Returns the price of sending from each member to each, or from all to one. Bytes for other nodes pass through the
 * card. incast: several send to one member at once, and so slow each other down. */
static struct hd_movement_price to_all(const struct hd_pricing *x, struct hd_spread s, double members, double sent,
				       double moved, int incast)
{
	double out = members > 1 ? ((double)s.nodes * (double)s.here - (double)s.here) / (members - 1) : 0;
	struct hd_movement_price v;

	out = fmin(out, 1);
	v = carried(x->m, moved * (1 - out), moved * out, moved * out / (incast ? x->m->incast : 1));
	v.sent[HD_LINK_NODE] = sent * (1 - out);
	v.sent[HD_LINK_NETWORK] = sent * out;
	return v;
}

/* Returns the latency of a ring. It passes n - 1 links, and those between nodes are slower. */
static double round_latency(const struct hd_pricing *x, double members, struct hd_spread s)
{
	double between = s.nodes > 1 ? fmin((double)s.nodes - (s.here > 1 ? 0 : 1), members - 1) : 0;

	return between * x->m->links[HD_LINK_NETWORK].latency +
	       (members - 1 - between) * x->m->links[HD_LINK_NODE].latency;
}

/* Returns the latency of a tree, up or down. Its lower levels are within nodes, and only those above are between
 * them. */
static double tree_latency(const struct hd_pricing *x, struct hd_spread s)
{
	return ceil(log2((double)s.here)) * x->m->links[HD_LINK_NODE].latency +
	       ceil(log2((double)s.nodes)) * x->m->links[HD_LINK_NETWORK].latency;
}

/* Returns the least time of an all-reduce over whole nodes. Its rings and trees slow each other down, so the time is
 * that of the highest rate that the machine was seen to reach. Returns 0 for other groups. */
static double seconds_of_nodes(const struct hd_machine *m, struct hd_spread s, double sent)
{
	if (s.nodes < 2 || s.here < m->ranks_per_node)
		return 0;
	return sent / (m->links[HD_LINK_NODE].bandwidth * hd_curve_at(&m->all_reduce, (double)s.nodes));
}

static struct hd_movement_price sum_to_all(const struct hd_pricing *x, const struct node *n, struct hd_spread s,
					   double sent)
{
	double members = (double)n->comm.group->v.n, whole = (double)hd_local_bytes(n->ins[0]);
	struct hd_movement_price ring = rings(x, s, sent), tree = rings(x, s, 2 * whole), faster;

	ring.seconds += 2 * round_latency(x, members, s);
	tree.seconds += 2 * tree_latency(x, s);
	memcpy(tree.sent, ring.sent, sizeof(tree.sent));
	faster = ring.seconds < tree.seconds || x->style->rings_only ? ring : tree;
	faster.seconds = fmax(faster.seconds, seconds_of_nodes(x->m, s, sent));
	return faster;
}

/* Returns the price of a push to a parameter server, or of a pull. The server's link carries what all workers send to
 * it at once, or what it sends to each; the others wait for it. Tensors are distributed to the servers by bytes and
 * move one after the other. So in the steady state the links of all servers work in parallel. */
static struct hd_movement_price of_server(const struct hd_pricing *x, const struct node *n, struct hd_spread s,
					  double sent)
{
	const struct axis *a = n->comm.group->axes[0];
	uint32_t dtype = n->comm.wire ? n->comm.wire : n->ins[0]->v.dtype;
	double bytes = (double)hd_comm_size(dtype, hd_comm_node_count(n));
	double load = fmax((double)a->v.n * bytes / (double)a->v.spare, bytes);
	int push = n->comm.kind == HD_COMM_PUSH, far = s.nodes > 1, link = far ? HD_LINK_NETWORK : HD_LINK_NODE;
	struct hd_movement_price v =
		far ? carried(x->m, 0, load, load / (push ? x->m->incast : 1)) : carried(x->m, load, 0, 0);

	v.sent[HD_LINK_NODE] = far ? 0 : sent;
	v.sent[HD_LINK_NETWORK] = far ? sent : 0;
	v.seconds += x->m->links[link].latency;
	return v;
}

static struct hd_movement_price collective(const struct hd_pricing *x, const struct node *n, struct hd_spread s,
					   double sent)
{
	double members = (double)n->comm.group->v.n, piece;
	double latency = x->m->links[s.nodes > 1 ? HD_LINK_NETWORK : HD_LINK_NODE].latency;
	struct hd_movement_price v;

	switch (n->comm.kind) {
	case HD_COMM_ALL_REDUCE:
	case HD_COMM_ALL_MAX: return sum_to_all(x, n, s, sent);
	case HD_COMM_BROADCAST:
	case HD_COMM_REDUCE:
		v = rings(x, s, (double)hd_local_bytes(n->ins[0]));
		v.sent[HD_LINK_NODE] = s.nodes > 1 ? 0 : sent;
		v.sent[HD_LINK_NETWORK] = s.nodes > 1 ? sent : 0;
		v.seconds += tree_latency(x, s);
		return v;
	case HD_COMM_SHIFT:
	case HD_COMM_PERMUTE:
		v = to_next(x, s, sent);
		v.seconds += latency;
		return v;
	case HD_COMM_REDUCE_SCATTER:
	case HD_COMM_ALL_GATHER:
		v = rings(x, s, sent);
		v.seconds += round_latency(x, members, s);
		return v;
	case HD_COMM_ALL_TO_ALL:
	case HD_COMM_ALL_TO_ALL_V: v = to_all(x, s, members, sent, sent, 0); break;
	case HD_COMM_ORDERED_REDUCE_SCATTER: v = to_all(x, s, members, sent, sent, 1); break;
	case HD_COMM_PUSH:
	case HD_COMM_PULL: return of_server(x, n, s, sent);
	case HD_COMM_GATHER:
	case HD_COMM_SCATTER:
		piece = (double)hd_local_bytes(n->comm.kind == HD_COMM_GATHER ? n->ins[0] : n->outs[0]);
		v = to_all(x, s, members, sent, (members - 1) * piece, n->comm.kind == HD_COMM_GATHER);
		break;
	case HD_COMM_RING_REDUCE_SCATTER:
	case HD_COMM_RING_ALL_GATHER: /* each member passes a part on as soon as it has it */
		v = to_next(x, s, sent);
		v.seconds += round_latency(x, members, s);
		return v;
	default: v = to_next(x, s, sent);
	}
	v.seconds += (members - 1) * latency;
	return v;
}

/* Returns the price of a message between stages. n->comm.index is the coordinate of the stage that receives it. */
static struct hd_movement_price message(const struct hd_pricing *x, const struct node *n, double sent)
{
	const struct hd_plan *p = x->g->plan;
	int64_t rank = x->g->rank, nodes = x->m->ranks_per_node;
	int64_t there = rank + (n->comm.index - hd_plan_coord(p, rank, p->stages)) * p->stages->stride;
	int link = there / nodes == rank / nodes ? HD_LINK_NODE : HD_LINK_NETWORK;
	struct hd_movement_price v = link == HD_LINK_NODE ? carried(x->m, sent, 0, 0) : carried(x->m, 0, sent, sent);

	v.seconds += x->m->links[link].latency;
	return v;
}

struct hd_movement_price hd_price_movement(const struct hd_pricing *x, const struct node *n)
{
	double sent = (double)hd_comm_node_sent(x->g->plan, n, x->g->rank), part = of_steps(n);
	int over_stages = hd_over_stages(x->g->plan, n->comm.group);
	struct hd_movement_price v;
	double whole, known;

	if (n->comm.kind == HD_COMM_RECV)
		return (struct hd_movement_price){ .seconds = 0 };
	whole = hd_layer_sent(x, n);
	v = over_stages && n->comm.kind == HD_COMM_SEND
		    ? message(x, n, sent)
		    : collective(x, n, spread_of(x, n->comm.group), whole > 0 ? whole : sent);
	part *= whole > 0 ? sent / whole : 1;
	known = v.sent[HD_LINK_NETWORK] > 0 ? -1 : hd_known_movement(x, n, whole > 0 ? whole : sent);
	if (known >= 0)
		v.seconds = v.occupied[HD_LINK_NODE] = known;
	v.seconds *= part;
	for (int i = 0; i < HD_LINKS; i++)
		v.occupied[i] *= part, v.sent[i] *= part;
	return v;
}
