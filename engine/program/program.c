/* SPDX-License-Identifier: Apache-2.0
 * Computes lifetimes from the timeline, and offsets from the lifetimes: all memory of a rank is known before the first
 * step.
 *
 * Leaves (parameters, states) are persistent. Every other root has one instance per micro-batch, or one per step. An
 * instance lives from its first writer to its last reader. Communication in flight keeps its operand alive until it is
 * waited for. The schedule determines how many micro-batches are in flight; nothing counts slots.
 */
#include <config.h>
#include "engine/program/program.h"
#include "engine/graph/placement.h"
#include "engine/program/pack.h"
#include <stdlib.h>
#include <string.h>

static int64_t instances(const struct hd_program *g, const struct tensor *root)
{
	return root->step || !g->at[root->id].here ? 1 : g->plan->micros;
}

static int64_t instance(const struct hd_program *g, const struct tensor *root, int64_t micro)
{
	return g->at[root->id].slot + (root->step || !g->at[root->id].here || micro < 0 ? 0 : micro);
}

/* Returns whether the tensor exists on this rank: its placement must say
 * so, and the node that computes it must run here. The result of a send exists nowhere; it only names the message. */
int hd_tensor_here(const struct hd_program *g, const struct tensor *t)
{
	const struct hd_plan *p = g->plan;
	const struct node *n = t->v.node ? N(t->v.node) : NULL;

	if (n && (n->comm.kind == HD_COMM_SEND || !hd_is_member(p, &n->only, g->rank)))
		return 0;
	return hd_is_placed_at(p, &t->at, g->rank);
}

int64_t hd_program_parameters(const struct hd_program *g)
{
	int64_t n = 0;

	for (size_t i = 0; i < g->ntensors; i++) {
		const struct tensor *t = g->tensors[i];

		if (!t->v.node && t->v.what == HD_TENSOR_PARAM && hd_tensor_here(g, t))
			n += hd_local_count(t);
	}
	return n;
}

static void touch(const struct hd_program *g, struct hd_memory_span *s, const struct tensor *t, int64_t micro,
		  int64_t from, int64_t to)
{
	const struct tensor *root = g->at[t->id].root;
	struct hd_memory_span *k;

	if (!root->v.node && root->v.what != HD_TENSOR_DATA)
		return;
	/* For example the norm of all gradients, or the result of a send: named here, but not stored here. */
	if (!g->at[root->id].here)
		return;
	k = &s[instance(g, root, micro)];
	k->first = from < k->first ? from : k->first;
	k->last = to > k->last ? to : k->last;
}

/* Returns whether n is a pick, and this rank does not pick input i. */
static int is_passed_over(const struct hd_program *g, const struct node *n, uint32_t i)
{
	return n->chooses.group && hd_piece_index(g, n, 0) != i;
}

/* What a node's entries read and write. It is the same for all micro-batches, so it is computed once. */
struct node_uses {
	struct { /* a slot, and whether each micro-batch has its own */
		int32_t slot, micros;
	} * v;
	size_t n, cap;
	int known;
};

static void add_use(const struct hd_program *g, struct node_uses *u, const struct tensor *t)
{
	const struct tensor *root = g->at[t->id].root;

	if ((!root->v.node && root->v.what != HD_TENSOR_DATA) || !g->at[root->id].here)
		return;
	u->v = hd_grow(u->v, u->n, &u->cap, sizeof(*u->v));
	u->v[u->n].slot = g->at[root->id].slot;
	u->v[u->n++].micros = !root->step;
}

int hd_node_here(const struct hd_program *g, const struct node *n)
{
	return g->here[n->id];
}

/* Returns whether the entry has an input i to read. The accumulate node itself only
 * names the sum that ACC entries have computed. */
int hd_entry_reads(const struct entry *e, uint32_t i)
{
	if (e->type == HD_ENTRY_LOAD || i >= e->node->v.nin)
		return 0;
	return e->type == HD_ENTRY_ACC ||
	       (e->node->is->role != OP_ROLE_ACCUMULATE && e->node->comm.kind != HD_COMM_RECV);
}

/* Returns where the second part of the step begins. Between the parts the run checks the
 * loss and the norm, and may repeat the first part. */
int64_t hd_first_update(const struct hd_program *g)
{
	int64_t e = 0;

	while (e < (int64_t)g->n && !(g->entries[e].type == HD_ENTRY_NODE && g->entries[e].node->in_update))
		e++;
	return e;
}

