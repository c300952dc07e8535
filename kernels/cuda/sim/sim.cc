/* SPDX-License-Identifier: Apache-2.0
 * Fibers for the threads of a block: see sim.h.
 */
#include "kernels/cuda/sim/sim_inside.h"
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

/* Bytes of a fiber's stack.  The 13 cache lines beyond a power of two keep the tops of stacks from all being in one
 * set of the cache. */
#define STACK (((size_t)256 << 10) + 13 * 64)

/* swapcontext makes a system call for the signal mask each time.  On x86-64 a switch of our own saves only the
 * registers that a called function must preserve. */
#ifdef __x86_64__
typedef void *context;

extern "C" void hd_sim_switch(void **from, void *to);
__asm__(".text\n"
	".type hd_sim_switch, @function\n"
	"hd_sim_switch:\n"
	"	pushq %rbp\n	pushq %rbx\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbx\n	popq %rbp\n"
	"	ret\n"
	".size hd_sim_switch, .-hd_sim_switch\n");

static void change(context *from, context *to)
{
	hd_sim_switch(from, *to);
}

static void make(context *c, char *stack, size_t bytes, void (*fn)(void))
{
	void **top = (void **)(void *)(stack + bytes - 64);

	top[0] = (void *)fn; /* six saved registers lie below; the stack is as after a call */
	top[1] = NULL;
	*c = top - 6;
}
#else
typedef ucontext_t context;

static void change(context *from, context *to)
{
	swapcontext(from, to);
}

static void make(context *c, char *stack, size_t bytes, void (*fn)(void))
{
	getcontext(c);
	c->uc_stack.ss_sp = stack;
	c->uc_stack.ss_size = bytes;
	makecontext(c, fn, 0);
}
#endif

struct fiber {
	context at;
	dim3 thread;
	int done, warp, wants; /* wants: 0: runs; waits for 1: the block's barrier, 2: its warp's, 3: a phase */
	uint64_t *phase_of;
	int parity;
	uint64_t generation;
	uint32_t barriers, syncs; /* passed so far */
};
struct warp {
	void *all[32];
	int arrived, live;
	uint64_t generation;
	void (*work)(void **);
};

struct hd_sim_here hd_sim_here;
struct sim_who sim_who;
uint64_t sim_effort;
static struct fiber fibers[SIM_THREADS];
static struct warp warps[SIM_THREADS / 32];
static context scheduler;
static char *stacks;
static int now, count, live, arrived;
static uint64_t generation;
uint64_t sim_order = 88172645463325252u;
static const struct hd_sim_work *work_now;

