/* SPDX-License-Identifier: Apache-2.0
 * Turns nodes into kernel launches of one rank. Each node's op records its kernels once (slot record of heddle/op.h).
 * What depends on the memory plan is recorded here: copies that aliasing could not avoid, accumulation, and which
 * gradients this rank counts in the norm.
 */
#include <config.h>
#include "engine/base/hash.h"
#include "engine/graph/mesh.h"
#include "engine/graph/placement.h"
#include "engine/plugin/kernel.h"
#include "engine/run/run.h"
#include "engine/host/host.h"
#include "engine/graph/op.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct recorder {
	struct hd_record r;
	struct hd_program *g;
	const struct hd_bind *bind;
	struct node *node;
	struct hd_err *err;
	int32_t acc; /* for the next launch */
	struct tensor *target;
	struct hd_tables_counted asked;
};

static void view_of(const struct hd_program *g, const struct tensor *t, struct hd_view *v)
{
	struct hd_pieces s;

	memset(v, 0, sizeof(*v));
	v->dtype = t->v.dtype;
	v->ndim = t->v.ndim;
	for (uint32_t i = 0; i < t->v.ndim; i++) {
		v->dims[i] = t->dims[i];
		v->n[i] = t->local[i];
		s = hd_pieces_of(g->plan, t, i, g->rank);
		v->off[i] = s.off;
		v->fold[i] = s.fold;
		v->skip[i] = s.skip;
	}
	for (uint32_t i = 0; t->ragged_counts && i < t->v.ndim; i++) /* a dim of rows; the counts say how many */
		if (!strcmp(t->dims[i]->name, "slot"))
			v->n[i] = hd_ragged_max(t);
		else if (hd_has_dim(t->ragged_counts, t->dims[i]))
			v->n[i] = 1;
}

/* Returns the device that computes the current node: the host if its result is in host memory. */
static const struct hd_device_ops *device_of(const struct recorder *r)
{
	const struct node *n = r->node;

	return n->v.nout && n->outs[0]->v.space == HD_SPACE_HOST ? hd_device_cpu() : r->bind->device;
}

/* Reports a missing kernel. The plugin may have it for a different device. */
static int no_kernel(const struct recorder *r, const char *name)
{
	const struct inst *in = r->node->inst >= 0 ? &r->g->plan->inst[r->node->inst] : NULL;
	const struct hd_kernel_ops *const *k = in ? in->plugin->kernels : NULL;
	const char *device = device_of(r)->name;

	while (k && *k && strcmp((*k)->name, name))
		k++;
	if (!in)
		return hd_err_set(r->err, HD_ENOTSUP, "device %s has no kernel %s", device, name);
	return hd_err_set(r->err, HD_ENOTSUP, "%s of [%s]: neither device %s nor %s has a kernel %s%s%s",
			  r->node->v.op->name, in->name, device, in->plugin->path, name,
			  k && *k ? ": the plugin's is for " : "", k && *k ? (*k)->device : "");
}

/* Returns the flags of what the last launch never does. A gradient with one contribution in all is never added to. */
static uint32_t never_flags(const struct recorder *r, const struct launch *l)
{
	const struct launches *all = &r->g->launches[r->node->id];

	if (l->acc >= 0)
		return l->acc ? HD_NEVER_OVERWRITES : HD_NEVER_ADDS;
	if (r->g->plan->micros > 1 || !l->target->v.node || N(l->target->v.node)->v.nin > 1)
		return 0;
	return all->n > 1 && all->v[all->n - 2].target == l->target ? 0 : HD_NEVER_ADDS;
}

/* Returns the text after the op's name, if the kernel's text begins with that too. */
static const char *after_op_name(const char *text, const char *op)
{
	return !strncmp(text, op, strlen(op)) && !strncmp(text + strlen(op), ": ", 2) ? text + strlen(op) + 2 : text;
}

