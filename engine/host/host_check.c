/* SPDX-License-Identifier: Apache-2.0
 * Checks what plugins pass in. Handles are looked up, and arguments are checked. No index, size or pointer from a
 * plugin can make the engine access memory out of bounds.
 */
#include <config.h>
#include "engine/base/parse.h"
#include "engine/device/call.h"
#include "engine/device/device.h"
#include "engine/host/host_impl.h"
#include <ctype.h>

/* -- arguments: their size, and enums, flags and reserved words that this engine does not know --------------------- */
#define ARGS_MAX 4096 /* bytes; larger sizes cannot be right */

int hd_args_take(struct hd_plan *p, const char *call, void *to, size_t ours, size_t first, const void *from)
{
	size_t n = 0;

	if (!from)
		return hd_plan_fail(p, HD_EBUG, "%s: the arguments are NULL", call), 0;
	memcpy(&n, from, sizeof(n));
	if (n < first || n > ARGS_MAX)
		return hd_plan_fail(p, HD_EBUG, "%s: size of the arguments is %zu, not %zu or more (their sizeof)",
				    call, n, first),
		       0;
	for (size_t i = ours; i < n; i++)
		if (((const char *)from)[i])
			return hd_plan_fail(
				       p, HD_EABI,
				       "%s: the arguments have %zu bytes, this engine knows %zu, and byte %zu is not 0",
				       call, n, ours, i),
			       0;
	memset(to, 0, ours);
	memcpy(to, from, n < ours ? n : ours);
	return 1;
}

int hd_args_one_of(struct hd_plan *p, const char *call, const char *what, uint64_t value, uint64_t most)
{
	if (value <= most)
		return 1;
	hd_plan_fail(p, HD_EINVAL, "%s: %s is %llu, this engine knows 0 to %llu", call, what, (unsigned long long)value,
		     (unsigned long long)most);
	return 0;
}

int hd_args_flags(struct hd_plan *p, const char *call, const char *what, uint32_t flags, uint32_t known)
{
	if (!(flags & ~known))
		return 1;
	hd_plan_fail(p, HD_EINVAL, "%s: %s has the unknown bit %u, this engine knows %u", call, what,
		     flags & ~known & -(flags & ~known), known);
	return 0;
}

int hd_args_zero(struct hd_plan *p, const char *call, const char *what, uint64_t word)
{
	if (!word)
		return 1;
	hd_plan_fail(p, HD_EINVAL, "%s: %s is %llu, it must be 0", call, what, (unsigned long long)word);
	return 0;
}

/* -- handles ------------------------------------------------------------------------------------------------------- */
static const char *const kind_names[] = { "", "a dim", "an axis", "a group", "a tensor", "a node" };

static int known(struct hd_plan *p, const char *call, const char *what, const void *at, enum hd_handle_kind kind)
{
	if (hd_handle_kind(p, at) == kind)
		return 1;
	if (!at)
		hd_plan_fail(p, HD_EBUG, "%s: the %s is NULL", call, what);
	else if (hd_handle_kind(p, at))
		hd_plan_fail(p, HD_EBUG, "%s: the %s is %s and must be %s", call, what,
			     kind_names[hd_handle_kind(p, at)], kind_names[kind]);
	else
		hd_plan_fail(p, HD_EBUG, "%s: the %s is not %s of this plan", call, what, kind_names[kind]);
	return 0;
}

int hd_arg_dim(struct hd_plan *p, const char *call, const char *what, const struct hd_dim *d)
{
	return known(p, call, what, d, HANDLE_DIM);
}

int hd_arg_axis(struct hd_plan *p, const char *call, const char *what, const struct hd_axis *a)
{
	return known(p, call, what, a, HANDLE_AXIS);
}

int hd_arg_group(struct hd_plan *p, const char *call, const char *what, const struct hd_group *g)
{
	return known(p, call, what, g, HANDLE_GROUP);
}

