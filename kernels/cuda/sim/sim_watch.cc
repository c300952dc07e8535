/* SPDX-License-Identifier: Apache-2.0
 * Checks every load and store of the kernels: see sim.h.
 *
 * Each word of the window (shared memory, then device memory) remembers its last writer and two readers.  An access
 * to a word that another thread has accessed must come after that access.  The order can come from a barrier of the
 * block that both have passed, or from __syncwarp within a warp (an exchange of registers orders no memory).  It can
 * also come from the end of an earlier launch on a stream that this launch follows.  Blocks of one launch are never
 * ordered.
 */
#include "kernels/cuda/sim/sim_inside.h"
#include <stdio.h>
#include <sys/mman.h>

#define UNSEEN extern "C" HD_SIM_UNSEEN
#define PENDING 256 /* copies of a thread that it has not waited for */

/* Flags of a side.  ARRIVES: written by a copy that nobody has waited for. */
enum { ATOMIC = 1, ARRIVES = 2, ENGINE = 4 };
struct side {
	uint32_t run, barriers, syncs, tick;
	uint16_t thread;
	uint8_t bytes, flags;
}; /* bytes: which bytes of the word */
struct word {
	struct side wrote, read[2];
	uint32_t noted; /* index of its record in sim_note */
};

char *sim_window;
static struct word *words;
static size_t dynamic_bytes, static_bytes;
static struct {
	const void *name;
	size_t at;
} variables[64];
static int nvariables;

struct copy {
	char *to;
	const char *from;
	size_t bytes;
};
static struct {
	struct copy c[PENDING];
	int group[PENDING], n, groups;
} pending[SIM_THREADS];

void sim_reserve(void)
{
	size_t n = SIM_WINDOW / 4 * sizeof(struct word);

	if (sim_window)
		return;
	sim_window = (char *)mmap(NULL, SIM_WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	words = (struct word *)mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				    0);
	if (sim_window == MAP_FAILED || (void *)words == MAP_FAILED ||
	    mprotect(sim_window, SIM_SHARED_ROOM, PROT_READ | PROT_WRITE)) {
		fprintf(stderr, "simulation: no %zu bytes of addresses to reserve\n", SIM_WINDOW + n);
		abort();
	}
}

void sim_forget_words(const void *p, size_t n)
{
	madvise(&words[sim_offset(p) / 4], n / 4 * sizeof(struct word) / 4096 * 4096, MADV_DONTNEED);
}

/* Vector clocks, for blocks with barriers in shared memory.  ticks: events of each thread so far, such as arrivals;
 * known: those of other threads that it knows of; fenced: its ticks at its last fence. */
static uint32_t ticks[SIM_THREADS], fenced[SIM_THREADS], (*known)[SIM_THREADS];
static int ordered_by_phases;

/* -- one word ------------------------------------------------------------------------------------------------------ */
static int same_thread(const struct side *s)
{
	return s->run == sim_who.run && s->thread == sim_who.thread;
}

static int before(const struct side *s, int shared)
{
	if (s->run < sim_who.first || (shared && s->run != sim_who.run))
		return shared || sim_before(s->run);
	if (s->run != sim_who.run)
		return 0; /* another block of this launch */
	if (ordered_by_phases && (s->flags & ENGINE || known[sim_who.thread][s->thread] > s->tick))
		return 1;
	return !sim_who.inside || s->thread == sim_who.thread || s->barriers != sim_who.barriers ||
	       (s->thread / 32u == sim_who.thread / 32u && s->syncs != sim_who.syncs);
}

/* Returns 1 in nearly all cases, which need no check: other bytes, this thread, another block's shared memory, or an
 * earlier launch with one stream. */
static inline int is_plain(const struct side *s, uint8_t bytes, int shared)
{
	if (!s->run || !(s->bytes & bytes))
		return 1;
	if (s->run == sim_who.run)
		return s->thread == sim_who.thread && !(s->flags & ARRIVES);
	return shared || (s->run < sim_who.first && sim_streams < 2);
}