int hd_stays_gathered(const struct hd_program *g, const struct tensor *t)
{
	struct node **r = g->readers[t->id];

	if (g->plan->train || !t->v.node || N(t->v.node)->v.phase != HD_UNIT_G)
		return 0;
	while (r && *r && (*r)->v.phase == HD_UNIT_G)
		r++;
	return r && *r;
}

static void find_uses(const struct hd_program *g, struct node_uses *u, const struct entry *x)
{
	for (uint32_t i = 0; hd_entry_reads(x, i); i++)
		if (!is_passed_over(g, x->node, i))
			add_use(g, u, x->node->ins[i]);
	for (uint32_t k = 0; k < x->node->v.nout; k++)
		add_use(g, u, x->node->outs[k]);
	u->known = 1;
}

static void touch_node(const struct hd_program *g, struct hd_memory_span *s, struct node_uses *uses, int64_t e,
		       int64_t until)
{
	const struct entry *x = &g->entries[e];
	struct node_uses *u = &uses[x->node->id];
	int64_t micro = x->micro < 0 ? 0 : x->micro;

	if (!u->known)
		find_uses(g, u, x);
	for (size_t i = 0; i < u->n; i++) {
		struct hd_memory_span *k = &s[u->v[i].slot + (u->v[i].micros ? micro : 0)];

		k->first = e < k->first ? e : k->first;
		k->last = until > k->last ? until : k->last;
	}
}

static void touch_entry(const struct hd_program *g, struct hd_memory_span *s, struct node_uses *uses, int64_t e)
{
	const struct entry *x = &g->entries[e];
	int64_t until = e;

	if (x->type == HD_ENTRY_LOAD) {
		touch(g, s, x->data, x->micro, e, e);
		return;
	}
	if (x->wait > e)
		until = x->wait < (int64_t)g->n ? x->wait : (int64_t)g->n - 1;
	if (x->type == HD_ENTRY_NODE) {
		touch_node(g, s, uses, e, until);
		return;
	}
	for (uint32_t i = 0; hd_entry_reads(x, i); i++)
		if (i == x->input && !is_passed_over(g, x->node, i))
			touch(g, s, x->node->ins[i], x->micro, e, until);
	for (uint32_t k = 0; k < x->node->v.nout; k++)
		touch(g, s, x->node->outs[k], x->micro, e, until);
}

static void touch_entries(const struct hd_program *g, struct hd_memory_span *s)
{
	struct node_uses *uses = hd_sparse_create(((size_t)g->plan->nnodes + 1) * sizeof(*uses));

	for (int64_t e = 0; e < (int64_t)g->n; e++)
		touch_entry(g, s, uses, e);
	for (size_t i = 0; i < g->nmine; i++)
		free(uses[g->mine[i]->id].v);
	hd_sparse_destroy(uses);
}

/* Keeps alive in the complete run what the next run may read without computing it. */
static void keep_gathered(const struct hd_program *g, struct hd_memory_span *s)
{
	for (size_t i = 0; i < g->ntensors; i++)
		if (hd_stays_gathered(g, g->tensors[i]))
			touch(g, s, g->tensors[i], HD_STEP, 0, (int64_t)g->n - 1);
}

/* Keeps alive until the end of the step what the run reads after it. */
static void keep_results(const struct hd_program *g, struct hd_memory_span *s)
{
	const struct tensor *keep[] = { g->plan->loss, g->plan->nll, g->plan->logits, g->plan->norm, g->plan->factor };

	for (size_t i = 0; i < HD_LEN(keep); i++)
		for (int64_t m = 0; keep[i] && m < g->plan->micros; m++)
			if (s[instance(g, g->at[keep[i]->id].root, m)].last >= 0)
				touch(g, s, keep[i], m, (int64_t)g->n - 1, (int64_t)g->n - 1);
	for (size_t i = 0; i < g->plan->nmoe_stats; i++)
		if (s[instance(g, g->at[g->plan->moe_stats[i]->id].root, 0)].last >= 0)
			touch(g, s, g->plan->moe_stats[i], 0, (int64_t)g->n - 1, (int64_t)g->n - 1);
	for (size_t i = 0; g->keep_gradients && i < g->ntensors; i++)
		if (g->tensors[i]->v.what == HD_TENSOR_GRAD && g->tensors[i]->v.node &&
		    s[instance(g, g->at[g->tensors[i]->id].root, 0)].last >= 0)
			touch(g, s, g->tensors[i], 0, (int64_t)g->n - 1, (int64_t)g->n - 1);
	for (size_t i = 0; i < g->ntensors; i++) {
		const struct tensor *t = g->tensors[i], *values[] = { t->assign, t->then };

		for (int k = 0; k < 2; k++)
			if (values[k] && g->at[values[k]->id].root && g->at[values[k]->id].root->v.node &&
			    s[instance(g, g->at[values[k]->id].root, 0)].last >= 0)
				touch(g, s, values[k], 0, (int64_t)g->n - 1, (int64_t)g->n - 1);
	}
}

