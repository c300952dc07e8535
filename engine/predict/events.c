/* SPDX-License-Identifier: Apache-2.0
 * Turns the entries of a rank's program into events (events.h).
 */
#include <config.h>
#include "engine/base/hash.h"
#include "engine/graph/mesh.h"
#include "engine/predict/events.h"
#include "engine/predict/here.h"
#include "engine/predict/whole_layers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct priced {
	int64_t program; /* number of the program for which this is the price; for any other it is stale */
	double seconds, more_flops;
	double sent[HD_LINKS];
	int32_t kind, number; /* kind: HD_EVENT_ of a movement, HD_WORK_ of a kernel; number: a movement's price */
};

/* Sums of gradients that the style puts off until all backwards have ended. They begin where the update does. */
struct late {
	double seconds;
	int32_t queue;
};
struct wait_list { /* requests that an entry waits for, in order, each as its number + 1; 0: none */
	int32_t first, last;
};
struct wait_next {
	int32_t to; /* the next request in its list, or in the list of free ones */
};
struct making {
	struct event_source *s;
	const struct hd_pricing *price;
	struct events *to;
	struct hd_stage_price *sum;
	struct hd_unit_spans *spans;
	struct hd_memory_use *use; /* by entry; only with spans */
	struct hd_again *again;
	struct wait_list *waits; /* by entry */
	struct wait_next *next;  /* by request */
	size_t cap_next;
	int32_t spare; /* the first free request, as in wait_list */
	struct late late;
	double compute;  /* seconds of kernels since the last event */
	uint32_t *known; /* hash table of kernel times: index in to->seconds + 1 */
	size_t room;     /* size of `known`, a power of two */
};

void hd_event_source_begin(struct event_source *s, struct hd_plan *p, const struct hd_machine *m)
{
	*s = (struct event_source){ .p = p, .m = m };
	s->index = hd_alloc(((size_t)p->nnodes + 1) * sizeof(*s->index));
	for (const struct node *x = p->first; x; x = x->next)
		s->index[x->id] = x->comm.kind && x->comm.kind != HD_COMM_RECV && hd_over_stages(p, x->comm.group)
					  ? s->meetings++
					  : -1;
	s->members = hd_alloc((size_t)(s->meetings + 1) * sizeof(*s->members));
	s->nodes = hd_alloc(((size_t)p->nnodes + 1) * sizeof(*s->nodes));
	s->added = hd_alloc((p->ntensors + 1) * sizeof(*s->added));
}

void hd_event_source_end(struct event_source *s)
{
	free(s->index), free(s->members), free(s->nodes), free(s->added);
}

void hd_events_release(struct events *e)
{
	free(e->v), free(e->prices), free(e->seconds);
}

/* -- lengths of kernels: all micro-batches have the same ----------------------------------------------------------- */
static size_t place_of(const struct making *b, double seconds)
{
	uint64_t bits;
	size_t at;

	memcpy(&bits, &seconds, sizeof(bits));
	for (at = (size_t)hd_hash_add(HD_HASH_START, bits); b->known[at & (b->room - 1)]; at++)
		if (b->to->seconds[b->known[at & (b->room - 1)] - 1] == seconds)
			break;
	return at & (b->room - 1);
}

static void more_room(struct making *b)
{
	free(b->known);
	b->room = b->room ? 2 * b->room : 256;
	b->known = hd_alloc(b->room * sizeof(*b->known));
	for (size_t i = 0; i < b->to->nseconds; i++)
		b->known[place_of(b, b->to->seconds[i])] = (uint32_t)i + 1;
}

static uint32_t length_of(struct making *b, double seconds)
{
	struct events *to = b->to;
	size_t at;

	if (2 * to->nseconds >= b->room)
		more_room(b);
	at = place_of(b, seconds);
	if (!b->known[at]) {
		to->seconds = hd_grow(to->seconds, to->nseconds, &to->cap_seconds, sizeof(*to->seconds));
		to->seconds[to->nseconds++] = seconds;
		b->known[at] = (uint32_t)to->nseconds;
	}
	return b->known[at] - 1;
}

