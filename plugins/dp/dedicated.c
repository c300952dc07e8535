/* SPDX-License-Identifier: Apache-2.0
 * The synchronous parameter server (Li et al. 2014) with dedicated servers: `servers` coordinates after those of the
 * workers. They store master weights and optimizer states, and no part of the model. Parameters are dealt to servers
 * largest first, each to the server with the smallest load so far. A parameter that is large compared with a server's
 * share is cut, and each server gets a piece. With pipeline stages, this is done per stage, since the servers at a
 * stage's coordinate serve only that stage.
 *
 * A bucket of gradients goes to its server as soon as backward has computed it (push). The server adds the gradients in
 * the order of the workers, and runs the update. The next step begins with buckets of new values that return (pull), in
 * the order in which forward reads them.
 */
#include "dp.h"
#include <string.h>

#define LARGE 8 /* a parameter is cut if it is larger than 1/LARGE of a server's share */

/* -- dealing ------------------------------------------------------------------------------------------------------- */
struct deal {
	struct hd_tensor **w; /* masters that are still to be dealt */
	int64_t *stage, *load, all;
	uint32_t n;
};

/* Returns the coordinate at which the parameter is pinned, which is its stage, or 0 if it is not pinned. */
static int64_t stage_of(struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *w)
{
	const struct hd_axis *a = NULL;

	while ((a = s->h->axis_next(p, a))) {
		const struct hd_place *at = s->g->place(p, w, a);

		if (at->kind == HD_PLACE_PINNED)
			return at->index;
	}
	return 0;
}

/* Returns the first dim that the number of servers divides, or NULL. */
static const struct hd_dim *cut_along(const struct hd_strategy *s, const struct hd_tensor *w)
{
	for (uint32_t i = 0; i < w->ndim; i++)
		if (w->local[i] % s->servers == 0)
			return w->dims[i];
	return NULL;
}

/* Stores everything that belongs to the parameter w and that its update reads in place `to`. */
static void store_on(struct hd_strategy *s, struct hd_plan *p, const struct hd_tensor *w, const struct hd_place *to)
{
	static const uint32_t what[] = { HD_TENSOR_STATE, HD_TENSOR_MASTER, HD_TENSOR_GRAD };

	for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++)
		for (struct hd_tensor *t = NULL; (t = s->g->leaf_next(p, t, what[i]));)
			if (t->of == w && (what[i] != HD_TENSOR_GRAD || !strcmp(t->node->kind, "sync")))
				hd_storage(s->g, p, t, s->dp, to);
}

static int64_t least_loaded(const struct hd_strategy *s, const int64_t *load)
{
	int64_t to = 0;

	for (int64_t j = 1; j < s->servers; j++)
		to = load[j] < load[to] ? j : to;
	return to;
}

/* Deals the largest remaining parameter, either to one server or in pieces to all. */
static void deal_largest(struct hd_strategy *s, struct hd_plan *p, struct deal *d)
{
	struct hd_place to = { .kind = HD_PLACE_PINNED, .role = HD_ROLE_SPARE };
	uint32_t at = 0;
	int64_t *load, bytes;

	for (uint32_t i = 1; i < d->n; i++)
		at = dp_bytes(d->w[i]) > dp_bytes(d->w[at]) ? i : at;
	load = d->load + d->stage[at] * s->servers;
	bytes = dp_bytes(d->w[at]);
	if (s->servers > 1 && bytes * s->servers * LARGE > d->all && cut_along(s, d->w[at]))
		to = (struct hd_place){
			.kind = HD_PLACE_SHARD, .role = HD_ROLE_SPARE, .level = INT32_MAX, .dim = cut_along(s, d->w[at])
		};
	else
		to.index = (int32_t)least_loaded(s, load);
	for (int64_t j = 0; j < s->servers; j++)
		load[j] += to.kind == HD_PLACE_SHARD ? bytes / s->servers : j == to.index ? bytes : 0;
	store_on(s, p, d->w[at]->of, &to);
	d->n--;
	d->w[at] = d->w[d->n];
	d->stage[at] = d->stage[d->n];
}

int dp_deal(struct hd_strategy *s, struct hd_plan *p)
{
	struct deal d = { 0 };
	struct hd_tensor *t = NULL;
	int64_t stages = 1, k = 0;

	while ((t = s->g->leaf_next(p, t, HD_TENSOR_MASTER)))
		k++;
	d.w = s->h->alloc(p, (size_t)(k + 1) * sizeof(*d.w));
	d.stage = s->h->alloc(p, (size_t)(k + 1) * sizeof(*d.stage));
	if (!d.w || !d.stage)
		return HD_ENOMEM;
	while ((t = s->g->leaf_next(p, t, HD_TENSOR_MASTER))) {
		const struct hd_place *at = s->g->place(p, t->of, s->dp);

		if (at->kind != HD_PLACE_REPLICATED)
			return s->h->fail(p, HD_ENOTSUP,
					  "servers: %s is not complete on each worker, so it has no server",
					  t->of->name);
		d.w[d.n] = t;
		d.stage[d.n] = stage_of(s, p, t->of);
		stages = d.stage[d.n] >= stages ? d.stage[d.n] + 1 : stages;
		d.all += dp_bytes(t);
		d.n++;
	}
	d.all /= stages;
	d.load = s->h->alloc(p, (size_t)(stages * s->servers) * sizeof(*d.load));
	while (d.load && d.n)
		deal_largest(s, p, &d);
	return d.load ? s->h->status(p) : HD_ENOMEM;
}