static int is_state(const struct tensor *t)
{
	return !t->v.node && t->v.what != HD_TENSOR_DATA;
}

static int64_t aligned_bytes(const struct tensor *t)
{
	return (hd_local_bytes(t) + HD_ALIGN - 1) / HD_ALIGN * HD_ALIGN;
}

int hd_program_in_host(const struct hd_program *g, const struct tensor *t)
{
	return (g->at[t->id].root ? g->at[t->id].root : t)->v.space == HD_SPACE_HOST;
}

static int64_t persistent(struct hd_program *g, uint32_t space)
{
	int64_t at = 0;

	for (size_t i = 0; i < g->ntensors; i++) {
		const struct tensor *t = g->tensors[i];

		if (!is_state(t) || t->v.what == HD_TENSOR_ACT || !g->at[t->id].here || t->v.space != space)
			continue;
		g->offsets[g->at[t->id].slot] = at;
		at += aligned_bytes(t);
	}
	return at;
}

#define MANY 30000 /* number of spans beyond which exact packing takes too long */

static int same_unit(const struct hd_schedule_unit *a, const struct hd_schedule_unit *b)
{
	return a->kind == b->kind && a->chunk == b->chunk && a->micro == b->micro;
}

/* Sets the offsets. Sync entries that are scattered among backward count as part of the unit in which they run. */
static int64_t pack(const struct hd_program *g, struct hd_memory_span *s, int64_t n, int64_t used)
{
	int32_t *unit, u = 0;
	int64_t bytes;

	if (used <= MANY)
		return hd_pack_plan(s, n, 0);
	unit = hd_alloc((g->n + 1) * sizeof(*unit));
	for (size_t e = 0, last = 0; e < g->n; e++) {
		if (g->entries[e].unit.kind != HD_UNIT_S && !same_unit(&g->entries[e].unit, &g->entries[last].unit))
			u++, last = e;
		unit[e] = u;
	}
	bytes = hd_memory_plan_units(s, n, unit);
	free(unit);
	return bytes;
}

static int is_root(const struct hd_program *g, const struct tensor *t)
{
	return g->at[t->id].root == t;
}

/* Sets the bytes of each instance of a root; an instance that nothing touches gets none. Returns how many get some. */
static int64_t measure(const struct hd_program *g, const struct tensor *root, struct hd_memory_span *s)
{
	int64_t n = instances(g, root), bytes = hd_local_bytes(root), used = 0;

	for (struct hd_memory_span *x = &s[g->at[root->id].slot]; n-- > 0; x++)
		if (x->last < 0)
			*x = (struct hd_memory_span){ 0, 0, 0, 0 };
		else
			x->bytes = bytes, used++;
	return used;
}

/* Returns when each instance of a root must exist, by slot; the caller frees it.
 * *used: how many instances are read or written. */
static struct hd_memory_span *lifetimes(const struct hd_program *g, int64_t *used)
{
	struct hd_memory_span *s = hd_alloc((size_t)(g->slots + 1) * sizeof(*s));

	*used = 0;
	for (int64_t i = 0; i < g->slots; i++)
		s[i] = (struct hd_memory_span){ 0, INT64_MAX, -1, 0 };
	touch_entries(g, s);
	keep_results(g, s);
	keep_gathered(g, s);
	for (size_t i = 0; i < g->ntensors; i++)
		if (is_root(g, g->tensors[i]))
			*used += measure(g, g->tensors[i], s);
	return s;
}

/* Returns the bytes of the arena; *bound: the minimum that any packing needs. */
static int64_t pack_all(struct hd_program *g, struct hd_memory_span *s, int64_t used, int64_t *bound)
{
	int64_t bytes = pack(g, s, g->slots, used);

	*bound = hd_memory_bound(s, g->slots);
	for (int64_t i = 0; i < g->slots; i++)
		if (s[i].bytes)
			g->offsets[i] = s[i].offset;
	return bytes;
}