static struct event *event_new(struct making *b, int kind)
{
	struct events *to = b->to;
	struct event *e;

	to->v = hd_grow(to->v, to->n, &to->cap, sizeof(*to->v));
	e = &to->v[to->n++];
	*e = (struct event){
		.compute = length_of(b, b->compute), .kind = (unsigned)kind & 15, .request = -1, .number = -1
	};
	b->compute = 0;
	return e;
}

static int32_t price_new(struct making *b, const struct event_price *p)
{
	struct events *to = b->to;

	to->prices = hd_grow(to->prices, to->nprices, &to->cap_prices, sizeof(*to->prices));
	to->prices[to->nprices] = *p;
	return (int32_t)to->nprices++;
}

static int32_t request_new(struct making *b)
{
	int32_t spare = b->spare;

	if (spare)
		b->spare = b->next[spare - 1].to;
	else
		b->next = hd_grow(b->next, (size_t)b->to->requests, &b->cap_next, sizeof(*b->next));
	return spare ? spare - 1 : b->to->requests++;
}

static struct event *event_start(struct making *b, int kind, int32_t number)
{
	struct event *e = event_new(b, kind);

	e->request = request_new(b);
	e->number = number;
	return e;
}

/* Starts a movement within this stage. Returns its request. */
static int32_t start(struct making *b, double seconds, int32_t queue, int waits)
{
	struct event_price p = { .seconds = seconds, .queue = queue, .waits = waits };

	return event_start(b, HD_EVENT_START, price_new(b, &p))->request;
}

/* -- movements ----------------------------------------------------------------------------------------------------- */
static int kind_of(const struct hd_plan *p, const struct node *n)
{
	if (!hd_over_stages(p, n->comm.group))
		return HD_EVENT_START;
	return n->comm.kind == HD_COMM_SEND   ? HD_EVENT_SEND
	       : n->comm.kind == HD_COMM_RECV ? HD_EVENT_RECEIVE
					      : HD_EVENT_MEET;
}

static int is_scatter_of_gradients(const struct node *n)
{
	return n->comm.kind == HD_COMM_REDUCE_SCATTER && n->v.phase & HD_UNIT_W;
}

static int waits(const struct making *b, const struct node *n, int kind, const struct event_price *p)
{
	if (kind == HD_EVENT_SEND)
		return b->price->style->messages_wait;
	if (kind == HD_EVENT_START && b->price->style->scatter_waits && is_scatter_of_gradients(n))
		return 1;
	if (kind == HD_EVENT_START && b->price->style->parameters_wait && n->v.phase & HD_UNIT_G)
		return 1;
	return kind == HD_EVENT_START && (b->price->style->collectives_wait ||
					  (hd_machine_is_host(b->s->m) && p->occupied[HD_LINK_NETWORK] <= 0));
}

static const struct priced *movement_price(struct making *b, const struct node *n)
{
	struct priced *at = &b->s->nodes[n->id];
	struct hd_movement_price moved;
	struct event_price p = { .queue = n->comm.group->id };

	if (at->program == b->s->programs)
		return at;
	moved = hd_price_movement(b->price, n);
	*at = (struct priced){ .program = b->s->programs, .seconds = moved.seconds, .kind = kind_of(b->s->p, n) };
	p.seconds = moved.seconds;
	for (int i = 0; i < HD_LINKS; i++) {
		p.occupied[i] = moved.occupied[i];
		at->sent[i] = moved.sent[i];
	}
	p.waits = waits(b, n, at->kind, &p);
	at->number = price_new(b, &p);
	return at;
}

/* Returns the index of a movement's price, and its seconds in *took. The first pull waits for the servers' update, too.
 * The style may put off sums of gradients. */
