/* SPDX-License-Identifier: Apache-2.0
 * Barriers that count arrivals and bytes, the copy engine, and products of four warps: see sim.h and base/hopper.h.
 *
 * Whatever a GPU may do at any time between two points happens at the last possible one.  A tile arrives when its
 * barrier's phase can end.  A product reads its operands and writes its sums when it is waited for.  Code that is
 * too early reads poison, or fails with a message.
 */
#include "kernels/cuda/sim/sim_inside.h"
#include <stdio.h>

#define BARRIERS 64
#define FETCHES 32
#define PRODUCTS 128
#define MOST_COLUMNS 256 /* columns of a product */
#define PUTS 16          /* tiles that a thread is writing to memory and has not waited for */
#define PUT_ROWS 64      /* rows of one such tile */

struct fetch {
	char *to;
	hd_sim_tensor_map map;
	int at[4];
};

static struct barrier {
	uint64_t *at;
	int arrivals, left, phase, nfetches; /* left: arrivals that are still missing */
	int64_t expected, under_way;         /* in bytes */
	struct fetch fetches[FETCHES];
	uint32_t clock[SIM_THREADS];
} barriers[BARRIERS];
static int nbarriers;

/* -- barriers ------------------------------------------------------------------------------------------------------ */
static struct barrier *barrier_of(uint64_t *b, const char *what)
{
	for (int i = 0; i < nbarriers; i++)
		if (barriers[i].at == b)
			return &barriers[i];
	sim_fail("%s at %p, where no barrier was made", what, (void *)b);
}

void hd_sim_mbarrier(uint64_t *b, int arrivals)
{
	struct barrier *x = &barriers[nbarriers];

	hd_sim_aligned(b, 8, "a barrier");
	if (sim_offset(b) >= SIM_SHARED_ROOM || nbarriers == BARRIERS || arrivals < 1)
		sim_fail("a barrier of %d arrivals at %p", arrivals, (void *)b);
	hd_sim_touch(b, 8, HD_SIM_WRITE);
	memset(x, 0, sizeof(*x));
	x->at = b;
	x->arrivals = x->left = arrivals;
	nbarriers++;
	sim_phases();
}

void hd_sim_arrive(uint64_t *b, int bytes)
{
	struct barrier *x = barrier_of(b, "an arrival");

	hd_sim_touch(b, 8, HD_SIM_ATOMIC);
	if (!x->left--)
		sim_fail("an arrival too many at the barrier %p, which counts %d", (void *)b, x->arrivals);
	x->expected += bytes;
	sim_release(x->clock);
}

/* Returns where the engine stores byte `at` of a tile at `to`: the row bits of the address itself permute its
 * 16-byte pieces. */
HD_SIM_UNSEEN static char *swizzled(char *to, int64_t at)
{
	size_t o = sim_offset(to) + (size_t)at;

	return sim_window + (o ^ (o >> 7 & 7) << 4);
}

HD_SIM_UNSEEN static void deliver(const struct fetch *f)
{
	const hd_sim_tensor_map *m = &f->map;

	for (int r = 0; r < m->rows; r++)
		for (int i = 0; i < 64; i++) {
			int64_t at[4] = { f->at[0] + i, f->at[1], f->at[2] + r, f->at[3] };
			const char *from = m->base + at[0] * 2;
			uint16_t x = 0;
			int there = 1;

			for (int d = 0; d < 4; d++)
				there &= at[d] >= 0 && at[d] < m->n[d];
			for (int d = 1; d < 4; d++)
				from += at[d] * m->stride[d];
			if (there)
				memcpy(&x, from, 2);
			memcpy(swizzled(f->to, r * 128 + i * 2), &x, 2);
		}
	sim_engine_wrote(f->to, (size_t)m->rows * 128);
}

int sim_phase_ended(uint64_t *b, int parity)
{
	struct barrier *x = barrier_of(b, "a wait");

	if (!x->left && x->expected == x->under_way) {
		for (int i = 0; i < x->nfetches; i++)
			deliver(&x->fetches[i]);
		x->nfetches = 0;
		x->expected = x->under_way = 0;
		x->left = x->arrivals;
		x->phase ^= 1;
	}
	return x->phase != parity;
}

void sim_say_barrier(uint64_t *b, char *text, size_t room)
{
	const struct barrier *x = barrier_of(b, "a wait");

	snprintf(text, room,
		 "a phase that never ends: of %d arrivals %d are missing, and %lld bytes come where %lld are expected",
		 x->arrivals, x->left, (long long)x->under_way, (long long)x->expected);
}