/* -- push and pull ------------------------------------------------------------------------------------------------- */
/* Tells whether w is at the current server (s->server). -1 stands for all servers, which share the parameters that are
 * cut. */
static int is_at(const struct hd_strategy *s, const struct hd_place *w)
{
	return w->role == HD_ROLE_SPARE &&
	       (w->kind == HD_PLACE_SHARD ? s->server < 0 : w->kind == HD_PLACE_PINNED && s->server == w->index);
}

static int is_push(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_reshard *r = n->reshard;

	return r->have.kind == HD_PLACE_PARTIAL && r->have.red == HD_RED_SUM && is_at(s, &r->need);
}

static int is_pull(const struct hd_strategy *s, const struct hd_node *n)
{
	const struct hd_reshard *r = n->reshard;

	return r->need.kind == HD_PLACE_REPLICATED && r->need.role == HD_ROLE_CORE && is_at(s, &r->have);
}

static const struct hd_group *with_servers(const struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_group_args x = { sizeof(x), &s->dp, 1, HD_ROLE_ALL };

	return s->h->group(p, &x);
}

static struct hd_tensor *push_or_pull(struct hd_strategy *s, struct hd_plan *p, uint32_t kind, struct hd_tensor *flat,
				      uint32_t wire)
{
	struct hd_comm_args a = { .size = sizeof(a), .group = with_servers(s, p), .x = flat, .kind = kind };

	if (!flat || !a.group)
		return NULL;
	a.dim = s->server < 0 ? flat->dims[0] : NULL;
	a.index = s->server < 0 ? 0 : s->server;
	a.wire = wire == HD_DTYPE_F32 || wire == flat->dtype ? 0 : wire;
	return s->g->comm(p, &a);
}

static void replace_all(struct hd_strategy *s, struct hd_plan *p, struct dp_bucket *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		s->g->replace(p, b->in[i]->outs[0], b->x[b->n + i]);
}

static int push(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct dp_bucket *b)
{
	const struct hd_dim **dims = s->h->alloc(p, (b->n + 1) * sizeof(*dims));
	struct hd_tensor **like = s->h->alloc(p, (b->n + 1) * sizeof(*like));

	if (!dims || !like)
		return HD_ENOMEM;
	hd_cursor(s->g, p, b->at, g);
	for (uint32_t i = 0; i < b->n; i++) {
		dims[i] = b->in[i]->reshard->need.dim;
		like[i] = s->server < 0 ? s->g->chunk(p, b->x[i], dims[i], s->servers, &(struct hd_pos){ 0 }) : b->x[i];
	}
	b->flat = s->server < 0 ? s->g->pack_pieces(p, b->x, dims, b->n, s->servers) : s->g->pack(p, b->x, b->n, 1);
	s->g->unpack(p, push_or_pull(s, p, HD_COMM_PUSH, b->flat, s->wire), like, b->n, b->x + b->n);
	replace_all(s, p, b);
	return s->h->status(p);
}

static int pull(struct hd_strategy *s, struct hd_plan *p, const struct hd_group *g, struct dp_bucket *b)
{
	const struct hd_dim **dims = s->h->alloc(p, (b->n + 1) * sizeof(*dims));
	struct hd_tensor *flat;

	if (!dims)
		return HD_ENOMEM;
	hd_cursor(s->g, p, b->at, g);
	for (uint32_t i = 0; i < b->n; i++)
		dims[i] = b->in[i]->reshard->have.dim;
	flat = push_or_pull(s, p, HD_COMM_PULL, s->g->pack(p, b->x, b->n, 1), HD_DTYPE_F32);
	if (s->server < 0)
		s->g->unpack_pieces(p, flat, b->x, dims, b->n, s->servers, b->x + b->n);
	else
		s->g->unpack(p, flat, b->x, b->n, b->x + b->n);
	replace_all(s, p, b);
	return s->h->status(p);
}

int dp_lower_served(struct hd_strategy *s, struct hd_plan *p)
{
	for (s->server = -1; s->server < s->servers; s->server++) {
		dp_each_bucket(s, p, is_push, push);
		dp_each_bucket(s, p, is_pull, pull);
	}
	return s->h->status(p);
}
