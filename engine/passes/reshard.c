/* SPDX-License-Identifier: Apache-2.0
 * Moves a tensor from one placement to another, one axis at a time.  Nearly all communication of distributed training
 * is in this table (role_step adds that of servers):
 *
 *   partial -> replicated   all-reduce        sharded -> replicated    all-gather      stage i -> stage j      send, receive
 *   partial -> sharded      reduce-scatter    shard of a -> shard of b all-to-all      replicated -> sharded   slice, free
 *
 * Example: a (batch 8, embed 16) on a mesh of two axes of 2 members each (t1211 runs it).
 *
 *   before:
 *     a: partial sum on shards, batch sharded by replicas; 64 elements
 *     needed: embed sharded by shards
 *   after:
 *     reshard on shards a -> b: embed sharded by shards, batch sharded by replicas; 32 elements
 *     reshard on replicas b -> c: embed sharded by shards; 64 elements
 *
 * Both axes differ, so there are two nodes.  The reduce-scatter on shards comes first, because then the all-gather on
 * replicas moves 32 elements instead of 64.
 *
 * In general, steps that make a tensor smaller come first, and steps that make it larger last.  Several axes may shard
 * one dim; they form an ordered list, in which an axis is added or removed only at the end.  A tensor is moved to a
 * placement once, for all its readers.  If the copy is larger than its source, backward gathers it again, so that
 * memory need not keep it.
 */
#include <config.h>
#include "engine/passes/passes.h"
#include <string.h>

/* A copy of a tensor in a placement that a reader asked for (struct tensor, made).  Lists are short: a tensor has few
 * placements. */
struct made {
	struct made *next;
	const struct tensor *from;
	struct tensor *to;
	uint32_t phase;
	int block;
};

static const struct hd_place whole = { .kind = HD_PLACE_REPLICATED };

static int is_cut(const struct hd_place *w, const struct hd_dim *d)
{
	return w->kind == HD_PLACE_SHARD && (!d || w->dim == d);
}

/* Returns whether axis a may be added now: the needed list of its dim begins with the current list, then a. */
static int can_enter(const struct hd_plan *p, const struct placement *now, const struct placement *need, int a)
{
	int have[HD_MAX_AXES], want[HD_MAX_AXES];
	int n = hd_shard_order(p, now, need->on[a].dim, have);
	int m = hd_shard_order(p, need, need->on[a].dim, want);

	if (n >= m || want[n] != a)
		return 0;
	return !memcmp(have, want, (size_t)n * sizeof(have[0]));
}

static int innermost(const struct hd_plan *p, const struct placement *now, int a)
{
	int have[HD_MAX_AXES];
	int n = hd_shard_order(p, now, now->on[a].dim, have);

	return have[n - 1] == a;
}

/* As step_allowed, for steps between coordinates that hold the model (workers), spare ones (servers), or all.  A value
 * that is on all coordinates is already there.  A push to servers comes as early as a reduce-scatter.  A pull, and a
 * broadcast from workers to all, come last. */
static int role_step(const struct hd_plan *p, const struct placement *now, const struct placement *need, int a,
		     int kind, struct hd_place *to)
{
	const struct hd_place *h = &now->on[a], *w = &need->on[a];
	int rests = h->kind == HD_PLACE_REPLICATED;

	if (h->role == HD_ROLE_ALL) {
		*to = (struct hd_place){ .role = rests ? w->role : HD_ROLE_ALL };
		return rests ? kind == 0 : kind == 3 && h->kind == HD_PLACE_PARTIAL;
	}
	if (h->role == HD_ROLE_CORE && w->role == HD_ROLE_SPARE && !is_cut(h, NULL)) {
		*to = *w;
		return kind == 1 && (!is_cut(w, NULL) || can_enter(p, now, need, a));
	}
	*to = whole;
	if (h->role == HD_ROLE_SPARE && w->role == HD_ROLE_CORE)
		return kind == (is_cut(h, NULL) ? 5 : 4) && (!is_cut(h, NULL) || innermost(p, now, a));
	if (rests && w->role == HD_ROLE_ALL)
		to->role = HD_ROLE_ALL;
	return kind == (rests ? 4 : is_cut(h, NULL) ? 5 : 3) && (!is_cut(h, NULL) || innermost(p, now, a));
}

/* Returns whether a step of this kind along axis a leads from `now` to `need`; sets *to to the place on the axis after
 * it.  Kinds are in order of preference: 0 slice, 1 reduce-scatter, 2 all-to-all, 3 all-reduce, 4 send or broadcast, 5
 * all-gather. */