int hd_arg_node(struct hd_plan *p, const char *call, const char *what, const struct hd_node *n)
{
	if (!known(p, call, what, n, HANDLE_NODE))
		return 0;
	if (!N(n)->dead)
		return 1;
	hd_plan_fail(p, HD_EBUG, "%s: the %s, %s, is no longer part of the program", call, what, n->op->name);
	return 0;
}

int hd_arg_tensor(struct hd_plan *p, const char *call, const char *what, const struct hd_tensor *t)
{
	if (!known(p, call, what, t, HANDLE_TENSOR))
		return 0;
	if (!t->node || !N(t->node)->dead)
		return 1;
	hd_plan_fail(p, HD_EBUG, "%s: the %s (%s) was made by %s, which is no longer part of the program", call, what,
		     t->spec, t->node->op->name);
	return 0;
}

int hd_arg_tensors(struct hd_plan *p, const char *call, struct hd_tensor *const *ts, uint32_t n, uint32_t least,
		   uint32_t most)
{
	char what[32];

	if (n < least || n > most || (n && !ts)) {
		hd_plan_fail(p, HD_EINVAL, "%s: %u inputs%s, not %u to %u", call, n, ts || !n ? "" : " at NULL", least,
			     most);
		return 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		snprintf(what, sizeof(what), "input %u", i);
		if (!hd_arg_tensor(p, call, what, ts[i]))
			return 0;
	}
	return 1;
}

/* Blocks are elements of an array, and not registered as handles. */
int hd_arg_block(struct hd_plan *p, const char *call, const struct hd_block *b)
{
	for (size_t i = 0; i < p->nblocks; i++)
		if (b == &p->blocks[i].v)
			return 1;
	hd_plan_fail(p, HD_EBUG, b ? "%s: the block is not a block of this plan" : "%s: the block is NULL", call);
	return 0;
}

/* Checks a name, which becomes part of file names and keys. */
int hd_arg_name(struct hd_plan *p, const char *call, const char *name)
{
	const char *c = name;

	if (!name || !*name) {
		hd_plan_fail(p, HD_EINVAL, "%s: the name is %s", call, name ? "empty" : "NULL");
		return 0;
	}
	while (isalnum((unsigned char)*c) || (*c && strchr("._-", *c)))
		c++;
	if (!*c)
		return 1;
	hd_plan_fail(p, HD_EINVAL, "%s: a name has letters, digits, . _ and -, and byte %d of this one is %#x", call,
		     (int)(c - name), (unsigned char)*c);
	return 0;
}

/* -- positions ----------------------------------------------------------------------------------------------------- */
int hd_arg_pos(struct hd_plan *p, const char *call, const struct hd_pos *at)
{
	if (!at) {
		hd_plan_fail(p, HD_EBUG, "%s: the position is NULL", call);
		return 0;
	}
	if (at->group && !hd_arg_group(p, call, "group of the position", at->group))
		return 0;
	if (!at->group && at->mul) {
		hd_plan_fail(p, HD_EINVAL, "%s: pos.mul is %d, but there is no group to be a member of", call, at->mul);
		return 0;
	}
	return hd_args_zero(p, call, "pos.reserved",
			    at->reserved[0] | (uint64_t)at->reserved[1] | (uint64_t)at->reserved[2]);
}

/* -- ops ----------------------------------------------------------------------------------------------------------- */
static int has_dims(struct hd_plan *p, const struct op_signature *s, const char *op, struct hd_tensor *const *ins,
		    uint32_t nin)
{
	for (uint32_t i = 0; i < nin && s->dims[i]; i++) {
		char want = s->dims[i];

		if (want == '.' || (want == '+' ? ins[i]->ndim > 0 : ins[i]->ndim == (uint32_t)(want - '0')))
			continue;
		hd_plan_fail(p, HD_EINVAL, "%s: input %u (%s) has %u dims, not %c%s", op, i, ins[i]->spec, ins[i]->ndim,
			     want == '+' ? '1' : want, want == '+' ? " or more" : "");
		return 0;
	}
	return 1;
}

enum { MOST_KEYS = 24 };

