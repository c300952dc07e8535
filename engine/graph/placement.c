/* SPDX-License-Identifier: Apache-2.0
 * Placements: where a tensor is on each axis, in which order axes shard a dim, and which elements a rank then holds.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/graph/mesh.h"
#include "engine/graph/placement.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hd_place_equal(const struct hd_place *a, const struct hd_place *b)
{
	if (a->kind != b->kind || a->role != b->role)
		return 0;
	if (a->kind == HD_PLACE_SHARD)
		return a->dim == b->dim && a->order == b->order && a->level == b->level;
	if (a->kind == HD_PLACE_PARTIAL)
		return a->red == b->red;
	return a->kind != HD_PLACE_PINNED || a->index == b->index;
}

/* Orders the axes by level, then by mesh order (later axes are outer). */
int hd_shard_order(const struct hd_plan *p, const struct placement *at, const struct hd_dim *d, int axes[HD_MAX_AXES])
{
	int n = 0;

	for (int a = p->naxes - 1; a >= 0; a--) {
		int i = n;

		if (at->on[a].kind != HD_PLACE_SHARD || at->on[a].dim != d)
			continue;
		for (; i > 0 && at->on[axes[i - 1]].level > at->on[a].level; i--)
			axes[i] = axes[i - 1];
		axes[i] = a;
		n++;
	}
	return n;
}

/* Returns whether every rank holds the same bytes in both.  So levels matter only through the order that they give. */
int hd_placement_equal(const struct hd_plan *p, const struct placement *a, const struct placement *b)
{
	for (int i = 0; i < p->naxes; i++) {
		int one[HD_MAX_AXES], two[HD_MAX_AXES], n;
		struct hd_place w = b->on[i];

		w.level = a->on[i].level;
		if (!hd_place_equal(&a->on[i], &w))
			return 0;
		if (w.kind != HD_PLACE_SHARD)
			continue;
		n = hd_shard_order(p, a, w.dim, one);
		if (hd_shard_order(p, b, w.dim, two) != n || memcmp(one, two, (size_t)n * sizeof(one[0])))
			return 0;
	}
	return 1;
}

static int has_section(const struct hd_plan *p, const struct axis *x)
{
	return x && x->inst >= 0 && x->inst < p->ninst;
}

/* Describes a tensor for messages: its name, if it has one, and its dims; for a plugin's state, the plugin too. */
static const char *described(struct hd_plan *p, const struct tensor *t)
{
	const char *name = t->v.name ? t->v.name : "";

	if (t->v.what == HD_TENSOR_STATE && t->inst > 0)
		return hd_plan_text(p, "state %s (%s) of plugin %s", name, t->spec, p->inst[t->inst - 1].plugin->name);
	return *name ? hd_plan_text(p, "%s (%s)", name, t->spec) : t->spec;
}

/* Returns the number that must divide train.micro_batch, so that `product` divides the batch of all replicas. */
static int64_t multiple_of(const struct hd_plan *p, int64_t product)
{
	int64_t a = product, b = p->replicas;

	while (b) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return product / a;
}

static int is_step_batch(const struct hd_plan *p, const struct hd_dim *d)
{
	return !strcmp(d->name, "batch") && D(d)->padded == p->batch && p->replicas > 0;
}

/* Fails at the key of [train] that gives the batch, because another size of an axis would not change it. */
static void refuse_batch(struct hd_plan *p, const char *in, int64_t product, const char *why)
{
	long long multiple = (long long)multiple_of(p, product);

	if (p->config.micro_batch)
		hd_train_fail(p->conf, &p->config, "micro_batch", p->err, HD_EDIVIDE,
			      "%lld is not a multiple of %lld: %s (micro_batch x replicas), which they shard in %s",
			      (long long)p->config.micro_batch, multiple, why, in);
	else
		hd_train_fail(
			p->conf, &p->config, "global_batch", p->err, HD_EDIVIDE,
			"%lld has no micro_batch that is a multiple of %lld: %s (micro_batch x replicas), which they "
			"shard in %s",
			(long long)p->config.batch.full, multiple, why, in);
}

/* Each axis alone may divide a dim that all together do not.  So the message names all of them, at the section of the
 * last. */
