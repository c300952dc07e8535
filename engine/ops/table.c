/* SPDX-License-Identifier: Apache-2.0
 * The engine's ops by name, and what several of them share.
 */
#include <config.h>
#include "engine/ops/ops.h"
#include <string.h>

static const struct hd_op *const all[] = {
	&hd_op_einsum, &hd_op_sum, &hd_op_add, &hd_op_map, &hd_op_cast, &hd_op_fill, &hd_op_accumulate, &hd_op_copy,
	&hd_op_gelu, &hd_op_gelu_d, &hd_op_swiglu, &hd_op_swiglu_d, &hd_op_dropout, &hd_op_rope, &hd_op_norm,
	&hd_op_norm_d, &hd_op_norm_dw, &hd_op_norm_part, &hd_op_norm_combine, &hd_op_norm_apply, &hd_op_norm_d_part,
	&hd_op_norm_d_apply, &hd_op_attention, &hd_op_attention_d, &hd_op_embedding, &hd_op_embedding_dw,
	&hd_op_position, &hd_op_position_dw, &hd_op_xent, &hd_op_xent_combine, &hd_op_nll, &hd_op_xent_d, &hd_op_norm2,
	&hd_op_clip, &hd_op_adamw, &hd_op_sgd, &hd_op_chunk, &hd_op_join, &hd_op_pick, &hd_op_pack, &hd_op_unpack,
	&hd_op_comm, &hd_op_reshard, &hd_op_select, &hd_op_view,
	&hd_op_block, &hd_op_unblock, &hd_op_sync, &hd_op_total, &hd_op_route, &hd_op_route_d,
	&hd_op_dispatch, &hd_op_combine, &hd_op_combine_dg, &hd_op_einsum_gelu, &hd_op_einsum_gelu_d,
};

const struct hd_op *hd_op_find(const char *name)
{
	for (size_t i = 0; i < HD_LEN(all); i++)
		if (!strcmp(all[i]->name, name))
			return all[i];
	return NULL;
}

void hd_shape_like(struct hd_shape *s, const struct hd_tensor *t)
{
	s->dtype = t->dtype;
	s->ndim = t->ndim;
	for (uint32_t i = 0; i < t->ndim; i++) {
		s->dims[i] = t->dims[i];
		s->local[i] = t->local[i];
	}
}

int hd_shape_attr(struct hd_plan *p, const char *attr, struct hd_shape *s, uint32_t dtype)
{
	const char *spec = hd_attr_text(attr, "out");

	if (!spec)
		return hd_plan_fail(p, HD_EBUG, "attribute out= is missing in '%s'", attr);
	s->dtype = dtype;
	s->ndim = hd_parse_dims(p, spec, s->dims);
	return p->err->code;
}

int hd_same_as_first(HD_SHAPE_ARGS)
{
	(void)self; (void)p; (void)attr; (void)nin;
	hd_shape_like(&outs[0], ins[0]);
	*nout = 1;
	return HD_OK;
}

int hd_record_plain(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	(void)self;
	return r->api->launch(r, n->op->name, n->ins, n->nin, n->outs, n->nout, "%s", n->attr);
}

const struct hd_place *hd_together(const struct hd_place *have, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (have[i].kind != HD_PLACE_PARTIAL)
			return &have[i];
	return &have[0];
}

double hd_count(const struct hd_tensor *t)
{
	double n = 1;

	if (T(t)->rows)
		return hd_ragged_balanced(T(t)) * (double)hd_ragged_row_elements(T(t));
	for (uint32_t i = 0; i < t->ndim; i++)
		n *= (double)t->local[i];
	return n;
}

struct hd_tensor *hd_sum_to(struct hd_plan *p, struct tensor *x, const struct tensor *like)
{
	struct tensor *y = x;

	if (x && (x->v.ndim != like->v.ndim || memcmp(x->dims, like->dims, x->v.ndim * sizeof(x->dims[0]))))
		y = hd_op1(p, "sum", &x, 1, "out=%s%s", like->spec, hd_gradient_attr(&x->v, &like->v));
	return y ? &y->v : NULL;
}