void sim_fail(const char *fmt, ...)
{
	const dim3 &b = hd_sim_here.block, &t = hd_sim_here.thread;
	va_list ap;

	fprintf(stderr, "simulation: %s", sim_who.kernel ? sim_who.kernel : "no kernel");
	if (sim_who.inside)
		fprintf(stderr, ", block (%u,%u,%u), thread (%u,%u,%u)", b.x, b.y, b.z, t.x, t.y, t.z);
	fprintf(stderr, ": ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	abort();
}

static uint64_t draw(void)
{
	sim_order ^= sim_order << 13, sim_order ^= sim_order >> 7, sim_order ^= sim_order << 17;
	return sim_order >> 16;
}

void sim_seed(uint64_t seed)
{
	sim_order = (seed + 1) * 0x9e3779b97f4a7c15u;
	draw();
}

/* -- rounds -------------------------------------------------------------------------------------------------------- */
/* A round: one turn for each fiber of a warp or of the block, from a random start, in either direction. */
static struct {
	int first, n, at, step, left; /* at: index of the next turn, relative to first */
	int ran;
} turns;

static int ready(const struct fiber *f)
{
	return !f->done && !(f->wants == 1 && f->generation == generation) &&
	       !(f->wants == 3 && !sim_phase_ended(f->phase_of, f->parity)) &&
	       !(f->wants == 2 && f->generation == warps[f->warp].generation);
}

static void begin_round(int first, int n)
{
	turns.first = first;
	turns.n = n;
	turns.at = (int)(draw() % (uint64_t)n);
	turns.step = (int)draw() & 1 ? n - 1 : 1;
	turns.left = n;
	turns.ran = 0;
}

/* Makes the next ready fiber the running one, and returns it; returns NULL when the round is over. */
static struct fiber *next_fiber(void)
{
	while (turns.left) {
		struct fiber *f = &fibers[turns.first + turns.at];

		turns.left--;
		turns.at += turns.step;
		turns.at -= turns.at >= turns.n ? turns.n : 0;
		if (!ready(f))
			continue;
		now = (int)(f - fibers);
		f->wants = 0;
		hd_sim_here.thread = f->thread;
		sim_who.thread = (uint32_t)now;
		sim_who.barriers = f->barriers;
		sim_who.syncs = f->syncs;
		sim_effort++;
		turns.ran++;
		return f;
	}
	return NULL;
}

/* Runs a round and returns how many fibers ran. */
static int round_of(int first, int n)
{
	struct fiber *f;

	begin_round(first, n);
	f = next_fiber();
	if (!f)
		return 0;
	sim_who.inside = 1;
	change(&scheduler, &f->at);
	return turns.ran;
}

/* Switches from this fiber to the next one of the round, or to the scheduler that began the round. */
static void switch_to_next(struct fiber *f)
{
	struct fiber *next;

	sim_who.inside = 0; /* what happens at the end of a phase is no thread's access */
	next = next_fiber();
	sim_who.inside = next != NULL;
	change(&f->at, next ? &next->at : &scheduler);
}

/* -- what a fiber does --------------------------------------------------------------------------------------------- */
static void yield(int why) /* lets other fibers run; on return this fiber runs again */
{
	struct fiber *f = &fibers[now];

	f->wants = why;
	switch_to_next(f);
}

void __syncthreads(void)
{
	uint64_t g = generation;

	if (++arrived == live) {
		arrived = 0;
		generation++;
	}
	while (generation == g) {
		fibers[now].generation = g;
		yield(1);
	}
	sim_who.barriers = ++fibers[now].barriers;
}

static void complete_exchange(struct warp *w) /* completes the exchange if all lanes of the warp have arrived */
{
	if (!w->arrived || w->arrived < w->live)
		return;
	if (w->work)
		w->work(w->all);
	memset(w->all, 0, sizeof(w->all));
	w->arrived = 0;
	w->generation++;
}

void hd_sim_warp(void *mine, void (*work)(void **all))
{
	struct fiber *f = &fibers[now];
	struct warp *w = &warps[f->warp];
	uint64_t g = w->generation;

	if (w->arrived && w->work != work)
		sim_fail("the lanes of a warp meet at different instructions");
	w->all[f->thread.x & 31] = mine;
	w->work = work;
	w->arrived++;
	complete_exchange(w);
	while (w->generation == g) {
		f->generation = g;
		yield(2);
	}
}

void hd_sim_warp_ordered(void)
{
	hd_sim_warp(&fibers[now], sim_join_warp);
	sim_who.syncs = ++fibers[now].syncs;
}

void sim_wait_for_phase(uint64_t *b, int parity)
{
	fibers[now].phase_of = b;
	fibers[now].parity = parity;
	while (!sim_phase_ended(b, parity))
		yield(3);
}

static void run_one(void)
{
	struct fiber *f = &fibers[now];

	work_now->fn(work_now->arg);
	sim_copies_end();
	f->done = 1;
	live--;
	warps[f->warp].live--;
	if (live && arrived == live)
		arrived = 0, generation++;
	complete_exchange(&warps[f->warp]);
	switch_to_next(f); /* does not return */
}

static void start(int i, const dim3 &t)
{
	struct fiber *f = &fibers[i];
	unsigned u = (unsigned)i;

	f->thread = dim3(u % t.x, u / t.x % t.y, u / t.x / t.y);
	f->done = f->wants = 0;
	f->barriers = f->syncs = 0;
	f->warp = i / 32;
	make(&f->at, stacks + (size_t)i * STACK, STACK, run_one);
}

static int round_of_warp(int w)
{
	return round_of(w * 32, count - w * 32 < 32 ? count - w * 32 : 32);
}

/* Advances all warps by one round, or (not together) one warp as far as it can go.  Returns how many turns ran, 0 if
 * none could. */
static int advance(int together)
{
	int n = (count + 31) / 32, from = (int)(draw() % (uint64_t)n);

	if (together)
		return round_of(0, count);
	for (int k = 0; k < n; k++) {
		int w = (from + k) % n, ran = 0, more;

		while ((more = round_of_warp(w)))
			ran += more;
		if (ran)
			return ran;
	}
	return 0;
}

__attribute__((noreturn)) static void stuck(void)
{
	char text[200];

	snprintf(text, sizeof(text), "a barrier that %d of %d threads do not reach", live - arrived, live);
	for (int i = 0; i < count; i++)
		if (!fibers[i].done && fibers[i].wants == 3) {
			sim_say_barrier(fibers[i].phase_of, text, sizeof(text));
			break;
		}
	fprintf(stderr, "simulation: %s, block (%u,%u,%u): %s\n", sim_who.kernel, hd_sim_here.block.x,
		hd_sim_here.block.y, hd_sim_here.block.z, text);
	abort();
}

static void run_block(const struct hd_sim_work *w)
{
	int together = (int)draw() & 1;
	size_t most;

	live = count;
	arrived = 0;
	sim_watch_block(w->shared);
	for (int i = 0; i * 32 < count; i++) {
		memset(&warps[i], 0, sizeof(warps[i]));
		warps[i].live = count - i * 32 < 32 ? count - i * 32 : 32;
	}
	for (int i = 0; i < count; i++)
		start(i, w->threads);
	sim_hopper_block();
	while (live)
		if (!advance(together))
			stuck();
	sim_hopper_end();
	if (sim_watch_static() > SIM_SHARED_UNASKED)
		sim_fail("%zu bytes of variables in shared memory, %zu are possible", sim_watch_static(),
			 SIM_SHARED_UNASKED);
	most = sim_allowed(w->kernel) > SIM_SHARED_UNASKED ? SIM_SHARED : SIM_SHARED_UNASKED;
	if (w->shared + sim_watch_static() > most)
		sim_fail("%zu bytes of shared memory and %zu of variables in it: %zu are possible", w->shared,
			 sim_watch_static(), most);
}

static void check_limits(const struct hd_sim_work *w)
{
	const dim3 &b = w->blocks, &t = w->threads;
	size_t threads = (size_t)t.x * t.y * t.z;

	if (!threads || threads > SIM_THREADS || t.x > 1024 || t.y > 1024 || t.z > 64)
		sim_fail("a launch of (%u,%u,%u) threads a block: at most %d, of them 64 in z, and none must be 0", t.x,
			 t.y, t.z, SIM_THREADS);
	if (!b.x || !b.y || !b.z || b.x > 0x7fffffff || b.y > 65535 || b.z > 65535)
		sim_fail("a launch of (%u,%u,%u) blocks: at most 2147483647, 65535 and 65535, and none must be 0", b.x,
			 b.y, b.z);
	if (w->shared > sim_allowed(w->kernel))
		sim_fail("a launch with %zu bytes of shared memory, %zu were asked for", w->shared,
			 sim_allowed(w->kernel));
}

/* Returns the blocks' numbers in random order, malloc'ed. */
static uint32_t *shuffled(uint64_t n)
{
	uint32_t *at = (uint32_t *)malloc(n * sizeof(*at));

	for (uint64_t i = 0; i < n; i++) {
		uint64_t j = draw() % (i + 1);

		at[i] = at[j];
		at[j] = (uint32_t)i;
	}
	return at;
}

void sim_blocks(const struct hd_sim_work *w, uint64_t most)
{
	uint32_t *at;

	check_limits(w);
	at = shuffled((uint64_t)w->blocks.x * w->blocks.y * w->blocks.z);
	work_now = w;
	count = (int)(w->threads.x * w->threads.y * w->threads.z);
	if (!stacks)
		stacks = (char *)mmap(NULL, SIM_THREADS * STACK, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	hd_sim_here.threads = w->threads;
	hd_sim_here.blocks = w->blocks;
	for (uint64_t i = 0; i < most; i++) {
		uint32_t b = at[i];

		hd_sim_here.block = dim3(b % w->blocks.x, b / w->blocks.x % w->blocks.y, b / w->blocks.x / w->blocks.y);
		run_block(w);
		sim_who.run++;
	}
	free(at);
}
