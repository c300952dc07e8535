/* SPDX-License-Identifier: Apache-2.0
 * The ops of transformers: norm (layer norm and RMS norm), attention, embedding, position, select.  Each lists the dims
 * that it may not shard; the general rule does the rest of its placement.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/ops/build.h"
#include "engine/ops/ops.h"
#include <string.h>

static struct hd_tensor *out0(struct node *n)
{
	return n ? &n->outs[0]->v : NULL;
}

/* -- norm over the last dim ------------------------------------------------------------------------------------------------ */
static void without_last(struct hd_shape *s, const struct hd_tensor *t)
{
	hd_shape_like(s, t);
	s->ndim--;
	s->dtype = HD_BITS(t->dtype) < 32 ? HD_DTYPE_F32 : t->dtype;
}

static int norm_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)p;
	(void)nin;
	hd_shape_like(&outs[0], ins[0]);
	without_last(&outs[1], ins[0]);
	without_last(&outs[2], ins[0]);
	*nout = hd_attr_num(attr, "rms", 0) != 0 ? 2 : 3;
	return HD_OK;
}

/* Sets the shapes of the gradients of the weight and, with bias=1, of the bias.  Returns how many. */
static uint32_t shape_weights(struct hd_shape *outs, const char *attr, const struct hd_tensor *x, uint32_t dtype)
{
	uint32_t n = hd_attr_num(attr, "bias", 0) != 0 ? 2 : 1;

	for (uint32_t k = 0; k < n; k++) {
		outs[k].dtype = dtype;
		outs[k].ndim = 1;
		outs[k].dims[0] = x->dims[x->ndim - 1];
		outs[k].local[0] = x->local[x->ndim - 1];
	}
	return n;
}

static int norm_dw_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)p;
	(void)nin;
	*nout = shape_weights(outs, attr, ins[0], ins[1]->dtype); /* the dtype of rstd */
	return HD_OK;
}

/* For norm_d and norm_d_add. */
static int norm_d_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)nin;
	hd_shape_like(&outs[0], ins[0]);
	*nout = 1;
	if (hd_attr_num(attr, "dw", 0) != 0)
		*nout += shape_weights(outs + 1, attr, ins[0], p->master_dtype);
	return hd_attr_text(attr, "out") ? hd_shape_attr(p, attr, &outs[(*nout)++], p->master_dtype) : HD_OK;
}

int hd_vjp_of_first(struct hd_plan *p, const struct hd_node *n, struct hd_tensor *const *dout)
{
	for (uint32_t k = 1; k < n->nout; k++)
		if (dout[k])
			return hd_plan_fail(
				p, HD_ENOTSUP,
				"%s: the loss depends on output %u (%s), but only output 0 has a gradient; compute it "
				"with other ops",
				n->op->name, k, n->outs[k]->spec);
	return HD_OK;
}

static int norm_vjp(HD_VJP_ARGS)
{
	int rms = n->nout == 2, bias = n->nin == 3;
	struct tensor *x = T(n->ins[0]), *rstd = T(n->outs[1]), *dy = T(dout[0]);
	struct tensor *d[] = { x, T(n->ins[1]), rstd, rms ? dy : T(n->outs[2]), dy };
	struct tensor *dw[] = { x, rstd, rms ? dy : T(n->outs[2]), dy };
	struct node *k;

	(void)self;
	HD_TRY(hd_vjp_of_first(p, n, dout));
	if (want & 1)
		din[0] = out0(hd_node_make(p, "norm_d", d, rms ? 4 : 5, "rms=%d", rms));
	if (want & 6) {
		k = hd_node_make(p, "norm_dw", dw, rms ? 3 : 4, "rms=%d bias=%d", rms, bias);
		din[1] = out0(k);
		if (bias)
			din[2] = k ? &k->outs[1]->v : NULL;
	}
	return HD_OK;
}

/* A norm reduces its last dim, but not by a plain sum. */
static const char *const norm_uncut[] = { "embed", "head_dim", NULL };

/* -- attention ---------------------------------------------------------------------------------------------------------------- */
static int attention_shape(HD_SHAPE_ARGS)
{
	const struct hd_tensor *q = ins[0];

	(void)self;
	(void)attr;
	(void)nin;
	if (q->ndim != 4 || ins[1]->ndim != 4 || ins[2]->ndim != 4)
		return hd_plan_fail(p, HD_EINVAL, "attention: q, k, v are (batch, seq, heads, head_dim), not %s",
				    q->spec);
	hd_shape_like(&outs[0], q);
	outs[1].dtype = HD_BITS(q->dtype) < 32 ? HD_DTYPE_F32 : q->dtype;
	outs[1].ndim = 3;
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t from = i == 0 ? 0 : i == 1 ? 2 : 1;

		outs[1].dims[i] = q->dims[from];
		outs[1].local[i] = q->local[from];
	}
	*nout = 2;
	return HD_OK;
}

