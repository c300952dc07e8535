/* SPDX-License-Identifier: Apache-2.0
 * Executes the movement from every placement to every other one: each rank must end with its slice of the true tensor,
 * bit for bit.  If one entry of the table were wrong, a few layouts would train on permuted or doubled numbers.
 *
 * Meshes have two and three axes.  On each axis the tensor is replicated, sharded along a dim (one dim by several axes
 * too, in both orders), a partial sum or maximum, or at one coordinate (of the axis that has the stages).  Data are
 * small integers, so sums are exact.  All ranks live in this process; thousands of pairs share programs in batches.
 */
#include <config.h>
#include "t/lib/sim_ranks.h"
#include "t/lib/tap.h"

#define BATCH 24
#define STATES 16

struct pair {
	struct tensor *x, *y, *out;
	struct placement have, need;
	char text[200];
};

static struct hd_plan *p;
static struct pair pairs[BATCH];
static int npairs;
static int64_t extent, axis_size[3];
static int naxes, ndims, owner; /* the strategy that owns all axes, or -1 */
static const char *const dim_names[] = { "d0", "d1", "d2" };

/* The first failure of each kind, and counts of failures, pairs and steps. */
static struct {
	const char *name;
	long n;
} calls[16]; /* per collective of the batch: the steps that need it minus the nodes that perform it */
static struct {
	long pairs, steps, joined, wrong_plan, wrong_data, wrong_steps, grows;
	int64_t widest; /* the members of the largest collective */
	char first[4][1280];
} seen;

static void blame(long *count, int which, const struct pair *k, const char *what)
{
	if (!(*count)++)
		snprintf(seen.first[which], sizeof(seen.first[which]), "%s: %s", k->text, what);
}

/* -- placements ---------------------------------------------------------------------------------------------------- */
static int states_of(struct hd_place *s, int axis, int have)
{
	int n = 0;

	s[n++] = (struct hd_place){ .kind = HD_PLACE_REPLICATED };
	for (int d = 0; d < ndims; d++)
		s[n++] = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = hd_dim_get(p, dim_names[d], 0) };
	if (axis == 0) /* level: inner axis becomes the outer one */
		s[n++] =
			(struct hd_place){ .kind = HD_PLACE_SHARD, .dim = hd_dim_get(p, dim_names[0], 0), .level = -1 };
	if (have) {
		s[n++] = (struct hd_place){ .kind = HD_PLACE_PARTIAL, .red = HD_RED_SUM };
		if (axis == 1)
			s[n++] = (struct hd_place){ .kind = HD_PLACE_PARTIAL, .red = HD_RED_MAX };
	}
	for (int i = 0; i < 2 && axis == naxes - 1; i++)
		s[n++] = (struct hd_place){ .kind = HD_PLACE_PINNED, .index = i };
	return n;
}

static int partials(const struct placement *at, int red)
{
	int n = 0;

	for (int a = 0; a < naxes; a++)
		n += at->on[a].kind == HD_PLACE_PARTIAL && at->on[a].red == red;
	return n;
}

/* -- true values --------------------------------------------------------------------------------------------------- */
static double truth(int64_t global)
{
	return (double)((global * 2654435761u >> 7) % 61) - 30;
}

static int coord(int rank, int axis)
{
	return (int)hd_plan_coord(p, rank, p->axes[axis]);
}

/* Returns the offset of a rank's slice along dim d.  The axes that shard it are visited outermost first: by level,
 * then later axes first.  This repeats the engine's rule independently. */
static int64_t offset_of(const struct placement *at, int d, int rank, int64_t *local)
{
	int64_t off = 0;

	*local = extent;
	for (int level = -1; level <= 0; level++)
		for (int a = naxes - 1; a >= 0; a--)
			if (at->on[a].kind == HD_PLACE_SHARD && at->on[a].dim == hd_dim_get(p, dim_names[d], 0) &&
			    at->on[a].level == level) {
				*local /= axis_size[a];
				off += coord(rank, a) * *local;
			}
	return off;
}

static int lives(const struct placement *at, int rank)
{
	for (int a = 0; a < naxes; a++)
		if (at->on[a].kind == HD_PLACE_PINNED && at->on[a].index != coord(rank, a))
			return 0;
	return 1;
}