static void refuse_cuts(struct hd_plan *p, const struct tensor *t, uint32_t i)
{
	char *all = NULL, *what;
	const struct axis *last = NULL;
	int64_t product = 1;

	for (int a = 0; a < p->naxes; a++) {
		if (t->at.on[a].kind != HD_PLACE_SHARD || t->at.on[a].dim != t->dims[i])
			continue;
		last = p->axes[a];
		product *= hd_role_count(last, t->at.on[a].role);
		hd_append(&all, "%s%s %lld", all ? " x " : "", last->v.name,
			  (long long)hd_role_count(last, t->at.on[a].role));
	}
	what = hd_format("%s = %lld do not divide %s = %lld", all ? all : "", (long long)product, t->dims[i]->name,
			 (long long)D(t->dims[i])->padded);
	if (!has_section(p, last))
		hd_plan_fail(p, HD_EDIVIDE, "%s in %s", what, t->spec);
	else if (is_step_batch(p, t->dims[i]))
		refuse_batch(p, described(p, t), product, what);
	else
		hd_section_fail(p->conf, p->inst[last->inst].section, hd_axis_key(p, &last->v), p->err, HD_EDIVIDE,
				"%s, which they shard in %s", what, described(p, t));
	free(all), free(what);
}

/* Returns the axis that shards the dim in zigzag order, of which check_order allows one, or NULL. */
static const struct axis *zigzag_of(const struct hd_plan *p, const struct tensor *t, uint32_t dim)
{
	for (int a = 0; a < p->naxes; a++)
		if (t->at.on[a].kind == HD_PLACE_SHARD && t->at.on[a].dim == t->dims[dim] &&
		    t->at.on[a].order == HD_ORDER_ZIGZAG)
			return p->axes[a];
	return NULL;
}

static void refuse_pieces(struct hd_plan *p, const struct tensor *t, uint32_t i, int64_t n)
{
	const struct axis *x = zigzag_of(p, t, i);

	if (!has_section(p, x))
		hd_plan_fail(p, HD_EDIVIDE, "(%s): %lld elements of %s on a rank cannot be split into two pieces",
			     t->spec, (long long)n, t->dims[i]->name);
	else
		hd_section_fail(p->conf, p->inst[x->inst].section, hd_axis_key(p, &x->v), p->err, HD_EDIVIDE,
				"a rank has %lld of %s = %lld, which %s cannot shard in two pieces (zigzag order)",
				(long long)n, t->dims[i]->name, (long long)D(t->dims[i])->padded, x->v.name);
}

/* Zigzag order gives each member two pieces of a sequence.  Position tables, dropout and batches support it for dim
 * seq, along one axis, and for nothing else. */
static int check_order(struct hd_plan *p, const struct tensor *t)
{
	const char *zigzag = NULL;

	for (int a = 0; a < p->naxes; a++) {
		const struct hd_place *w = &t->at.on[a];

		if (w->kind != HD_PLACE_SHARD || w->order == HD_ORDER_CONTIGUOUS)
			continue;
		if (w->order == HD_ORDER_PADDED)
			continue;
		if (w->order > HD_ORDER_LAST || strcmp(w->dim->name, "seq"))
			return hd_plan_fail(p, HD_EINVAL,
					    "(%s): %s along %s in order %d; 0 is contiguous, 1 zigzag, for seq alone",
					    t->spec, w->dim->name, p->axes[a]->v.name, w->order);
		if (zigzag)
			return hd_plan_fail(p, HD_ENOTSUP,
					    "(%s): %s and %s both shard seq in zigzag order; one axis can", t->spec,
					    zigzag, p->axes[a]->v.name);
		zigzag = p->axes[a]->v.name;
	}
	return HD_OK;
}

void hd_localize(struct hd_plan *p, struct tensor *t)
{
	if (check_order(p, t) < 0)
		return;
	for (uint32_t i = 0; i < t->v.ndim; i++) {
		int axes[HD_MAX_AXES], cuts = hd_shard_order(p, &t->at, t->dims[i], axes);
		int64_t n = D(t->dims[i])->padded;

		for (int k = 0; k < cuts; k++) {
			if (n % hd_role_count(p->axes[axes[k]], t->at.on[axes[k]].role) &&
			    t->at.on[axes[k]].order != HD_ORDER_PADDED) {
				refuse_cuts(p, t, i);
				return;
			}
			n = hd_piece(n, hd_role_count(p->axes[axes[k]], t->at.on[axes[k]].role));
		}
		if (zigzag_of(p, t, i) && n % 2) {
			refuse_pieces(p, t, i, n);
			return;
		}
		t->local[i] = n;
	}
	t->placed = 1;
}