static void look_at(const struct side *s, uint8_t bytes, int how, const void *p, const char *did)
{
	int shared = sim_offset(p) < SIM_SHARED_ROOM;

	if (!s->run || !(s->bytes & bytes) || (shared && s->run != sim_who.run))
		return;
	if ((s->flags & ARRIVES) && s->run == sim_who.run)
		sim_fail("%s of %p, where an asynchronous copy of thread %u has not been waited for",
			 how == HD_SIM_READ ? "a read" : "a write", p, s->thread);
	if ((s->flags & ATOMIC && how == HD_SIM_ATOMIC) || before(s, shared))
		return;
	if (s->run < sim_who.first)
		sim_fail("%s of device memory %p, which %s %s, and no event is between them",
			 how == HD_SIM_READ ? "a read" : "a write", p, sim_stream_of(s->run), did);
	sim_fail("%s of %s memory %p, which thread %u%s %s, and no barrier is between them",
		 how == HD_SIM_READ ? "a read" : "a write", shared ? "shared" : "device", p, s->thread,
		 s->run == sim_who.run ? "" : " of another block", did);
}

static inline void against(const struct side *s, uint8_t bytes, int how, const void *p, const char *did)
{
	if (!is_plain(s, bytes, sim_offset(p) < SIM_SHARED_ROOM))
		look_at(s, bytes, how, p, did);
}

static void touch_word(const char *p, size_t offset, uint8_t bytes, int how, uint8_t flags)
{
	struct word *w = &words[offset / 4];
	struct side me = {
		sim_who.run, sim_who.barriers, sim_who.syncs, ticks[sim_who.thread], (uint16_t)sim_who.thread, bytes,
		flags
	};

	against(&w->wrote, bytes, how, p, "wrote");
	if (how != HD_SIM_READ) {
		against(&w->read[0], bytes, how, p, "reads");
		against(&w->read[1], bytes, how, p, "reads");
		w->wrote = me;
		if (sim_noting && offset >= SIM_SHARED_ROOM)
			sim_note(offset / 4, &w->noted, bytes, how == HD_SIM_ATOMIC);
		return;
	}
	if (!same_thread(&w->read[0]))
		w->read[1] = w->read[0];
	w->read[0] = me;
}

/* -- one access ---------------------------------------------------------------------------------------------------- */
static void inside_shared(const void *p, size_t offset, size_t n)
{
	if (offset < SIM_STATIC_AT ? offset + n <= dynamic_bytes : offset + n <= SIM_STATIC_AT + static_bytes)
		return;
	sim_fail("%zu bytes at %zu of the shared memory, which has %zu", n,
		 offset < SIM_STATIC_AT ? offset : offset - SIM_STATIC_AT,
		 offset < SIM_STATIC_AT ? dynamic_bytes : static_bytes);
}

static void inside_device(const void *p, size_t n)
{
	char *begin;
	size_t have = sim_room(p, &begin);

	if (!have || (size_t)((const char *)p - begin) + n > have)
		sim_fail("%zu bytes at %p, %s", n, p,
			 have ? "beyond the end of device memory that was asked for"
			      : "where no device memory was asked for");
}

static void touch(const void *p, size_t n, int how, uint8_t flags)
{
	size_t offset = sim_offset(p);

	if (!n || offset >= SIM_WINDOW)
		return;
	if (offset < SIM_SHARED_ROOM)
		inside_shared(p, offset, n);
	else
		inside_device(p, n);
	for (size_t i = offset / 4; i <= (offset + n - 1) / 4; i++) {
		size_t from = offset > i * 4 ? offset - i * 4 : 0, to = offset + n < i * 4 + 4 ? offset + n - i * 4 : 4;

		touch_word((const char *)p, i * 4, (uint8_t)((1u << to) - (1u << from)), how, flags);
	}
}

void hd_sim_touch(const void *p, size_t n, int how)
{
	touch(p, n, how, how == HD_SIM_ATOMIC ? ATOMIC : 0);
}

void hd_sim_aligned(const void *p, size_t n, const char *what)
{
	if ((uintptr_t)p % n)
		sim_fail("%s at %p, which is not a multiple of %zu", what, p, n);
}

/* -- barriers that count, and engines ------------------------------------------------------------------------------ */
static void join_clock(uint32_t *clock, const uint32_t *with)
{
	for (int i = 0; i < SIM_THREADS; i++)
		clock[i] = clock[i] > with[i] ? clock[i] : with[i];
}