static int attention_d_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)p;
	(void)attr;
	(void)nin;
	for (uint32_t i = 0; i < 3; i++)
		hd_shape_like(&outs[i], ins[i]);
	*nout = 3;
	return HD_OK;
}

static int attention_vjp(HD_VJP_ARGS)
{
	struct tensor *ins[] = { T(n->ins[0]), T(n->ins[1]), T(n->ins[2]), T(n->outs[0]), T(n->outs[1]), T(dout[0]) };
	struct node *d;

	(void)self;
	HD_TRY(hd_vjp_of_first(p, n, dout));
	d = hd_node_make(p, "attention_d", ins, 6, "%s", n->attr);
	for (int i = 0; d && i < 3; i++)
		din[i] = &d->outs[i]->v;
	return HD_OK;
}

/* Returns the mean number of keys per query.  A causal mask hides half of the s keys.  A window w also hides those that
 * a query has passed: (1 - w / s)^2 / 2 of all. */
static double mean_keys(const struct hd_node *n)
{
	double keys = (double)n->ins[1]->local[1], window = hd_attr_num(n->attr, "window", 0), passed;

	passed = window > 0 && window < keys ? 1 - window / keys : 0;
	return keys * (hd_attr_num(n->attr, "causal", 1) != 0 ? 0.5 - passed * passed / 2 : 1);
}

/* Products: 2 forward (q kT and p v), 5 backward.  A cap computes a tanh for each score, one per pair of tokens and per
 * head. */
static int attention_cost(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c)
{
	const struct hd_tensor *q = n->ins[0];
	double pairs = hd_expected_elements(q) * mean_keys(n);

	(void)self;
	c->matmul_flops = 2 * pairs * (n->nin > 3 ? 5 : 2);
	if (hd_attr_num(n->attr, "softcap", 0) > 0 && q->local[3])
		c->other_flops = 20 * pairs / (double)q->local[3];
	for (uint32_t i = 0; i < n->nin; i++)
		c->bytes += hd_expected_elements(n->ins[i]) * HD_BITS(n->ins[i]->dtype) / 8;
	for (uint32_t i = 0; i < n->nout; i++)
		c->bytes += hd_expected_elements(n->outs[i]) * HD_BITS(n->outs[i]->dtype) / 8;
	return HD_OK;
}

static const char *const attention_uncut[] = { "seq", "head_dim", NULL };

static int cuts(const struct hd_place *w, const struct hd_dim *d)
{
	return w->kind == HD_PLACE_SHARD && w->dim == d;
}

/* Returns whether axis a shards the key heads together with their query heads.  That is possible if all such axes
 * together divide the key heads, and no axis shards query heads alone.  Otherwise a rank would have query heads whose
 * keys are on another. */
static int cuts_keys(const struct hd_plan *p, const struct node *n, const struct axis *a, const struct hd_dim *q,
		     const struct hd_dim *kv)
{
	int64_t all = 1;

	for (int i = 0; i < p->naxes; i++) {
		int of_keys = hd_dim_has_rule(p, n, p->axes[i], kv);

		if (of_keys != hd_dim_has_rule(p, n, p->axes[i], q))
			return 0;
		all *= of_keys ? p->axes[i]->v.n : 1;
	}
	return hd_dim_has_rule(p, n, a, kv) && D(kv)->padded % all == 0;
}

/* Shards heads along an axis that shards something else outside of attention.  It becomes the innermost axis of the
 * heads, so that shards that exist already do not move.  If the key heads cannot be sharded with them, each member has
 * all of them, and its gradients of k and v are partial sums. */
static void cut_inside(struct hd_plan *p, const struct hd_node *n, const struct hd_dim *q, const struct hd_dim *kv,
		       const struct axis *a, struct hd_place *need, struct hd_place *out)
{
	const struct hd_place inside = { .kind = HD_PLACE_SHARD, .dim = q, .level = 1 };
	const struct hd_place keys = { .kind = HD_PLACE_SHARD, .dim = kv, .level = 1 };
	int both = q != kv && cuts_keys(p, N(n), a, q, kv);

	for (uint32_t i = 0; i < n->nin; i++)
		if (hd_has_dim(T(n->ins[i]), q))
			need[i] = inside;
		else if (both)
			need[i] = keys;
	for (uint32_t k = 0; k < n->nout; k++) {
		out[k] = both && !hd_has_dim(T(n->outs[k]), q) ? keys : inside;
		if (!both && !hd_has_dim(T(n->outs[k]), q)) {
			out[k] = (struct hd_place){ .kind = HD_PLACE_PARTIAL, .red = HD_RED_SUM };
			T(n->outs[k])->reduced_dim[a->id] = q;
		}
	}
}