void hd_placed_like(struct tensor *y, const struct tensor *x)
{
	y->at = x->at;
	y->placed = x->placed;
	if (y->v.node)
		N(y->v.node)->placed = x->placed;
}

/* Divides the dim along one axis after the other, outermost first.  Returns how many elements the rank has, and sets
 * *off to the global index of the first. */
static int64_t range_of(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank, int64_t *off)
{
	int axes[HD_MAX_AXES], n = hd_shard_order(p, &t->at, t->dims[dim], axes);
	int64_t length = D(t->dims[dim])->padded, have = length;

	*off = 0;
	for (int i = 0; i < n; i++) {
		const struct axis *a = p->axes[axes[i]];
		uint32_t role = t->at.on[axes[i]].role;
		int64_t me = hd_plan_coord(p, rank, a) - hd_role_first(a, role);

		length = hd_piece(length, hd_role_count(a, role));
		have = hd_piece_filled(have, length, me);
		*off += me * length;
	}
	return hd_piece_filled(t->dims[dim]->n - *off, have, 0);
}

int64_t hd_offset(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank)
{
	int64_t off;

	range_of(p, t, dim, rank, &off);
	return off;
}

int64_t hd_elements_here(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank)
{
	int64_t off;

	return range_of(p, t, dim, rank, &off);
}

int64_t hd_joined(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t parts)
{
	int axes[HD_MAX_AXES], n = hd_shard_order(p, &t->at, t->dims[dim], axes);
	int64_t length = D(t->dims[dim])->padded;

	if (!n || t->at.on[axes[n - 1]].order != HD_ORDER_PADDED ||
	    hd_role_count(p->axes[axes[n - 1]], t->at.on[axes[n - 1]].role) != parts)
		return t->local[dim] * parts;
	for (int i = 0; i < n - 1; i++)
		length = hd_piece(length, hd_role_count(p->axes[axes[i]], t->at.on[axes[i]].role));
	return length;
}

/* Returns elements [from, from + n) of the share s. */
static struct hd_pieces part_of(const struct hd_pieces *s, int64_t from, int64_t n)
{
	struct hd_pieces x = { hd_pieces_index(s, from), n, 0 };

	if (from < s->fold && from + n > s->fold)
		x.fold = s->fold - from, x.skip = s->skip;
	return x;
}

struct hd_pieces hd_pieces_of(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank)
{
	int axes[HD_MAX_AXES], n = hd_shard_order(p, &t->at, t->dims[dim], axes);
	int64_t have = D(t->dims[dim])->padded;
	struct hd_pieces s = { hd_offset(p, t, dim, rank), t->local[dim], 0 };

	if (!zigzag_of(p, t, dim))
		return s;
	s = (struct hd_pieces){ 0, have, 0 };
	for (int i = 0; i < n; i++) {
		int64_t me = hd_plan_coord(p, rank, p->axes[axes[i]]), of = p->axes[axes[i]]->v.n, half = have / of / 2;

		have /= of;
		/* s is one piece, because no other axis has this order */
		if (t->at.on[axes[i]].order == HD_ORDER_ZIGZAG)
			s = (struct hd_pieces){ hd_pieces_index(&s, me * half), half, (2 * (of - 1 - me)) * half };
		else
			s = part_of(&s, me * have, have);
	}
	return s;
}

void hd_pieces_tokens(const struct hd_plan *p, const struct tensor *t, int64_t rank, const int32_t *ids, int32_t *out)
{
	struct hd_pieces s = hd_pieces_of(p, t, 1, rank);
	int64_t second = t->local[1] - s.fold;

	memcpy(out, ids + s.off, (size_t)s.fold * sizeof(*out));
	memcpy(out + s.fold, ids + hd_pieces_index(&s, s.fold), (size_t)second * sizeof(*out));
}

