/* SPDX-License-Identifier: Apache-2.0
 * The program as a list of nodes over tensors with named dims: making, inserting, replacing, dropping.
 *
 * Program order is the order of the list; new nodes stand at the end, or before the plan's anchor.  Everything is
 * allocated from the plan and lives as long as it.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/device/device.h"
#include "engine/graph/mesh.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- names ------------------------------------------------------------------------------------------------------------- */
const struct hd_dim *hd_dim_get(struct hd_plan *p, const char *name, int64_t n)
{
	struct dim *d;

	for (size_t i = 0; i < p->ndims; i++)
		if (p->dims[i]->inst < 0 && !strcmp(p->dims[i]->v.name, name))
			return &p->dims[i]->v;
	if (n <= 0)
		return NULL;
	d = hd_plan_alloc(p, sizeof(*d));
	d->v = (struct hd_dim){ sizeof(d->v), hd_plan_text(p, "%s", name), n };
	d->padded = n;
	d->inst = -1;
	d->id = (int)p->ndims;
	p->dims = hd_grow(p->dims, p->ndims, &p->cap_dims, sizeof(*p->dims));
	p->dims[p->ndims++] = d;
	hd_handle_add(p, &d->v, HANDLE_DIM);
	return &d->v;
}

/* Dims by name, up to the end of the text or to a blank. */
uint32_t hd_parse_dims(struct hd_plan *p, const char *spec, const struct hd_dim **dims)
{
	const char *all = spec;
	uint32_t n = 0;

	while (*spec && *spec != ' ') {
		size_t len = strcspn(spec, ", ");
		char *name = hd_format("%.*s", (int)len, spec);
		const struct hd_dim *d = hd_dim_get(p, name, 0);

		if (!d)
			hd_plan_fail(p, HD_EBUG, "there is no dim %s, in (%s)", name, all);
		else if (n == HD_MAX_DIMS)
			hd_plan_fail(p, HD_EINVAL, "more than %d dims: (%s)", HD_MAX_DIMS, all);
		free(name);
		if (!d || n == HD_MAX_DIMS)
			return n;
		dims[n++] = d;
		spec += len + (spec[len] == ',');
	}
	return n;
}

/* -- tensors ----------------------------------------------------------------------------------------------------------- */
#define MOST_BYTES ((int64_t)1 << 60) /* of a tensor, whole; of all parameters together */

/* Sizes are multiplied everywhere after this, and none of these products may overflow. */
static void check_size(struct hd_plan *p, const struct tensor *t)
{
	int64_t n = HD_BITS(t->v.dtype) / 8 + 1;
	int over = 0;
	char *sizes = NULL;

	for (uint32_t i = 0; i < t->v.ndim; i++)
		over |= __builtin_mul_overflow(n, t->local[i], &n);
	if (!over && n <= MOST_BYTES && t->v.what == HD_TENSOR_PARAM)
		over = __builtin_add_overflow(p->parameter_bytes, n, &p->parameter_bytes) ||
		       p->parameter_bytes > MOST_BYTES;
	if (!over && n <= MOST_BYTES)
		return;
	for (uint32_t i = 0; i < t->v.ndim; i++)
		hd_append(&sizes, "%s%lld", i ? " x " : "", (long long)t->local[i]);
	hd_plan_fail(
		p, HD_EINVAL,
		"%s%s(%s): %s elements%s are more than any machine can address; look at the sizes in [model] and [train]",
		t->v.name ? t->v.name : "", t->v.name && *t->v.name ? " " : "", t->v.spec, sizes,
		t->v.what == HD_TENSOR_PARAM ? ", with the parameters before it," : "");
	free(sizes);
}

