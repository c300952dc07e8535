/* SPDX-License-Identifier: Apache-2.0
 * Ring attention (Liu et al. 2310.01889): each member keeps its queries, and keys and values go round the ring. In turn
 * t a member has those of member me - t. It computes attention over them alone, and merges the result with what it has
 * so far. It weights both by the logarithms of their softmax sums. Meanwhile the keys of the next turn are in transit.
 *
 * Backward needs no more than the result and its logarithms. With those of the complete sequence, attention_d over one
 * turn's keys yields that turn's share of the gradients. The gradients of keys and values follow them round the ring,
 * one turn later, and so return to their owner.
 *
 * The share of a turn is the part of its keys that a member's queries see (shares.c). No member computes what the mask
 * would hide. With a window, keys go no further than the window reaches; all members then have equal work if tokens
 * stay in their plain order. Sums are in fp32.
 */
#include "ring.h"
#include <stdio.h>

/* -- the ops: attention and its backward, sharded along seq -------------------------------------------------------- */
static const struct hd_op *engine_op(struct hd_strategy *s, struct hd_plan *p, const struct hd_node *n)
{
	return s->g->op(p, n->nin > 3 ? "attention_d" : "attention");
}

static int ring_shape(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins,
		      uint32_t nin, struct hd_shape *outs, uint32_t *nout)
{
	const struct hd_op *like = s->g->op(p, nin > 3 ? "attention_d" : "attention");

	return like->shape(NULL, p, attr, ins, nin, outs, nout);
}

/* Shards along seq on this axis; on the others, places like the engine's attention. */
static int ring_place(struct hd_strategy *s, struct hd_plan *p, const struct hd_node *n, const struct hd_axis *axis,
		      const struct hd_place *have, struct hd_place *need, struct hd_place *out)
{
	const struct hd_place piece = { .kind = HD_PLACE_SHARD,
					.dim = s->seq,
					.order = s->zigzag ? HD_ORDER_ZIGZAG : HD_ORDER_CONTIGUOUS,
					.level = -1 };

	if (axis != s->axis)
		return engine_op(s, p, n)->place(NULL, p, n, axis, have, need, out);
	for (uint32_t i = 0; i < n->nin; i++)
		need[i] = piece;
	for (uint32_t k = 0; k < n->nout; k++)
		out[k] = piece;
	return HD_OK;
}

static int ring_cost(struct hd_strategy *s, const struct hd_node *n, struct hd_cost *c)
{
	double pairs = 2, seq = (double)n->ins[1]->local[1], window = s->g->attr(n->attr, "window", 0);

	seq = window > 0 && 2 * window < seq ? 2 * window : seq;
	for (uint32_t i = 0; i < n->ins[0]->ndim; i++)
		pairs *= (double)n->ins[0]->local[i];
	c->matmul_flops = pairs * seq / 2 * (n->nin > 3 ? 5 : 2);
	return HD_OK;
}

static int ring_vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		    uint64_t want, struct hd_tensor **din);

#define RING(id, ...) \
	static const struct hd_op id = { .size = sizeof(id), \
					 .name = #id, \
					 .kind = "attention", \
					 .unshardable = unshardable, \
					 .shape = ring_shape, \
					 .place = ring_place, \
					 .cost = ring_cost, \
					 __VA_ARGS__ }
static const char *const unshardable[] = { "seq", "head_dim", NULL };
RING(ring, .vjp = ring_vjp);
RING(ring_d, .vjp = NULL);

static int ring_vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		    uint64_t want, struct hd_tensor **din)
{
	struct hd_tensor *ins[] = { n->ins[0], n->ins[1], n->ins[2], n->outs[0], n->outs[1], dout[0] };
	struct hd_node *d = s->g->node(p, &ring_d, ins, 6, "%s", n->attr);

	for (int i = 0; d && i < 3; i++)
		din[i] = want >> i & 1 ? d->outs[i] : NULL;
	return s->h->status(p);
}