static int prepare(struct recorder *r, struct launch *l, const char *name, const char *attr)
{
	struct hd_view *v = hd_plan_alloc(r->g->plan, (l->nin + l->nout + 1) * sizeof(*v));
	struct hd_kernel_desc d = { attr, l->nin, l->nout, v, v + l->nin, l->never };
	struct hd_err why = { 0 };
	const struct inst *in = r->node->inst >= 0 ? &r->g->plan->inst[r->node->inst] : NULL;
	const struct hd_kernel_ops *theirs = in ? hd_registry_kernel(in->plugin, r->bind->device->name, name) : NULL;
	const struct hd_kernel_owner owner = { in ? in->self : NULL, in ? in->name : "", r->bind->threads };

	for (uint32_t i = 0; i < l->nin; i++)
		view_of(r->g, l->in[i], &v[i]);
	for (uint32_t i = 0; i < l->nout; i++)
		view_of(r->g, l->out[i], &v[l->nin + i]);
	l->kernel = theirs ? &hd_plugin_kernel : device_of(r)->kernel(name);
	if (!l->kernel)
		return no_kernel(r, name);
	if (r->bind->asks && theirs)
		hd_ask_plugin_kernel(&r->g->memory, theirs, &owner, &d, &why);
	else if (r->bind->asks)
		hd_ask_kernel(&r->g->memory, &r->asked, l->kernel, &d, r->bind->threads);
	else if (theirs)
		hd_plugin_kernel_prepare(theirs, &owner, &d, &l->prep, &why);
	else
		l->kernel->prepare(&d, &l->prep, &why);
	if (why.code)
		return hd_err_set(r->err, why.code, "%s%s%s: %s", r->node->v.op->name,
				  r->node->v.block[0] ? " of " : "", r->node->v.block,
				  after_op_name(why.text, r->node->v.op->name));
	return HD_OK;
}

static int add_launch(struct recorder *r, const char *kernel, struct tensor *const *ins, uint32_t nin,
		      struct tensor *const *outs, uint32_t nout, const char *attr)
{
	struct launches *all = &r->g->launches[r->node->id];
	const struct hd_kernel *k = device_of(r)->kernel(kernel);
	struct tensor *rows = nin && hd_node_counts_rows(r->node) ? ins[nin - 1] : NULL;
	struct launch *l;

	all->v = hd_grow(all->v, all->n, &all->cap, sizeof(*all->v));
	l = &all->v[all->n++];
	if (rows && k && k->flags & HD_K_ROWS) /* hd_run passes the counts instead */
		nin--;
	*l = (struct launch){ .nin = nin, .nout = nout, .acc = r->acc, .target = r->target, .rows = rows };
	r->g->recorded = hd_hash_add_text(hd_hash_add_text(r->g->recorded, kernel), attr);
	for (uint32_t i = 0; i < nin + nout; i++)
		r->g->recorded = hd_hash_add(r->g->recorded, (uint64_t)(i < nin ? ins[i] : outs[i - nin])->id);
	l->in = hd_plan_alloc(r->g->plan, (nin + nout + 1) * sizeof(*l->in));
	l->out = l->in + nin;
	for (uint32_t i = 0; i < nin; i++)
		l->in[i] = ins[i];
	for (uint32_t i = 0; i < nout; i++)
		l->out[i] = outs[i];
	l->never = never_flags(r, l);
	return prepare(r, l, kernel, hd_plan_text(r->g->plan, "%s", attr));
}

/* -- what ops call ----------------------------------------------------------------------------------------------- */
static int64_t record_index(struct hd_record *r, const struct hd_group *g)
{
	struct hd_program *of = ((struct recorder *)r)->g;

	if (hd_handle_kind(of->plan, g) != HANDLE_GROUP)
		return hd_plan_fail(of->plan, HD_EBUG, "index: the group is not a group of this plan"), 0;
	for (uint32_t i = 0; i < G(g)->n; i++)
		of->asked_axes |= 1u << G(g)->axes[i]->id;
	return hd_member_index(of->plan, G(g), of->rank);
}

static int is_among(const struct hd_tensor *t, struct hd_tensor *const *all, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (all[i] == t)
			return 1;
	return 0;
}