struct tensor *hd_tensor_new(struct hd_plan *p, const char *name, uint32_t what, uint32_t dtype,
			     const struct hd_dim *const *dims, uint32_t ndim)
{
	struct tensor *t = hd_plan_alloc(p, sizeof(*t));
	size_t len = 1;

	for (uint32_t i = 0; i < ndim; i++)
		len += strlen(dims[i]->name) + 1;
	t->spec = hd_plan_alloc(p, len);
	for (uint32_t i = 0; i < ndim; i++) {
		t->dims[i] = dims[i];
		t->local[i] = D(dims[i])->padded;
		strcat(strcat(t->spec, i ? "," : ""), dims[i]->name);
	}
	t->v = (struct hd_tensor){ .size = sizeof(t->v),
				   .name = name,
				   .spec = t->spec,
				   .dims = t->dims,
				   .local = t->local,
				   .ndim = ndim,
				   .dtype = dtype,
				   .what = what };
	t->plan = p;
	t->id = (int)p->ntensors;
	p->tensors = hd_grow(p->tensors, p->ntensors, &p->cap_tensors, sizeof(*p->tensors));
	p->tensors[p->ntensors++] = t;
	hd_handle_add(p, &t->v, HANDLE_TENSOR);
	check_size(p, t);
	return t;
}

struct tensor *hd_leaf(struct hd_plan *p, const char *name, uint32_t what, uint32_t dtype, const char *spec)
{
	const struct hd_dim *dims[HD_MAX_DIMS];
	uint32_t n = hd_parse_dims(p, spec, dims);
	struct tensor *t = hd_tensor_new(p, hd_plan_text(p, "%s", name), what, dtype, dims, n);

	t->step = what != HD_TENSOR_ACT && what != HD_TENSOR_DATA;
	return t;
}

struct tensor *hd_param(struct hd_plan *p, const char *name, const char *spec, int init, double std)
{
	struct tensor *t = hd_leaf(p, name, HD_TENSOR_PARAM, p->master_dtype, spec);

	t->init = init;
	t->init_std = std;
	t->decay = t->v.ndim > 1;
	return t;
}

struct tensor *hd_param_find(struct hd_plan *p, const char *name)
{
	for (size_t i = 0; i < p->ntensors; i++)
		if (p->tensors[i]->v.what == HD_TENSOR_PARAM && !strcmp(p->tensors[i]->v.name, name))
			return p->tensors[i];
	return NULL;
}

int hd_has_dim(const struct tensor *t, const struct hd_dim *d)
{
	for (uint32_t i = 0; i < t->v.ndim; i++)
		if (t->dims[i] == d)
			return 1;
	return 0;
}

static int64_t local_of(const struct tensor *t, const struct hd_dim *d)
{
	for (uint32_t i = 0; i < t->v.ndim; i++)
		if (t->dims[i] == d)
			return t->local[i];
	return 1;
}

/* Sample by slot; then by experts. */
static int64_t places(const struct tensor *t, const struct hd_dim **expert)
{
	const struct hd_dim *batch = t->ragged_counts->dims[1], *slot = hd_dim_get(t->plan, "slot", 0);

	*expert = t->ragged_counts->dims[0];
	return local_of(t, batch) * local_of(t, slot);
}

int64_t hd_ragged_max(const struct tensor *t)
{
	const struct hd_dim *expert;
	int64_t n = places(t, &expert), e = local_of(t, expert);

	return n * (e < t->max_rows ? e : t->max_rows);
}

double hd_ragged_balanced(const struct tensor *t)
{
	const struct hd_dim *expert;
	int64_t n = places(t, &expert);

	return (double)(n * t->max_rows * local_of(t, expert)) / (double)expert->n;
}

int64_t hd_ragged_row_elements(const struct tensor *t)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < t->v.ndim; i++)
		if (strcmp(t->dims[i]->name, "slot") && !hd_has_dim(t->ragged_counts, t->dims[i]))
			n *= t->local[i];
	return n;
}

int hd_plan_is_apart(const struct hd_plan *p)
{
	for (const struct node *n = p->first; n; n = n->next)
		if (n->local)
			return 1;
	return 0;
}