/* Splits "a b= c" into names without =. Sets *texts to the bits of those that have a text. Returns their number. */
static int split_keys(struct hd_plan *p, const char *keys, const char **names, uint32_t *texts)
{
	int n = 0;

	for (const char *at = keys; *at && n < MOST_KEYS; at += strspn(at, " ")) {
		size_t word = strcspn(at, " "), name = strcspn(at, " =");

		*texts |= (uint32_t)(name < word) << n;
		names[n++] = hd_plan_text(p, "%.*s", (int)name, at);
		at += word;
	}
	return n;
}

/* Checks one word "key=value" of an engine op's attributes. Its readers would ignore an unknown key, and the rest of a
 * malformed number. */
static int check_attribute(struct hd_plan *p, const struct hd_op *op, const char *word, const char *const *names, int n,
			   uint32_t texts)
{
	const char *equals = strchr(word, '='), *key = hd_plan_text(p, "%.*s", (int)strcspn(word, "="), word);
	char hint[500];
	double ignored;
	int k = 0;

	while (k < n && strcmp(names[k], key) != 0)
		k++;
	hd_suggest(hint, sizeof(hint), key, "its keys", names, n);
	if (!equals || !*key)
		hd_plan_fail(p, HD_EBUG, "%s: attribute \"%s\" is not key=value; %s", op->name, word, hint);
	else if (k == n)
		hd_plan_fail(p, HD_EBUG, "%s: unknown attribute %s; %s", op->name, key, hint);
	else if (texts >> k & 1 ? !equals[1] : hd_word_num(equals + 1, &ignored))
		hd_plan_fail(p, HD_EBUG, "%s: attribute %s is \"%s\", it must be %s", op->name, key, equals + 1,
			     texts >> k & 1 ? "a text" : "a number");
	return !p->err->code;
}

static int check_attributes(struct hd_plan *p, const struct hd_op *op, const char *keys, const char *attr)
{
	const char *names[MOST_KEYS];
	uint32_t texts = 0;
	int n = split_keys(p, hd_plan_text(p, "%s fp32 rows", keys) + !*keys, names, &texts);

	for (const char *at = attr + strspn(attr, " "); *at; at += strspn(at, " ")) {
		size_t word = strcspn(at, " ");

		if (!check_attribute(p, op, hd_plan_text(p, "%.*s", (int)word, at), names, n, texts))
			return 0;
		at += word;
	}
	return 1;
}

static int engine_op(struct hd_plan *p, const struct hd_op *op, struct hd_tensor *const *ins, uint32_t nin,
		     const char *attr)
{
	const struct op_signature *s = hd_op_signature(op);

	if (s)
		return hd_arg_tensors(p, op->name, ins, nin, s->least, s->most) && has_dims(p, s, op->name, ins, nin) &&
		       (!s->keys || check_attributes(p, op, s->keys, attr));
	hd_plan_fail(p, HD_EINVAL,
		     "node: op %s cannot be created by name: it has a call of its own, or only the engine creates it",
		     op->name);
	return 0;
}

static int plugin_op(struct hd_plan *p, const struct hd_op *op)
{
	const size_t ours = sizeof(*op), first = offsetof(struct hd_op, record) + sizeof(op->record);

	if (op->size < first || op->size > 4096)
		hd_plan_fail(p, HD_EBUG, "node: size of the op is %zu, not %zu or more (sizeof(struct hd_op))",
			     op->size, first);
	else if (!op->name || !*op->name)
		hd_plan_fail(p, HD_EBUG, "node: the op has no name");
	else if (!op->shape)
		hd_plan_fail(p, HD_EBUG, "node: op %s has no slot shape, which is mandatory", op->name);
	else if (hd_op_find(op->name) && hd_op_find(op->kind ? op->kind : op->name) == hd_op_find(op->name))
		hd_plan_fail(p, HD_EBUG,
			     "node: op %s has the name of an op of the engine: use a different name, and set kind",
			     op->name);
	else if (HD_HAS(op, flags))
		hd_args_flags(p, op->name, "flags", op->flags, HD_OP_CHEAP);
	if (!p->err->code && HD_HAS(op, zero))
		hd_args_zero(p, op->name, "zero", op->zero);
	for (size_t i = ours; !p->err->code && i < op->size; i++)
		if (((const char *)op)[i])
			hd_plan_fail(p, HD_EABI, "node: op %s has a slot at byte %zu that this engine does not know",
				     op->name, i);
	return !p->err->code;
}

