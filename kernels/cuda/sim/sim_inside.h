/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/sim/sim_inside.h - what the files of the simulation share.
 */
#ifndef HD_KERNELS_CUDA_SIM_SIM_INSIDE_H
#define HD_KERNELS_CUDA_SIM_SIM_INSIDE_H
#include "kernels/cuda/sim/sim.h"

/* Limits of compute capability 9.0 (CUDA C++ Programming Guide, table of technical specifications). */
#define SIM_THREADS 1024               /* threads of a block */
#define SIM_SHARED ((size_t)227 << 10) /* bytes of shared memory of a block in total, if it was requested */
#define SIM_SHARED_UNASKED ((size_t)48 << 10)

/* One reserved range of addresses: first shared memory, then device memory. */
#define SIM_WINDOW ((size_t)1 << 35)
#define SIM_SHARED_ROOM ((size_t)1 << 20)
/* Where variables in shared memory begin.  Memory that a launch requests is below. */
#define SIM_STATIC_AT ((size_t)512 << 10)
extern char *sim_window;
static inline size_t sim_offset(const void *p)
{
	return (size_t)((const char *)p - sim_window);
} /* huge if p is outside */

struct sim_who { /* what is running, for messages and for the watch */
	const char *kernel;
	int inside;               /* in a kernel */
	uint32_t run;             /* number of this block's run, or of a copy: never 0, increasing */
	uint32_t first;           /* number of the launch's first block */
	uint32_t barriers, syncs; /* barriers of the block and of the warp that this thread has passed */
	uint32_t thread;          /* its number in the block */
};
extern struct sim_who sim_who;
void sim_begin_work(cudaStream_t s); /* begins a launch or copy: gives it its place in the order of streams */
/* Returns 1 if streams and events order the launch or copy with number `run` before the present one. */
int sim_before(uint32_t run);
extern int sim_streams; /* upper bound for the number of streams; with one, all launches are ordered */
const char *sim_stream_of(uint32_t run);
__attribute__((noreturn, format(printf, 1, 2))) void sim_fail(const char *fmt, ...);

/* Returns the size of the piece of device memory at p, or 0 if p is in none.  *begin: the address of the piece. */
size_t sim_room(const void *p, char **begin);
void sim_reserve(void);
void sim_forget_words(const void *p, size_t bytes); /* memory was freed */
void sim_watch_block(size_t shared);                /* a block starts: poisons its shared memory */
void sim_copies_end(void);
size_t sim_watch_static(void);          /* bytes of variables in shared memory */
size_t sim_allowed(const void *kernel); /* bytes of dynamic shared memory */
/* sim_watch.cc, for sim_hopper.cc: what a thread did before an arrival precedes what another does after its wait. */
void sim_release(uint32_t *clock); /* clock: SIM_THREADS numbers */
void sim_acquire(const uint32_t *clock);
void sim_join_warp(void **lanes); /* in the running warp, each lane learns what the others have done */
void sim_phases(void);            /* the block has such barriers */
void sim_fence(void);             /* makes this thread's stores visible to engines */
/* An engine reads on behalf of a thread; for a product, this is the first of its warp. */
void sim_engine_read(const void *p, size_t bytes, uint32_t thread);
void sim_engine_write(void *p, size_t bytes); /* begins to write: nobody may touch it */
void sim_engine_wrote(void *p, size_t bytes); /* the data has arrived */
/* sim_hopper.cc */
void sim_hopper_block(void); /* a block starts */
void sim_hopper_end(void);   /* a block ends */
int sim_phase_ended(uint64_t *b, int parity);
void sim_say_barrier(uint64_t *b, char *text, size_t room);
void sim_wait_for_phase(uint64_t *b, int parity); /* in sim.cc: makes this fiber wait */
/* sim.cc */
extern uint64_t sim_effort; /* fibers resumed so far */
extern uint64_t sim_order;  /* state that determines all later orders */
void sim_seed(uint64_t seed);
void sim_blocks(const struct hd_sim_work *w, uint64_t most); /* runs `most` of the blocks, drawn at random */
/* sim_orders.cc */
void sim_launch(cudaStream_t s, const struct hd_sim_work *w);
extern int sim_noting; /* a launch's writes to device memory are recorded before they happen */
void sim_note(size_t word, uint32_t *place, uint8_t bytes, int atomic);

#endif
