/* SPDX-License-Identifier: Apache-2.0
 * The timeline of one rank: its schedule's units opened up into nodes, one entry per node and micro-batch.
 *
 * What runs once a step stands around them: gathers (G) before, sync (S) as soon as the last writer of its inputs is
 * done - so that early buckets move while backward goes on - and the update (U) last.  Sync that spans stages waits for
 * the end, where all stages reach it in the same order.
 *
 * Messages between stages.  A unit's receives are posted one unit ahead, so that they arrive while that one computes.  A
 * send is waited for as soon as its receiver must have come to the unit that receives, by the times that the schedule has
 * on paper: where a unit of this stage begins strictly later than that one.  So what is on its way is bounded by the
 * schedule and not by the number of micro-batches, and nobody waits in a circle: every wait, of whatever kind, is for
 * something that begins earlier on paper.
 *
 * What reads a movement would wait for it, so it comes later: one that leads to another movement (a ring's next turn)
 * after a block of backward has run beside the first, all others at the end.  There the turns of all buckets take
 * turns, first come first served.
 */
#include <config.h>
#include "engine/program.h"
#include <stdlib.h>
#include <string.h>

/* -- which nodes run here --------------------------------------------------------------------------------------------------- */
static int64_t stage_at(const struct hd_plan *p, const struct tensor *t)
{
	const struct hd_place *w = &t->at.on[p->stages->id];

	return w->kind == HD_AT ? w->index : -1;
}

int hd_node_here(const struct hd_program *g, const struct node *n)
{
	const struct hd_plan *p = g->plan;
	int64_t s;

	if (!p->stages)
		return 1;
	if (n->comm.kind == HD_RECV)
		s = stage_at(p, n->outs[0]);
	else if (n->comm.kind == HD_BROADCAST || !strcmp(n->v.op->name, "norm2"))
		s = -1;
	else
		s = hd_node_stage(p, n);
	return s < 0 || s == g->coord;
}

static int crosses_stages(const struct hd_plan *p, const struct node *n)
{
	if (!p->stages)
		return 0;
	for (uint32_t i = 0; n->comm.kind && i < n->comm.group->n; i++)
		if (n->comm.group->axes[i] == p->stages)
			return 1;
	return !strcmp(n->v.op->name, "norm2");
}

/* -- entries --------------------------------------------------------------------------------------------------------------------- */
struct build {
	struct hd_program *g;
	int *unmet;			/* by node id: inputs that are not complete */
	int *runs;			/* by node id: instances still to come */
	char *held;			/* by node id: emitted at the end only */
	int32_t *loaded_micro;
	struct hd_unit unit;
	struct node **behind;		/* a ring's next turns, in the order in which they became ready */
	int *since;			/* the border between blocks that each has seen */
	size_t nbehind, from;
	int border;
	int64_t *unit_at;		/* by position of the unit: its first entry */
	char *leads;			/* by node id: to a movement that needs no other bucket */
	struct node ***after;		/* by node id: those that overwrite what it reads, NULL-terminated */
};

static struct entry *append(struct build *b, int type, struct node *n, int32_t micro)
{
	struct hd_program *g = b->g;
	struct entry *e;

	g->entries = hd_grow(g->entries, g->n, &g->cap, sizeof(*g->entries));
	e = &g->entries[g->n++];
	*e = (struct entry){ .type = type, .micro = micro, .node = n, .unit = b->unit, .wait = -1 };
	return e;
}

static void emit(struct build *b, struct node *n, int32_t micro);

static void emit_sync(struct build *b, struct node *n)
{
	struct hd_unit was = b->unit;

	b->unit = (struct hd_unit){ HD_S, 0, HD_STEP };
	emit(b, n, HD_STEP);
	b->unit = was;
}

static int reads_movement(const struct node *n)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->ins[i]->v.node && N(n->ins[i]->v.node)->comm.kind && n->ins[i]->v.node->phase & HD_S)
			return 1;
	return 0;
}

/* One thing less that n waits for. */
static void met(struct build *b, struct node *n)
{
	if (--b->unmet[n->id] || b->held[n->id])
		return;
	if (!reads_movement(n)) {
		emit_sync(b, n);
	} else if (b->leads[n->id]) {
		b->behind[b->nbehind] = n;
		b->since[b->nbehind++] = b->border;
	}
}

static void complete(struct build *b, const struct tensor *t)
{
	for (struct node **r = b->g->readers[t->id]; r && *r; r++)
		if ((*r)->v.phase & HD_S)
			met(b, *r);
}