void sim_release(uint32_t *clock)
{
	uint32_t me = sim_who.thread;

	known[me][me] = ++ticks[me];
	join_clock(clock, known[me]);
}

void sim_acquire(const uint32_t *clock)
{
	join_clock(known[sim_who.thread], clock);
}

void sim_join_warp(void **lanes)
{
	static uint32_t all[SIM_THREADS];
	uint32_t first = sim_who.thread / 32 * 32;

	if (!ordered_by_phases)
		return;
	memset(all, 0, sizeof(all));
	for (uint32_t i = 0; i < 32; i++)
		if (lanes[i]) {
			known[first + i][first + i] = ++ticks[first + i];
			join_clock(all, known[first + i]);
		}
	for (uint32_t i = 0; i < 32; i++)
		if (lanes[i])
			join_clock(known[first + i], all);
}

void sim_fence(void)
{
	fenced[sim_who.thread] = ++ticks[sim_who.thread];
}

void sim_engine_read(const void *p, size_t n, uint32_t thread)
{
	uint32_t was = sim_who.thread;

	sim_who.thread = thread;
	for (size_t i = sim_offset(p) / 4; i < (sim_offset(p) + n) / 4; i++) {
		const struct side *w = &words[i].wrote;

		if (w->run == sim_who.run && !(w->flags & ENGINE) && fenced[w->thread] <= w->tick)
			sim_fail(
				"an engine reads %p, which thread %u wrote by a store with no fence.proxy.async behind it",
				sim_window + i * 4, w->thread);
	}
	touch(p, n, HD_SIM_READ, 0);
	sim_who.thread = was;
}

void sim_engine_write(void *p, size_t n)
{
	touch(p, n, HD_SIM_WRITE, ARRIVES | ENGINE);
	memset(p, 0xff, n);
}

void sim_engine_wrote(void *p, size_t n)
{
	for (size_t i = sim_offset(p) / 4; i < (sim_offset(p) + n) / 4; i++)
		words[i].wrote.flags = ENGINE;
}

static void forget_phases(void)
{
	if (!known)
		known = (uint32_t(*)[SIM_THREADS])calloc(SIM_THREADS, sizeof(*known));
	if (ordered_by_phases)
		memset(known, 0, SIM_THREADS * sizeof(*known));
	memset(ticks, 0, sizeof(ticks));
	memset(fenced, 0, sizeof(fenced));
	ordered_by_phases = 0;
}

void sim_phases(void)
{
	ordered_by_phases = 1;
}

/* -- shared memory of a block -------------------------------------------------------------------------------------- */
void *hd_sim_shared(void)
{
	return sim_window;
}

void sim_watch_block(size_t shared)
{
	memset(sim_window, 0xff, (shared + 255) / 256 * 256); /* NaNs */
	dynamic_bytes = shared;
	static_bytes = 0;
	nvariables = 0;
	forget_phases();
}

size_t sim_watch_static(void)
{
	return static_bytes;
}

void *hd_sim_static(const void *name, size_t bytes, size_t align)
{
	size_t at = (static_bytes + align - 1) / align * align;

	for (int i = 0; i < nvariables; i++)
		if (variables[i].name == name)
			return sim_window + variables[i].at;
	if (nvariables == (int)(sizeof(variables) / sizeof(variables[0])) ||
	    at + bytes > SIM_SHARED_ROOM - SIM_STATIC_AT)
		sim_fail("too many variables in shared memory");
	variables[nvariables].name = name;
	variables[nvariables++].at = SIM_STATIC_AT + at;
	static_bytes = at + bytes;
	memset(sim_window + SIM_STATIC_AT + at, 0xff, bytes);
	return sim_window + SIM_STATIC_AT + at;
}

/* -- asynchronous copies ------------------------------------------------------------------------------------------- */
void hd_sim_copy(void *to, const void *from, int bytes)
{
	auto *q = &pending[sim_who.thread];
	size_t n = (size_t)bytes;

	hd_sim_aligned(to, n, "the destination of an asynchronous copy");
	hd_sim_aligned(from, n, "the source of an asynchronous copy");
	if (sim_offset(to) >= SIM_SHARED_ROOM)
		sim_fail("an asynchronous copy to %p, which is not in shared memory", to);
	if (q->n == PENDING)
		sim_fail("%d asynchronous copies of a thread that it has not waited for", PENDING);
	if (from)
		touch(from, n, HD_SIM_READ, 0);
	touch(to, n, HD_SIM_WRITE, ARRIVES);
	memset(to, 0xff, n);
	q->c[q->n] = copy{ (char *)to, (const char *)from, n };
	q->group[q->n++] = q->groups;
}