static int rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match all = { .size = sizeof(all), .op = s->g->op(p, "attention") };
	struct hd_node *n = NULL, *mine;

	s->seq = s->h->dim(p, "seq");
	while ((n = s->g->node_next(p, n, &all))) {
		s->windows += s->g->attr(n->attr, "window", 0) > 0;
		hd_cursor(s->g, p, n, NULL);
		mine = s->g->node(p, &ring, n->ins, 3, "%s", n->attr);
		for (uint32_t k = 0; k < 2; k++)
			s->g->replace(p, n->outs[k], mine ? mine->outs[k] : NULL);
		s->taken++;
	}
	return s->h->status(p);
}

/* Tells whether the plan generates single tokens with a cache.  Such attention runs in no ring. */
static int has_cache(const struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match cached = { .size = sizeof(cached), .op = s->g->op(p, "attention_cached") };

	return s->g->node_next(p, NULL, &cached) != NULL;
}

static int rules(struct hd_strategy *s, struct hd_plan *p)
{
	if (s->zigzag && s->windows)
		HD_LOG(s->h, p, HD_LOG_INFO,
		       "balance: %d of %d attentions have a window, whose work is equal where members of %s have "
		       "adjacent tokens: none is used",
		       s->windows, s->taken, s->axis->name);
	s->zigzag &= s->taken > 0 && !s->windows;
	if (!s->taken && !has_cache(s, p))
		HD_LOG(s->h, p, HD_LOG_WARN,
		       "attention already runs in the ring of another section: all members of %s would compute the same",
		       s->axis->name);
	hd_rule(s->h, p, "seq", s->axis, NULL, HD_RULE_OUTERMOST | (s->zigzag ? HD_RULE_ZIGZAG : 0));
	return s->h->status(p);
}

/* -- forward ------------------------------------------------------------------------------------------------------- */
static struct hd_tensor *cp_fp32(const struct cp_walk *w, struct hd_tensor *x)
{
	return x && HD_BITS(x->dtype) < 32 ? w->s->g->cast(w->p, x, HD_DTYPE_F32) : x;
}

static struct hd_tensor *shift(const struct cp_walk *w, struct hd_tensor *x)
{
	return hd_comm(w->s->g, w->p, HD_COMM_SHIFT, w->s->members, x, NULL, 1);
}

/* A member's attention over the keys so far: the result, and the logarithms of the softmax sums. */
struct part {
	struct hd_tensor *o, *lse;
};

struct attributes {
	char text[160];
};

/* Attributes of attention over the keys of `turn` members away. With a window, the mask depends on their places in the
 * sequence. */
static struct attributes attributes_of(const struct cp_walk *w, int64_t turn)
{
	struct attributes a;
	int causal = w->causal && (!turn || w->window);
	int n = snprintf(a.text, sizeof(a.text), "causal=%d scale=%.17g", causal, w->scale);

	if (w->softcap > 0)
		n += snprintf(a.text + n, sizeof(a.text) - (size_t)n, " softcap=%.17g", w->softcap);
	if (w->window)
		snprintf(a.text + n, sizeof(a.text) - (size_t)n, " window=%lld later=%lld", (long long)w->window,
			 (long long)(turn * w->tokens));
	return a;
}

static struct part attention(const struct cp_walk *w, struct hd_tensor *const *qkv, int64_t turn)
{
	struct hd_node *n =
		w->s->g->node(w->p, w->s->g->op(w->p, "attention"), qkv, 3, "%s", attributes_of(w, turn).text);

	return n ? (struct part){ cp_fp32(w, n->outs[0]), n->outs[1] } : (struct part){ NULL, NULL };
}

/* Merges the attention over two disjoint sets of keys. */
static struct part merge(const struct cp_walk *w, struct part a, struct part b)
{
	struct hd_tensor *o[] = { a.o, b.o, a.lse, b.lse }, *lse[] = { a.lse, b.lse };

