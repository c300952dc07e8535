/* SPDX-License-Identifier: Apache-2.0
 * SUMMA (van de Geijn and Watts 1997) on q x q ranks, as Xu et al. (2104.05343) use it. A[m,k] and B[k,n] are cut in
 * blocks: rank (i,j), in row i and column j, has A(i,j), B(i,j) and C(i,j). The axis row shards dim m of every
 * activation. It shards k and n where they are the first dim of a matrix, and col shards them where they are the
 * second. So one axis shards different dims of one node, and the op sets its own placement. The op is replaced before a
 * program is built from the plan, so it has no cost.
 *
 *   ab    C = A B      for t < q: A(i,t) to all of row i, B(t,j) to all of column j, C += A B
 *   abt   A = C Bt     for t < q: B(t,j) to all of column j, C Bt summed over row i to rank (i,t)
 *   atb   B = At C     for t < q: A(i,t) to all of row i, At C summed over column j to rank (t,j)
 *
 * The gradients of ab are abt and atb. The ranks of a row lie along the axis col, and those of a column along row. The
 * blocks of step t + 1 are in transit while step t is computed, and no later ones, so that memory holds only two
 * blocks.
 *
 * Products of one activation with several weights (queries, keys and values; gate and up) are one op. Its A is sent
 * once and its gradient is summed once, as if the weights were one matrix:
 *
 *	ab	A, B...      -> C...	abt	C..., B...   -> A	atb	A, C...      -> B...
 */
#include <string.h>
#include "summa.h"

enum { AB, ABT, ATB };

struct mkn {
	const struct hd_dim *m, *k, *n;
};

/* Returns the first dim of t that `also` has and `not` lacks. Of several such dims (heads, head_dim) this one is
 * sharded. */
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

/* -- ops ----------------------------------------------------------------------------------------------------------- */
enum { MOST = 6 }; /* maximum number of products with one activation */

/* The number of products in an op's node, and its tensors. */
static uint32_t products(const struct hd_node *n, int form)
{
	return form == ABT ? n->nin / 2 : n->nin - 1;
}
static struct hd_tensor *a_of(const struct hd_node *n, int form)
{
	return form == ABT ? n->outs[0] : n->ins[0];
}
static struct hd_tensor *b_of(const struct hd_node *n, int form, uint32_t i)
{
	return form == AB ? n->ins[1 + i] : form == ABT ? n->ins[products(n, form) + i] : n->outs[i];
}
static struct hd_tensor *c_of(const struct hd_node *n, int form, uint32_t i)
{
	return form == AB ? n->outs[i] : form == ABT ? n->ins[i] : n->ins[1 + i];
}

static int summa_shape(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins,
		       uint32_t nin, struct hd_shape *outs, uint32_t *nout)
{
	char key[] = "out0";

	(void)nin;
	*nout = (uint32_t)s->g->attr(attr, "outs", 1);
	for (uint32_t i = 0; i < *nout; i++) {
		key[3] = (char)('0' + i);
		outs[i].dtype = ins[0]->dtype == HD_DTYPE_BF16 && s->g->attr(attr, "fp32", 0) != 0 ? HD_DTYPE_F32
												   : ins[0]->dtype;
		outs[i].ndim = s->g->attr_dims(p, attr, key, outs[i].dims);
	}
	return s->h->status(p);
}

/* Builds a node of one of the ops. like: tensors with the dims of the outputs. */
static struct hd_node *summa(struct hd_strategy *s, struct hd_plan *p, const struct hd_op *op,
			     struct hd_tensor *const *ins, uint32_t nin, struct hd_tensor *const *like, uint32_t nout)
{
	static const char *const fields[] = { " out0=", " out1=", " out2=", " out3=", " out4=", " out5=" };
	int full = like[0]->what == HD_TENSOR_PARAM && ins[0]->dtype == HD_DTYPE_BF16; /* weight gradients are fp32 */
#define OUT(i) nout > i ? fields[i] : "", nout > i ? like[i]->spec : ""

	return s->g->node(p, op, ins, nin, "outs=%u%s%s%s%s%s%s%s%s%s%s%s%s%s", nout, OUT(0), OUT(1), OUT(2), OUT(3),
			  OUT(4), OUT(5), full ? " fp32=1" : "");
#undef OUT
}