int hd_arg_op(struct hd_plan *p, const struct hd_op *op, struct hd_tensor *const *ins, uint32_t nin, const char *attr)
{
	if (!op) {
		hd_plan_fail(p, HD_EBUG, "node: the op is NULL");
		return 0;
	}
	if (!(hd_op_traits(op)->flags & OP_FLAG_PLUGIN))
		return engine_op(p, op, ins, nin, attr);
	return plugin_op(p, op) && hd_arg_tensors(p, op->name, ins, nin, 1, HD_MAX_INS);
}

int hd_may_build(struct hd_plan *p, const char *call)
{
	if (p->err->code)
		return 0;
	if (!p->slot.name || hd_in_slot(p, "lower") || hd_in_slot(p, "rewrite") || hd_in_slot(p, "vjp") ||
	    hd_in_slot(p, "update"))
		return 1;
	hd_plan_fail(p, HD_EBUG, "%s may be called in slots rewrite, lower, vjp and update only, not in %s", call,
		     p->slot.name);
	return 0;
}

/* Returns whether the slot may build pieces of tensors. Before placement every tensor has its full extents, even a
 * chunk. */
int hd_may_build_pieces(struct hd_plan *p, const char *call)
{
	if (!hd_may_build(p, call))
		return 0;
	if (p->slot.name && !hd_in_slot(p, "lower"))
		hd_plan_fail(p, HD_EBUG, "%s may be called in slot lower only, not in %s: extents are not sharded yet",
			     call, p->slot.name);
	return !p->err->code;
}

/* Checks the dtype of messages: only sums in a stated order may send a different dtype than they add. */
int hd_arg_wire(struct hd_plan *p, const struct hd_comm_args *a)
{
	int ordered = a->kind == HD_COMM_RING_REDUCE_SCATTER || a->kind == HD_COMM_ORDERED_REDUCE_SCATTER ||
		      a->kind == HD_COMM_PUSH;

	if (a->wire && !ordered)
		hd_plan_fail(p, HD_EINVAL, "comm: the wire of a%s %s is %#x, not 0",
			     hd_comm_kind_name(a->kind)[0] == 'a' ? "n" : "", hd_comm_kind_name(a->kind), a->wire);
	else if (a->wire && a->wire != HD_DTYPE_BF16 && a->wire != HD_DTYPE_F16)
		hd_plan_fail(p, HD_EINVAL, "comm: the wire is %#x, not 0, bf16 or fp16", a->wire);
	else if (a->wire && a->x->dtype != p->master_dtype)
		hd_plan_fail(p, HD_EINVAL, "comm: a wire of %s, for (%s) of %s", hd_dtype_name(a->wire), a->x->spec,
			     hd_dtype_name(a->x->dtype));
	return !p->err->code;
}

/* Refuses sums and maxima of dtypes that the engine can only cast and move, but not add or compare. */
int hd_arg_sums(struct hd_plan *p, const struct hd_comm_args *a)
{
	uint32_t t = a->x->dtype;
	int sums = a->kind == HD_COMM_ALL_REDUCE || a->kind == HD_COMM_ALL_MAX || a->kind == HD_COMM_REDUCE ||
		   a->kind == HD_COMM_REDUCE_SCATTER;

	if (sums && (t == HD_DTYPE_B1 || t == HD_DTYPE_I8 || t == HD_DTYPE_E4M3 || t == HD_DTYPE_E5M2))
		hd_plan_fail(p, HD_EINVAL, "comm: a %s of (%s), which is %s: it can be moved, not added or compared",
			     hd_comm_kind_name(a->kind), a->x->spec, hd_dtype_name(t));
	return !p->err->code;
}