/* Puts the tensor where slot storage stores it, as far as sections have been called. */
static void put_in_storage(const struct hd_plan *p, const struct tensor *t, struct placement *at)
{
	for (int a = 0; a < p->naxes; a++)
		if (t->stored >> a & 1)
			at->on[a] = t->storage.on[a];
}

/* Returns the tensor that a gradient is placed like, on the axes along which it has no storage of its own. */
static const struct tensor *placed_beside(const struct tensor *t)
{
	if (t->v.node && N(t->v.node)->is->role == OP_ROLE_SYNC)
		return T(t->v.node->ins[1]);
	return t->v.node && t->v.of ? T(t->v.of) : t;
}

/* Returns how many elements of the dim this axis divides: what the axes outside it leave. */
static int64_t shared_out(const struct hd_plan *p, const struct tensor *t, const struct hd_place *to,
			  const struct axis *along)
{
	const struct tensor *beside = placed_beside(t);
	struct placement at = beside->at;
	int axes[HD_MAX_AXES], n, i = 0;
	int64_t length = D(to->dim)->padded;

	if (t->v.node && N(t->v.node)->is->role == OP_ROLE_SYNC)
		put_in_storage(p, beside, &at);
	put_in_storage(p, t, &at);
	at.on[along->id] = *to;
	n = hd_shard_order(p, &at, to->dim, axes);
	for (; i < n && axes[i] != along->id; i++)
		length = hd_piece(length, hd_role_count(p->axes[axes[i]], at.on[axes[i]].role));
	return length;
}

struct hd_place hd_storage_place(const struct hd_plan *p, const struct tensor *t, const struct hd_place *to,
				 const struct axis *along)
{
	struct hd_place x = *to;

	if (x.kind == HD_PLACE_SHARD && x.order != HD_ORDER_ZIGZAG)
		x.order = shared_out(p, t, to, along) % hd_role_count(along, to->role) ? HD_ORDER_PADDED
										       : HD_ORDER_CONTIGUOUS;
	return x;
}

const char *hd_placement_text(struct hd_plan *p, const struct placement *at)
{
	char *text = NULL;
	const char *kept;

	for (int a = 0; a < p->naxes; a++) {
		const struct hd_place *w = &at->on[a];
		const char *name = p->axes[a]->v.name, *more = text ? ", " : "";

		if (w->kind == HD_PLACE_SHARD)
			hd_append(&text, "%s%s sharded by %s%s", more, w->dim->name, name,
				  w->order == HD_ORDER_ZIGZAG   ? " in zigzag"
				  : w->order == HD_ORDER_PADDED ? ", padded"
								: "");
		else if (w->kind == HD_PLACE_PARTIAL)
			hd_append(&text, "%spartial %s on %s", more, w->red == HD_RED_MAX ? "max" : "sum", name);
		else if (w->kind == HD_PLACE_PINNED)
			hd_append(&text, "%spinned to %s %s%d", more, name, w->role ? "server " : "", w->index);
		if (w->role == HD_ROLE_SPARE && w->kind != HD_PLACE_PINNED)
			hd_append(&text, "%s the servers of %s", w->kind ? " over" : more, name);
	}
	kept = hd_plan_text(p, "%s", text ? text : "replicated");
	free(text);
	return kept;
}

/* Returns the node of the same unit that computes input i, or NULL. */
static const struct node *maker_in_unit(const struct node *n, uint32_t i)
{
	const struct node *m = n->ins[i]->v.node ? N(n->ins[i]->v.node) : NULL;

	return m && m->v.phase == n->v.phase ? m : NULL;
}

static int reads_block(const struct node *n)
{
	for (uint32_t i = 0; i < n->v.nin; i++) {
		const struct node *m = maker_in_unit(n, i);

		if (m && (m->block >= 0 || reads_block(m)))
			return 1;
	}
	return 0;
}

/* A node without a block, such as a gather of the logits, runs with the last chunk that computes one of its inputs. If
 * the plan does not train, it runs after all chunks, in one more. There, other stages read its result too, and their
 * chunks of the same number may be earlier parts of the model. */
int64_t hd_node_chunk(const struct hd_plan *p, const struct node *n)
{
	int64_t chunk = 0;

	if (n->block >= 0)
		return p->blocks[n->block].chunk;
	if (!p->train && p->chunks > 1 && reads_block(n))
		return p->chunks;
	for (uint32_t i = 0; i < n->v.nin && p->chunks > 1; i++) {
		const struct node *m = maker_in_unit(n, i);
		int64_t made = m ? hd_node_chunk(p, m) : 0;

		chunk = made > chunk ? made : chunk;
	}
	return chunk;
}