int64_t hd_local_count(const struct tensor *t)
{
	int64_t n = 1;

	if (t->ragged_counts)
		return hd_ragged_max(t) * hd_ragged_row_elements(t);

	for (uint32_t i = 0; i < t->v.ndim; i++)
		n *= t->local[i];
	return n;
}

int64_t hd_global_count(const struct tensor *t)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < t->v.ndim; i++)
		n *= t->dims[i]->n;
	return n;
}

int64_t hd_local_bytes(const struct tensor *t)
{
	return (hd_local_count(t) * HD_BITS(t->v.dtype) + 7) / 8;
}

/* -- nodes ------------------------------------------------------------------------------------------------------------- */
/* Numbers grow along the program; they are given anew when somebody asks after nodes have been put in. */
static void number_nodes(struct hd_plan *p)
{
	int64_t at = 0;

	for (struct node *n = p->first; n; n = n->next)
		n->number = ++at;
	p->numbered = 1;
}

int hd_node_precedes(struct hd_plan *p, const struct node *a, const struct node *b)
{
	if (!p->numbered)
		number_nodes(p);
	return a->number && b->number && a->number < b->number;
}

static void link_before(struct hd_plan *p, struct node *n, struct node *at)
{
	n->next = at;
	n->prev = at ? at->prev : p->last;
	*(n->prev ? &n->prev->next : &p->first) = n;
	*(at ? &at->prev : &p->last) = n;
	p->numbered = 0;
}

static void unlink_node(struct hd_plan *p, struct node *n)
{
	*(n->prev ? &n->prev->next : &p->first) = n->next;
	*(n->next ? &n->next->prev : &p->last) = n->prev;
	n->prev = n->next = NULL;
	n->number = 0;
}

void hd_node_insert(struct hd_plan *p, struct node *n)
{
	link_before(p, n, p->cursor.before);
}

void hd_node_move(struct hd_plan *p, struct node *n, struct node *before)
{
	if (n == before)
		return;
	unlink_node(p, n);
	link_before(p, n, before);
}

static struct node *blank_node(struct hd_plan *p, const struct hd_op *op, const struct op_traits *is,
			       struct tensor *const *ins, uint32_t nin, const char *attr)
{
	struct node *n = hd_plan_alloc(p, sizeof(*n));

	n->plan = p;
	n->id = p->nnodes++;
	hd_handle_add(p, &n->v, HANDLE_NODE);
	n->block = p->cursor.block;
	n->is = is;
	n->inst = is->flags & OP_FLAG_PLUGIN ? p->slot.inst : -1;
	n->made_by = p->slot.inst;
	n->attr = hd_plan_text(p, "%s", attr ? attr : "");
	n->reason = p->cursor.reason;
	n->queue = p->cursor.queue;
	n->only = p->cursor.only;
	n->period = p->cursor.period;
	n->v = (struct hd_node){ .size = sizeof(n->v),
				 .op = op,
				 .kind = op->kind ? op->kind : op->name,
				 .attr = n->attr,
				 .block = n->block >= 0 ? p->blocks[n->block].name : "",
				 .phase = p->cursor.phase,
				 .owner = n->inst >= 0 ? p->inst[n->inst].name : "" };
	hd_set_inputs(p, n, ins, nin);
	return n;
}

/* Notes that n may read t.  The list has every node that ever did, so that replacing t need not search the whole graph. */
static void add_user(struct hd_plan *p, struct tensor *t, struct node *n)
{
	if (t->nusers && t->users[t->nusers - 1] == n)
		return;
	if (t->nusers == t->cap_users) {
		struct node **more = hd_plan_alloc(p, 2 * (t->cap_users + 2) * sizeof(*more));

		if (t->nusers)
			memcpy(more, t->users, t->nusers * sizeof(*more));
		t->users = more;
		t->cap_users = 2 * (t->cap_users + 2);
	}
	t->users[t->nusers++] = n;
}