/* If an axis shards query heads and key heads alike (grouped-query attention), each group of query heads has its key
 * head on the same rank.  If the key heads are not sharded, since they are fewer, each rank reads all of them, and its
 * gradients of k and v are partial sums: the general rule does that. */
static int attention_place(HD_PLACE_ARGS)
{
	const struct hd_dim *q = n->ins[0]->dims[2], *kv = n->ins[1]->dims[2];

	(void)self;
	if (!cuts(&have[0], q) && hd_sharded_by_rules(p, N(n), A(axis)) == q) {
		cut_inside(p, n, q, kv, A(axis), need, out);
		return HD_OK;
	}
	if (q == kv || !cuts(&have[0], q) || !cuts(&have[1], kv) || !cuts(&have[2], kv))
		return HD_DEFAULT;
	for (uint32_t i = 0; i < n->nin; i++)
		need[i] = have[i == 1 || i == 2 ? 1 : 0];
	out[0] = have[0];
	for (uint32_t k = 1; k < n->nout; k++)
		out[k] = have[n->nout == 2 ? 0 : 1];
	return HD_OK;
}

/* -- attention of new tokens over all before; the op updates the leaves that hold their keys and values ---------------------- */
static int cached_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)attr;
	(void)nin;
	if (ins[0]->ndim != 4 || ins[3]->ndim != 4 || ins[5]->ndim != 2)
		return hd_plan_fail(p, HD_EINVAL, "attention_cached: q, k, v, two caches and positions, not %s",
				    ins[0]->spec);
	hd_shape_like(&outs[0], ins[0]);
	*nout = 1;
	return HD_OK;
}

/* As attention_place.  The caches are placed like the new keys; positions are replicated. */
static int cached_place(HD_PLACE_ARGS)
{
	const struct hd_dim *q = n->ins[0]->dims[2];
	const struct hd_place whole = { .kind = HD_PLACE_REPLICATED };
	int rc = attention_place(self, p, n, axis, have, need, out);
	int of_heads = cuts(&out[0], q);

	if (rc == HD_DEFAULT || !of_heads)
		return rc;
	need[3] = need[4] = need[1];
	need[5] = whole;
	return rc;
}

/* Checks that the axes that shard the key heads are the outermost of those that shard the query heads.  Otherwise a
 * rank has query heads whose keys are on another. */
int hd_attention_check(struct hd_plan *p, const struct node *n)
{
	const struct tensor *q = n->ins[0], *k = n->ins[1];
	int of_q[HD_MAX_AXES], of_k[HD_MAX_AXES], nq, nk, i = 0;
	const struct axis *a;

	if (n->v.op->place != attention_place && n->v.op->place != cached_place)
		return HD_OK;
	nq = hd_shard_order(p, &q->at, q->dims[2], of_q);
	nk = hd_shard_order(p, &k->at, k->dims[2], of_k);
	while (i < nk && i < nq && of_q[i] == of_k[i])
		i++;
	if (i == nk)
		return HD_OK;
	a = p->axes[of_k[i]];
	return hd_inst_fail(
		p, a->inst, HD_EINVAL,
		hd_plan_text(p,
			     "rule for %s along %s, unlike %s: in %s queries are (%s), keys (%s): a rank has "
			     "query heads without their key heads",
			     k->dims[2]->name, a->v.name, q->dims[2]->name, n->v.block, hd_placement_text(p, &q->at),
			     hd_placement_text(p, &k->at)));
}

static int attention_record(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	HD_TRY(hd_attention_check(N(n)->plan, N(n)));
	return hd_record_plain(self, r, n);
}

/* A token reads its cache once, and on average the cache is half full. */
static int cached_cost(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c)
{
	const struct hd_tensor *q = n->ins[0], *k = n->ins[3];

	(void)self;
	c->matmul_flops = 2 * hd_expected_elements(q) * (double)k->local[1];
	c->bytes =
		2 * hd_expected_elements(q) * HD_BITS(q->dtype) / 8 + hd_expected_elements(k) * HD_BITS(k->dtype) / 8;
	return HD_OK;
}

static const char *const cached_uncut[] = { "seq", "past", "window", "head_dim", NULL };

/* -- embedding, position -------------------------------------------------------------------------------------------------------- */
static int embedding_shape(HD_SHAPE_ARGS)
{
	const struct hd_tensor *ids = ins[0], *w = ins[1];

	(void)self;
	(void)attr;
	(void)nin;
	(void)p;
	hd_shape_like(&outs[0], ids);
	outs[0].dtype = w->dtype;
	outs[0].dims[ids->ndim] = w->dims[1];
	outs[0].local[ids->ndim] = w->local[1];
	outs[0].ndim++;
	*nout = 1;
	return HD_OK;
}

