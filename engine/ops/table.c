/* SPDX-License-Identifier: Apache-2.0
 * Finds the engine's ops by name, builds nodes of them (for models, passes and the ops' own gradients), and has what
 * several of them share.
 */
#include <config.h>
#include "engine/ops/ops.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define OP(id) &hd_op_##id,
static const struct op *const all[] = {
#include "engine/ops/list.h"
};
#undef OP

const struct op *hd_op_find(const char *name)
{
	for (size_t i = 0; i < HD_LEN(all); i++)
		if (!strcmp(all[i]->v.name, name))
			return all[i];
	return NULL;
}

/* For a plugin's op, its kind says whether it updates leaves; that decides what it is ordered before and after. */
const struct op_traits *hd_op_traits(const struct hd_op *op)
{
	static const struct op_traits plain = { OP_ROLE_NONE, OP_FLAG_PLUGIN, 0 },
				      update = { OP_ROLE_UPDATE, OP_FLAG_PLUGIN, 0 },
				      cheap = { OP_ROLE_NONE, OP_FLAG_PLUGIN | OP_FLAG_CHEAP, 0 };

	for (size_t i = 0; i < HD_LEN(all); i++)
		if (&all[i]->v == op)
			return &all[i]->is;
	if (op->kind && !strcmp(op->kind, "update"))
		return &update;
	return HD_HAS(op, flags) && op->flags & HD_OP_CHEAP ? &cheap : &plain;
}

/* The ops of which a plugin may create nodes by name. Keys that an op's rules and kernels read are listed with the op. */
#define TAKES(id, least, most, dims, keys) \
	{ \
		&hd_op_##id.v, \
		{ \
			least, most, dims, keys \
		} \
	}
#define ATTENTION "causal scale window softcap later"
#define ROPE \
	"theta rotary inverse scaling= factor original length low high beta_fast beta_slow attention truncate factors= " \
	"most"
#define ROUTE \
	"group capacity counts aux aux_group z first_choice_aux normalize random site scale sigmoid groups best_groups"
static const struct {
	const struct hd_op *op;
	struct op_signature takes;
} signatures[] = {
	TAKES(einsum, 2, 4, "", "out= bias add keep"),
	TAKES(sum, 1, 1, "", "out="),
	TAKES(add, 1, HD_MAX_INS, "", ""),
	TAKES(map, 1, HD_MAX_INS, "", NULL),
	TAKES(cast, 1, 1, "", "dtype"),
	TAKES(copy, 1, 1, "", "run runs src src_step dst dst_step"),
	TAKES(fill, 1, 1, "", "value loss_scale"),
	TAKES(norm, 2, 3, "+11", "eps rms"),
	TAKES(norm_d, 4, 5, "+1", "rms dw bias out="),
	TAKES(norm_dw, 3, 4, "+", "rms bias"),
	TAKES(attention, 3, 3, "444", ATTENTION),
	TAKES(attention_d, 6, 6, "444434", ATTENTION),
	TAKES(gelu, 1, 1, "", ""),
	TAKES(gelu_d, 2, 2, "", "out="),
	TAKES(swiglu, 2, 2, "", "gelu"),
	TAKES(swiglu_d, 3, 3, "", "gelu"),
	TAKES(embedding, 2, 2, "22", ""),
	TAKES(embedding_dw, 2, 2, "23", "out="),
	TAKES(position, 2, 2, "32", ""),
	TAKES(position_dw, 1, 1, "3", "out="),
	TAKES(rope, 1, 1, "4", ROPE),
	TAKES(dropout, 1, 1, "", "p site"),
	TAKES(xent, 2, 2, "32", ""),
	TAKES(xent_combine, 3, 3, "222", ""),
	TAKES(xent_d, 5, 5, "22232", "value loss_scale"),
	TAKES(nll, 5, 5, "22232", "value loss_scale"),
	TAKES(route, 1, 2, "31", ROUTE),
	TAKES(dispatch, 2, 2, "33", "group capacity gates"),
	TAKES(combine, 3, 3, "433", "group capacity gates"),
	TAKES(sgd, 3, 3, "", "decay low"),
	TAKES(adamw, 5, 5, "", "beta1 beta2 eps decay low"),
};
#undef TAKES
#undef ATTENTION
#undef ROPE
#undef ROUTE

const struct op_signature *hd_op_signature(const struct hd_op *op)
{
	for (size_t i = 0; i < HD_LEN(signatures); i++)
		if (signatures[i].op == op)
			return &signatures[i].takes;
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
	(void)self;
	(void)p;
	(void)attr;
	(void)nin;
	hd_shape_like(&outs[0], ins[0]);
	*nout = 1;
	return HD_OK;
}

int hd_record_plain(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n)
{
	(void)self;
	return r->api->launch(r, n->op->name, n->ins, n->nin, n->outs, n->nout, "%s", n->attr);
}

const struct hd_place *hd_common_place(const struct hd_place *have, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (have[i].kind != HD_PLACE_PARTIAL)
			return &have[i];
	return &have[0];
}

double hd_expected_elements(const struct hd_tensor *t)
{
	double n = 1;

	if (T(t)->ragged_counts)
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

/* -- nodes by the names of ops ---------------------------------------------------------------------------------------------- */
struct node *hd_node_make(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin, const char *fmt,
			  ...)
{
	const struct op *o = hd_op_find(op);
	struct node *n;
	char *attr;
	va_list v;

	if (!o) {
		hd_plan_fail(p, HD_EBUG, "there is no op %s", op);
		return NULL;
	}
	va_start(v, fmt);
	attr = hd_vformat(fmt, v);
	va_end(v);
	n = hd_node_new(p, &o->v, &o->is, ins, nin, attr);
	free(attr);
	return n;
}

struct tensor *hd_op1(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin, const char *fmt, ...)
{
	struct node *n;
	char *attr;
	va_list v;

	va_start(v, fmt);
	attr = hd_vformat(fmt, v);
	va_end(v);
	n = hd_node_make(p, op, ins, nin, "%s", attr);
	free(attr);
	return n ? n->outs[0] : NULL;
}

struct tensor *hd_einsum(struct hd_plan *p, struct tensor *a, struct tensor *b, const char *spec)
{
	struct tensor *ins[] = { a, b };

	return hd_op1(p, b ? "einsum" : "sum", ins, b ? 2 : 1, "out=%s", spec);
}

struct tensor *hd_map_new(struct hd_plan *p, struct tensor *const *ins, uint32_t nin, const char *expr)
{
	return hd_op1(p, "map", ins, nin, "%s", expr);
}