static void place_product(struct hd_strategy *s, const struct hd_node *n, int form, uint32_t i,
			  const struct hd_axis *axis, struct hd_place *need, struct hd_place *out)
{
	struct mkn d = roles(a_of(n, form), b_of(n, form, i), c_of(n, form, i));
	uint32_t all = products(n, form);
	int row = axis == s->axis[TP_ROW];
	struct hd_place *a = form == ABT ? out : &need[0];
	struct hd_place *b = form == AB ? &need[1 + i] : form == ABT ? &need[all + i] : &out[i];
	struct hd_place *c = form == AB ? &out[i] : form == ABT ? &need[i] : &need[1 + i];

	*a = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = row ? d.m : d.k };
	*b = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = row ? d.k : d.n };
	*c = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = row ? d.m : d.n };
}

static int is_shard(const struct hd_place *at, const struct hd_dim *d)
{
	return at->kind == HD_PLACE_SHARD && at->dim == d;
}

/* Places the op on axes of other sections, by their rules, which see one dim for all products. A dim may belong to some
 * of the weights only (heads, but not key heads). The results of those weights are then sharded, and the others are
 * not. A gradient of the activation that is summed over some of the products would be neither, so it is refused. */
static int place_other(struct hd_strategy *s, struct hd_plan *p, const struct hd_node *n, int form,
		       const struct hd_place *have, struct hd_place *need, struct hd_place *out)
{
	uint32_t all = products(n, form), cut = 0, b = form == ABT ? all : 1;

	for (uint32_t i = 0; i < all && form != ATB; i++)
		cut += is_shard(&have[b + i], roles(a_of(n, form), b_of(n, form, i), c_of(n, form, i)).n);
	if (!cut || cut == all)
		return HD_DEFAULT;
	if (form == ABT)
		return s->h
			->fail(p, HD_ENOTSUP,
			       "another section shards %u of %u matrices that one activation is multiplied by: it must "
			       "shard all or none of them",
			       cut, all);
	need[0] = (struct hd_place){ .kind = HD_PLACE_REPLICATED };
	for (uint32_t i = 0; i < all; i++)
		out[i] = need[b + i] = have[b + i];
	return HD_OK;
}

static int place(struct hd_strategy *s, struct hd_plan *p, const struct hd_node *n, int form,
		 const struct hd_axis *axis, const struct hd_place *have, struct hd_place *need, struct hd_place *out)
{
	if (axis != s->axis[TP_ROW] && axis != s->axis[TP_COL])
		return place_other(s, p, n, form, have, need, out);
	for (uint32_t i = 0; i < products(n, form); i++)
		place_product(s, n, form, i, axis, need, out);
	return HD_OK;
}

#define PLACE_ARGS \
	struct hd_strategy *s, struct hd_plan *p, const struct hd_node *n, const struct hd_axis *axis, \
		const struct hd_place *have, struct hd_place *need, struct hd_place *out

static int ab_place(PLACE_ARGS)
{
	return place(s, p, n, AB, axis, have, need, out);
}
static int abt_place(PLACE_ARGS)
{
	return place(s, p, n, ABT, axis, have, need, out);
}
static int atb_place(PLACE_ARGS)
{
	return place(s, p, n, ATB, axis, have, need, out);
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

/* dout is NULL for products that backward does not reach. */
static int ab_vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		  uint64_t want, struct hd_tensor **din)
{
	struct hd_tensor *for_a[2 * MOST], *for_b[1 + MOST] = { n->ins[0] }, *weights[MOST];
	uint32_t which[MOST], k = 0;
	const struct hd_node *made;

	for (uint32_t i = 0; i < products(n, AB); i++)
		if (dout[i])
			which[k++] = i;
	for (uint32_t i = 0; i < k; i++) {
		for_a[i] = for_b[1 + i] = dout[which[i]];
		for_a[k + i] = weights[i] = n->ins[1 + which[i]];
	}
	if (want & 1 && (made = summa(s, p, &abt, for_a, 2 * k, &n->ins[0], 1)))
		din[0] = made->outs[0];
	if (want >> 1 && (made = summa(s, p, &atb, for_b, 1 + k, weights, k)))
		for (uint32_t i = 0; i < k; i++)
			din[1 + which[i]] = made->outs[i];
	return s->h->status(p);
}