static int step_allowed(const struct hd_plan *p, const struct placement *now, const struct placement *need, int a,
			int kind, struct hd_place *to)
{
	const struct hd_place *h = &now->on[a], *w = &need->on[a];

	*to = *w;
	if (hd_place_equal(h, w))
		return 0;
	if (h->role != w->role || h->role == HD_ROLE_ALL)
		return role_step(p, now, need, a, kind, to);
	switch (kind) {
	case 0: return h->kind == HD_PLACE_REPLICATED && is_cut(w, NULL) && can_enter(p, now, need, a);
	case 1:
		return h->kind == HD_PLACE_PARTIAL && h->red == HD_RED_SUM && is_cut(w, NULL) &&
		       can_enter(p, now, need, a);
	case 2: return is_cut(h, NULL) && is_cut(w, NULL) && innermost(p, now, a) && can_enter(p, now, need, a);
	case 3: *to = whole; return h->kind == HD_PLACE_PARTIAL;
	case 4:
		if (h->kind == HD_PLACE_PINNED && w->kind != HD_PLACE_PINNED)
			*to = whole; /* a broadcast; then each member slices its piece */
		return h->kind == HD_PLACE_PINNED || (h->kind == HD_PLACE_REPLICATED && w->kind == HD_PLACE_PINNED);
	case 5: *to = whole; return is_cut(h, NULL) && innermost(p, now, a);
	default: return 0;
	}
}

/* Finds a dim whose axes are in the wrong order, and returns its innermost axis, which leaves first even if it comes
 * back; -1: there is none.  Example: batch is sharded by a, then b, and needed by b, then a.  Gather along b, gather
 * along a, slice along b, slice along a. */
static int unwind(const struct hd_plan *p, const struct placement *now, const struct placement *need)
{
	for (int a = 0; a < p->naxes; a++) {
		int have[HD_MAX_AXES], want[HD_MAX_AXES], n, m;

		if (now->on[a].kind != HD_PLACE_SHARD)
			continue;
		n = hd_shard_order(p, now, now->on[a].dim, have);
		m = hd_shard_order(p, need, now->on[a].dim, want);
		if (n > m || memcmp(have, want, (size_t)n * sizeof(have[0])))
			return have[n - 1];
	}
	return -1;
}

static int next_step(const struct hd_plan *p, const struct placement *now, const struct placement *need,
		     struct hd_place *to)
{
	int a;

	for (int kind = 0; kind < 6; kind++)
		for (a = 0; a < p->naxes; a++)
			if (step_allowed(p, now, need, a, kind, to))
				return a;
	a = unwind(p, now, need);
	*to = whole;
	return a;
}

/* Returns the same placement with other levels, which give the same order of axes.  Where the lists of a dim in `at`
 * and `need` begin alike, axes get the levels of `need`.  The axes after that, which must leave, get the highest
 * levels.  Example: batch is sharded by a with level 1, and needed by a with level -1, then b with level 0.  If a kept
 * level 1, b would count as outer when it enters, although it divides the pieces of a. */
static struct placement relabelled(const struct hd_plan *p, const struct placement *at, const struct placement *need)
{
	struct placement now = *at;

	for (int a = 0; a < p->naxes; a++) {
		int have[HD_MAX_AXES], want[HD_MAX_AXES], n, m, same = 1;
		int32_t level = 0; /* of the axis before: levels never decrease */

		if (at->on[a].kind != HD_PLACE_SHARD)
			continue;
		n = hd_shard_order(p, at, at->on[a].dim, have);
		m = hd_shard_order(p, need, at->on[a].dim, want);
		for (int i = 0; i < n; i++) {
			same &= i < m && have[i] == want[i];
			level = same ? need->on[have[i]].level : level > INT32_MAX - n + i ? level : INT32_MAX - n + i;
			now.on[have[i]].level = level;
		}
	}
	return now;
}

/* Refuses a movement along an axis that is not the innermost of its dim.  Only that one can leave, and an axis enters
 * as that. */
static int is_innermost(struct hd_plan *p, const struct tensor *x, const struct axis *a)
{
	if (x->at.on[a->id].kind != HD_PLACE_SHARD || innermost(p, &x->at, a->id))
		return 1;
	hd_plan_fail(p, HD_EINVAL, "%s is not the innermost axis that shards %s of (%s), so it cannot move alone",
		     a->v.name, x->at.on[a->id].dim->name, x->spec);
	return 0;
}

/* Returns the row counts of ragged tensor x for placement `at`: sharded as x is along experts and samples, replicated
 * elsewhere. */