void hd_set_input(struct hd_plan *p, struct node *n, uint32_t i, struct tensor *t)
{
	n->ins[i] = n->ins[n->v.nin + i] = t;
	add_user(p, t, n);
}

void hd_set_inputs(struct hd_plan *p, struct node *n, struct tensor *const *ins, uint32_t nin)
{
	struct tensor **all = hd_plan_alloc(p, (2 * (size_t)nin + 1) * sizeof(*all)); /* and the engine's own copy */

	n->ins = all;
	n->v.ins = (struct hd_tensor *const *)all;
	n->v.nin = nin;
	for (uint32_t i = 0; i < nin; i++)
		hd_set_input(p, n, i, ins[i]);
}

/* An input that was set in another way would not be replaced. */
int hd_check_users(struct hd_plan *p)
{
	for (struct node *n = p->first; n; n = n->next)
		for (uint32_t i = 0; i < n->v.nin; i++) {
			size_t k = n->ins[i]->nusers;

			while (k && n->ins[i]->users[k - 1] != n)
				k--;
			if (!k)
				return hd_plan_fail(p, HD_EBUG, "%s reads %s, an op without ragged counts",
						    n->v.op->name, n->ins[i]->v.name);
		}
	return HD_OK;
}

int hd_node_adopt(struct hd_plan *p, struct node *n, const struct hd_shape *outs, uint32_t nout)
{
	n->outs = hd_plan_alloc(p, (2 * (size_t)nout + 1) * sizeof(*n->outs)); /* and the engine's own copy */
	for (uint32_t k = 0; k < nout; k++) {
		struct tensor *t = hd_tensor_new(p, "", HD_TENSOR_ACT, outs[k].dtype, outs[k].dims, outs[k].ndim);

		t->v.node = &n->v;
		t->out = (int)k;
		for (uint32_t i = 0; i < outs[k].ndim; i++) {
			if (outs[k].local[i])
				t->local[i] = outs[k].local[i];
			for (uint32_t j = 0; !outs[k].local[i] && j < n->v.nin; j++)
				for (uint32_t d = 0; d < n->ins[j]->v.ndim; d++)
					if (n->ins[j]->dims[d] == outs[k].dims[i])
						t->local[i] = n->ins[j]->local[d];
		}
		t->step = p->cursor.phase & (HD_UNIT_U | HD_UNIT_G | HD_UNIT_S) ? 1 : 0;
		if (hd_attr_num(n->attr, "rows", 0) != 0 && hd_has_dim(t, hd_dim_get(p, "slot", 0))) {
			t->ragged_counts = n->ins[n->v.nin - 1];
			t->max_rows = p->model.experts_per_token;
		} else if (n->v.nin && n->ins[0]->ragged_counts &&
			   hd_has_dim(t, hd_dim_get(p, "slot", 0))) { /* moved */
			t->ragged_counts = n->ins[0]->ragged_counts;
			t->max_rows = n->ins[0]->max_rows;
		}
		n->outs[k] = n->outs[nout + k] = t;
	}
	n->v.outs = (struct hd_tensor *const *)n->outs;
	n->v.nout = nout;
	return 0;
}

/* An op on rows that are counted reads their numbers too, as its last input. */
static struct tensor *counted(struct hd_plan *p, const struct hd_op *op, const struct op_traits *is,
			      struct tensor *const *ins, uint32_t nin, const char *attr)
{
	struct tensor *rows = NULL;

	for (uint32_t i = 0; i < nin && !rows; i++)
		rows = ins[i]->ragged_counts;
	if (!rows || hd_attr_num(attr, "rows", 0) != 0)
		return NULL;
	if (!(is->flags & (OP_FLAG_ROWS | OP_FLAG_MOVES_ROWS)))
		hd_plan_fail(p, HD_ENOTSUP,
			     "%s cannot take the rows of experts without a limit (model.capacity_factor = 0)",
			     op->name);
	return is->flags & OP_FLAG_ROWS ? rows : NULL;
}