static int embedding_dw_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)nin;
	*nout = 1;
	return hd_shape_attr(p, attr, &outs[0], p->master_dtype);
}

static int embedding_vjp(HD_VJP_ARGS)
{
	struct tensor *ins[] = { T(n->ins[0]), T(dout[0]) };

	(void)self;
	(void)want;
	din[1] = out0(hd_node_make(p, "embedding_dw", ins, 2, "out=%s", n->ins[1]->spec));
	return HD_OK;
}

static int position_dw_shape(HD_SHAPE_ARGS)
{
	(void)self;
	(void)nin;
	*nout = 1;
	return hd_shape_attr(p, attr, &outs[0], p->master_dtype);
}

static int position_vjp(HD_VJP_ARGS)
{
	struct tensor *dy = T(dout[0]);

	(void)self;
	if (want & 1)
		din[0] = dout[0];
	if (want & 2)
		din[1] = out0(hd_node_make(p, "position_dw", &dy, 1, "out=%s", n->ins[1]->spec));
	return HD_OK;
}

static const char *const position_uncut[] = { "position", NULL };

/* -- select: one position of the sequence, given at run time (generation) -------------------------------------------------------- */
static int select_shape(HD_SHAPE_ARGS)
{
	uint32_t k = 0;

	(void)self;
	(void)p;
	(void)attr;
	(void)nin;
	outs[0].dtype = ins[0]->dtype;
	for (uint32_t i = 0; i < ins[0]->ndim; i++)
		if (strcmp(ins[0]->dims[i]->name, "seq")) {
			outs[0].dims[k] = ins[0]->dims[i];
			outs[0].local[k++] = ins[0]->local[i];
		}
	outs[0].ndim = k;
	*nout = 1;
	return HD_OK;
}

static const char *const select_uncut[] = { "seq", NULL };
static const int8_t first[] = { 0, -1, -1, -1 };

#define OP(id, traits, ...) \
	const struct op hd_op_##id = { \
		.v = { .size = sizeof(struct hd_op), .name = #id, .record = hd_record_plain, __VA_ARGS__ }, \
		.is = traits \
	}
OP(norm, IS(NORM, OP_FLAG_CHEAP, 6), .unshardable = norm_uncut, .shape = norm_shape, .vjp = norm_vjp);
OP(norm_d, IS(NORM_D, 0), .kind = "norm", .unshardable = norm_uncut, .shape = norm_d_shape);
/* Inputs: the tensor to add, then those of norm_d.  hd_pass_fuse builds it from an addition and norm_d, unless rows are
 * sharded. */
OP(norm_d_add, IS(NORM_D_ADD, 0), .kind = "norm", .unshardable = norm_uncut, .inplace = first, .shape = norm_d_shape);
OP(norm_dw, IS(NORM_DW, 0), .kind = "norm", .shape = norm_dw_shape);
#define ATTENTION(id, traits, ...) \
	const struct op hd_op_##id = { .v = { .size = sizeof(struct hd_op), \
					      .name = #id, \
					      .kind = "attention", \
					      .unshardable = attention_uncut, \
					      .place = attention_place, \
					      .cost = attention_cost, \
					      .record = attention_record, \
					      __VA_ARGS__ }, \
				       .is = traits }
ATTENTION(attention, IS(ATTENTION, 0), .shape = attention_shape, .vjp = attention_vjp);
ATTENTION(attention_d, IS(ATTENTION_D, 0), .shape = attention_d_shape);
const struct op hd_op_attention_cached = { .v = { .size = sizeof(struct hd_op),
						  .name = "attention_cached",
						  .kind = "attention",
						  .unshardable = cached_uncut,
						  .place = cached_place,
						  .cost = cached_cost,
						  .record = attention_record,
						  .shape = cached_shape },
					   .is = IS(NONE, OP_FLAG_WITH_CACHE) };
OP(embedding, PLAIN, .shape = embedding_shape, .vjp = embedding_vjp);
OP(embedding_dw, PLAIN, .kind = "embedding", .linear = 2, .shape = embedding_dw_shape);
OP(position, PLAIN, .unshardable = position_uncut, .inplace = first, .shape = hd_same_as_first, .vjp = position_vjp);
OP(position_dw, PLAIN, .kind = "position", .unshardable = position_uncut, .linear = 1, .shape = position_dw_shape);
OP(select, IS(NONE, OP_FLAG_WITH_CACHE), .unshardable = select_uncut, .shape = select_shape);