/* Checks that a plugin's op uses only its own node's tensors: others may not be in memory then. */
static int check_operands(const struct recorder *r, const char *kernel, struct hd_tensor *const *ins, uint32_t nin,
			  struct hd_tensor *const *outs, uint32_t nout)
{
	const struct hd_node *n = &r->node->v;

	if (!kernel || (nin && !ins) || (nout && !outs) || nin > n->nin + n->nout || nout > n->nout)
		return hd_err_set(r->err, HD_EINVAL,
				  "launch: kernel %s with %u inputs and %u outputs, but the node has %u and %u",
				  kernel ? kernel : "NULL", nin, nout, n->nin, n->nout);
	for (uint32_t i = 0; i < nin; i++)
		if (!is_among(ins[i], n->ins, n->nin) && !is_among(ins[i], n->outs, n->nout))
			return hd_err_set(r->err, HD_EINVAL,
					  "launch: input %u of kernel %s is not a tensor of the node", i, kernel);
	for (uint32_t i = 0; i < nout; i++)
		if (!is_among(outs[i], n->outs, n->nout))
			return hd_err_set(r->err, HD_EINVAL,
					  "launch: output %u of kernel %s is not an output of the node", i, kernel);
	return HD_OK;
}

static int record_launch(struct hd_record *r, const char *kernel, struct hd_tensor *const *ins, uint32_t nin,
			 struct hd_tensor *const *outs, uint32_t nout, const char *attr)
{
	struct recorder *x = (struct recorder *)r;

	if (x->node->inst >= 0)
		HD_TRY(check_operands(x, kernel, ins, nin, outs, nout));
	return add_launch(x, kernel, (struct tensor *const *)ins, nin, (struct tensor *const *)outs, nout, attr);
}

/* -- movement that aliasing could not avoid ---------------------------------------------------------------------- */
static int shares(const struct hd_program *g, const struct tensor *a, const struct tensor *b, int64_t at)
{
	return g->at[a->id].root == g->at[b->id].root && g->at[a->id].offset == g->at[b->id].offset + at;
}

static int copy(struct recorder *r, struct tensor *x, struct tensor *y, int64_t runs, int64_t run, int64_t src,
		int64_t src_step, int64_t dst, int64_t dst_step)
{
	char attr[200];

	if (!runs || !run)
		return HD_OK;
	snprintf(attr, sizeof(attr), "runs=%lld run=%lld src=%lld src_step=%lld dst=%lld dst_step=%lld",
		 (long long)runs, (long long)run, (long long)src, (long long)src_step, (long long)dst,
		 (long long)dst_step);
	return add_launch(r, "copy", &x, 1, &y, 1, attr);
}

/* Splits t's local elements at dim d: `outer` before it, n along it, `inner` after it. */
static void split_at_dim(const struct tensor *t, const struct hd_dim *d, int64_t *outer, int64_t *n, int64_t *inner)
{
	uint32_t i = 0;

	*outer = *inner = 1;
	for (; i < t->v.ndim && t->dims[i] != d; i++)
		*outer *= t->local[i];
	if (t->ragged_counts) { /* rows, then dims of a row */
		*outer = hd_ragged_max(t);
		for (uint32_t k = 0; k < i; k++)
			if (strcmp(t->dims[k]->name, "slot") && !hd_has_dim(t->ragged_counts, t->dims[k]))
				*outer *= t->local[k];
	}
	*n = i < t->v.ndim ? t->local[i] : 1;
	for (i++; i < t->v.ndim; i++)
		*inner *= t->local[i];
}

/* The two halves of member m's piece in zigzag order, in elements. run: a half's length; the others: its beginnings. */
struct halves {
	int64_t run, first, second;
};

static struct halves halves_of(const struct node *n, int64_t m, int64_t run)
{
	return (struct halves){ run / 2, m * (run / 2), (2 * n->parts - 1 - m) * (run / 2) };
}