int hd_dtype_known(uint32_t dtype)
{
	static const uint32_t all[] = { HD_DTYPE_F32,  HD_DTYPE_F64,  HD_DTYPE_F16, HD_DTYPE_BF16,
					HD_DTYPE_I32,  HD_DTYPE_I64,  HD_DTYPE_U8,  HD_DTYPE_I8,
					HD_DTYPE_E4M3, HD_DTYPE_E5M2, HD_DTYPE_B1 };

	for (size_t i = 0; i < HD_LEN(all); i++)
		if (all[i] == dtype)
			return 1;
	return 0;
}

static int check_dims(struct hd_plan *p, const struct hd_op *op, uint32_t k, const struct hd_shape *out)
{
	for (uint32_t i = 0; i < out->ndim; i++) {
		if (hd_handle_kind(p, out->dims[i]) != HANDLE_DIM)
			return hd_plan_fail(p, HD_EBUG, "%s: output %u: dim %u is no dim of this plan", op->name, k, i);
		if (out->local[i] < 0 || out->local[i] > (int64_t)1 << 40)
			return hd_plan_fail(p, HD_EINVAL, "%s: output %u: %lld elements of %s", op->name, k,
					    (long long)out->local[i], out->dims[i]->name);
		for (uint32_t j = 0; j < i; j++)
			if (out->dims[i] == out->dims[j])
				return hd_plan_fail(p, HD_EINVAL, "%s: output %u: dims %u and %u are both %s", op->name,
						    k, j, i, out->dims[i]->name);
	}
	return HD_OK;
}

int hd_shapes_check(struct hd_plan *p, const struct hd_op *op, uint32_t nin, const struct hd_shape *outs, uint32_t nout)
{
	if (nout > HD_MAX_OUTS)
		return hd_plan_fail(p, HD_EINVAL, "%s: slot shape says %u outputs, more than %d", op->name, nout,
				    HD_MAX_OUTS);
	for (uint32_t k = 0; k < nout; k++) {
		if (op->inplace && (op->inplace[k] < -1 || op->inplace[k] >= (int64_t)nin))
			return hd_plan_fail(p, HD_EINVAL, "%s: inplace of output %u is %d, and there are %u inputs",
					    op->name, k, op->inplace[k], nin);
		if (outs[k].ndim > HD_MAX_DIMS)
			return hd_plan_fail(p, HD_EINVAL, "%s: output %u has %u dims, more than %d", op->name, k,
					    outs[k].ndim, HD_MAX_DIMS);
		if (!hd_dtype_known(outs[k].dtype))
			return hd_plan_fail(p, HD_EINVAL, "%s: output %u has dtype %#x, which is none", op->name, k,
					    outs[k].dtype);
		if (outs[k].space != HD_SPACE_DEVICE || outs[k].reserved[0] || outs[k].reserved[1] ||
		    outs[k].reserved[2])
			return hd_plan_fail(p, HD_EINVAL,
					    "%s: output %u has space %u; it and the reserved words must be 0", op->name,
					    k, outs[k].space);
		HD_TRY(check_dims(p, op, k, &outs[k]));
	}
	return HD_OK;
}

struct node *hd_node_new(struct hd_plan *p, const struct hd_op *op, const struct op_traits *is,
			 struct tensor *const *ins, uint32_t nin, const char *attr)
{
	struct hd_slot was;
	struct hd_shape outs[HD_MAX_OUTS];
	struct tensor *rows, *with[HD_MAX_INS + 1];
	struct node *n;
	uint32_t nout = 1;
	int rc;

