/* SPDX-License-Identifier: Apache-2.0
 * Orders the work of one rank: it expands the units of its schedule into nodes, one entry per node and micro-batch.
 *
 * Example: the second of two stages alternates one forward and one backward, for 3 micro-batches. Shown are the
 * operand's arrival, its first reader, and the gradient that is sent back (t1211 runs it).
 *
 *   before:
 *     F receive on stages a -> b
 *     F norm b, h.1.ln_1.weight, h.1.ln_1.bias -> c
 *     B send on stages d -> e
 *   after:
 *     F0 receive on stages a -> b, waited for in F0
 *     F0 norm b, h.1.ln_1.weight, h.1.ln_1.bias -> c
 *     B0 receive on stages a -> b of micro-batch 1, waited for in F1
 *     B0 send on stages d -> e, waited for in B1
 *     F1 norm b, h.1.ln_1.weight, h.1.ln_1.bias -> c
 *     B1 receive on stages a -> b of micro-batch 2, waited for in F2
 *     B1 send on stages d -> e, waited for in B2
 *     F2 norm b, h.1.ln_1.weight, h.1.ln_1.bias -> c
 *     B2 send on stages d -> e, waited for in update
 *
 * The receive for F1 starts one unit early, in B0, so that the message arrives while B0 computes. The send of B0 is
 * waited for in B1. In the simulated schedule, B1 is the first unit here that begins after stage 0 begins the
 * receiving B0.
 *
 * In general:
 *
 *   - Gathers (G) come before the units. The update (U) comes last. What other ranks send is taken directly before its
 *     first reader, so forward begins with the parameters that have arrived.
 *   - Sync (S) starts as soon as the last writer of its inputs is done, so early buckets move during backward.
 *     Sync that spans stages runs at the end, where all stages reach it in the same order.
 *   - Receives of a unit are posted one unit ahead.
 *   - A send is waited for before the first unit that begins, in the simulated schedule, after the receiving unit.
 *     So the schedule bounds the messages in flight, whatever the number of micro-batches. Every wait is for
 *     something that begins earlier in the simulated schedule, so waits form no cycle.
 *   - A node that reads the result of a movement would wait for it, so it runs later. If it leads to another
 *     movement (the second half of a ring), it runs after one more block of backward, otherwise at the end. There
 *     the buckets follow each other in the order in which they became ready.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/program/program.h"
#include "engine/program/overwrites.h"
#include <stdlib.h>
#include <string.h>

/* -- entries ----------------------------------------------------------------------------------------------------- */
struct timeline_node {
	int unmet;              /* inputs that are not complete yet */
	int runs;               /* instances still to come */
	char at_end;            /* runs only at the end */
	char leads_to_movement; /* leads to a movement that needs no other bucket */
	char traits;            /* bits of enum entry_traits, common to all of its entries */
	char on_demand;         /* in G: only its readers wait for it */
	double *received;       /* for a send: see received_at */
};
struct timeline_build {
	struct hd_program *g;
	struct timeline_node *at; /* by node id */
	struct node_list *after;  /* by node id: nodes that start only when it is done */
	char **loaded;            /* by tensor id, data only: which micro-batches are loaded; NULL: none */
	struct hd_schedule_unit unit;
	struct node **deferred; /* second halves of rings, in the order in which they became ready */
	int *deferred_at;       /* the border of blocks where each became ready */
	size_t ndeferred, next_deferred;
	int64_t *unit_at; /* by index of the unit: its first entry */
	/* each: micro-batches that are computed at a time; posted: units whose receives are */
	int border, each, posted;
	struct unit_nodes *units; /* by kind and chunk */
};

struct unit_nodes {
	struct node **v, **receives;
	size_t n, nreceives, nturns;
	struct unit_part *turns; /* with train.overlap_micro_batches */
};                               /* both NULL until the first such unit */

/* Computed once per node, because a step has hundreds of entries of it. */
enum entry_traits { TRAITS_KNOWN = 1, READS_DATA = 2, HAS_COPIES = 4 };
static struct entry *append(struct timeline_build *b, int type, struct node *n, int32_t micro)
{
	struct hd_program *g = b->g;
	struct entry *e;

	g->entries = hd_grow(g->entries, g->n, &g->cap, sizeof(*g->entries));
	e = &g->entries[g->n++];
	*e = (struct entry){ .type = type, .micro = micro, .node = n, .unit = b->unit, .wait = -1 };
	return e;
}