void hd_sim_copies_commit(void)
{
	pending[sim_who.thread].groups++;
}

static void arrive(const struct copy *c)
{
	for (size_t i = 0; i < c->bytes / 4; i++)
		words[sim_offset(c->to) / 4 + i].wrote.flags = 0;
	touch(c->to, c->bytes, HD_SIM_WRITE, 0);
	if (c->from)
		memcpy(c->to, c->from, c->bytes);
	else
		memset(c->to, 0, c->bytes);
}

void hd_sim_copies_wait(int left)
{
	auto *q = &pending[sim_who.thread];
	int done = 0, last = q->groups - left; /* groups before this one are waited for */

	while (done < q->n && q->group[done] < last)
		arrive(&q->c[done++]);
	memmove(q->c, q->c + done, (size_t)(q->n - done) * sizeof(q->c[0]));
	memmove(q->group, q->group + done, (size_t)(q->n - done) * sizeof(q->group[0]));
	q->n -= done;
}

void sim_copies_end(void) /* a thread ends: nothing will read its copies */
{
	pending[sim_who.thread].n = pending[sim_who.thread].groups = 0;
}

/* -- what the compiler calls --------------------------------------------------------------------------------------- */
#pragma GCC visibility push(default) /* also for the kernels of plugins */
#define SEEN(n) \
	UNSEEN void __tsan_read##n(void *p) \
	{ \
		if (sim_who.inside && sim_offset(p) < SIM_WINDOW) \
			touch(p, n, HD_SIM_READ, 0); \
	} \
	UNSEEN void __tsan_write##n(void *p) \
	{ \
		if (sim_who.inside && sim_offset(p) < SIM_WINDOW) \
			touch(p, n, HD_SIM_WRITE, 0); \
	} \
	UNSEEN void __tsan_unaligned_read##n(void *p) \
	{ \
		__tsan_read##n(p); \
	} \
	UNSEEN void __tsan_unaligned_write##n(void *p) \
	{ \
		__tsan_write##n(p); \
	}
SEEN(1) SEEN(2) SEEN(4) SEEN(8) SEEN(16) UNSEEN void __tsan_read_range(void *p, size_t n)
{
	if (sim_who.inside)
		touch(p, n, HD_SIM_READ, 0);
}
UNSEEN void __tsan_write_range(void *p, size_t n)
{
	if (sim_who.inside)
		touch(p, n, HD_SIM_WRITE, 0);
}
UNSEEN void *__tsan_memcpy(void *to, const void *from, size_t n)
{
	__tsan_read_range((void *)from, n);
	__tsan_write_range(to, n);
	return memcpy(to, from, n);
}
UNSEEN void *__tsan_memset(void *to, int c, size_t n)
{
	__tsan_write_range(to, n);
	return memset(to, c, n);
}
UNSEEN void __tsan_init(void)
{
}
UNSEEN void __tsan_func_entry(void *)
{
}
UNSEEN void __tsan_func_exit(void)
{
}
UNSEEN void __tsan_vptr_read(void **)
{
}
UNSEEN void __tsan_vptr_update(void **, void *)
{
}

/* The compiler's documentation defines this layout: file and line, type, logarithm of the alignment, kind of access. */
struct misaligned {
	const char *file;
	uint32_t line, column;
	const void *type;
	unsigned char alignment, kind;
};
UNSEEN void __ubsan_handle_type_mismatch_v1_abort(struct misaligned *m, void *p)
{
	if (sim_who.inside || sim_offset(p) < SIM_WINDOW)
		sim_fail("an access at %p, which is not a multiple of %u (%s:%u)", p, 1u << m->alignment, m->file,
			 m->line);
}
UNSEEN void __ubsan_handle_type_mismatch_v1(struct misaligned *m, void *p)
{
	__ubsan_handle_type_mismatch_v1_abort(m, p);
}
#pragma GCC visibility pop