/* Returns this rank's part of a sum or maximum whose total is the true value v. */
static double part(const struct placement *at, int rank, int64_t global, double v)
{
	int me = 0, all = 1;

	for (int a = 0; a < naxes; a++)
		if (at->on[a].kind == HD_PLACE_PARTIAL) {
			me = me * (int)axis_size[a] + coord(rank, a);
			all *= (int)axis_size[a];
		}
	if (partials(at, HD_RED_MAX))
		return global % all == me ? v : v - 1 - (double)((global + me) % 3);
	if (me)
		return (double)((global * 3 + me) % 7) - 3;
	for (int k = 1; k < all; k++)
		v -= (double)((global * 3 + k) % 7) - 3;
	return v;
}

/* Fills a rank's slice (fill = 1) or compares it.  Returns how many elements differ. */
static long slice(const struct placement *at, int rank, double *v, int fill)
{
	int64_t off[3] = { 0 }, n[3] = { 1, 1, 1 }, k = 0;
	long wrong = 0;

	for (int d = 0; d < ndims; d++)
		off[d] = offset_of(at, d, rank, &n[d]);
	for (int64_t i = 0; i < n[0]; i++)
		for (int64_t j = 0; j < n[1]; j++)
			for (int64_t l = 0; l < n[2]; l++, k++) {
				int64_t global = ((off[0] + i) * extent + off[1] + j) * extent + off[2] + l;
				double want = part(at, rank, global, truth(global));

				if (fill)
					v[k] = want;
				else
					wrong += v[k] != want;
			}
	return wrong;
}

/* -- a batch ------------------------------------------------------------------------------------------------------- */
static void begin(void)
{
	static const char *const axis_names[] = { "a", "b", "c" };

	p = gt_plan(1);
	for (int d = 0; d < 3; d++)
		hd_dim_get(p, dim_names[d], extent);
	for (int a = 0; a < naxes; a++)
		gt_axis(p, axis_names[a], axis_size[a])->inst = owner;
	p->inst[0].name = "s";
	p->stages = p->axes[naxes - 1];
	for (int64_t i = 1; i < p->stages->v.n; i++)
		p->blocks[hd_block_begin(p, "stage")].coord = i;
	p->cursor = hd_cursor_end(HD_UNIT_S, -1);
	npairs = 0;
}

/* Returns the collective of a step, as in the table of reshard.c: "" for none, NULL if the table does not have the
 * step. */
static const char *collective(const struct hd_place *h, const struct hd_place *w)
{
	if (h->kind == HD_PLACE_PARTIAL)
		return w->kind == HD_PLACE_REPLICATED ? h->red == HD_RED_MAX ? "all-max" : "all-reduce"
		       : w->kind == HD_PLACE_SHARD && h->red == HD_RED_SUM ? "reduce-scatter"
									   : NULL;
	if (h->kind == HD_PLACE_SHARD)
		return w->kind == HD_PLACE_REPLICATED ? "all-gather" : w->kind == HD_PLACE_SHARD ? "all-to-all" : NULL;
	if (h->kind == HD_PLACE_PINNED)
		return w->kind == HD_PLACE_PINNED ? "send" : w->kind == HD_PLACE_REPLICATED ? "broadcast" : NULL;
	return w->kind == HD_PLACE_SHARD || w->kind == HD_PLACE_PINNED ? "" : NULL;
}

static void count(const char *name, long by)
{
	int i = 0;

	while (calls[i].name && strcmp(calls[i].name, name))
		i++;
	calls[i].name = name;
	calls[i].n += by;
}

/* Returns whether the tensor need not grow before it shrinks.  That holds if on each dim the axes that stay are the
 * outer ones and at most one axis enters or leaves.  (Two axes that change dims together would reverse their order.) */
static int is_simple(const struct placement *have, const struct placement *need)
{
	for (int d = 0; d < ndims; d++) {
		const struct hd_dim *dim = hd_dim_get(p, dim_names[d], 0);
		int h[HD_MAX_AXES], w[HD_MAX_AXES], nh = hd_shard_order(p, have, dim, h),
						    nw = hd_shard_order(p, need, dim, w), stay = 0;

		while (stay < nh && stay < nw && h[stay] == w[stay])
			stay++;
		if ((nh > stay && nw > stay) || nh > stay + 1 || nw > stay + 1)
			return 0;
	}
	return 1;
}

/* Checks that each step is in the table, and that only the innermost axis of a dim leaves or enters.  In simple pairs
 * nothing may grow and then shrink, and each axis moves once. */