static void emit(struct timeline_build *b, struct node *n, int32_t micro);

static void emit_sync(struct timeline_build *b, struct node *n)
{
	struct hd_schedule_unit was = b->unit;

	b->unit = (struct hd_schedule_unit){ HD_UNIT_S, 0, HD_STEP };
	emit(b, n, HD_STEP);
	b->unit = was;
}

static int reads_movement(const struct node *n)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->ins[i]->v.node && hd_node_moves(N(n->ins[i]->v.node)) && n->ins[i]->v.node->phase & HD_UNIT_S)
			return 1;
	return 0;
}

/* Notes that one of the things n waits for is complete. */
static void prerequisite_done(struct timeline_build *b, struct node *n)
{
	if (--b->at[n->id].unmet || b->at[n->id].at_end)
		return;
	if (!reads_movement(n)) {
		emit_sync(b, n);
	} else if (b->at[n->id].leads_to_movement) {
		b->deferred[b->ndeferred] = n;
		b->deferred_at[b->ndeferred++] = b->border;
	}
}

static void notify_readers(struct timeline_build *b, const struct tensor *t)
{
	for (struct node **r = b->g->readers[t->id]; r && *r; r++)
		if ((*r)->v.phase & HD_UNIT_S)
			prerequisite_done(b, *r);
}

/* Runs the waiting second halves that became ready at least `borders` borders ago. */
static void emit_deferred(struct timeline_build *b, int borders)
{
	while (b->next_deferred < b->ndeferred && b->border - b->deferred_at[b->next_deferred] >= borders)
		emit_sync(b, b->deferred[b->next_deferred++]);
}

static void load(struct timeline_build *b, const struct node *n, int32_t micro)
{
	for (uint32_t i = 0; i < n->v.nin && micro != HD_STEP; i++) {
		char **loaded = &b->loaded[n->ins[i]->id];

		if (n->ins[i]->v.what != HD_TENSOR_DATA || n->ins[i]->v.node)
			continue;
		if (!*loaded)
			*loaded = hd_alloc((size_t)b->g->plan->micros);
		if (!(*loaded)[micro])
			append(b, HD_ENTRY_LOAD, NULL, micro)->data = n->ins[i];
		(*loaded)[micro] = 1;
	}
}

static int is_accumulator(const struct node *n)
{
	return n->is->role == OP_ROLE_ACCUMULATE;
}

/* Appends an entry for each accumulator that reads a result of n. Binding drops it if n writes straight into the
 * accumulator. A reader with several inputs occurs once for each in the list, adjacently. */
static void accumulate_copies(struct timeline_build *b, const struct node *n, int32_t micro)
{
	for (uint32_t k = 0; k < n->v.nout; k++)
		for (struct node **r = b->g->readers[n->outs[k]->id], *last = NULL; r && *r; last = *r++)
			for (uint32_t i = 0; *r != last && is_accumulator(*r) && i < (*r)->v.nin; i++)
				if ((*r)->ins[i] == n->outs[k])
					append(b, HD_ENTRY_ACC, *r, micro)->input = i;
}

/* Returns the G node that must run before n reads t: it computes t, or takes its value from other ranks. NULL: none. */
static struct node *gather_needed(const struct timeline_build *b, const struct node *n, const struct tensor *t)
{
	struct node *m = t->v.node ? N(t->v.node) : t->assign && t->assign->v.node ? N(t->assign->v.node) : NULL;

	if (!m || m == n || m->v.phase != HD_UNIT_G || b->at[m->id].runs <= 0)
		return NULL;
	return t->v.node || m->is->role == OP_ROLE_PULLED ? m : NULL;
}

static void emit_gathers_before(struct timeline_build *b, const struct node *n)
{
	struct hd_schedule_unit was = b->unit;

	for (uint32_t i = 0; b->g->plan->pulls && i < n->v.nin; i++) {
		struct node *m = gather_needed(b, n, n->ins[i]);

		b->unit = (struct hd_schedule_unit){ HD_UNIT_G, 0, HD_STEP };
		if (m)
			emit(b, m, HD_STEP);
		b->unit = was;
	}
}

static char find_traits(const struct timeline_build *b, const struct node *n)
{
	char found = TRAITS_KNOWN;

	for (uint32_t i = 0; i < n->v.nin; i++)
		found |= n->ins[i]->v.what == HD_TENSOR_DATA && !n->ins[i]->v.node ? READS_DATA : 0;
	for (uint32_t k = 0; k < n->v.nout; k++)
		for (struct node **r = b->g->readers[n->outs[k]->id]; r && *r; r++)
			found |= is_accumulator(*r) ? HAS_COPIES : 0;
	return found;
}