	return (struct part){ w->s->g->map(w->p, o, 4, "a + (b - a) / (1 + exp(c - d))"),
			      w->s->g->map(w->p, lse, 2, "max(a, b) + log(1 + exp(-abs(a - b)))") };
}

static struct part add_share(const struct cp_walk *w, int64_t turn, const struct cp_share *x,
			     struct hd_tensor *const *qkv, struct part all)
{
	struct hd_tensor *ins[] = { cp_take(w, qkv[0], x->queries), cp_take(w, qkv[1], x->keys),
				    cp_take(w, qkv[2], x->keys) };
	struct part old = { cp_take(w, all.o, x->queries), cp_take(w, all.lse, x->queries) };
	struct part sum = merge(w, old, attention(w, ins, turn));

	return (struct part){ cp_put(w, all.o, x->queries, sum.o), cp_put(w, all.lse, x->queries, sum.lse) };
}

static struct part add_turn(const struct cp_walk *w, int64_t turn, struct hd_tensor *const *qkv, struct part all)
{
	struct cp_share shares[CP_SHARES];
	int n = cp_shares(w, turn, shares);
	struct part sum = all;

	for (int i = 0; i < n; i++) {
		struct part mine;

		cp_begin_share(w, &shares[i]);
		mine = add_share(w, turn, &shares[i], qkv, all);
		cp_end_share(w);
		sum.o = cp_choose(w, &shares[i], mine.o, sum.o);
		sum.lse = cp_choose(w, &shares[i], mine.lse, sum.lse);
	}
	return sum;
}

static void forward(const struct cp_walk *w)
{
	struct hd_tensor *qkv[] = { w->n->ins[0], w->n->ins[1], w->n->ins[2] }, *next[2] = { NULL, NULL };
	struct part all = { NULL, NULL };

	for (int64_t turn = 0; turn < w->turns; turn++) {
		for (int i = 0; i < 2 && turn + 1 < w->turns; i++)
			next[i] = shift(w, qkv[1 + i]);
		all = turn ? add_turn(w, turn, qkv, all) : attention(w, qkv, turn);
		qkv[1] = next[0];
		qkv[2] = next[1];
	}
	if (all.o && all.o->dtype != w->n->outs[0]->dtype)
		all.o = w->s->g->cast(w->p, all.o, w->n->outs[0]->dtype);
	w->s->g->replace(w->p, w->n->outs[0], all.o);
	w->s->g->replace(w->p, w->n->outs[1], all.lse);
}

/* -- backward ------------------------------------------------------------------------------------------------------ */
enum { Q, K, V, O, LSE, DO };

/* Computes d: the gradients of q, k and v. */
static void gradients(const struct cp_walk *w, struct hd_tensor *const *ins, int64_t turn, struct hd_tensor **d)
{
	struct hd_node *n =
		w->s->g->node(w->p, w->s->g->op(w->p, "attention_d"), ins, 6, "%s", attributes_of(w, turn).text);

	for (int i = 0; i < 3; i++)
		d[i] = n ? cp_fp32(w, n->outs[i]) : NULL;
}

static struct hd_tensor *sum(const struct cp_walk *w, struct hd_tensor *a, struct hd_tensor *b)
{
	struct hd_tensor *ins[] = { a, b };

	return w->s->g->map(w->p, ins, 2, "a + b");
}

static void add_share_d(const struct cp_walk *w, int64_t turn, const struct cp_share *x, struct hd_tensor *const *ins,
			struct hd_tensor *const *all, struct hd_tensor **out)
{
	struct hd_tensor *piece[6], *d[3];