static int32_t price_here(struct making *b, const struct node *n, const struct priced *at, double *took)
{
	struct event_price p = b->to->prices[at->number];
	int pull = n->comm.kind == HD_COMM_PULL && !b->s->aside && b->s->serving > 0;
	int late = at->kind == HD_EVENT_START && b->price->style->sync_late && n->v.phase == HD_UNIT_S;

	if (pull) {
		p.seconds += b->s->serving;
		b->s->serving = 0;
	}
	*took = p.seconds;
	if (late) {
		b->late.seconds += *took;
		b->late.queue = p.queue;
		p.seconds = p.occupied[HD_LINK_NODE] = p.occupied[HD_LINK_NETWORK] = 0;
		p.waits = waits(b, n, at->kind, &p);
	}
	return pull || late ? price_new(b, &p) : at->number;
}

/* Adds the event of a movement. Returns its request, or -1 if nothing moves. */
static int32_t movement(struct making *b, const struct entry *x)
{
	const struct node *n = x->node, *maker = n->comm.kind == HD_COMM_RECV ? N(n->ins[0]->v.node) : n;
	struct event_source *s = b->s;
	const struct priced *at;
	struct event *e;
	double took;

	if (n->comm.group->v.n == 1)
		return -1;
	at = movement_price(b, n);
	e = event_start(b, at->kind, price_here(b, n, at, &took));
	for (int i = 0; i < HD_LINKS; i++)
		b->sum->sent[i] += at->sent[i];
	b->sum->between_nodes |=
		e->kind == HD_EVENT_START && n->v.phase & (HD_UNIT_F | HD_UNIT_B) && at->sent[HD_LINK_NETWORK] > 0;
	if (e->kind != HD_EVENT_START)
		e->key = (uint32_t)(s->index[maker->id] * (s->p->micros + 1) + x->micro + 1);
	if (e->kind == HD_EVENT_START || e->kind == HD_EVENT_MEET)
		b->sum->collective += took;
	if (e->kind == HD_EVENT_MEET && x->micro <= 0 && !s->aside)
		s->members[s->index[maker->id]]++;
	return e->request;
}

/* Adds a transfer between the device's memory and the host's. Returns its request. It runs at the same time as kernels
 * and as communication between ranks. Each direction has a queue; their numbers follow those of the groups. */
static int32_t transfer(struct making *b, const struct node *n)
{
	int to_host = n->outs[0]->v.space == HD_SPACE_HOST;
	double bytes = (double)hd_local_bytes(n->ins[0]), seconds = bytes / b->s->m->host_link;

	b->sum->moved[to_host] += bytes;
	b->sum->collective += seconds;
	return start(b, seconds, (int32_t)b->s->p->ngroups + to_host, 0);
}

static void late_now(struct making *b)
{
	if (b->late.seconds > 0)
		start(b, b->late.seconds, b->late.queue, 1);
	b->late.seconds = 0;
}

static void wait_at(struct making *b, int64_t entry, int32_t request)
{
	struct wait_list *at = &b->waits[entry];

	b->next[request].to = 0;
	if (at->last)
		b->next[at->last - 1].to = request + 1;
	else
		at->first = request + 1;
	at->last = request + 1;
}

static void move(struct making *b, const struct entry *x)
{
	int32_t request = x->node->comm.kind ? movement(b, x) : transfer(b, x->node);

	if (request >= 0 && x->wait >= 0)
		wait_at(b, x->wait, request);
}

static void wait_here(struct making *b, size_t entry)
{
	int32_t next;

	for (int32_t r = b->waits[entry].first; r; r = next) {
		event_new(b, HD_EVENT_WAIT)->request = r - 1;
		next = b->next[r - 1].to;
		b->next[r - 1].to = b->spare;
		b->spare = r;
	}
}