/* Tells whether n multiplies an activation and a weight and its result has a dim that can be sharded. Matmuls of
 * experts, with a dim that all three tensors have, and the router's logits follow the rules instead. */
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

static uint32_t count(struct hd_strategy *s, struct hd_plan *p, struct hd_node **all)
{
	const struct hd_match products = { .size = sizeof(products), .kind = "einsum" };
	struct hd_node *n = NULL;
	uint32_t k = 0;

	while ((n = s->g->node_next(p, n, &products)))
		if (is_ours(s, p, n)) {
			if (all)
				all[k] = n;
			k++;
		}
	return k;
}

/* Replaces all nodes with the activation of the first node by one op, and removes them from the list. */
static int rewrite_mates(struct hd_strategy *s, struct hd_plan *p, struct hd_node **all, uint32_t n)
{
	struct hd_tensor *ins[1 + MOST] = { all[0]->ins[0] }, *outs[MOST];
	struct hd_node *first_one = all[0], *made;
	uint32_t k = 0;

	for (uint32_t i = 0; i < n && k < MOST; i++)
		if (all[i] && all[i]->ins[0] == ins[0]) {
			ins[1 + k] = all[i]->ins[1];
			outs[k++] = all[i]->outs[0];
			all[i] = NULL;
		}
	hd_cursor(s->g, p, first_one, NULL);
	made = summa(s, p, &ab, ins, 1 + k, outs, k);
	for (uint32_t i = 0; made && i < k; i++)
		s->g->replace(p, outs[i], made->outs[i]);
	return s->h->status(p);
}

/* On a grid of one rank, products stay as they are, since other sections and passes know them. */
int tp_summa_rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	uint32_t n = s->axis[TP_ROW]->n > 1 ? count(s, p, NULL) : 0;
	struct hd_node **all = n ? s->h->alloc(p, n * sizeof(struct hd_node *)) : NULL;

	if (!all)
		return s->h->status(p);
	count(s, p, all);
	for (uint32_t i = 0; i < n; i++)
		if (all[i] && rewrite_mates(s, p, all + i, n - i) < 0)
			break;
	return s->h->status(p);
}

/* -- the part of one rank ------------------------------------------------------------------------------------------ */
struct summa_parts { /* one node while it is lowered */
	struct hd_strategy *s;
	struct hd_plan *p;
	struct hd_node *n;
	const struct hd_group *row, *col; /* row: the ranks of this rank's row; col: those of its column */
	int64_t q;
	int form;
	uint32_t k; /* number of products */
};

/* Returns a b, with the dims of `like`, or c + a b in the memory of c if c is not NULL. */
static struct hd_tensor *product(const struct summa_parts *u, const struct hd_tensor *like, struct hd_tensor *a,
				 struct hd_tensor *b, struct hd_tensor *c)
{
	const struct hd_graph_api *g = u->s->g;
	struct hd_tensor *ins[] = { a, b, c };
	int full = g->attr(u->n->attr, "fp32", 0) != 0;
	struct hd_node *n;

	n = g->node(u->p, g->op(u->p, "einsum"), ins, c ? 3 : 2, "out=%s%s%s", like->spec, full ? " fp32=1" : "",
		    c ? " add=1" : "");
	return n ? n->outs[0] : NULL;
}

static struct hd_tensor *block(const struct summa_parts *u, const struct hd_group *to, struct hd_tensor *x, int64_t t)
{
	return hd_comm(u->s->g, u->p, HD_COMM_BROADCAST, to, x, NULL, t);
}

/* Gets block t of every B. */
static void blocks(const struct summa_parts *u, int64_t t, struct hd_tensor **b)
{
	for (uint32_t i = 0; i < u->k; i++)
		b[i] = block(u, u->col, b_of(u->n, u->form, i), t);
}

static void lower_ab(const struct summa_parts *u, struct hd_tensor **c)
{
	struct hd_tensor *a = block(u, u->row, u->n->ins[0], 0), *b[MOST], *a_now, *b_now[MOST];

	blocks(u, 0, b);
	memset(c, 0, MOST * sizeof(*c));
	for (int64_t t = 0; t < u->q; t++) {
		a_now = a;
		memcpy(b_now, b, sizeof(b));
		if (t + 1 < u->q) {
			a = block(u, u->row, u->n->ins[0], t + 1);
			blocks(u, t + 1, b);
		}
		for (uint32_t i = 0; i < u->k; i++)
			c[i] = product(u, u->n->outs[i], a_now, b_now[i], c[i]);
	}
}