	for (int i = 0; i < 6; i++)
		piece[i] = cp_take(w, ins[i], i == K || i == V ? x->keys : x->queries);
	gradients(w, piece, turn, d);
	for (int i = 0; i < 3; i++) {
		int which = i == Q ? x->queries : x->keys;

		out[i] = cp_put(w, all[i], which, sum(w, cp_take(w, all[i], which), d[i]));
	}
}

static void add_turn_d(const struct cp_walk *w, int64_t turn, struct hd_tensor *const *ins, struct hd_tensor **d)
{
	struct cp_share shares[CP_SHARES];
	struct hd_tensor *sums[] = { d[0], d[1], d[2] }, *mine[3];
	int n = cp_shares(w, turn, shares);

	for (int i = 0; i < n; i++) {
		cp_begin_share(w, &shares[i]);
		add_share_d(w, turn, &shares[i], ins, d, mine);
		cp_end_share(w);
		for (int k = 0; k < 3; k++)
			sums[k] = cp_choose(w, &shares[i], mine[k], sums[k]);
	}
	for (int k = 0; k < 3; k++)
		d[k] = sums[k];
}

/* Sends the gradients of keys, which are `turns` - 1 members away from their owner, to the member that owns the
 * keys. */
static struct hd_tensor *send_to_owner(const struct cp_walk *w, struct hd_tensor *x)
{
	return hd_comm(w->s->g, w->p, HD_COMM_SHIFT, w->s->members, x, NULL, w->members - w->turns + 1);
}

static void backward(const struct cp_walk *w)
{
	struct hd_tensor *ins[6], *d[3] = { NULL, NULL, NULL }, *next[2] = { NULL, NULL };

	for (int i = 0; i < 6; i++)
		ins[i] = w->n->ins[i];
	for (int64_t turn = 0; turn < w->turns; turn++) {
		for (int i = 0; i < 2 && turn + 1 < w->turns; i++)
			next[i] = shift(w, ins[K + i]);
		for (int i = 0; i < 2 && turn; i++)
			d[K + i] = shift(w, d[K + i]);
		if (turn)
			add_turn_d(w, turn, ins, d);
		else
			gradients(w, ins, turn, d);
		ins[K] = next[0];
		ins[V] = next[1];
	}
	for (int i = 0; i < 3; i++) {
		if (i != Q && w->turns > 1)
			d[i] = send_to_owner(w, d[i]);
		if (d[i] && d[i]->dtype != w->n->outs[i]->dtype)
			d[i] = w->s->g->cast(w->p, d[i], w->n->outs[i]->dtype);
		w->s->g->replace(w->p, w->n->outs[i], d[i]);
	}
}

/* -- lower --------------------------------------------------------------------------------------------------------- */
static void lower_all(struct hd_strategy *s, struct hd_plan *p, const struct hd_op *op,
		      void (*one)(const struct cp_walk *))
{
	const struct hd_match all = { .size = sizeof(all), .op = op, .flags = HD_MATCH_MINE };
	struct hd_node *n = NULL;

	while ((n = s->g->node_next(p, n, &all))) {
		struct cp_walk w = { .s = s,
				     .p = p,
				     .n = n,
				     .members = s->axis->n,
				     .causal = s->g->attr(n->attr, "causal", 0) != 0,
				     .scale = s->g->attr(n->attr, "scale", 0),
				     .softcap = s->g->attr(n->attr, "softcap", 0),
				     .window = (int64_t)s->g->attr(n->attr, "window", 0),
				     .tokens = s->seq->n / s->axis->n };

		w.turns = cp_turns(&w);
		hd_cursor(s->g, p, n, NULL);
		one(&w);
	}
}

static int lower(struct hd_strategy *s, struct hd_plan *p)
{
	s->members = hd_group_of(s->h, p, &s->axis, 1);
	lower_all(s, p, &ring, forward);
	lower_all(s, p, &ring_d, backward);
	return s->h->status(p);
}

const struct cp_form cp_ring = { .name = "ring", .rewrite = rewrite, .rules = rules, .lower = lower };