/* Does the same for the tensors in one memory space. */
static int64_t pack_space(struct hd_program *g, const struct hd_memory_span *all, int64_t used, uint32_t space,
			  int64_t *bound)
{
	struct hd_memory_span *s = hd_alloc((size_t)(g->slots + 1) * sizeof(*s));
	int64_t bytes;

	for (size_t i = 0; i < g->ntensors; i++)
		for (int64_t k = 0;
		     is_root(g, g->tensors[i]) && g->tensors[i]->v.space == space && k < instances(g, g->tensors[i]);
		     k++)
			s[g->at[g->tensors[i]->id].slot + k] = all[g->at[g->tensors[i]->id].slot + k];
	bytes = pack_all(g, s, used, bound);
	free(s);
	return bytes;
}

static int plan_memory(struct hd_program *g)
{
	struct hd_memory_span *s;
	int64_t n = 0, used, bound;

	for (size_t i = 0; i < g->ntensors; i++)
		if (is_root(g, g->tensors[i])) {
			g->at[g->tensors[i]->id].slot = (int32_t)n;
			n += instances(g, g->tensors[i]);
		}
	g->slots = n;
	g->offsets = hd_alloc((size_t)(n + 1) * sizeof(*g->offsets));
	s = lifetimes(g, &used);
	if (g->plan->own_memory) {
		g->memory.transient = pack_space(g, s, used, HD_SPACE_DEVICE, &g->memory.peak_bound);
		g->memory.host_transient = pack_space(g, s, used, HD_SPACE_HOST, &bound);
	} else {
		g->memory.transient = pack_all(g, s, used, &g->memory.peak_bound);
	}
	free(s);
	g->memory.persistent = persistent(g, HD_SPACE_DEVICE);
	g->memory.host_persistent = persistent(g, HD_SPACE_HOST);
	return HD_OK;
}

/* -- what memory is used for, by entry --------------------------------------------------------------------------- */
double hd_memory_use_sum(const struct hd_memory_use *u)
{
	return u->parameters + u->states + u->gradients + u->kept + u->working;
}

static double *kind_of(const struct hd_program *g, struct hd_memory_use *u, const struct tensor *root,
		       const struct hd_memory_span *s)
{
	if (root->v.node && N(root->v.node)->v.phase == HD_UNIT_G) /* fetched from a server or another stage */
		return &u->parameters;
	if (root->v.what == HD_TENSOR_GRAD || root->step)
		return &u->gradients;
	return same_unit(&g->entries[s->first].unit, &g->entries[s->last].unit) ? &u->working : &u->kept;
}

/* Adds each instance as differences: its bytes at its first entry, minus its bytes after its last. */
static void add_instances(const struct hd_program *g, const struct tensor *root, const struct hd_memory_span *s,
			  struct hd_memory_use *use)
{
	for (int64_t k = 0; k < instances(g, root); k++) {
		const struct hd_memory_span *x = &s[g->at[root->id].slot + k];

		if (!x->bytes)
			continue;
		*kind_of(g, &use[x->first], root, x) += (double)x->bytes;
		*kind_of(g, &use[x->last + 1], root, x) -= (double)x->bytes;
	}
}

struct hd_memory_use *hd_program_memory_use(const struct hd_program *g)
{
	struct hd_memory_use *use = hd_alloc((g->n + 2) * sizeof(*use));
	int64_t used;
	struct hd_memory_span *s = lifetimes(g, &used);

	for (size_t i = 0; i < g->ntensors; i++) {
		const struct tensor *t = g->tensors[i];

		if (hd_program_in_host(g, t))
			continue;
		if (is_state(t) && t->v.what != HD_TENSOR_ACT && g->at[t->id].here)
			*(t->v.what == HD_TENSOR_PARAM ? &use[0].parameters : &use[0].states) +=
				(double)aligned_bytes(t);
		else if (is_root(g, t))
			add_instances(g, t, s, use);
	}
	for (size_t i = 1; i < g->n; i++) {
		use[i].parameters += use[i - 1].parameters;
		use[i].states = use[0].states;
		use[i].gradients += use[i - 1].gradients;
		use[i].kept += use[i - 1].kept;
		use[i].working += use[i - 1].working;
	}
	free(s);
	return use;
}