static struct tensor *rows_at(struct hd_plan *p, struct tensor *x, const struct placement *at, struct node *reader)
{
	struct placement need = *at;

	for (int a = 0; a < p->naxes; a++)
		if (need.on[a].kind != HD_PLACE_PINNED &&
		    !(is_cut(&need.on[a], NULL) && hd_has_dim(x->ragged_counts, need.on[a].dim)))
			need.on[a] = whole;
	return hd_reshard_to(p, x->ragged_counts, &need, reader);
}

/* Inserts one reshard node.  now: the placement of x, perhaps with other levels. */
static struct tensor *step_from(struct hd_plan *p, struct tensor *x, const struct placement *now, struct axis *a,
				const struct hd_place *to, struct node *reader)
{
	struct tensor *ins[3] = { x }, *y;
	struct placement then = x->at;
	struct node *n;

	if (p->err->code || !is_innermost(p, x, a))
		return NULL;
	then.on[a->id] = *to;
	if (x->ragged_counts) {
		ins[1] = rows_at(p, x, &x->at, reader);
		ins[2] = rows_at(p, x, &then, reader);
	}
	n = hd_node_make(p, "reshard", ins, x->ragged_counts ? 3 : 1, "axis=%s", a->v.name);
	if (!n)
		return NULL;
	n->reshard = (struct hd_reshard){ sizeof(n->reshard), &a->v, x->at.on[a->id], *to };
	n->v.reshard = &n->reshard;
	n->placed = 1;
	y = n->outs[0];
	y->at = *now;
	y->at.on[a->id] = *to;
	hd_tensor_inherit(y, x);
	hd_localize(p, y);
	return p->err->code || !is_innermost(p, y, a) ? NULL : y;
}

/* Returns whether x is on a different stage than the unit at the cursor.  Its steps along other axes then run on the
 * stage of x, in the unit that computed it. */
static int is_elsewhere(const struct hd_plan *p, const struct tensor *x, const struct axis *a)
{
	const struct hd_place *at = p->stages ? &x->at.on[p->stages->id] : NULL;

	return at && at->kind == HD_PLACE_PINNED && a != p->stages && x->v.node && p->cursor.block >= 0 &&
	       p->cursor.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) && at->index != p->blocks[p->cursor.block].coord;
}

struct tensor *hd_reshard_step(struct hd_plan *p, struct tensor *x, struct axis *a, const struct hd_place *to)
{
	struct node *maker = x && is_elsewhere(p, x, a) ? N(x->v.node) : NULL;
	struct cursor was = p->cursor;
	struct tensor *y;

	if (maker)
		p->cursor = hd_cursor_why(hd_cursor_after(maker), was.reason);
	y = x ? step_from(p, x, &x->at, a, to, p->cursor.before) : NULL;
	p->cursor = was;
	return y;
}

/* -- once per tensor, target and unit ---------------------------------------------------------------------------------------- */
static int backward(uint32_t phase)
{
	return (phase & (HD_UNIT_B | HD_UNIT_W)) != 0;
}

/* Returns whether a reader at c may use the copy m.  A copy that is larger than its source is used only within one
 * block's forward or backward, so that memory need not keep it in between. */
static int reusable(const struct made *m, const struct cursor *c)
{
	/* a ragged tensor has as many rows after a movement as before, although its upper bound may be larger */
	int larger = !m->from->ragged_counts && hd_local_bytes(m->to) > hd_local_bytes(m->from) && !m->to->step;
	int64_t period = m->to->v.node ? N(m->to->v.node)->period : 0;

	if (period && (!c->period || c->period % period)) /* it is not made in each step that the reader runs in */
		return 0;
	if (larger)
		return m->block == c->block && (m->phase == c->phase || (backward(m->phase) && backward(c->phase)));
	return m->phase == c->phase || m->phase & (HD_UNIT_F | HD_UNIT_G | HD_UNIT_S) ||
	       (backward(m->phase) && backward(c->phase));
}

/* A copy that was made for a weight gradient now serves an activation's gradient too.  So its movement goes to that
 * unit (B), which runs first if the schedule separates the two. */
static void belongs_to_backward(struct made *m)
{
	for (struct tensor *t = m->to; t != m->from; t = N(t->v.node)->ins[0])
		N(t->v.node)->v.phase = HD_UNIT_B;
	m->phase = HD_UNIT_B;
}

static struct tensor *data_twin(struct hd_plan *p, struct tensor *x, const struct placement *need)
{
	struct tensor *origin = x->source ? x->source : x, *t;