/* Copies this member's piece of x, which consists of two halves. */
static int chunk_zigzag(struct recorder *r, struct node *n)
{
	int64_t outer, len, inner;
	struct halves h;

	split_at_dim(n->outs[0], n->along, &outer, &len, &inner);
	h = halves_of(n, hd_piece_index(r->g, n, 0), len * inner);
	HD_TRY(copy(r, n->ins[0], n->outs[0], outer, h.run, h.first, len * inner * n->parts, 0, len * inner));
	return copy(r, n->ins[0], n->outs[0], outer, h.run, h.second, len * inner * n->parts, h.run, len * inner);
}

/* Fills the result with zeros first, as what the copies do not write is padding. */
static int clear(struct recorder *r, struct tensor *y)
{
	r->acc = 0;
	return add_launch(r, "fill", NULL, 0, &y, 1, "value=0");
}

/* Copies this member's piece of a dim that the number of members does not divide. */
static int chunk_padded(struct recorder *r, struct node *n)
{
	int64_t outer, len, inner, piece, me = hd_piece_index(r->g, n, 0), have;

	split_at_dim(n->outs[0], n->along, &outer, &piece, &inner);
	split_at_dim(n->ins[0], n->along, &outer, &len, &inner);
	have = hd_piece_filled(len, piece, me);
	if (have < piece)
		HD_TRY(clear(r, n->outs[0]));
	return copy(r, n->ins[0], n->outs[0], outer, have * inner, me * piece * inner, len * inner, 0, piece * inner);
}

static int chunk_or_join(struct recorder *r, struct node *n)
{
	struct hd_program *g = r->g;
	int joins = n->is->role == OP_ROLE_JOIN;
	int64_t outer, len, inner;

	split_at_dim(joins ? n->ins[0] : n->outs[0], n->along, &outer, &len, &inner);
	for (uint32_t j = 0; j < (joins ? n->v.nin : 1); j++) {
		int64_t run = len * inner, at = hd_piece_index(g, n, j) * run, step = run * n->parts;
		struct tensor *small = joins ? n->ins[j] : n->outs[0], *big = joins ? n->outs[0] : n->ins[0];

		if (outer == 1 && shares(g, small, big, at * HD_BITS(small->v.dtype) / 8))
			continue;
		if (joins)
			HD_TRY(copy(r, small, big, outer, run, 0, run, at, step));
		else
			HD_TRY(copy(r, big, small, outer, run, at, step, 0, run));
	}
	return HD_OK;
}

static int pack(struct recorder *r, struct node *n)
{
	int64_t at = 0;

	for (uint32_t j = 0; j < n->v.nin; j++) {
		int64_t count = hd_local_count(n->ins[j]), each = 512 / (int64_t)HD_BITS(n->ins[j]->v.dtype);

		if (!shares(r->g, n->ins[j], n->outs[0], at * HD_BITS(n->ins[j]->v.dtype) / 8))
			HD_TRY(copy(r, n->ins[j], n->outs[0], 1, count, 0, count, at, count));
		at += (count + each - 1) / each * each;
	}
	return HD_OK;
}

/* Returns the elements of a member's piece of t along a dim, padding included. */
static int64_t piece_count(const struct tensor *t, const struct hd_dim *along, int64_t parts)
{
	int64_t outer, len, inner;

	split_at_dim(t, along, &outer, &len, &inner);
	return outer * hd_piece(len, parts) * inner;
}

/* Copies `runs` runs between whole and flat, into whichever is the node's output. */
static int to_or_from(struct recorder *r, struct tensor *whole, struct tensor *flat, int64_t runs, int64_t run,
		      int64_t at_whole, int64_t step_whole, int64_t at_flat, int64_t step_flat)
{
	if (whole != r->node->outs[0])
		return copy(r, whole, flat, runs, run, at_whole, step_whole, at_flat, step_flat);
	return copy(r, flat, whole, runs, run, at_flat, step_flat, at_whole, step_whole);
}