/* Reserves memory for all entries, because growing step by step would copy most of them twice. Loads are few. */
static void reserve_entries(struct hd_program *g)
{
	size_t all = 64;

	for (size_t i = 0; i < g->nmine; i++) {
		const struct node *n = g->mine[i];
		size_t each = 1, runs = n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) ? (size_t)g->plan->micros : 1;

		for (uint32_t k = 0; runs > 1 && k < n->v.nout; k++)
			for (struct node **r = g->readers[n->outs[k]->id]; r && *r; r++)
				each += (*r)->is->role == OP_ROLE_ACCUMULATE;
		all += each * runs;
	}
	all += all / 64;
	g->entries = malloc(all * sizeof(*g->entries)); /* if this fails, append allocates */
	g->cap = g->entries ? all : 0;
}

int hd_program_build(struct hd_plan *p, const struct hd_program_options *o, struct hd_program **out, struct hd_err *err)
{
	struct hd_program *g = hd_alloc(sizeof(*g));
	int rc;

	g->plan = p;
	g->rank = o->rank;
	g->device = o->device;
	g->keep_gradients = o->keep_gradients;
	g->coord = p->stages ? hd_plan_coord(p, o->rank, p->stages) : 0;
	g->at = hd_sparse_create(p->ntensors * sizeof(*g->at));
	g->next = hd_sparse_create(p->ntensors * sizeof(*g->next));
	g->members_of = hd_sparse_create(p->ntensors * sizeof(*g->members_of));
	g->here = hd_sparse_create((size_t)p->nnodes + 1);
	hd_index_program(g);
	rc = hd_alias(g);
	reserve_entries(g);
	if (rc >= 0)
		rc = hd_timeline(g);
	if (rc >= 0)
		rc = plan_memory(g);
	if (rc >= 0 && o->snapshot)
		g->memory.snapshot = hd_snapshot_bytes(g, o->keep_gradients);
	if (rc < 0) {
		hd_err_set(err, rc, "%s", p->err->text);
		hd_program_destroy(g);
		g = NULL;
	}
	*out = g;
	return rc;
}

void *hd_program_address(const struct hd_program *g, const struct tensor *t, int64_t micro)
{
	const struct storage *s = &g->at[t->id];
	char *base;

	if (!s->root)
		return NULL;
	if (s->root->v.node || s->root->v.what == HD_TENSOR_DATA) {
		base = hd_program_in_host(g, t) ? g->host_transient : g->transient;
	} else {
		if (!hd_tensor_here(g, s->root))
			return NULL;
		base = hd_program_in_host(g, t) ? g->host_persistent : g->persistent;
	}
	return base + g->offsets[instance(g, s->root, micro)] + s->offset;
}

static const struct tensor *leaf_named(const struct hd_program *g, const struct tensor *like)
{
	for (size_t i = 0; i < g->ntensors; i++) {
		const struct tensor *t = g->tensors[i];

		if (is_state(t) && g->at[t->id].here && t->v.what == like->v.what && !strcmp(t->v.name, like->v.name))
			return t;
	}
	return NULL;
}

/* Returns where another program keeps this leaf, or -1. */
static int64_t offset_in(struct hd_program *const *others, int n, const struct tensor *t)
{
	for (int i = 0; i < n; i++) {
		const struct tensor *same = others[i] ? leaf_named(others[i], t) : NULL;

		if (same)
			return others[i]->offsets[others[i]->at[same->id].slot];
	}
	return -1;
}

int64_t hd_program_share(struct hd_program *g, struct hd_program *const *others, int n, int64_t bytes)
{
	for (size_t i = 0; i < g->ntensors; i++) {
		const struct tensor *t = g->tensors[i];
		int64_t at;

		if (!is_state(t) || t->v.what == HD_TENSOR_ACT || !g->at[t->id].here)
			continue;
		at = offset_in(others, n, t);
		g->offsets[g->at[t->id].slot] = at < 0 ? bytes : at;
		bytes += at < 0 ? aligned_bytes(t) : 0;
	}
	return bytes;
}

void hd_program_destroy(struct hd_program *g)
{
	if (!g)
		return;
	if (g->release)
		g->release(g);
	hd_sparse_destroy(g->at), hd_sparse_destroy(g->next), hd_sparse_destroy(g->members_of);
	hd_sparse_destroy(g->here);
	free(g->entries), free(g->mine), free(g->walked), free(g->offsets), free(g->trace);
	free(g);
}