	for (size_t i = 0; i < p->ntensors; i++) {
		t = p->tensors[i];
		if ((t == origin || t->source == origin) && t->placed && hd_placement_equal(p, &t->at, need))
			return t;
	}
	t = hd_tensor_new(p, origin->v.name, HD_TENSOR_DATA, origin->v.dtype, origin->dims, origin->v.ndim);
	t->source = origin;
	t->at = *need;
	hd_localize(p, t);
	return t;
}

static int changes_stage(const struct hd_plan *p, const struct tensor *x, const struct placement *need)
{
	return p->stages && x->at.on[p->stages->id].kind == HD_PLACE_PINNED &&
	       !hd_place_equal(&x->at.on[p->stages->id], &need->on[p->stages->id]);
}

/* Returns the unit of a movement: its reader's, except for what moves once a step (gradients in S, parameters of
 * another stage in G). What only a weight's gradient reads moves between stages in B: messages follow the order of B.
 * Weight gradients (W) of two stages may have different orders. */
static uint32_t phase_of(const struct hd_plan *p, const struct tensor *x, const struct placement *need, uint32_t phase)
{
	if (x->v.what == HD_TENSOR_GRAD)
		return HD_UNIT_S;
	if (x->v.what == HD_TENSOR_PARAM && !x->v.node && changes_stage(p, x, need))
		return HD_UNIT_G;
	return phase == HD_UNIT_W && changes_stage(p, x, need) ? HD_UNIT_B : phase;
}

static char *why(struct hd_plan *p, const struct tensor *x, const struct node *reader)
{
	const char *maker = x->v.node ? x->v.node->op->name : "leaf";
	const char *block = x->v.node && x->v.node->block[0] ? x->v.node->block : x->v.of ? x->v.of->name : "";
	const struct hd_dim *d = NULL;

	for (int a = 0; a < p->naxes && !d; a++)
		d = x->at.on[a].kind == HD_PLACE_PARTIAL ? x->reduced_dim[a] : NULL;
	return hd_plan_text(p, "%s%s%s (%s) is %s%s%s, needed by %s%s%s", maker, block[0] ? " of " : "", block, x->spec,
			    hd_placement_text(p, &x->at), d ? ": contraction over " : "", d ? d->name : "",
			    reader ? reader->v.op->name : "the run", reader && reader->v.block[0] ? " of " : "",
			    reader ? reader->v.block : "");
}

/* Returns whether a reader already needed the sum of a partial tensor on this axis.  For a recomputed tensor, its
 * original counts too. */
int hd_made_replicated(const struct tensor *x, const struct axis *a)
{
	const struct node *again = x->v.node ? N(x->v.node)->recompute_of : NULL;

	for (const struct made *m = x->made; m; m = m->next)
		if (m->to->at.on[a->id].kind != HD_PLACE_PARTIAL)
			return 1;
	return again && hd_made_replicated(again->outs[x->out], a);
}

/* Returns whether y has not left its old stage yet.  Its steps along other axes then run there, in the unit that
 * computed it. */
static int on_old_stage(const struct hd_plan *p, const struct tensor *y, const struct placement *need)
{
	int s = p->stages ? p->stages->id : -1;

	return s >= 0 && y->v.node && need->on[s].kind == HD_PLACE_PINNED &&
	       !hd_place_equal(&y->at.on[s], &need->on[s]);
}

static struct tensor *made_before(struct hd_plan *p, const struct tensor *x, const struct placement *at,
				  const struct cursor *c)
{
	for (struct made *m = x->made; m; m = m->next)
		if (hd_placement_equal(p, &m->to->at, at) && reusable(m, c)) {
			if (m->phase == HD_UNIT_W && c->phase == HD_UNIT_B)
				belongs_to_backward(m);
			return m->to;
		}
	return NULL;
}

/* Returns whether slices alone, which move nothing, lead from one placement to the other. */
static int is_free(const struct hd_plan *p, const struct placement *from, const struct placement *need)
{
	struct placement now = relabelled(p, from, need);
	struct hd_place to;
	int a;

	while ((a = next_step(p, &now, need, &to)) >= 0) {
		if (now.on[a].kind != HD_PLACE_REPLICATED || to.kind != HD_PLACE_SHARD)
			return 0;
		now.on[a] = to;
	}
	return hd_placement_equal(p, &now, need);
}

/* Returns a copy that another reader in this unit has of x, and from which `need` only takes slices.  NULL: no such
 * copy exists, or slices of x itself are enough. */