static void emit(struct timeline_build *b, struct node *n, int32_t micro)
{
	if (b->at[n->id].runs <= 0)
		return;
	emit_gathers_before(b, n);
	if (hd_node_here(b->g, n)) {
		if (!b->at[n->id].traits)
			b->at[n->id].traits = find_traits(b, n);
		if (b->at[n->id].traits & READS_DATA)
			load(b, n, micro);
		append(b, HD_ENTRY_NODE, n, micro);
		if (micro != HD_STEP && b->at[n->id].traits & HAS_COPIES)
			accumulate_copies(b, n, micro);
	}
	if (--b->at[n->id].runs > 0)
		return;
	for (uint32_t k = 0; k < n->v.nout; k++)
		notify_readers(b, n->outs[k]);
	for (size_t i = 0; i < b->after[n->id].n; i++)
		prerequisite_done(b, b->after[n->id].v[i]);
}

static void emit_phase(struct timeline_build *b, uint32_t phase)
{
	b->unit = (struct hd_schedule_unit){ phase, 0, HD_STEP };
	for (size_t i = 0; i < b->g->nwalked; i++)
		if (b->g->walked[i]->v.phase == phase)
			emit(b, b->g->walked[i], HD_STEP);
}

/* Starts all movements of parameters at once, each directly after the nodes that it needs. */
static void emit_gathers(struct timeline_build *b)
{
	b->unit = (struct hd_schedule_unit){ HD_UNIT_G, 0, HD_STEP };
	for (struct node **n = b->g->walked, **end = n + b->g->nwalked; n < end; n++)
		if ((*n)->v.phase == HD_UNIT_G && !b->at[(*n)->id].on_demand &&
		    (hd_node_moves(*n) || !b->g->plan->pulls))
			emit(b, *n, HD_STEP);
}

static int in_unit(const struct hd_plan *p, const struct node *n, const struct hd_schedule_unit *u)
{
	uint32_t phases = u->kind == HD_UNIT_B && !p->separate_w ? HD_UNIT_B | HD_UNIT_W : u->kind;

	return n->v.phase & phases && hd_node_chunk(p, n) == u->chunk;
}

/* Returns the position of the send: a unit's receives are posted in the order of the sends. */
static int64_t send_position(const struct hd_program *g, const struct node *n)
{
	return g->position[N(n->ins[0]->v.node)->id];
}

static void insert_receive(const struct hd_program *g, struct unit_nodes *l, struct node *n)
{
	size_t i = l->nreceives++;

	for (; i && send_position(g, l->receives[i - 1]) > send_position(g, n); i--)
		l->receives[i] = l->receives[i - 1];
	l->receives[i] = n;
}

/* Returns the nodes of a unit that run here: the same for all micro-batches. If two are computed by turns, which end at
 * the same nodes on all ranks, it also returns nodes that only others run. */
static struct unit_nodes *nodes_of(struct timeline_build *b, const struct hd_schedule_unit *u)
{
	const struct hd_program *g = b->g;
	const struct stage_index *all = &g->plan->index->stages[g->coord];
	struct node *const *v = b->each > 1 ? all->nodes : g->walked;
	size_t nv = b->each > 1 ? all->nnodes : g->nwalked;
	struct unit_nodes *l = &b->units[u->chunk * 3 + (u->kind == HD_UNIT_F ? 0 : u->kind == HD_UNIT_B ? 1 : 2)];
	size_t n = 0;

	if (l->v)
		return l;
	for (size_t i = 0; i < nv; i++)
		n += (size_t)in_unit(g->plan, v[i], u);
	l->v = hd_alloc((n + 1) * sizeof(*l->v));
	l->receives = hd_alloc((n + 1) * sizeof(*l->receives));
	for (size_t i = 0; i < nv; i++) {
		if (!in_unit(g->plan, v[i], u))
			continue;
		if (v[i]->comm.kind == HD_COMM_RECV)
			insert_receive(g, l, v[i]);
		else
			l->v[l->n++] = v[i];
	}
	return l;
}