/* Those that are ready and have seen so many borders. */
static void catch_up(struct build *b, int borders)
{
	while (b->from < b->nbehind && b->border - b->since[b->from] >= borders)
		emit_sync(b, b->behind[b->from++]);
}

static void load(struct build *b, const struct node *n, int32_t micro)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (n->ins[i]->v.what == HD_DATA && !n->ins[i]->v.node && b->loaded_micro[n->ins[i]->id] < micro) {
			append(b, HD_ENTRY_LOAD, NULL, micro)->data = n->ins[i];
			b->loaded_micro[n->ins[i]->id] = micro;
		}
}

static int is_accumulator(const struct node *n) { return !strcmp(n->v.op->name, "accumulate"); }

/* Contributions that could not be written straight into their accumulator are added by an entry of their own.  A reader
 * of several inputs stands in the list once for each, side by side. */
static void accumulate_copies(struct build *b, const struct node *n, int32_t micro)
{
	for (uint32_t k = 0; k < n->v.nout; k++)
		for (struct node **r = b->g->readers[n->outs[k]->id], *last = NULL; r && *r; last = *r++)
			for (uint32_t i = 0; *r != last && is_accumulator(*r) && i < (*r)->v.nin; i++)
				if ((*r)->ins[i] == n->outs[k])
					append(b, HD_ENTRY_ACC, *r, micro)->input = i;
}

static void emit(struct build *b, struct node *n, int32_t micro)
{
	if (!hd_node_here(b->g, n) || b->runs[n->id] <= 0)
		return;
	load(b, n, micro);
	append(b, HD_ENTRY_NODE, n, micro);
	if (micro != HD_STEP)
		accumulate_copies(b, n, micro);
	if (--b->runs[n->id] > 0)
		return;
	for (uint32_t k = 0; k < n->v.nout; k++)
		complete(b, n->outs[k]);
	for (struct node **r = b->after[n->id]; r && *r; r++)
		met(b, *r);
}

static void emit_phase(struct build *b, uint32_t phase)
{
	b->unit = (struct hd_unit){ phase, 0, HD_STEP };
	for (struct node *n = b->g->plan->first; n; n = n->next)
		if (n->v.phase == phase)
			emit(b, n, HD_STEP);
}

static int in_unit(const struct hd_plan *p, const struct node *n, const struct hd_unit *u)
{
	uint32_t phases = u->kind == HD_B && !p->separate_w ? HD_B | HD_W : u->kind;

	return n->v.phase & phases && (n->block < 0 ? 0 : p->blocks[n->block].chunk) == u->chunk;
}

/* What a unit receives is posted in the order in which it was sent. */
static int64_t sent_at(const struct hd_program *g, const struct node *n)
{
	return n->comm.kind == HD_RECV ? g->position[N(n->ins[0]->v.node)->id] : INT64_MAX;
}

static void emit_receives(struct build *b, int at)
{
	const struct hd_plan *p = b->g->plan;
	const struct hd_unit *u = &p->units[b->g->coord][at];
	int64_t done = -1;

	for (; p->stages && at < p->nunits[b->g->coord];) {
		struct node *next = NULL;

		for (struct node *n = p->first; n; n = n->next)
			if (in_unit(p, n, u) && hd_node_here(b->g, n) && sent_at(b->g, n) > done &&
			    sent_at(b->g, n) < (next ? sent_at(b->g, next) : INT64_MAX))
				next = n;
		if (!next)
			return;
		done = sent_at(b->g, next);
		emit(b, next, u->micro);
	}
}

/* -- readiness of sync --------------------------------------------------------------------------------------------------------------- */
static void hold_after(struct build *b)
{
	struct hd_plan *p = b->g->plan;

	for (struct node *n = p->first; n; n = n->next) {
		if (n->v.phase != HD_S)
			continue;
		b->held[n->id] = (char)crosses_stages(p, n);
		for (uint32_t i = 0; i < n->v.nin; i++)
			if (n->ins[i]->v.node && b->held[N(n->ins[i]->v.node)->id])
				b->held[n->id] = 1;
	}
}

/* Which sync goes on to a movement, other than by way of the norm, for which all buckets are needed. */
static void mark_leading(struct build *b)
{
	for (struct node *n = b->g->plan->last; n; n = n->prev) {
		if (n->v.phase != HD_S || b->held[n->id] || !strcmp(n->v.op->name, "norm2"))
			continue;
		b->leads[n->id] = n->comm.kind != 0;
		for (uint32_t k = 0; k < n->v.nout; k++)
			for (struct node **r = b->g->readers[n->outs[k]->id]; r && *r; r++)
				b->leads[n->id] |= b->leads[(*r)->id];
	}
}