/* -- kernels ------------------------------------------------------------------------------------------------------- */
static const struct priced *kernel_price(struct making *b, const struct entry *x)
{
	int adds = x->type == HD_ENTRY_ACC;
	struct priced *at = adds ? &b->s->added[x->node->ins[x->input]->id] : &b->s->nodes[x->node->id];

	if (at->program == b->s->programs)
		return at;
	*at = (struct priced){ .program = b->s->programs };
	at->seconds = adds ? hd_price_accumulate(b->price, x) : hd_price_kernel(b->price, x->node);
	at->more_flops = adds ? 0 : hd_price_more_flops(b->price, x->node);
	at->kind = hd_work_kind(x->node);
	return at;
}

static void compute(struct making *b, const struct entry *x)
{
	const struct priced *at = kernel_price(b, x);

	b->compute += at->seconds;
	b->sum->compute += at->seconds;
	b->sum->kinds[at->kind] += at->seconds;
	b->sum->more_flops += at->more_flops;
}

/* Adds the recomputation of a whole layer before its backward. */
static void again(struct making *b, const struct entry *x)
{
	struct hd_again *a = b->again;

	if (!a || x->type != HD_ENTRY_NODE || x->node->block < 0 || x->node->v.phase != HD_UNIT_B)
		return;
	a += x->node->block;
	if (a->micro == x->micro + 1)
		return;
	a->micro = x->micro + 1;
	b->compute += a->kernels;
	b->sum->compute += a->kernels;
	b->sum->more_flops += a->flops;
	if (a->collectives > 0) {
		start(b, a->collectives, a->queue, 1);
		b->sum->collective += a->collectives;
	}
}

/* -- the program --------------------------------------------------------------------------------------------------- */
static int same_unit(const struct hd_schedule_unit *a, const struct hd_schedule_unit *b)
{
	return a->kind == b->kind && a->chunk == b->chunk && a->micro == b->micro;
}

/* Records entry i in the spans: it begins a unit, or belongs to the last one. */
static void mark(struct making *b, size_t i)
{
	struct hd_unit_spans *spans = b->spans;
	const struct hd_schedule_unit *unit = &b->price->g->entries[i].unit;
	struct hd_unit_span *at = spans->nunits ? &spans->units[spans->nunits - 1] : NULL;

	if (!at || !same_unit(&at->unit, unit)) {
		spans->units = hd_grow(spans->units, spans->nunits, &spans->cap_units, sizeof(*at));
		at = &spans->units[spans->nunits++];
		at->unit = *unit;
		event_new(b, HD_EVENT_MARK)->key = (uint32_t)spans->nunits - 1;
	}
	if (hd_memory_use_sum(&b->use[i]) > hd_memory_use_sum(&at->use))
		at->use = b->use[i];
}

static void add_entry(struct making *b, size_t i)
{
	const struct entry *x = &b->price->g->entries[i];

	wait_here(b, i);
	if (b->spans)
		mark(b, i);
	if (x->type == HD_ENTRY_NODE && x->node->v.phase == HD_UNIT_U)
		late_now(b);
	again(b, x);
	if (x->type == HD_ENTRY_NODE && hd_node_moves(x->node))
		move(b, x);
	else if (x->type != HD_ENTRY_LOAD)
		compute(b, x);
}

/* Frees the unused room, since nothing more is added. */
static void shrink(struct events *to)
{
	to->v = realloc(to->v, to->n * sizeof(*to->v));
	to->cap = to->n;
}

void hd_events_make(struct event_source *s, const struct hd_pricing *price, struct events *to,
		    struct hd_stage_price *sum, struct hd_unit_spans *spans)
{
	const struct hd_program *g = price->g;
	struct making b = { .s = s, .price = price, .to = to, .sum = sum, .spans = spans };

	s->programs++;
	b.use = spans ? hd_program_memory_use(g) : NULL;
	b.again = hd_again_find(price);
	b.waits = hd_alloc((g->n + 1) * sizeof(*b.waits));
	for (size_t i = 0; i < g->n; i++)
		add_entry(&b, i);
	wait_here(&b, g->n);
	event_new(&b, HD_EVENT_END);
	shrink(to);
	free(b.again), free(b.waits), free(b.next), free(b.known), free(b.use);
}