static void check_steps(const struct pair *k)
{
	struct node *step[32];
	int n = 0, grown = 0, moves = 0, simple = is_simple(&k->have, &k->need);

	for (struct tensor *t = k->y; t != k->x && n < 32; t = N(t->v.node)->ins[0])
		step[n++] = N(t->v.node);
	for (int i = n - 1; i >= 0; i--) {
		const struct hd_place *h = &step[i]->reshard.have, *w = &step[i]->reshard.need;
		int a = A(step[i]->reshard.axis)->id, order[HD_MAX_AXES], m;
		int64_t before = hd_local_bytes(step[i]->ins[0]), after = hd_local_bytes(step[i]->outs[0]);

		seen.steps++;
		if (!collective(h, w))
			blame(&seen.wrong_steps, 0, k, "a step that is not in the table");
		m = h->kind == HD_PLACE_SHARD ? hd_shard_order(p, &step[i]->ins[0]->at, h->dim, order) : 0;
		if (m && order[m - 1] != a)
			blame(&seen.wrong_steps, 0, k, "an axis leaves that is not the innermost");
		m = w->kind == HD_PLACE_SHARD ? hd_shard_order(p, &step[i]->outs[0]->at, w->dim, order) : 0;
		if (m && order[m - 1] != a)
			blame(&seen.wrong_steps, 0, k, "an axis enters that is not the innermost");
		if (moves >> a & 1 && simple && collective(&k->have.on[a], &k->need.on[a]))
			blame(&seen.wrong_steps, 0, k, "an axis moves twice");
		moves |= 1 << a;
		if (collective(h, w))
			count(collective(h, w), 1);
		grown |= after > before;
		if (after < before && grown && simple)
			blame(&seen.grows, 1, k, "a step that grows the tensor precedes one that shrinks it");
	}
}

static void add(const struct placement *have, const struct placement *need)
{
	struct pair *k = &pairs[npairs];
	const struct hd_dim *dims[3];

	for (int d = 0; d < ndims; d++)
		dims[d] = hd_dim_get(p, dim_names[d], 0);
	k->have = *have, k->need = *need;
	k->x = hd_tensor_new(p, hd_plan_text(p, "x%d", npairs), HD_TENSOR_STATE, HD_DTYPE_F64, dims, (uint32_t)ndims);
	k->out = hd_tensor_new(p, hd_plan_text(p, "y%d", npairs), HD_TENSOR_STATE, HD_DTYPE_F64, dims, (uint32_t)ndims);
	k->x->step = k->out->step = 1;
	k->x->at = *have, k->out->at = *need;
	hd_localize(p, k->x);
	hd_localize(p, k->out);
	snprintf(k->text, sizeof(k->text), "%s", hd_placement_text(p, have));
	snprintf(k->text + strlen(k->text), sizeof(k->text) - strlen(k->text), " -> %s", hd_placement_text(p, need));
	k->y = hd_reshard_to(p, k->x, need, NULL);
	hd_assign(k->out, k->y);
	seen.pairs++;
	if (!k->y || !hd_placement_equal(p, &k->y->at, need)) {
		blame(&seen.wrong_plan, 2, k, k->y ? "it ends elsewhere" : p->own.text);
		hd_assign(k->out, NULL);
		return;
	}
	check_steps(k);
	npairs++;
}

static void widest(int64_t members)
{
	seen.widest = members > seen.widest ? members : seen.widest;
}

/* Checks that each step became one collective of its kind.  Steps over axes of one strategy may share a collective. */
static void check_calls(void)
{
	for (const struct node *n = p->first; n; n = n->next)
		if (n->comm.kind && n->comm.kind != HD_COMM_RECV)
			count(hd_comm_kind_name(n->comm.kind), -1), widest(n->comm.group->v.n);
	for (int i = 0; calls[i].name; i++) {
		if (calls[i].name[0] && (calls[i].n < 0 || (calls[i].n && owner < 0)))
			blame(&seen.wrong_steps, 0, &pairs[0], calls[i].name);
		seen.joined += calls[i].name[0] ? calls[i].n : 0;
	}
	memset(calls, 0, sizeof(calls));
}

static void run(void)
{
	struct gt_run *r;
	const char *why;

	if (gt_lower(p) < 0 || !(r = gt_open(p, sim_members))) {
		blame(&seen.wrong_plan, 2, &pairs[0], p->own.code ? p->own.text : gt_why());
		return;
	}
	check_calls();
	for (int i = 0; i < npairs; i++)
		for (int k = 0; k < r->n; k++)
			if (lives(&pairs[i].have, k))
				slice(&pairs[i].have, k, gt_address(r, pairs[i].x, k), 1);
	why = sim_compute(r);
	if (why)
		blame(&seen.wrong_data, 3, &pairs[0], why);
	for (int i = 0; i < npairs && !why; i++)
		for (int k = 0; k < r->n; k++)
			if (lives(&pairs[i].need, k) &&
			    slice(&pairs[i].need, k, gt_address(r, pairs[i].out->assign, k), 0))
				blame(&seen.wrong_data, 3, &pairs[i], "wrong elements");
	sim_close(r);
}