	if (p->err->code)
		return NULL;
	for (uint32_t i = 0; i < nin; i++)
		if (!ins[i])
			return NULL;
	rows = counted(p, op, is, ins, nin, attr ? attr : "");
	if (p->err->code)
		return NULL;
	if (rows && nin < HD_MAX_INS) {
		memcpy(with, ins, nin * sizeof(*with));
		with[nin] = rows;
		return hd_node_new(p, op, is, with, nin + 1,
				   hd_plan_text(p, "%s%srows=1", attr && *attr ? attr : "", attr && *attr ? " " : ""));
	}
	if (p->slot.inst >= 0 && p->slot.name && !strcmp(p->slot.name, "lower") && !p->cursor.before) {
		hd_plan_fail(p, HD_EBUG, "%s: cursor must say first where new nodes belong", op->name);
		return NULL;
	}
	n = blank_node(p, op, is, ins, nin, attr);
	memset(outs, 0, sizeof(outs));
	was = hd_slot_begin(p, n->inst, "shape");
	rc = op->shape(n->inst >= 0 ? p->inst[n->inst].self : NULL, p, n->attr, n->v.ins, nin, outs, &nout);
	hd_slot_end(p, was);
	if (rc >= 0 && p->slot.inst >= 0)
		rc = hd_shapes_check(p, op, nin, outs, nout);
	if (rc < 0) {
		hd_plan_fail(p, rc, "%s: the shape rule failed", op->name);
		return NULL;
	}
	hd_node_adopt(p, n, outs, nout);
	hd_node_insert(p, n);
	return n;
}

struct node *hd_node_again(struct hd_plan *p, const struct node *n, struct tensor *const *ins)
{
	struct hd_shape outs[HD_MAX_OUTS];
	struct node *c;

	if (p->err->code)
		return NULL;
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (!ins[i])
			return NULL;
	memset(outs, 0, sizeof(outs));
	for (uint32_t k = 0; k < n->v.nout; k++) {
		outs[k].dtype = n->outs[k]->v.dtype;
		outs[k].ndim = n->outs[k]->v.ndim;
		memcpy(outs[k].dims, n->outs[k]->dims, sizeof(outs[k].dims));
		memcpy(outs[k].local, n->outs[k]->local, sizeof(outs[k].local));
	}
	c = blank_node(p, n->v.op, n->is, ins, n->v.nin, n->attr);
	c->inst = n->inst;
	c->v.owner = n->v.owner;
	c->made_by = n->made_by;
	c->comm = n->comm;
	c->pos = n->pos;
	c->parts = n->parts;
	c->along = n->along;
	c->order = n->order;
	c->local = n->local;
	c->recompute_of = n;
	hd_node_adopt(p, c, outs, n->v.nout);
	hd_node_insert(p, c);
	return c;
}

/* The same values in another place or form. */
void hd_tensor_inherit(struct tensor *y, const struct tensor *x)
{
	y->v.what = x->v.what;
	y->v.of = x->v.of;
	y->v.name = x->v.name;
	y->ragged_counts = x->ragged_counts;
	y->max_rows = x->max_rows;
	memcpy(y->reduced_dim, x->reduced_dim, sizeof(y->reduced_dim));
}

uint32_t *hd_count_readers(const struct hd_plan *p)
{
	uint32_t *n = hd_alloc((p->ntensors + 1) * sizeof(*n));

	for (const struct node *k = p->first; k; k = k->next)
		for (uint32_t i = 0; i < k->v.nin; i++)
			n[k->ins[i]->id]++;
	return n;
}

/* -- change ------------------------------------------------------------------------------------------------------------ */
void hd_assign(struct tensor *leaf, struct tensor *value)
{
	leaf->assign = value;
	if (value)
		value->assigned = 1;
}