void hd_sim_await(uint64_t *b, int parity)
{
	hd_sim_touch(b, 8, HD_SIM_ATOMIC);
	sim_wait_for_phase(b, parity);
	sim_acquire(barrier_of(b, "a wait")->clock);
}

/* -- the copy engine ----------------------------------------------------------------------------------------------- */
void hd_sim_fetch(void *to, const hd_sim_tensor_map *m, const int *at, uint64_t *b)
{
	struct barrier *x = barrier_of(b, "a tile's arrival");
	int there =
		at[1] >= 0 && at[1] < m->n[1] && at[3] >= 0 && at[3] < m->n[3] && at[0] >= 0 && at[0] + 64 <= m->n[0];

	hd_sim_aligned(to, 1024, "a tile");
	if (sim_offset(to) >= SIM_SHARED_ROOM || x->nfetches == FETCHES)
		sim_fail("a tile to %p", to);
	for (int r = 0; there && r < m->rows; r++)
		if (at[2] + r >= 0 && at[2] + r < m->n[2])
			hd_sim_touch(m->base + at[0] * 2 + at[1] * m->stride[1] + (at[2] + r) * m->stride[2] +
					     at[3] * m->stride[3],
				     128, HD_SIM_READ);
	sim_engine_write(to, (size_t)m->rows * 128);
	x->fetches[x->nfetches++] = fetch{ (char *)to, *m, { at[0], at[1], at[2], at[3] } };
	x->under_way += m->rows * 128;
}

/* Tiles on their way to memory.  Their content at the request must still be there when they are read. */
struct sent {
	hd_sim_tensor_map map;
	int at[4], group;
	char *from, had[PUT_ROWS * 128];
};
static struct {
	struct sent p[PUTS];
	int n, groups;
} puts_of[SIM_THREADS];

void hd_sim_put(const hd_sim_tensor_map *m, const int *at, const void *from)
{
	auto *q = &puts_of[sim_who.thread];
	struct sent *p = &q->p[q->n];

	hd_sim_aligned(from, 1024, "a tile");
	if (q->n == PUTS || m->rows > PUT_ROWS || sim_offset(from) >= SIM_SHARED_ROOM)
		sim_fail("%d tiles of %d rows to memory, from %p", q->n + 1, m->rows, from);
	sim_engine_read(from, (size_t)m->rows * 128, sim_who.thread);
	p->map = *m;
	p->group = q->groups;
	p->from = (char *)from;
	memcpy(p->at, at, sizeof(p->at));
	memcpy(p->had, from, (size_t)m->rows * 128);
	q->n++;
}

void hd_sim_puts_commit(void)
{
	puts_of[sim_who.thread].groups++;
}

HD_SIM_UNSEEN static void go(const struct sent *p)
{
	const hd_sim_tensor_map *m = &p->map;

	sim_engine_read(p->from, (size_t)m->rows * 128, sim_who.thread);
	if (memcmp(p->had, p->from, (size_t)m->rows * 128))
		sim_fail("the tile at %p was changed before the copy engine had read it", p->from);
	for (int r = 0; r < m->rows; r++)
		for (int i = 0; i < 64; i++) {
			int64_t at[4] = { p->at[0] + i, p->at[1], p->at[2] + r, p->at[3] };
			char *to = (char *)m->base + at[0] * 2;
			int there = 1;

			for (int d = 0; d < 4; d++)
				there &= at[d] >= 0 && at[d] < m->n[d];
			for (int d = 1; d < 4; d++)
				to += at[d] * m->stride[d];
			if (!there)
				continue;
			hd_sim_touch(to, 2, HD_SIM_WRITE);
			memcpy(to, swizzled(p->from, r * 128 + i * 2), 2);
		}
}

void hd_sim_puts_wait(int left)
{
	auto *q = &puts_of[sim_who.thread];
	int done = 0;

	while (done < q->n && q->p[done].group < q->groups - left)
		go(&q->p[done++]);
	memmove((void *)q->p, q->p + done, (size_t)(q->n - done) * sizeof(q->p[0]));
	q->n -= done;
}

struct matrix_rows {
	char *row;
	const uint32_t *x;
};

static void put_rows_work(void **all)
{
	for (int lane = 0; lane < 32; lane++)
		for (int i = 0; i < 4; i++) {
			const struct matrix_rows *of = (const struct matrix_rows *)all[i * 8 + lane / 4],
						 *mine = (const struct matrix_rows *)all[lane];

			if (!of || !mine)
				sim_fail("stmatrix by some lanes of a warp");
			memcpy(of->row + lane % 4 * 4, &mine->x[i], 4);
		}
}

HD_SIM_UNSEEN void hd_sim_put_matrices(void *row, const uint32_t *x)
{
	struct matrix_rows p = { (char *)row, x };

	hd_sim_aligned(row, 16, "a row of stmatrix");
	hd_sim_touch(row, 16, HD_SIM_WRITE);
	hd_sim_warp(&p, put_rows_work);
}

