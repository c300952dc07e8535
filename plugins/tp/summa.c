/* SPDX-License-Identifier: Apache-2.0
 * SUMMA (van de Geijn and Watts 1997) on q x q ranks, as Xu et al. (2104.05343) use it.  A[m,k] and B[k,n] are cut in blocks:
 * rank (i,j), of row i and column j, has A(i,j), B(i,j) and C(i,j).  The dims m of every activation are cut by the axis row,
 * k and n by row where they are the first dim of a matrix and by col where they are the second; so one axis cuts different
 * dims of one node, and the op places itself.  It is gone when a program is made of the plan, so it has no cost.
 *
 *   ab    C = A B      for t < q: A(i,t) to all of row i, B(t,j) to all of column j, C += A B
 *   abt   A = C Bt     for t < q: B(t,j) to all of column j, C Bt summed over row i to rank (i,t)
 *   atb   B = At C     for t < q: A(i,t) to all of row i, At C summed over column j to rank (t,j)
 *
 * The gradients of ab are abt and atb.  The ranks of a row are those along the axis col, and the other way round.
 * What step t + 1 needs is on its way while step t is computed; no more than that, so that memory holds two blocks.
 */
#include <string.h>
#include "summa.h"

enum { AB, ABT, ATB };

struct mkn {
	const struct hd_dim *m, *k, *n;
};

/* The first dim of t that `also` has and `not` does not: of several (heads, head_dim) that one is sharded. */
static const struct hd_dim *first(const struct hd_tensor *t, const struct hd_tensor *also,
				  const struct hd_tensor * not )
{
	for (uint32_t i = 0; i < t->ndim; i++)
		if (tp_has(also, t->dims[i]) && !tp_has(not, t->dims[i]))
			return t->dims[i];
	return NULL;
}

static struct mkn roles(const struct hd_tensor *a, const struct hd_tensor *b, const struct hd_tensor *c)
{
	return (struct mkn){ first(a, c, b), first(a, b, c), first(c, b, a) };
}

/* -- ops -------------------------------------------------------------------------------------------------------------------------- */
static int summa_shape(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins,
		       uint32_t nin, struct hd_shape *outs, uint32_t *nout)
{
	(void)nin;
	*nout = 1;
	outs->dtype = ins[0]->dtype == HD_DTYPE_BF16 && s->g->attr(attr, "fp32", 0) != 0 ? HD_DTYPE_F32 : ins[0]->dtype;
	outs->ndim = s->g->attr_dims(p, attr, "out", outs->dims);
	return s->h->status(p);
}

static struct hd_tensor *summa(struct hd_strategy *s, struct hd_plan *p, const struct hd_op *op, struct hd_tensor *x,
			       struct hd_tensor *y, const struct hd_tensor *like)
{
	struct hd_tensor *ins[] = { x, y };
	int full = like->what == HD_TENSOR_PARAM && x->dtype == HD_DTYPE_BF16; /* gradients of weights are */
	struct hd_node *n = s->g->node(p, op, ins, 2, "out=%s%s", like->spec, full ? " fp32=1" : "");

	return n ? n->outs[0] : NULL;
}

static int place(struct hd_strategy *s, const struct hd_node *n, int form, const struct hd_axis *axis,
		 struct hd_place *need, struct hd_place *out)
{
	struct hd_place *a = form == ABT ? out : &need[0], *b = form == ATB ? out : &need[1];
	struct hd_place *c = form == AB ? out : &need[form == ATB];
	const struct hd_tensor *x = n->ins[0], *y = n->ins[1], *z = n->outs[0];
	struct mkn d = form == AB ? roles(x, y, z) : form == ABT ? roles(z, y, x) : roles(x, z, y);
	int row = axis == s->axis[TP_ROW];

	if (!row && axis != s->axis[TP_COL])
		return HD_DEFAULT; /* other axes: by their rules */
	*a = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = row ? d.m : d.k };
	*b = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = row ? d.k : d.n };
	*c = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = row ? d.m : d.n };
	return HD_OK;
}

#define PLACE_ARGS \
	struct hd_strategy *s, struct hd_plan *p, const struct hd_node *n, const struct hd_axis *axis, \
		const struct hd_place *have, struct hd_place *need, struct hd_place *out

static int ab_place(PLACE_ARGS)
{
	(void)p;
	(void)have;
	return place(s, n, AB, axis, need, out);
}
static int abt_place(PLACE_ARGS)
{
	(void)p;
	(void)have;
	return place(s, n, ABT, axis, need, out);
}
static int atb_place(PLACE_ARGS)
{
	(void)p;
	(void)have;
	return place(s, n, ATB, axis, need, out);
}

static int ab_vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		  uint64_t want, struct hd_tensor **din);

#define OP(id, ...) \
	static const struct hd_op id = { .size = sizeof(id), \
					 .name = "summa_" #id, \
					 .kind = "einsum", \
					 .shape = summa_shape, \
					 .place = id##_place, \
					 __VA_ARGS__ }
OP(ab, .vjp = ab_vjp);
OP(abt, .vjp = NULL);
OP(atb, .vjp = NULL);

static int ab_vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		  uint64_t want, struct hd_tensor **din)
{
	if (want & 1)
		din[0] = summa(s, p, &abt, dout[0], n->ins[1], n->ins[0]);
	if (want & 2)
		din[1] = summa(s, p, &atb, n->ins[0], dout[0], n->ins[1]);
	return s->h->status(p);
}