/* Packs or unpacks all members' pieces. In whole, a piece is `outer` runs; in flat it is contiguous, `row` elements
 * after the previous member's. Pieces may be padded: then the last one with elements has fewer. */
static int pieces(struct recorder *r, struct tensor *whole, const struct hd_dim *along, struct tensor *flat, int64_t at,
		  int64_t row, int64_t parts)
{
	int64_t outer, len, inner, piece, run, full;

	split_at_dim(whole, along, &outer, &len, &inner);
	piece = hd_piece(len, parts);
	run = piece * inner;
	full = len / piece;
	for (int64_t j = 0; j < parts && parts < outer; j++)
		HD_TRY(to_or_from(r, whole, flat, outer, hd_piece_filled(len, piece, j) * inner, j * run, len * inner,
				  at + j * row, run));
	for (int64_t o = 0; o < outer && parts >= outer; o++) {
		HD_TRY(to_or_from(r, whole, flat, full, run, o * len * inner, run, at + o * run, row));
		HD_TRY(to_or_from(r, whole, flat, len > full * piece, (len - full * piece) * inner,
				  o * len * inner + full * run, 0, at + o * run + full * row, 0));
	}
	return HD_OK;
}

/* Returns whether the last members have less than a full piece of some tensor. */
static int pads(const struct node *n)
{
	int64_t outer, len, inner;

	for (uint32_t i = 0; i < n->v.nin; i++) {
		split_at_dim(n->ins[i], n->alongs[i], &outer, &len, &inner);
		if (len % n->parts)
			return 1;
	}
	return 0;
}

static int pack_pieces(struct recorder *r, struct node *n)
{
	int64_t row = hd_local_count(n->outs[0]) / n->parts, at = 0;

	if (pads(n))
		HD_TRY(clear(r, n->outs[0]));
	for (uint32_t i = 0; i < n->v.nin; i++) {
		int64_t count = piece_count(n->ins[i], n->alongs[i], n->parts),
			each = 512 / (int64_t)HD_BITS(n->ins[i]->v.dtype);

		HD_TRY(pieces(r, n->ins[i], n->alongs[i], n->outs[0], at, row, n->parts));
		at += (count + each - 1) / each * each;
	}
	return HD_OK;
}

/* Blocks or unblocks a dim (…, n k, …) in zigzag order: blocked, each member's two halves are adjacent. */
static int block_zigzag(struct recorder *r, struct node *n)
{
	int blocks = n->is->role == OP_ROLE_BLOCK;
	struct tensor *plain = blocks ? n->ins[0] : n->outs[0], *blocked = blocks ? n->outs[0] : n->ins[0];
	int64_t outer, len, inner;

	split_at_dim(plain, n->along, &outer, &len, &inner);
	for (int64_t j = 0; j < n->parts; j++) {
		int64_t run = len / n->parts * inner;
		struct halves h = halves_of(n, j, run);

		for (int k = 0; k < 2; k++) {
			int64_t there = k ? h.second : h.first, here = j * outer * run + k * h.run;

			if (blocks)
				HD_TRY(copy(r, plain, blocked, outer, h.run, there, len * inner, here, run));
			else
				HD_TRY(copy(r, blocked, plain, outer, h.run, here, run, there, len * inner));
		}
	}
	return HD_OK;
}

/* Blocks or unblocks (…, n k, …). Plain, a member's piece is `outer` runs; blocked, one. Padding ends each run. */
static int block_or_unblock(struct recorder *r, struct node *n)
{
	int blocks = n->is->role == OP_ROLE_BLOCK;
	struct tensor *plain = blocks ? n->ins[0] : n->outs[0], *blocked = blocks ? n->outs[0] : n->ins[0];
	int64_t outer, len, inner, piece;

	split_at_dim(plain, n->along, &outer, &len, &inner);
	piece = hd_piece(len, n->parts);
	if (blocks && piece * n->parts != len)
		HD_TRY(clear(r, blocked));
	for (int64_t j = 0; j < n->parts; j++) {
		int64_t run = piece * inner, have = hd_piece_filled(len, piece, j) * inner;

		if (blocks)
			HD_TRY(copy(r, plain, blocked, outer, have, j * run, len * inner, j * outer * run, run));
		else
			HD_TRY(copy(r, blocked, plain, outer, have, j * outer * run, run, j * run, len * inner));
	}
	return HD_OK;
}