void hd_sim_proxy_fence(void)
{
	sim_fence();
}

uint64_t hd_sim_shared_address(const void *p)
{
	return sim_offset(p);
}

/* -- products of four warps ---------------------------------------------------------------------------------------- */
struct mma_call {
	int n, add, has_a, turned, group;
	uint64_t a, b;
	uint32_t fragment[4];
	float (*c)[4];
};
struct sums { /* one c of a thread while products add to it */
	float (*c)[4], v[MOST_COLUMNS / 8][4];
	int n;
};

static struct thread {
	struct mma_call p[PRODUCTS];
	struct sums sums[4];
	int np, nsums, groups, fence, done; /* done: products of p that are complete at this wait */
	uint64_t made, seen;                /* number of products so far, and a hash of them */
} threads[SIM_THREADS];
static int grouped; /* the block has such products */

void sim_hopper_block(void)
{
	nbarriers = grouped = 0;
}

void sim_hopper_end(void)
{
	for (int i = 0; i < SIM_THREADS; i++) {
		if (puts_of[i].n)
			sim_fail("thread %d ends with tiles to memory that it has not waited for", i);
		puts_of[i].groups = 0;
	}
	for (int i = 0; grouped && i < SIM_THREADS; i++) {
		struct thread *t = &threads[i], *first = &threads[i / 128 * 128];

		if (t->np)
			sim_fail("thread %d ends with products that it has not waited for", i);
		if (t->made != first->made || t->seen != first->seen)
			sim_fail("warps %d and %d of a group make other products", i / 128 * 4, i / 32);
	}
	for (int i = 0; grouped && i < SIM_THREADS; i++)
		threads[i].made = threads[i].seen = 0, threads[i].groups = threads[i].fence = 0;
}

static struct sums *sums_of(struct thread *t, float (*c)[4], int n)
{
	struct sums *s = t->sums;

	while (s < t->sums + t->nsums && s->c != c)
		s++;
	if (s < t->sums + t->nsums)
		return s;
	if (t->nsums == 4)
		sim_fail("products into more than 4 places at once");
	t->nsums++;
	s->c = c;
	s->n = n;
	memcpy(s->v, c, (size_t)n / 8 * sizeof(*c));
	memset((void *)c, 0xff, (size_t)n / 8 * sizeof(*c)); /* NaNs */
	return s;
}

HD_SIM_UNSEEN void hd_sim_group_mma(float (*c)[4], int n, uint64_t a, const uint32_t *fragment, uint64_t b, int turned,
				    int add)
{
	struct thread *t = &threads[sim_who.thread];
	struct mma_call *p = &t->p[t->np];

	if (!t->fence)
		sim_fail("a product with no wgmma.fence behind the last wait");
	if (t->np == PRODUCTS)
		sim_fail("%d products that were not waited for", PRODUCTS);
	if (b >> 62 != 1 || (!fragment && a >> 62 != 1))
		sim_fail("a descriptor %llx without the swizzle of 128 bytes", (unsigned long long)b);
	if ((b & 0x38) || (!fragment && a & 0x38))
		sim_fail("a product of a tile that begins in the middle of 8 rows");
	sums_of(t, c, n);
	*p = mma_call{ n, add, fragment == NULL, turned, t->groups, a, b, { 0, 0, 0, 0 }, c };
	if (fragment)
		memcpy(p->fragment, fragment, sizeof(p->fragment));
	grouped = 1;
	t->np++;
	t->made++;
	t->seen = (t->seen * 31 + b) * 31 + (uint64_t)n * 4 + (uint64_t)(p->has_a * 2 + turned);
}

void hd_sim_group_fence(void)
{
	threads[sim_who.thread].fence = 1;
}

void hd_sim_group_commit(void)
{
	threads[sim_who.thread].groups++;
}

HD_SIM_UNSEEN static float at_of(uint64_t desc, int64_t bytes)
{
	uint16_t x;
	union {
		uint32_t u;
		float f;
	} y;

	memcpy(&x, swizzled(sim_window + ((desc & 0x3fff) << 4), bytes), 2);
	y.u = (uint32_t)x << 16;
	return y.f;
}

static int64_t step_of(uint64_t desc)
{
	return (int64_t)(desc >> 32 & 0x3fff) << 4;
}
static int64_t chunk_of(uint64_t desc)
{
	return (int64_t)(desc >> 16 & 0x3fff) << 4;
}