/* Of an activation and a weight, into a dim that can be sharded.  Matmuls of experts have one that is in all three tensors,
 * and a router's choice is not sharded: they follow the rules. */
static int is_ours(struct hd_strategy *s, struct hd_plan *p, const struct hd_node *n)
{
	static const char *const dims[] = { "embed", "heads", "kv_heads", "mlp", "shared_mlp", "expert_mlp", "vocab" };
	struct mkn d;
	int k = 0, j = 0;

	if (n->nin != 2 || n->ins[1]->what != HD_TENSOR_PARAM || !tp_has(n->ins[0], s->h->dim(p, "batch")))
		return 0;
	for (uint32_t i = 0; i < n->ins[1]->ndim; i++)
		if (tp_has(n->ins[0], n->ins[1]->dims[i]) && tp_has(n->outs[0], n->ins[1]->dims[i]))
			return 0;
	d = roles(n->ins[0], n->ins[1], n->outs[0]);
	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
		k |= d.k && !strcmp(d.k->name, dims[i]);
		j |= d.n && !strcmp(d.n->name, dims[i]);
	}
	return k && j;
}

int tp_summa_rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_match products = { .size = sizeof(products), .kind = "einsum" };
	struct hd_node *n = NULL;

	while ((n = s->g->node_next(p, n, &products))) {
		if (!is_ours(s, p, n))
			continue;
		hd_cursor(s->g, p, n, NULL);
		s->g->replace(p, n->outs[0], summa(s, p, &ab, n->ins[0], n->ins[1], n->outs[0]));
	}
	return s->h->status(p);
}

/* -- one rank's part ------------------------------------------------------------------------------------------------------------- */
struct summa_parts { /* one node, while it is lowered */
	struct hd_strategy *s;
	struct hd_plan *p;
	struct hd_node *n;
	const struct hd_group *row, *col; /* the ranks of my row; of my column */
	int64_t q;
};

/* c NULL: a b; else c + a b, in c's place. */
static struct hd_tensor *product(const struct summa_parts *u, struct hd_tensor *a, struct hd_tensor *b,
				 struct hd_tensor *c)
{
	const struct hd_graph_api *g = u->s->g;
	struct hd_tensor *ins[] = { a, b, c };
	struct hd_node *n;

	n = g->node(u->p, g->op(u->p, "einsum"), ins, c ? 3 : 2, "%s%s", u->n->attr, c ? " add=1" : "");
	return n ? n->outs[0] : NULL;
}

static struct hd_tensor *block(const struct summa_parts *u, const struct hd_group *to, uint32_t i, int64_t t)
{
	return hd_comm(u->s->g, u->p, HD_COMM_BROADCAST, to, u->n->ins[i], NULL, t);
}

static struct hd_tensor *lower_ab(const struct summa_parts *u)
{
	struct hd_tensor *a = block(u, u->row, 0, 0), *b = block(u, u->col, 1, 0), *c = NULL;

	for (int64_t t = 0; t < u->q; t++) {
		struct hd_tensor *a_now = a, *b_now = b;

		if (t + 1 < u->q) {
			a = block(u, u->row, 0, t + 1);
			b = block(u, u->col, 1, t + 1);
		}
		c = product(u, a_now, b_now, c);
	}
	return c;
}

/* Input `moves` comes to me along `from`; the products are summed along `to`, the one of step t at member t. */
static struct hd_tensor *lower_sum(const struct summa_parts *u, uint32_t moves, const struct hd_group *from,
				   const struct hd_group *to)
{
	const struct hd_pos mine = { .group = to, .mul = 1 };
	struct hd_tensor **sums = u->s->h->alloc(u->p, (size_t)u->q * sizeof(*sums)), *x = block(u, from, moves, 0);

	if (!sums)
		return NULL;
	for (int64_t t = 0; t < u->q; t++) {
		struct hd_tensor *now = x, *y = u->n->ins[!moves];

		if (t + 1 < u->q)
			x = block(u, from, moves, t + 1);
		y = product(u, moves ? y : now, moves ? now : y, NULL);
		sums[t] = hd_comm(u->s->g, u->p, HD_COMM_REDUCE, to, y, NULL, t);
	}
	return u->s->g->pick(u->p, sums, (uint32_t)u->q, &mine);
}

static int lower(struct summa_parts *u, int form)
{
	struct hd_tensor *c;

	hd_cursor(u->s->g, u->p, u->n, NULL);
	if (u->q == 1)
		c = product(u, u->n->ins[0], u->n->ins[1], NULL);
	else if (form == AB)
		c = lower_ab(u);
	else if (form == ABT)
		c = lower_sum(u, 1, u->col, u->row);
	else
		c = lower_sum(u, 0, u->row, u->col);
	return u->s->g->replace(u->p, u->n->outs[0], c);
}

int tp_summa_lower(struct hd_strategy *s, struct hd_plan *p)
{
	static const struct hd_op *const ops[] = { &ab, &abt, &atb };
	struct summa_parts u = { .s = s,
				 .p = p,
				 .q = s->axis[TP_COL]->n,
				 .row = hd_group_of(s->h, p, &s->axis[TP_COL], 1),
				 .col = hd_group_of(s->h, p, &s->axis[TP_ROW], 1) };

	for (int form = AB; form <= ATB; form++) {
		const struct hd_match all = { .size = sizeof(all), .op = ops[form] };

		while ((u.n = s->g->node_next(p, u.n, &all)))
			lower(&u, form);
	}
	return s->h->status(p);
}