int *hd_plan_part_of(const struct hd_plan *p)
{
	int *part_of = hd_alloc((size_t)(p->ncoords * p->chunks) * sizeof(*part_of)), next = 0;

	for (int64_t i = 0; i < p->ncoords * p->chunks; i++)
		part_of[i] = -1;
	for (size_t b = 0; b < p->nblocks; b++) {
		int64_t at = p->blocks[b].coord * p->chunks + p->blocks[b].chunk;

		if (part_of[at] < 0)
			part_of[at] = next++;
	}
	return part_of;
}

int64_t hd_node_stage(const struct hd_plan *p, const struct node *n)
{
	const struct tensor *t;

	if (!p->stages)
		return 0;
	if (n->block >= 0 && n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W))
		return p->blocks[n->block].coord;
	for (uint32_t i = 0; i < n->v.nin + n->v.nout; i++) {
		t = i < n->v.nin ? n->ins[i] : n->outs[i - n->v.nin];
		if (t->at.on[p->stages->id].kind == HD_PLACE_PINNED)
			return t->at.on[p->stages->id].index;
	}
	return -1;
}

/* -- places that plugins pass ----------------------------------------------------------------------------------------------- */
static const char *unknown_field(const struct hd_place *w, int64_t *is, int64_t *most)
{
	const struct {
		const char *name;
		int64_t is, most;
	} fields[] = { { "kind", w->kind, HD_PLACE_PINNED },
		       { "red", w->red, HD_RED_MAX },
		       { "role", w->role, HD_ROLE_ALL },
		       { "order", w->order, HD_ORDER_LAST },
		       { "reserved", w->reserved[0] | w->reserved[1], 0 } };

	for (size_t i = 0; i < HD_LEN(fields); i++)
		if (fields[i].is > fields[i].most) {
			*is = fields[i].is;
			*most = fields[i].most;
			return fields[i].name;
		}
	return NULL;
}

int hd_place_check(struct hd_plan *p, const char *call, const struct hd_place *w, const struct hd_axis *axis,
		   const struct hd_tensor *of)
{
	int64_t is, most;
	const char *field;

	if (!w)
		return hd_plan_fail(p, HD_EBUG, "%s: the place is NULL", call);
	field = unknown_field(w, &is, &most);
	if (field)
		return hd_plan_fail(p, HD_EINVAL, "%s: place.%s is %lld, this engine knows 0 to %lld", call, field,
				    (long long)is, (long long)most);
	if (w->role != HD_ROLE_CORE && !axis->spare)
		return hd_plan_fail(p, HD_EINVAL, "%s: place.role is %s, but axis %s has no spare coordinates", call,
				    w->role == HD_ROLE_ALL ? "HD_ROLE_ALL" : "HD_ROLE_SPARE", axis->name);
	if (w->kind == HD_PLACE_PINNED && (w->index < 0 || w->index >= hd_role_count(A(axis), w->role)))
		return hd_plan_fail(p, HD_EINVAL, "%s: place.index is %d, but axis %s has %lld coordinates", call,
				    w->index, axis->name, (long long)hd_role_count(A(axis), w->role));
	if (w->kind == HD_PLACE_PINNED && w->role != HD_ROLE_SPARE && A(axis) != p->stages)
		return hd_plan_fail(p, HD_ENOTSUP,
				    "%s: pinned to coordinate %d of %s, which has no stages; otherwise only servers "
				    "(HD_ROLE_SPARE) hold what other members do not",
				    call, w->index, axis->name);
	if (w->kind != HD_PLACE_SHARD)
		return HD_OK;
	if (hd_handle_kind(p, w->dim) != HANDLE_DIM)
		return hd_plan_fail(p, HD_EBUG, "%s: place.dim is %s", call,
				    w->dim ? "not a dim of this plan" : "NULL");
	if (of && !hd_has_dim(T(of), w->dim))
		return hd_plan_fail(p, HD_EINVAL, "%s: sharded along %s, which (%s) does not have", call, w->dim->name,
				    of->spec);
	return HD_OK;
}