/* Whether two tensors, of a step, have bytes in common. */
static int overlap(const struct hd_program *g, const struct tensor *a, const struct tensor *b)
{
	const struct storage *x = &g->at[a->id], *y = &g->at[b->id];

	return x->root == y->root && a->step && b->step && x->offset < y->offset + hd_local_bytes(b) &&
	       y->offset < x->offset + hd_local_bytes(a);
}

/* Names for bytes that are there already: these neither read nor write, and may stand before what they read. */
static int only_names(const struct node *n)
{
	static const char *const ops[] = { "accumulate", "chunk", "join", "pack", "pick", "sync", "unpack", "view" };

	for (size_t i = 0; i < HD_LEN(ops); i++)
		if (!strcmp(n->v.op->name, ops[i]))
			return 1;
	return 0;
}

/* A result in place of an input overwrites what it shares with others; every other result has bytes of its own. */
static int overwrites(const struct hd_program *g, const struct node *n, const struct tensor *t)
{
	for (uint32_t k = 0; k < n->v.nout && !only_names(n); k++)
		for (uint32_t i = 0; i < n->v.nin && overlap(g, n->outs[k], t); i++)
			if (overlap(g, n->outs[k], n->ins[i]))
				return 1;
	return 0;
}

static int reads_what(const struct hd_program *g, const struct node *r, const struct node *n)
{
	for (uint32_t i = 0; i < r->v.nin; i++)
		if (overwrites(g, n, r->ins[i]))
			return 1;
	return 0;
}

/* Bytes are shared by program order (alias.c).  Sync that becomes ready in another order keeps that one where a later
 * node overwrites what an earlier one reads. */
static void order_overwrites(struct build *b)
{
	struct hd_plan *p = b->g->plan;

	for (struct node *r = p->first; r; r = r->next) {
		size_t n = 0, cap = 0;
		struct node **list = NULL;

		if (r->v.phase != HD_S || only_names(r) || !hd_node_here(b->g, r))
			continue;
		for (struct node *k = r->next; k; k = k->next)
			if (k->v.phase == HD_S && hd_node_here(b->g, k) && reads_what(b->g, r, k)) {
				list = hd_grow(list, n + 1, &cap, sizeof(*list));
				list[n++] = k;
				b->unmet[k->id]++;
			}
		b->after[r->id] = list;
	}
}

static void count(struct build *b)
{
	struct hd_plan *p = b->g->plan;

	for (struct node *n = p->first; n; n = n->next) {
		b->runs[n->id] = n->v.phase & (HD_F | HD_B | HD_W) ? (int)p->micros : 1;
		for (uint32_t i = 0; i < n->v.nin; i++)
			b->unmet[n->id] += n->ins[i]->v.node != NULL && !(n->comm.kind == HD_RECV);
	}
	hold_after(b);
	mark_leading(b);
	order_overwrites(b);
}

static int check_all_ran(struct build *b)
{
	for (struct node *n = b->g->plan->first; n; n = n->next)
		if (hd_node_here(b->g, n) && b->runs[n->id] > 0)
			return hd_plan_fail(b->g->plan, HD_EBUG, "%s of %s stands in no unit of stage %lld", n->v.op->name,
					    n->v.block, (long long)b->g->coord);
	return HD_OK;
}

/* Whether the entry has an input i to look at.  The accumulate node itself only names what its entries have added. */
int hd_entry_reads(const struct entry *e, uint32_t i)
{
	if (e->type == HD_ENTRY_LOAD || i >= e->node->v.nin)
		return 0;
	return e->type == HD_ENTRY_ACC || (strcmp(e->node->v.op->name, "accumulate") && e->node->comm.kind != HD_RECV);
}

/* Between the two the run looks at the loss and the norm, and may begin again. */
static int64_t first_update(const struct hd_program *g)
{
	int64_t e = 0;

	while (e < (int64_t)g->n && !(g->entries[e].type == HD_ENTRY_NODE && !strcmp(g->entries[e].node->v.kind, "update")))
		e++;
	return e;
}

/* What a movement of sync sends must not be overwritten before it is done. */
static void wait_for_overwrites(struct hd_program *g)
{
	for (int64_t e = 0; e < (int64_t)g->n; e++) {
		struct entry *x = &g->entries[e];

		if (x->type != HD_ENTRY_NODE || !x->node->comm.kind || !(x->node->v.phase & HD_S))
			continue;
		for (int64_t f = e + 1; f < x->wait; f++)
			if (g->entries[f].type == HD_ENTRY_NODE && overwrites(g, g->entries[f].node, x->node->ins[0]))
				x->wait = f;
	}
}