/* Posts the receives of all units before `end` that are not posted yet. */
static void emit_receives(struct timeline_build *b, int end)
{
	const struct hd_plan *p = b->g->plan;

	for (; p->stages && b->posted < end && b->posted < p->nunits[b->g->coord]; b->posted++) {
		const struct hd_schedule_unit *u = &p->units[b->g->coord][b->posted];
		const struct unit_nodes *l = nodes_of(b, u);

		for (size_t i = 0; i < l->nreceives; i++)
			emit(b, l->receives[i], u->micro);
	}
}

/* Appends the nodes from..to of a unit. */
static void emit_nodes(struct timeline_build *b, const struct unit_nodes *l, const struct hd_schedule_unit *u,
		       size_t from, size_t to)
{
	int block = from ? l->v[from - 1]->block : -1;

	b->unit = *u;
	for (size_t i = from; i < to; i++) {
		if (l->v[i]->block != block) { /* at the second border, a complete block has run */
			b->border++;
			emit_deferred(b, 2);
		}
		block = l->v[i]->block;
		emit(b, l->v[i], u->micro);
	}
}

/* Appends a unit, or the same unit of two micro-batches by turns. */
static void emit_unit(struct timeline_build *b, const struct hd_schedule_unit *u)
{
	struct unit_nodes *l = nodes_of(b, u);

	if (b->each == 1)
		emit_nodes(b, l, u, 0, l->n);
	else if (!l->turns)
		l->turns = hd_turns(b->g, l->v, l->n, &l->nturns);
	for (size_t i = 0; i < l->nturns; i++)
		emit_nodes(b, l, &u[l->turns[i].which], l->turns[i].from, l->turns[i].to);
}

/* -- values from other ranks ------------------------------------------------------------------------------------- */
static int is_from_others(const struct timeline_build *b, const struct node *n)
{
	for (uint32_t i = 0; i < n->v.nin && n->comm.kind != HD_COMM_RECV; i++) {
		const struct node *m = n->ins[i]->v.node ? N(n->ins[i]->v.node) : NULL;

		if (m && m->v.phase == HD_UNIT_G && (hd_node_moves(m) || b->at[m->id].on_demand))
			return 1;
	}
	return 0;
}

static void mark_on_demand(struct timeline_build *b)
{
	for (size_t i = 0; b->g->plan->pulls && i < b->g->nwalked; i++)
		b->at[b->g->walked[i]->id].on_demand =
			b->g->walked[i]->v.phase == HD_UNIT_G && is_from_others(b, b->g->walked[i]);
}

/* -- readiness of sync ------------------------------------------------------------------------------------------- */
/* Finds the sync that runs only at the end, among the nodes of this rank. Results of other ranks arrive through a
 * movement between stages, which itself runs at the end. */
static void mark_at_end(struct timeline_build *b)
{
	for (size_t k = 0; k < b->g->nwalked; k++) {
		struct node *n = b->g->walked[k];

		if (n->v.phase != HD_UNIT_S)
			continue;
		b->at[n->id].at_end = (char)hd_crosses_stages(b->g->plan, n);
		for (uint32_t i = 0; i < n->v.nin; i++)
			if (n->ins[i]->v.node && b->at[N(n->ins[i]->v.node)->id].at_end)
				b->at[n->id].at_end = 1;
	}
}

/* Marks the sync that leads to a movement, except through the norm, which needs all buckets. */
static void mark_leading(struct timeline_build *b)
{
	for (size_t i = b->g->nwalked; i-- > 0;) {
		struct node *n = b->g->walked[i];

		if (n->v.phase != HD_UNIT_S || b->at[n->id].at_end || n->is->role == OP_ROLE_NORM2)
			continue;
		b->at[n->id].leads_to_movement = hd_node_moves(n);
		for (uint32_t k = 0; k < n->v.nout; k++)
			for (struct node **r = b->g->readers[n->outs[k]->id]; r && *r; r++)
				b->at[n->id].leads_to_movement |= b->at[(*r)->id].leads_to_movement;
	}
}

/* Makes k start only when r is done. */
static void run_after(struct timeline_build *b, const struct node *r, struct node *k)
{
	struct node_list *l = &b->after[r->id];

	l->v = hd_grow(l->v, l->n, &l->cap, sizeof(*l->v));
	l->v[l->n++] = k;
	b->at[k->id].unmet++;
}

static void run_after_maker(struct timeline_build *b, struct node *k, const struct tensor *t)
{
	while (t->replaced_by)
		t = t->replaced_by;
	if (t->v.node && b->at[N(t->v.node)->id].runs > 0)
		run_after(b, N(t->v.node), k);
}

