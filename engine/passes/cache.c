/* SPDX-License-Identifier: Apache-2.0
 * Generation with a cache: turns the forward graph of complete sequences into that of their next tokens.
 *
 * A family builds its graph as always, with p->model.step_seq tokens per sequence.  This pass gives each token a
 * position, from a data leaf.  It gives each attention two leaves for the keys and values of p->past positions, or of
 * those in its window.  They are kept from run to run:
 *
 *	attention (q, k, v)	attention_cached (q, k, v, cache.k, cache.v, positions), which changes the caches
 *	rope (x)		rope_at (x, positions)
 *	position (x, table)	x + embedding (positions, table)
 *
 * This is right only if all other nodes compute each token by itself.  After the strategies' slot rewrite, the plan names
 * the first node that does not; such a model is generated from without a cache (run/job.c).
 *
 * For placement these are ordinary ops.  A cache lives where its only reader needs it: sharded by sequences and heads,
 * on its stage.  So every layout can generate.  Rules for seq are ignored (rules.c), because there are only one or a
 * few tokens.
 */
#include <config.h>
#include "engine/passes/passes.h"
#include "engine/device/device.h"
#include <string.h>

struct caching {
	struct hd_plan *p;
	struct tensor *positions;
	const struct hd_dim *past, *window; /* window: for layers with a window; created with the first of them */
	int64_t layers;                     /* attention nodes so far */
};

/* Returns the dim of the positions that an attention can look back to. */
static const struct hd_dim *cache_dim(struct caching *c, const struct node *n)
{
	int64_t window = hd_attr_int(n->attr, "window", 0);

	if (!window || window >= c->p->past)
		return c->past;
	if (!c->window)
		c->window = hd_dim_get(c->p, "window", window);
	return c->window;
}

static struct tensor *cache(const struct caching *c, const char *what, const struct tensor *x,
			    const struct hd_dim *past)
{
	const struct hd_dim *dims[] = { x->dims[0], past, x->dims[2], x->dims[3] };
	struct tensor *t = hd_tensor_new(c->p, hd_plan_text(c->p, "cache.%s.%lld", what, (long long)c->layers),
					 HD_TENSOR_STATE, x->v.dtype, dims, 4);

	t->step = 1;
	t->init = HD_INIT_ZERO;
	return t;
}

static struct tensor *with_caches(struct caching *c, const struct node *n)
{
	struct tensor *ins[] = { n->ins[0], n->ins[1], n->ins[2], NULL, NULL, c->positions };

	ins[3] = cache(c, "k", n->ins[1], cache_dim(c, n));
	ins[4] = cache(c, "v", n->ins[2], cache_dim(c, n));
	c->layers++;
	return hd_op1(c->p, "attention_cached", ins, 6, "%s", n->attr);
}

static struct tensor *rope(const struct caching *c, const struct node *n)
{
	struct tensor *ins[] = { n->ins[0], c->positions };

	return hd_op1(c->p, "rope_at", ins, 2, "%s%smost=%lld", n->attr, *n->attr ? " " : "", (long long)c->p->past);
}

static struct tensor *position(const struct caching *c, const struct node *n)
{
	struct tensor *ins[] = { c->positions, n->ins[1] }, *sum[] = { n->ins[0], NULL };

	sum[1] = hd_op1(c->p, "embedding", ins, 2, "%s", "");
	return hd_op1(c->p, "add", sum, 2, "%s", "");
}

static int is_op(const struct node *n, const char *name)
{
	return n->v.op == &hd_op_find(name)->v;
}

static int has_dim(struct hd_tensor *const *t, uint32_t n, const struct hd_dim *d)
{
	for (uint32_t i = 0; i < n; i++)
		if (hd_has_dim(T(t[i]), d))
			return 1;
	return 0;
}

/* Returns whether the result for one token depends on the other tokens of this run or on their number. */
static int reads_other_tokens(const struct node *n, const struct hd_dim *seq)
{
	int in = has_dim(n->v.ins, n->v.nin, seq), out = has_dim(n->v.outs, n->v.nout, seq);

	if (n->is->flags & OP_FLAG_WITH_CACHE)
		return 0;
	return (in && (!out || hd_is_unshardable(n, seq) || is_op(n, "attention"))) ||
	       (out && (is_op(n, "iota") || is_op(n, "uniform")));
}

void hd_find_reader_of_other_tokens(struct hd_plan *p)
{
	const struct hd_dim *seq = hd_dim_get(p, "seq", 0);

	for (struct node *n = p->first; n && p->past && seq; n = n->next)
		if (reads_other_tokens(n, seq)) {
			p->reads_other_tokens = n->v.op->name;
			return;
		}
}

int hd_pass_cache(struct hd_plan *p)
{
	struct caching c = { .p = p };

	if (!p->past)
		return HD_OK;
	c.past = hd_dim_get(p, "past", p->past);
	c.positions = hd_leaf(p, "positions", HD_TENSOR_DATA, HD_DTYPE_I32, "batch,seq");
	for (struct node *n = p->first; n && !p->err->code; n = n->next) {
		struct tensor *with = NULL;

		p->cursor = hd_cursor_before(n);
		if (is_op(n, "attention"))
			with = with_caches(&c, n);
		else if (is_op(n, "rope"))
			with = rope(&c, n);
		else if (is_op(n, "position"))
			with = position(&c, n);
		if (with)
			hd_replace(p, n->outs[0], with);
	}
	if (!p->err->code)
		hd_drop_dead(p);
	return p->err->code;
}
