/* SPDX-License-Identifier: Apache-2.0
 * Fibers for the threads of a block: see sim.h.
 */
#include "kernels/cuda/sim.h"
#include <stdio.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define MOST 1024			/* threads of a block */
#define STACK ((size_t)256 << 10)
#define SHARED ((size_t)228 << 10)

/* swapcontext asks the kernel for the signal mask each time: where it matters there is a switch of our own, which saves
 * what a called function must keep. */
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

static void change(context *from, context *to) { hd_sim_switch(from, *to); }

static void make(context *c, char *stack, size_t bytes, void (*fn)(void))
{
	void **top = (void **)(void *)(stack + bytes - 64);

	top[0] = (void *)fn;		/* six registers below it; the stack is as after a call */
	top[1] = NULL;
	*c = top - 6;
}
#else
typedef ucontext_t context;

static void change(context *from, context *to) { swapcontext(from, to); }

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
	int done, warp, wants;		/* wants: 0 runs, 1 the block's barrier, 2 its warp's */
	uint64_t generation;
};
struct warp {
	void *all[32];
	int arrived, live;
	uint64_t generation;
	void (*work)(void **);
};

struct hd_sim_here hd_sim_here;
static struct fiber fibers[MOST];
static struct warp warps[MOST / 32];
static context scheduler;
static char *stacks;
static int now, count, live, arrived;
static uint64_t generation, order = 88172645463325252u;
static void (*body)(void *);
static void *ctx;
static const char *name;
static unsigned char shared_memory[SHARED] __attribute__((aligned(1024)));

void *hd_sim_shared(void) { return shared_memory; }

static void pass(int why)		/* to the scheduler; on return this fiber runs again */
{
	struct fiber *f = &fibers[now];

	f->wants = why;
	change(&f->at, &scheduler);
}

void __syncthreads(void)
{
	uint64_t g = generation;

	if (++arrived == live) {
		arrived = 0;
		generation++;
		return;
	}
	while (generation == g) {
		fibers[now].generation = g;
		pass(1);
	}
}

static void meet(struct warp *w)	/* if all its lanes are there */
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

	w->all[f->thread.x & 31] = mine;
	w->work = work;
	w->arrived++;
	meet(w);
	while (w->generation == g) {
		f->generation = g;
		pass(2);
	}
}

static void run_one(void)
{
	struct fiber *f = &fibers[now];

	body(ctx);
	f->done = 1;
	live--;
	warps[f->warp].live--;
	if (live && arrived == live)
		arrived = 0, generation++;
	meet(&warps[f->warp]);
	change(&f->at, &scheduler);	/* for good */
}

static int ready(const struct fiber *f)
{
	return !f->done && !(f->wants == 1 && f->generation == generation) &&
		!(f->wants == 2 && f->generation == warps[f->warp].generation);
}

static void start(int i, unsigned width)
{
	struct fiber *f = &fibers[i];

	f->thread = dim3((unsigned)i % width, (unsigned)i / width, 0);
	f->done = f->wants = 0;
	f->warp = i / 32;
	make(&f->at, stacks + (size_t)i * STACK, STACK, run_one);
}

static uint64_t draw(void)
{
	order ^= order << 13, order ^= order >> 7, order ^= order << 17;
	return order >> 16;
}

/* One round over the fibers of a warp (-1: of all), from anywhere, in either direction.  -> how many ran */
static int round_of(int warp)
{
	int ran = 0, first = warp < 0 ? 0 : warp * 32, n = warp < 0 || count - first < 32 ? count - first : 32;
	int from = (int)(draw() % (uint64_t)n), back = (int)draw() & 1;

	for (int k = 0; k < n; k++) {
		int i = first + (from + (back ? n - k : k)) % n;

		if (!ready(&fibers[i]))
			continue;
		now = i;
		fibers[i].wants = 0;
		hd_sim_here.thread = fibers[i].thread;
		ran++;
		change(&scheduler, &fibers[i].at);
	}
	return ran;
}

/* In some blocks all warps go on together, in others one of them as far as it can. */
static int advance(int together)
{
	int n = (count + 31) / 32, from = (int)(draw() % (uint64_t)n);

	if (together)
		return round_of(-1);
	for (int k = 0; k < n; k++) {
		int w = (from + k) % n, ran = 0, more;

		while ((more = round_of(w)))
			ran += more;
		if (ran)
			return ran;
	}
	return 0;
}

static void run_block(dim3 threads)
{
	int together = (int)draw() & 1;

	live = count;
	arrived = 0;
	memset(shared_memory, 0xff, sizeof(shared_memory));
	for (int w = 0; w * 32 < count; w++) {
		memset(&warps[w], 0, sizeof(warps[w]));
		warps[w].live = count - w * 32 < 32 ? count - w * 32 : 32;
	}
	for (int i = 0; i < count; i++)
		start(i, threads.x);
	while (live)
		if (!advance(together)) {
			fprintf(stderr, "%s: block (%u,%u,%u): a barrier that %d of %d threads do not reach\n", name,
				hd_sim_here.block.x, hd_sim_here.block.y, hd_sim_here.block.z, live - arrived, live);
			abort();
		}
}

void hd_sim_launch(const char *what, dim3 blocks, dim3 threads, size_t shared, void (*fn)(void *), void *arg)
{
	name = what;
	body = fn;
	ctx = arg;
	count = (int)(threads.x * threads.y * threads.z);
	if (count < 1 || count > MOST || shared > SHARED || !blocks.x || !blocks.y || !blocks.z || blocks.y > 65535 ||
	    blocks.z > 65535) {
		fprintf(stderr, "%s: a launch of (%u,%u,%u) blocks of %d threads and %zu bytes is not possible\n", what, blocks.x,
			blocks.y, blocks.z, count, shared);
		abort();
	}
	if (!stacks)
		stacks = (char *)mmap(NULL, MOST * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				      -1, 0);
	hd_sim_here.threads = threads;
	hd_sim_here.blocks = blocks;
	hd_sim_open_memory();
	for (unsigned z = 0; z < blocks.z; z++)
		for (unsigned y = 0; y < blocks.y; y++)
			for (unsigned x = 0; x < blocks.x; x++) {
				hd_sim_here.block = dim3(x, y, z);
				run_block(threads);
			}
	hd_sim_close_memory();
}

/* -- memory ------------------------------------------------------------------------------------------------------------- */
static struct piece { char *p; size_t bytes; } pieces[256];
static int npieces, open_depth;

static void protect(int how)
{
	for (int i = 0; i < npieces; i++)
		mprotect(pieces[i].p, pieces[i].bytes, how);
}

void hd_sim_open_memory(void)
{
	if (!open_depth++)
		protect(PROT_READ | PROT_WRITE);
}

void hd_sim_close_memory(void)
{
	if (!--open_depth)
		protect(PROT_NONE);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
	size_t n = (bytes + 4095) / 4096 * 4096 + 4096;

	if (npieces == (int)(sizeof(pieces) / sizeof(pieces[0])))
		return 2;
	*p = mmap(NULL, n, open_depth ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (*p == MAP_FAILED)
		return 2;
	pieces[npieces].p = (char *)*p;
	pieces[npieces++].bytes = n;
	return 0;
}

cudaError_t cudaFree(void *p)
{
	for (int i = 0; i < npieces; i++)
		if (pieces[i].p == (char *)p) {
			munmap(p, pieces[i].bytes);
			pieces[i] = pieces[--npieces];
			return 0;
		}
	return p ? 1 : 0;
}