static void order_by_plugins(struct timeline_build *b)
{
	for (size_t i = 0; i < b->g->nwalked; i++) {
		struct node *k = b->g->walked[i];

		for (struct dependency *w = k->v.phase == HD_UNIT_S ? k->waits : NULL; w; w = w->next)
			run_after_maker(b, k, w->on);
	}
}

/* Keeps program order between sync nodes of which one overwrites what another reads. */
static void order_overwrites(struct timeline_build *b)
{
	hd_later_overwriters(b->g, b->after);
	for (size_t i = 0; i < b->g->nwalked; i++) {
		const struct node_list *l = &b->after[b->g->walked[i]->id];

		for (size_t k = 0; k < l->n; k++)
			b->at[l->v[k]->id].unmet++;
	}
}

static void count_prerequisites(struct timeline_build *b)
{
	for (size_t k = 0; k < b->g->nwalked; k++) {
		struct node *n = b->g->walked[k];

		b->at[n->id].runs = n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) ? (int)b->g->plan->micros : 1;
		for (uint32_t i = 0; i < n->v.nin; i++)
			b->at[n->id].unmet += n->ins[i]->v.node != NULL && !(n->comm.kind == HD_COMM_RECV);
	}
	mark_at_end(b);
	mark_leading(b);
	order_overwrites(b);
	order_by_plugins(b);
}

static int check_all_ran(struct timeline_build *b)
{
	for (size_t i = 0; i < b->g->nwalked; i++) {
		const struct node *n = b->g->walked[i];

		if (b->at[n->id].runs > 0)
			return hd_plan_fail(b->g->plan, HD_EBUG, "%s of %s is in no unit of stage %lld", n->v.op->name,
					    n->v.block, (long long)b->g->coord);
	}
	return HD_OK;
}

/* Returns, by micro-batch, when the unit that receives a send begins in the simulated schedule. NULL: unknown. */
static const double *received_at(struct timeline_build *b, const struct node *send)
{
	const struct hd_plan *p = b->g->plan;
	struct node **r = b->g->readers[send->outs[0]->id];
	int64_t to = send->comm.index;
	double *at = b->at[send->id].received;

	if (at || !r || !*r || !p->timing.start || to >= p->ncoords)
		return at;
	b->at[send->id].received = at = hd_alloc((size_t)p->micros * sizeof(*at));
	for (int64_t m = 0; m < p->micros; m++)
		at[m] = -1;
	for (int u = p->nunits[to] - 1; u >= 0; u--)
		if (p->units[to][u].micro >= 0 && in_unit(p, *r, &p->units[to][u]))
			at[p->units[to][u].micro] = p->timing.start[to][u];
	return at;
}

/* Returns the entry before which a send is waited for: the first unit that begins, in the simulated schedule, after
 * the receiving unit. Units are in the order of their times, so a binary search finds it. */
static int64_t send_wait(struct timeline_build *b, int64_t e)
{
	const struct hd_program *g = b->g;
	const struct entry *x = &g->entries[e];
	const double *at = x->micro == HD_STEP ? NULL : received_at(b, x->node), *start;
	int low = 0, high = g->plan->nunits[g->coord];

	if (!at || at[x->micro] < 0)
		return (int64_t)g->n;
	start = g->plan->timing.start[g->coord];
	while (low < high) {
		int u = (low + high) / 2;

		if (b->unit_at[u] > e && start[u] > at[x->micro])
			high = u;
		else
			low = u + 1;
	}
	return low < g->plan->nunits[g->coord] ? b->unit_at[low] : (int64_t)g->n;
}

/* Returns where to wait for a result that only other members read: at their first reader, because
 * tensors share memory by program order (alias.c). */
static int64_t others_wait(const struct hd_program *g, int64_t e)
{
	const struct entry *x = &g->entries[e];
	struct node **r = g->readers[x->node->outs[0]->id];
	int64_t first = INT64_MAX, f = e + 1;

	for (; r && *r; r++)
		first = g->position[(*r)->id] < first ? g->position[(*r)->id] : first;
	while (f < (int64_t)g->n && (g->entries[f].type != HD_ENTRY_NODE || g->entries[f].micro != x->micro ||
				     g->position[g->entries[f].node->id] < first))
		f++;
	return f;
}

/* Sets the entry before which each communication must be finished: that of its first reader. Without a reader, it is
 * the end of its part of the step: the start of the update, or the end. */