static int copy_all(struct recorder *r, struct tensor *x, struct tensor *y, int64_t src)
{
	return copy(r, x, y, 1, hd_local_count(y), src, 0, 0, 0);
}

/* -- the gradient norm ------------------------------------------------------------------------------------------- */
/* Returns whether this rank counts x. If ranks add up their sums, only one of those with the same x does. */
static int counts_in_norm(const struct hd_program *g, const struct tensor *x, const struct tensor *sum)
{
	uint32_t added = 0;

	for (int a = 0; a < g->plan->naxes; a++)
		added |= (uint32_t)(sum->at.on[a].kind == HD_PLACE_PARTIAL) << a;
	return hd_is_representative(g->plan, g->rank, &x->at, added, 1);
}

static int norm2(struct recorder *r, struct node *n)
{
	struct tensor *s = n->outs[0];

	r->acc = 0;
	HD_TRY(add_launch(r, "fill", NULL, 0, &s, 1, "value=0"));
	r->acc = 1;
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (counts_in_norm(r->g, n->ins[i], s))
			HD_TRY(add_launch(r, "sumsq", &n->ins[i], 1, &s, 1, ""));
	return HD_OK;
}

/* Records one launch per input. ACC entries run the launches of contributions that are not computed in place. */
static int accumulate(struct recorder *r, struct node *n)
{
	struct tensor *y = n->outs[0];

	for (uint32_t i = 0; i < n->v.nin; i++) {
		r->acc = -1;
		r->target = y;
		HD_TRY(add_launch(r, "accumulate", &n->ins[i], 1, &y, 1, ""));
	}
	return HD_OK;
}

/* Returns the accumulator that a kernel writes into, if the memory plan merged its output with one, or NULL. */
static struct tensor *target_of(const struct hd_program *g, const struct node *n)
{
	for (uint32_t k = 0; k < n->v.nout; k++)
		for (struct node **r = g->readers[n->outs[k]->id]; r && *r; r++)
			if ((*r)->is->role == OP_ROLE_ACCUMULATE && shares(g, n->outs[k], (*r)->outs[0], 0))
				return (*r)->outs[0];
	return NULL;
}

/* Records ops that only move or add up data, unless the memory plan has put it in place. 0: a different op. */
static int record_copies(struct recorder *r, struct node *n, int *rc)
{
	struct hd_program *g = r->g;
	int64_t at, i;

	switch (n->is->role) {
	case OP_ROLE_CHUNK:
	case OP_ROLE_JOIN:
		*rc = n->order == HD_ORDER_ZIGZAG   ? chunk_zigzag(r, n)
		      : n->order == HD_ORDER_PADDED ? chunk_padded(r, n)
						    : chunk_or_join(r, n);
		return 1;
	case OP_ROLE_PACK: *rc = n->alongs ? pack_pieces(r, n) : pack(r, n); return 1;
	case OP_ROLE_BLOCK:
	case OP_ROLE_UNBLOCK: *rc = n->order == HD_ORDER_ZIGZAG ? block_zigzag(r, n) : block_or_unblock(r, n); return 1;
	case OP_ROLE_NORM2: *rc = norm2(r, n); return 1;
	case OP_ROLE_ACCUMULATE: *rc = accumulate(r, n); return 1;
	case OP_ROLE_VIEW:
	case OP_ROLE_SYNC:
	case OP_ROLE_PULLED:
		*rc = shares(g, n->outs[0], n->ins[0], 0) ? HD_OK : copy_all(r, n->ins[0], n->outs[0], 0);
		return 1;
	case OP_ROLE_PICK:
		i = hd_piece_index(g, n, 0);
		*rc = shares(g, n->outs[0], n->ins[i], 0) ? HD_OK : copy_all(r, n->ins[i], n->outs[0], 0);
		return 1;
	case OP_ROLE_UNPACK:
		at = hd_attr_int(n->attr, "at", 0);
		if (n->alongs) {
			*rc = pieces(r, n->outs[0], n->alongs[0], n->ins[0], at, hd_attr_int(n->attr, "row", 0),
				     n->parts);
			return 1;
		}
		*rc = shares(g, n->outs[0], n->ins[0], at * HD_BITS(n->outs[0]->v.dtype) / 8)
			      ? HD_OK
			      : copy_all(r, n->ins[0], n->outs[0], at);
		return 1;
	default: return 0;
	}
}