/* Returns this member's own sum. The partial results of step t are summed along `to` at member t. */
static struct hd_tensor *own_sum(const struct summa_parts *u, const struct hd_group *to, struct hd_tensor *const *sums)
{
	const struct hd_pos mine = { .group = to, .mul = 1 };

	return u->s->g->pick(u->p, sums, (uint32_t)u->q, &mine);
}

static struct hd_tensor *sum_at(const struct summa_parts *u, const struct hd_group *to, struct hd_tensor *x, int64_t t)
{
	return hd_comm(u->s->g, u->p, HD_COMM_REDUCE, to, x, NULL, t);
}

/* sums: room for q tensors, one per step */
static struct hd_tensor *lower_abt(const struct summa_parts *u, struct hd_tensor **sums)
{
	struct hd_tensor *b[MOST], *now[MOST];

	blocks(u, 0, b);
	for (int64_t t = 0; t < u->q; t++) {
		struct hd_tensor *a = NULL;

		memcpy(now, b, sizeof(b));
		if (t + 1 < u->q)
			blocks(u, t + 1, b);
		for (uint32_t i = 0; i < u->k; i++)
			a = product(u, u->n->outs[0], c_of(u->n, ABT, i), now[i], a);
		sums[t] = sum_at(u, u->row, a, t);
	}
	return own_sum(u, u->row, sums);
}

/* sums: room for q tensors per product */
static void lower_atb(const struct summa_parts *u, struct hd_tensor **sums, struct hd_tensor **outs)
{
	struct hd_tensor *a = block(u, u->row, u->n->ins[0], 0);

	for (int64_t t = 0; t < u->q; t++) {
		struct hd_tensor *now = a;

		if (t + 1 < u->q)
			a = block(u, u->row, u->n->ins[0], t + 1);
		for (uint32_t i = 0; i < u->k; i++)
			sums[i * u->q + t] =
				sum_at(u, u->col, product(u, u->n->outs[i], now, c_of(u->n, ATB, i), NULL), t);
	}
	for (uint32_t i = 0; i < u->k; i++)
		outs[i] = own_sum(u, u->col, sums + i * u->q);
}

/* Lowers the op on a grid of one rank to plain products. */
static void lower_alone(const struct summa_parts *u, struct hd_tensor **outs)
{
	struct hd_tensor *a = NULL;

	for (uint32_t i = 0; i < u->k; i++)
		if (u->form == ABT)
			outs[0] = a = product(u, u->n->outs[0], c_of(u->n, ABT, i), b_of(u->n, ABT, i), a);
		else
			outs[i] = product(u, u->n->outs[i], u->n->ins[0], u->n->ins[1 + i], NULL);
}

static int lower(const struct summa_parts *u)
{
	struct hd_tensor *outs[MOST] = { NULL };
	struct hd_tensor **sums = u->s->h->alloc(u->p, (size_t)u->q * u->k * sizeof(*sums));

	if (!sums)
		return u->s->h->status(u->p);
	hd_cursor(u->s->g, u->p, u->n, NULL);
	if (u->q == 1)
		lower_alone(u, outs);
	else if (u->form == AB)
		lower_ab(u, outs);
	else if (u->form == ABT)
		outs[0] = lower_abt(u, sums);
	else
		lower_atb(u, sums, outs);
	for (uint32_t i = 0; i < u->n->nout; i++)
		u->s->g->replace(u->p, u->n->outs[i], outs[i]);
	return u->s->h->status(u->p);
}

int tp_summa_lower(struct hd_strategy *s, struct hd_plan *p)
{
	static const struct hd_op *const ops[] = { &ab, &abt, &atb };
	struct summa_parts u = { .s = s,
				 .p = p,
				 .q = s->axis[TP_COL]->n,
				 .row = hd_group_of(s->h, p, &s->axis[TP_COL], 1),
				 .col = hd_group_of(s->h, p, &s->axis[TP_ROW], 1) };

	for (u.form = AB; u.form <= ATB; u.form++) {
		const struct hd_match all = { .size = sizeof(all), .op = ops[u.form] };

		while ((u.n = s->g->node_next(p, u.n, &all))) {
			u.k = products(u.n, u.form);
			lower(&u);
		}
	}
	return s->h->status(p);
}