static void set_waits(struct timeline_build *b)
{
	struct hd_program *g = b->g;
	int64_t m = g->plan->micros + 1, update = hd_first_update(g), rows = 0, *first, *row;
	char *reads = hd_sparse_create((size_t)g->plan->nnodes + 1); /* by node id: reads a movement's result */

	row = hd_sparse_create(g->plan->ntensors * sizeof(*row)); /* results of movements: row in `first` */
	for (size_t i = 0; i < g->nmine; i++)
		if (hd_node_moves(g->mine[i])) {
			row[g->mine[i]->outs[0]->id] = ++rows * m;
			for (struct node **r = g->readers[g->mine[i]->outs[0]->id]; r && *r; r++)
				reads[(*r)->id] = 1;
		}
	first = hd_alloc((size_t)(rows * m + m) * sizeof(*first));
	for (int64_t i = 0; i < rows * m + m; i++)
		first[i] = (int64_t)g->n;
	for (int64_t e = (int64_t)g->n - 1; e >= 0; e--) {
		struct entry *x = &g->entries[e];

		if (x->type == HD_ENTRY_NODE && hd_node_moves(x->node)) {
			struct tensor *y = x->node->outs[0];

			x->wait = x->node->comm.kind == HD_COMM_SEND ? send_wait(b, e)
								     : first[row[y->id] + (y->step ? 0 : x->micro + 1)];
			if (x->wait == (int64_t)g->n && x->node->comm.kind != HD_COMM_SEND && g->readers[y->id] &&
			    g->at[y->id].here)
				x->wait = others_wait(g, e);
			if (e < update && x->wait > update)
				x->wait = update;
		}
		for (uint32_t i = 0; x->node && reads[x->node->id] && hd_entry_reads(x, i); i++) {
			struct tensor *t = x->node->ins[i];

			if (x->type == HD_ENTRY_ACC && i != x->input)
				continue;
			first[row[t->id] + (t->step ? 0 : x->micro + 1)] = e;
		}
	}
	free(first), hd_sparse_destroy(row), hd_sparse_destroy(reads);
	hd_wait_for_overwrites(g);
}

int hd_timeline(struct hd_program *g)
{
	struct hd_plan *p = g->plan;
	size_t n = (size_t)p->nnodes + 1;
	struct timeline_build b = { .g = g,
				    .each = hd_micros_at_once(p),
				    .at = hd_sparse_create(n * sizeof(*b.at)),
				    .after = hd_sparse_create(n * sizeof(*b.after)),
				    .deferred = hd_alloc((g->nwalked + 1) * sizeof(*b.deferred)),
				    .deferred_at = hd_alloc((g->nwalked + 1) * sizeof(*b.deferred_at)),
				    .loaded = hd_sparse_create((p->ntensors + 1) * sizeof(*b.loaded)) };
	int rc;

	b.units = hd_alloc((size_t)(p->chunks + 1) * 3 * sizeof(*b.units));
	count_prerequisites(&b);
	mark_on_demand(&b);
	b.unit_at = hd_alloc((size_t)(p->nunits[g->coord] + 1) * sizeof(*b.unit_at));
	emit_gathers(&b);
	b.unit = p->nunits[g->coord] ? p->units[g->coord][0] : b.unit;
	emit_receives(&b, b.each);
	for (int u = 0; u < p->nunits[g->coord]; u += b.each) {
		b.unit = p->units[g->coord][u];
		b.unit_at[u] = b.unit_at[u + b.each - 1] = (int64_t)g->n;
		emit_receives(&b, u + 2 * b.each);
		emit_unit(&b, &p->units[g->coord][u]);
	}
	emit_phase(&b, HD_UNIT_G);
	emit_deferred(&b, 0);
	emit_phase(&b, HD_UNIT_S);
	emit_phase(&b, HD_UNIT_U);
	rc = check_all_ran(&b);
	set_waits(&b);
	for (size_t i = 0; i < g->nwalked; i++)
		free(b.after[g->walked[i]->id].v), free(b.at[g->walked[i]->id].received);
	for (size_t i = 0; i < g->ntensors; i++)
		free(b.loaded[g->tensors[i]->id]);
	for (int64_t i = 0; i < 3 * (p->chunks + 1); i++)
		free(b.units[i].v), free(b.units[i].receives), free(b.units[i].turns);
	free(b.units), free(b.unit_at), free(b.deferred), free(b.deferred_at);
	hd_sparse_destroy(b.at), hd_sparse_destroy(b.after), hd_sparse_destroy(b.loaded);
	return rc;
}