/* The unit of another stage that receives what this node sends; its time on paper, or -1: none. */
static double received_at(const struct hd_program *g, const struct node *send, int64_t micro)
{
	const struct hd_plan *p = g->plan;
	struct node **r = g->readers[send->outs[0]->id];
	int64_t to = send->comm.index;

	for (int u = 0; r && *r && p->timing.start && to < p->ncoords && u < p->nunits[to]; u++)
		if (p->units[to][u].micro == micro && in_unit(p, *r, &p->units[to][u]))
			return p->timing.start[to][u];
	return -1;
}

/* The entry before which a send is waited for: the first unit that begins on paper after the one that receives it. */
static int64_t send_wait(const struct build *b, int64_t e)
{
	const struct hd_program *g = b->g;
	const struct entry *x = &g->entries[e];
	double at = x->micro == HD_STEP ? -1 : received_at(g, x->node, x->micro);

	for (int u = 0; at >= 0 && u < g->plan->nunits[g->coord]; u++)
		if (b->unit_at[u] > e && g->plan->timing.start[g->coord][u] > at)
			return b->unit_at[u];
	return (int64_t)g->n;
}

/* The entry before which each communication must be finished: its first reader's; nobody's: the end of its part of the
 * step, which is the update's begin or the end. */
static void waits(struct build *b)
{
	struct hd_program *g = b->g;
	int64_t *first = hd_alloc(g->plan->ntensors * (size_t)(g->plan->micros + 1) * sizeof(*first));
	int64_t m = g->plan->micros + 1, update = first_update(g);

	for (size_t i = 0; i < g->plan->ntensors * (size_t)m; i++)
		first[i] = (int64_t)g->n;
	for (int64_t e = (int64_t)g->n - 1; e >= 0; e--) {
		struct entry *x = &g->entries[e];

		if (x->type == HD_ENTRY_NODE && x->node->comm.kind) {
			struct tensor *y = x->node->outs[0];

			x->wait = x->node->comm.kind == HD_SEND ? send_wait(b, e) : first[y->id * m + (y->step ? 0 : x->micro + 1)];
			if (e < update && x->wait > update)
				x->wait = update;
		}
		for (uint32_t i = 0; hd_entry_reads(x, i); i++) {
			struct tensor *t = x->node->ins[i];

			if (x->type == HD_ENTRY_ACC && i != x->input)
				continue;
			first[t->id * m + (t->step ? 0 : x->micro + 1)] = e;
		}
	}
	free(first);
	wait_for_overwrites(g);
}

int hd_timeline(struct hd_program *g)
{
	struct hd_plan *p = g->plan;
	size_t n = (size_t)p->nnodes + 1;
	struct build b = { .g = g, .unmet = hd_alloc(n * sizeof(int)), .runs = hd_alloc(n * sizeof(int)), .held = hd_alloc(n),
		.loaded_micro = hd_alloc(p->ntensors * sizeof(int32_t)) };
	int rc;

	for (size_t i = 0; i < p->ntensors; i++)
		b.loaded_micro[i] = -1;
	b.behind = hd_alloc(n * sizeof(*b.behind)), b.since = hd_alloc(n * sizeof(int));
	b.leads = hd_alloc(n), b.after = hd_alloc(n * sizeof(*b.after));
	count(&b);
	b.unit_at = hd_alloc((size_t)(p->nunits[g->coord] + 1) * sizeof(*b.unit_at));
	emit_phase(&b, HD_G);
	b.unit = p->nunits[g->coord] ? p->units[g->coord][0] : b.unit;
	emit_receives(&b, 0);
	for (int u = 0; u < p->nunits[g->coord]; u++) {
		int block = -1;

		b.unit = p->units[g->coord][u];
		b.unit_at[u] = (int64_t)g->n;
		emit_receives(&b, u + 1);
		for (struct node *k = p->first; k; k = k->next)
			if (in_unit(p, k, &b.unit) && k->comm.kind != HD_RECV) {
				if (k->block != block) {	/* a whole one has passed at the second border */
					b.border++;
					catch_up(&b, 2);
				}
				block = k->block;
				emit(&b, k, b.unit.micro);
			}
	}
	catch_up(&b, 0);
	emit_phase(&b, HD_S);
	emit_phase(&b, HD_U);
	rc = check_all_ran(&b);
	waits(&b);
	for (size_t i = 0; i < n; i++)
		free(b.after[i]);
	free(b.unmet), free(b.runs), free(b.held), free(b.loaded_micro);
	free(b.unit_at), free(b.behind), free(b.since), free(b.leads), free(b.after);
	return rc;
}