/* Reports the reading of `rows` rows of a tile, from row `from` on: all of their 16 elements of the depth. */
static void read_rows(uint64_t desc, int from, int rows, uint32_t thread)
{
	char *tile = sim_window + ((desc & 0x3fff) << 4);

	for (int r = from; r < from + rows; r++)
		for (int piece = 0; piece < 2; piece++)
			sim_engine_read(swizzled(tile, r / 8 * step_of(desc) + r % 8 * 128 + piece * 16), 16, thread);
}
/* Reports the reading of 16 rows, which lie along the depth, of n columns. */
static void read_columns(uint64_t desc, int n, uint32_t thread)
{
	char *tile = sim_window + ((desc & 0x3fff) << 4);

	for (int k = 0; k < 16; k++)
		for (int x = 0; x < n; x += 64)
			sim_engine_read(tile + x / 64 * chunk_of(desc) + k / 8 * step_of(desc) + k % 8 * 128, 128,
					thread);
}

HD_SIM_UNSEEN static void fill_operands(float a[16][16], float b[16][MOST_COLUMNS], struct thread *warp, int i,
					int number)
{
	const struct mma_call *p = &warp->p[i];
	uint32_t first = (uint32_t)(warp - threads);

	for (int r = 0; r < 16; r++)
		for (int k = 0; k < 16 && p->has_a; k++) {
			int row = number * 16 + r;

			a[r][k] = at_of(p->a, row / 8 * step_of(p->a) + row % 8 * 128 + k * 2);
		}
	for (int lane = 0; lane < 32 && !p->has_a; lane++)
		for (int x = 0; x < 8; x++) {
			union {
				uint32_t u;
				float f;
			} y = { warp[lane].p[i].fragment[x / 2] >> 16 * (x % 2) << 16 };

			a[lane / 4 + x / 2 % 2 * 8][lane % 4 * 2 + x / 4 * 8 + x % 2] = y.f;
		}
	for (int k = 0; k < 16; k++)
		for (int x = 0; x < p->n; x++)
			b[k][x] = p->turned ? at_of(p->b, x / 64 * chunk_of(p->b) + k / 8 * step_of(p->b) +
								  k % 8 * 128 + x % 64 * 2)
					    : at_of(p->b, x / 8 * step_of(p->b) + x % 8 * 128 + k * 2);
	if (p->has_a)
		read_rows(p->a, number * 16, 16, first);
	if (p->turned)
		read_columns(p->b, p->n, first);
	else
		read_rows(p->b, 0, p->n, first);
}

HD_SIM_UNSEEN static void multiply(struct thread *warp, int i)
{
	static float a[16][16], b[16][MOST_COLUMNS];

	fill_operands(a, b, warp, i, (int)(warp - threads) / 32 % 4);
	for (int lane = 0; lane < 32; lane++) {
		struct thread *t = &warp[lane];
		struct sums *s = sums_of(t, t->p[i].c, t->p[i].n);

		for (int x = 0; x < t->p[i].n / 8 * 4; x++) {
			float sum = t->p[i].add ? s->v[x / 4][x % 4] : 0;

			for (int k = 0; k < 16; k++)
				sum += a[lane / 4 + x % 4 / 2 * 8][k] * b[k][x / 4 * 8 + lane % 4 * 2 + x % 2];
			s->v[x / 4][x % 4] = sum;
		}
	}
}

/* Removes `done` products, and returns to the thread those sums to which no other product adds. */
HD_SIM_UNSEEN static void give_back(struct thread *t, int done)
{
	memmove(t->p, t->p + done, (size_t)(t->np - done) * sizeof(*t->p));
	t->np -= done;
	for (int i = t->nsums - 1; i >= 0; i--) {
		struct sums *s = &t->sums[i];
		int used = 0;

		for (int k = 0; k < t->np; k++)
			used |= t->p[k].c == s->c;
		if (used)
			continue;
		memcpy((void *)s->c, s->v, (size_t)s->n / 8 * sizeof(*s->c));
		*s = t->sums[--t->nsums];
	}
}

static void all_wait(void **all)
{
	struct thread *warp = (struct thread *)all[0];

	for (int lane = 0; lane < 32; lane++)
		if (!all[lane] || warp[lane].done != warp->done || warp[lane].np != warp->np)
			sim_fail("lanes of a warp wait for other products");
	for (int i = 0; i < warp->done; i++)
		multiply(warp, i);
	for (int lane = 0; lane < 32; lane++)
		give_back(&warp[lane], warp->done);
}

void hd_sim_group_wait(int left)
{
	struct thread *t = &threads[sim_who.thread];

	t->done = 0;
	while (t->done < t->np && t->p[t->done].group < t->groups - left)
		t->done++;
	t->fence = 0;
	hd_sim_warp(t, all_wait);
}