static struct tensor *made_larger(const struct hd_plan *p, const struct tensor *x, const struct placement *need,
				  const struct cursor *c)
{
	if (is_free(p, &x->at, need))
		return NULL;
	for (struct made *m = x->made; m; m = m->next)
		if (m->phase == c->phase && m->block == c->block && c->phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) &&
		    is_free(p, &m->to->at, need))
			return m->to;
	return NULL;
}

/* A value computed in each micro-batch but read once a step (a gradient that is accumulated elsewhere) moves in the
 * unit that computes it.  Returns the node that computes x, or NULL if x is no such value. */
static struct node *made_in_unit(const struct tensor *x, const struct node *reader)
{
	const uint32_t units = HD_UNIT_F | HD_UNIT_B | HD_UNIT_W;
	struct node *maker = x->v.node ? N(x->v.node) : NULL;

	return maker && reader && !x->step && maker->v.phase & units && !(reader->v.phase & units) ? maker : NULL;
}

static void remember(struct hd_plan *p, struct tensor *x, struct tensor *y, const struct cursor *c)
{
	struct made *m = hd_plan_alloc(p, sizeof(*m));

	*m = (struct made){ x->made, x, y, c->phase, c->block };
	x->made = m;
}

/* Returns the cursor for moving x to its reader; NULL: to the run, which reads x itself. */
static struct cursor where_for(struct hd_plan *p, const struct tensor *x, const struct placement *need,
			       struct node *reader)
{
	struct node *early = made_in_unit(x, reader);
	struct cursor c = early    ? hd_cursor_after(early)
			  : reader ? hd_cursor_before(reader)
				   : hd_cursor_end(p->cursor.phase, p->cursor.block);

	if (early)
		return c;
	if (!reader && x->v.node) /* what a leaf takes every few steps moves in those */
		c.period = N(x->v.node)->period;
	c.phase = phase_of(p, x, need, c.phase);
	if (!(c.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W)))
		c.block = -1;
	return c;
}

/* Takes one step along axis a, from y, on the way from x to `need`.  A tensor crosses stages once, even if its readers
 * there need different placements. */
static struct tensor *one_step(struct hd_plan *p, struct tensor *x, struct tensor *y, const struct placement *now,
			       const struct placement *need, int a, const struct hd_place *to, struct node *reader)
{
	struct cursor was = p->cursor, here = was;
	int crosses = p->axes[a] == p->stages;
	const struct node *maker = on_old_stage(p, y, need) && !crosses ? N(y->v.node) : NULL;
	struct placement after = *now;
	struct tensor *done;

	after.on[a] = *to;
	done = crosses ? made_before(p, x, &after, &was) : NULL;
	if (done)
		return done;
	if (maker)
		here = hd_cursor_why(hd_cursor_after(maker), was.reason);
	else if (was.phase == HD_UNIT_G && !(reader && reader->v.phase == HD_UNIT_G))
		here.before = y == x ? p->first : N(y->v.node)->next;
	p->cursor = here;
	done = step_from(p, y, now, p->axes[a], to, maker ? NULL : reader);
	p->cursor = was;
	if (crosses && done)
		remember(p, x, done, &was);
	return done;
}

/* Returns x in placement `need` for a reader (NULL: the run).  That is x itself, an existing copy, or the result of new
 * reshard nodes. */
struct tensor *hd_reshard_to(struct hd_plan *p, struct tensor *x, const struct placement *need, struct node *reader)
{
	struct cursor was = p->cursor, where = where_for(p, x, need, reader);
	struct placement now = relabelled(p, &x->at, need);
	struct tensor *y = x, *done;
	struct hd_place to;
	int a;

	if (hd_placement_equal(p, &x->at, need))
		return x;
	if (x->v.what == HD_TENSOR_DATA)
		return data_twin(p, x, need);
	if ((done = made_before(p, x, need, &where)))
		return done;
	if ((done = made_larger(p, x, need, &where))) {
		y = done;
		now = relabelled(p, &y->at, need);
	}
	p->cursor = hd_cursor_why(where, why(p, x, reader));
	while (y && (a = next_step(p, &now, need, &to)) >= 0) {
		y = one_step(p, x, y, &now, need, a, &to, reader);
		now.on[a] = to;
	}
	p->cursor = was;
	if (y && !hd_placement_equal(p, &now, need))
		hd_plan_fail(p, HD_EBUG, "%s (%s): cannot be resharded from %s to %s", x->v.name, x->spec,
			     hd_placement_text(p, &x->at), hd_placement_text(p, need));
	if (!y || p->err->code)
		return NULL;
	remember(p, x, y, &where);
	return y;
}