void hd_replace(struct hd_plan *p, struct tensor *old, struct tensor *with)
{
	struct node *maker = with->v.node ? N(with->v.node) : NULL;

	old->replaced_by = with;
	for (size_t k = 0; k < old->nusers; k++)
		for (uint32_t i = 0; old->users[k] != maker && i < old->users[k]->v.nin; i++)
			if (old->users[k]->ins[i] == old)
				hd_set_input(p, old->users[k], i, with);
	for (size_t i = 0; old->assigned && i < p->ntensors; i++)
		if (p->tensors[i]->assign == old)
			hd_assign(p->tensors[i], with);
	for (size_t i = 0; old->assigned && i < p->ntensors; i++)
		if (p->tensors[i]->then == old)
			p->tensors[i]->then = with, with->assigned = 1;
	struct tensor **named[] = { &p->loss, &p->nll, &p->logits, &p->norm, &p->factor };
	for (size_t i = 0; i < HD_LEN(named); i++)
		if (*named[i] == old)
			*named[i] = with;
	for (size_t i = 0; i < p->nmoe_stats; i++)
		if (p->moe_stats[i] == old)
			p->moe_stats[i] = with;
	if (old->v.what == HD_TENSOR_GRAD && with->v.what == HD_TENSOR_ACT)
		hd_tensor_inherit(with, old);
}

enum { KEPT = 1, PASSED = 2 };

/* Its maker.  What makers read is kept when the walk comes to them; of one that stands behind what reads it, at once. */
static void keep(struct tensor *t)
{
	struct node *n = t && t->v.node ? N(t->v.node) : NULL;

	if (!n || n->mark & KEPT)
		return;
	n->mark |= KEPT;
	for (uint32_t i = 0; n->mark & PASSED && i < n->v.nin; i++)
		keep(n->ins[i]);
}

static void keep_results(struct hd_plan *p)
{
	keep(p->loss), keep(p->nll), keep(p->logits), keep(p->norm), keep(p->factor);
	for (size_t i = 0; i < p->nmoe_stats; i++)
		keep(p->moe_stats[i]);
	for (size_t i = 0; i < p->ntensors; i++)
		if (!p->tensors[i]->v.node || p->tensors[i]->v.what == HD_TENSOR_GRAD)
			keep(p->tensors[i]->assign), keep(p->tensors[i]->then);
}

/* A node stays if something that the run reads, or a leaf that is assigned, needs it. */
void hd_drop_dead(struct hd_plan *p)
{
	struct node *n, *next;

	for (n = p->first; n; n = n->next)
		n->mark = 0;
	keep_results(p);
	for (n = p->last; n; n = n->prev) {
		n->mark |= PASSED;
		for (uint32_t i = 0; n->mark & KEPT && i < n->v.nin; i++)
			keep(n->ins[i]);
	}
	for (n = p->first; n; n = next) {
		next = n->next;
		n->mark &= KEPT;
		if (!n->mark) {
			unlink_node(p, n);
			n->dead = 1;
		}
	}
}

double hd_root(double x)
{
	return sqrt(x);
}

int hd_block_begin(struct hd_plan *p, const char *name)
{
	struct block *b;

	p->blocks = hd_grow(p->blocks, p->nblocks, &p->cap_blocks, sizeof(*p->blocks));
	b = &p->blocks[p->nblocks];
	b->name = hd_plan_text(p, "%s", name);
	b->v = (struct hd_block){ .size = sizeof(b->v), .name = b->name };
	p->cursor = hd_cursor_end(p->cursor.phase, (int)p->nblocks++);
	return p->cursor.block;
}
/* -- types of gradients --------------------------------------------------------------------------------------------------- */
/* The type that a gradient of x has, and what an op with attribute fp32 is told of it. */
uint32_t hd_gradient_dtype(const struct hd_plan *p, const struct hd_tensor *x)
{
	return x->what == HD_TENSOR_PARAM ? p->master_dtype : x->dtype;
}

const char *hd_gradient_attr(const struct hd_tensor *dout, const struct hd_tensor *x)
{
	return x->what == HD_TENSOR_PARAM && dout->dtype == HD_DTYPE_BF16 ? " fp32=1" : "";
}