/* Checks a push or pull between workers and servers. Both must be in the group, and x must be on the sending side. A
 * dim of x or the index must say where it goes. In groups with spare members, it allows only all-reduce and
 * broadcast otherwise. */
int hd_arg_served(struct hd_plan *p, const struct hd_comm_args *a)
{
	const struct group *g = G(a->group);
	const struct axis *x = g->axes[0];
	uint32_t side = a->kind == HD_COMM_PUSH ? HD_ROLE_CORE : HD_ROLE_SPARE;
	const char *what = hd_comm_kind_name(a->kind);

	if (!hd_comm_is_push_or_pull(a->kind)) {
		if (g->role != HD_ROLE_CORE && a->kind != HD_COMM_ALL_REDUCE && a->kind != HD_COMM_BROADCAST)
			hd_plan_fail(p, HD_EINVAL, "comm: %s in a group with spare members", what);
	} else if (g->role != HD_ROLE_ALL) {
		hd_plan_fail(p, HD_EINVAL, "comm: a %s in a group of role %u, not HD_ROLE_ALL", what, g->role);
	} else if (T(a->x)->at.on[x->id].role != side) {
		hd_plan_fail(p, HD_EINVAL, "comm: a %s of (%s), which is at coordinates of role %u of %s, not %u", what,
			     a->x->spec, T(a->x)->at.on[x->id].role, x->v.name, side);
	} else if (!a->dim && (a->index < 0 || a->index >= x->v.spare)) {
		hd_plan_fail(p, HD_EINVAL, "comm: a %s with spare member %lld of %lld", what, (long long)a->index,
			     (long long)x->v.spare);
	} else if (a->dim && !hd_has_dim(T(a->x), a->dim)) {
		hd_plan_fail(p, HD_EINVAL, "comm: a %s along %s, which (%s) does not have", what, a->dim->name,
			     a->x->spec);
	}
	return !p->err->code;
}

/* Refuses inputs that no longer exist. Gather, sync and update run once per step, when the results of micro-batches
 * are gone and only sums over them remain. */
int hd_arg_in_step(struct hd_plan *p, const char *call, struct hd_tensor *const *ins, uint32_t nin)
{
	for (uint32_t i = 0; i < nin && p->cursor.phase & (HD_UNIT_G | HD_UNIT_S | HD_UNIT_U); i++)
		if (!T(ins[i])->step && ins[i]->node && ins[i]->node->phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W)) {
			hd_plan_fail(
				p, HD_EINVAL,
				"%s: (%s) of %s is computed once a micro-batch, but is read where nodes run once a "
				"step",
				call, ins[i]->spec, ins[i]->node->op->name);
			return 0;
		}
	return 1;
}

/* Sets in which memory a leaf is stored. A device without memory of its own computes in host memory anyway; then the
 * space is ignored, with one message. */
int hd_set_space(struct hd_plan *p, struct tensor *leaf, uint32_t space)
{
	if (space == HD_SPACE_DEVICE)
		return HD_OK;
	if (space != HD_SPACE_HOST || leaf->v.node ||
	    (leaf->v.what != HD_TENSOR_STATE && leaf->v.what != HD_TENSOR_MASTER))
		return hd_plan_fail(
			p, HD_ENOTSUP,
			"storage: space %u of (%s): only optimizer states and masters may be in HD_SPACE_HOST, all "
			"else is in HD_SPACE_DEVICE",
			space, leaf->spec);
	if (p->optimizer)
		return hd_plan_fail(
			p, HD_ENOTSUP,
			"storage: states in host memory are updated by adamw or sgd, but train.optimizer = %s comes "
			"from a plugin",
			p->optimizer->name);
	if (p->own_memory)
		leaf->v.space = space;
	else if (!p->noted_space++)
		hd_host_log(p, HD_LOG_INFO, "states stay where they are: device cpu computes in host memory");
	return HD_OK;
}