static int record_node(struct recorder *r, struct node *n)
{
	struct hd_program *g = r->g;
	struct hd_slot was;
	int rc = HD_OK;

	r->node = n;
	r->acc = 0;
	r->target = NULL;
	if (n->comm.kind)
		return HD_OK;
	if (!(n->is->flags & OP_FLAG_PLUGIN) && record_copies(r, n, &rc))
		return rc;
	if (!n->v.op->record)
		return hd_err_set(r->err, HD_EINVAL, "op %s of %s has no record and was not lowered", n->v.op->name,
				  n->inst >= 0 ? g->plan->inst[n->inst].name : "the engine");
	r->target = target_of(g, n);
	r->acc = r->target ? -1 : 0;
	was = hd_slot_begin(g->plan, n->inst, "record");
	rc = n->v.op->record(n->inst >= 0 ? g->plan->inst[n->inst].self : NULL, &r->r, &n->v);
	if (rc < 0 && !g->plan->err->code && n->inst >= 0 && r->err->code) {
		hd_plan_fail(g->plan, rc, "%s: %s", n->v.op->name, r->err->text);
		r->err->code = 0; /* reported again, with the section */
	}
	if (n->inst >= 0 && !r->err->code)
		rc = hd_op_slot_returned(g->plan, n->v.op, rc);
	hd_slot_end(g->plan, was);
	return rc < 0 ? rc : r->err->code;
}

/* Returns the name of a state that the node reads, or else of its first leaf, or "". */
static const char *subject(const struct node *n)
{
	const char *name = "";

	for (uint32_t i = 0; i < n->v.nin; i++)
		if (!n->ins[i]->v.node && (!*name || n->ins[i]->v.what == HD_TENSOR_STATE))
			name = n->ins[i]->v.name;
	return name;
}

static int failed(struct hd_program *g, const struct node *n, int rc, struct hd_err *err)
{
	const struct inst *by = n->made_by >= 0 ? &g->plan->inst[n->made_by] : NULL;
	char *text = err->code ? hd_strdup(err->text) : hd_format("%s: recording failed", n->v.op->name);

	err->code = 0; /* reported again, with the section */
	if (g->plan->err->code)
		hd_err_set(err, rc, "%s", g->plan->err->text);
	else if (by)
		hd_err_set(err, rc, "[%s %s]: %s (of a node that plugin %s made%s%s)", hd_inst_section(by), by->name,
			   text, by->plugin->name, *subject(n) ? ", with " : "", subject(n));
	else
		hd_err_set(err, rc, "%s", text);
	free(text);
	return rc;
}

int hd_pass_record(struct hd_program *g, const struct hd_bind *b, struct hd_err *err)
{
	struct recorder r = { .r = { &hd_record_table, record_index, record_launch }, .g = g, .bind = b, .err = err };
	int rc = HD_OK;

	g->launches = hd_alloc((size_t)(g->plan->nnodes + 1) * sizeof(*g->launches));
	for (size_t i = 0; i < g->nmine && rc >= 0; i++) {
		struct node *n = g->mine[i];

		if (b->dry && n->inst < 0 && n->made_by < 0)
			continue;
		rc = record_node(&r, n);
		if (rc < 0)
			failed(g, n, rc, err);
	}
	free(r.asked.v);
	return err->code;
}