static void finish(void)
{
	if (npairs)
		run();
	begin();
}

/* Stores combination number `which` of the states of all axes.  Returns 0 if it is not a valid one. */
static int combination(long which, int have, struct placement *at)
{
	struct hd_place s[STATES];

	memset(at, 0, sizeof(*at));
	for (int a = 0; a < naxes; a++) {
		int n = states_of(s, a, have);

		at->on[a] = s[which % n];
		which /= n;
	}
	return !which && !(partials(at, HD_RED_SUM) && partials(at, HD_RED_MAX));
}

static long combinations(int have)
{
	struct hd_place s[STATES];
	long n = 1;

	for (int a = 0; a < naxes; a++)
		n *= states_of(s, a, have);
	return n;
}

/* Tries every `stride`-th pair of placements on a mesh. */
static void mesh(int dims, int64_t n, int a, int b, int c, long stride, const char *name)
{
	long nhave, nneed;

	memset(&seen, 0, sizeof(seen));
	ndims = dims, extent = n, naxes = c ? 3 : 2;
	axis_size[0] = a, axis_size[1] = b, axis_size[2] = c;
	begin();
	nhave = combinations(1), nneed = combinations(0);
	for (long i = 0; i < nhave * nneed; i += stride) {
		struct placement have, need;

		if (combination(i / nneed, 1, &have) && combination(i % nneed, 0, &need))
			add(&have, &need);
		if (npairs == BATCH || p->own.code)
			finish();
	}
	finish();
	note("%s: %ld pairs, %ld steps, %ld fewer collectives", name, seen.pairs, seen.steps, seen.joined);
	ok(!seen.wrong_plan, "%s: every pair can be resharded%s%s", name, seen.wrong_plan ? ": " : "", seen.first[2]);
	ok(!seen.wrong_steps, "%s: only steps of the table, the innermost axis first%s%s", name,
	   seen.wrong_steps ? ": " : "", seen.first[0]);
	ok(!seen.grows, "%s: shrinking steps precede growing ones%s%s (%ld)", name, seen.grows ? ": " : "",
	   seen.first[1], seen.grows);
	ok(!seen.wrong_data, "%s: every rank ends with its slice%s%s (%ld)", name, seen.wrong_data ? ": " : "",
	   seen.first[3], seen.wrong_data);
}

/* A sum over both axes is one collective.  If another node reads the sum over one axis, or a state is assigned it,
 * that sum is computed once and the sum over the other axis is a separate step. */
static void read_between(int also)
{
	struct placement both = { .on = { { .kind = HD_PLACE_PARTIAL, .red = HD_RED_SUM },
					  { .kind = HD_PLACE_PARTIAL, .red = HD_RED_SUM } } },
			 whole = { .on = { { .kind = HD_PLACE_REPLICATED } } };
	struct tensor *between, *z;

	memset(&seen, 0, sizeof(seen));
	begin();
	add(&both, &whole);
	between = N(pairs[0].y->v.node)->ins[0];
	if (also) {
		z = hd_tensor_new(p, "z", HD_TENSOR_STATE, HD_DTYPE_F64, between->dims, between->v.ndim);
		z->step = 1;
		z->at = between->at;
		hd_localize(p, z);
		hd_assign(z, also > 1 ? between : hd_map_new(p, &between, 1, "a"));
	}
	run();
	ok(!seen.wrong_plan && !seen.wrong_data && (also ? seen.widest < 6 : seen.widest == 6),
	   "a sum over 3 x 2%s: its largest collective has %lld members",
	   also > 1 ? ", whose sum over one axis is also assigned to a state"
	   : also   ? ", whose sum over one axis is also read"
		    : "",
	   (long long)seen.widest);
}

int main(void)
{
	owner = -1;
	mesh(1, 12, 2, 2, 0, 1, "1 dim on 2 x 2");
	mesh(2, 4, 2, 2, 0, 1, "2 dims on 2 x 2");
	mesh(2, 6, 3, 2, 0, 1, "2 dims on 3 x 2");
	mesh(2, 8, 2, 2, 2, 1, "2 dims on 2 x 2 x 2");
	mesh(3, 12, 2, 3, 2, 23, "3 dims on 2 x 3 x 2");
	owner = 0;
	mesh(2, 6, 3, 2, 0, 1, "2 dims on 3 x 2, axes of one strategy");
	ok(seen.joined > 0, "some steps share a collective: %ld", seen.joined);
	read_between(0);
	read_between(1);
	read_between(2);
	return done();
}
