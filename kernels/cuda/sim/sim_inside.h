/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/sim/sim_inside.h - what the files of the simulation share.
 */
#ifndef HD_KERNELS_CUDA_SIM_SIM_INSIDE_H
#define HD_KERNELS_CUDA_SIM_SIM_INSIDE_H
#include "kernels/cuda/sim/sim.h"

/* Limits of compute capability 9.0 (CUDA C++ Programming Guide, table of technical specifications). */
#define SIM_THREADS 1024               /* of a block */
#define SIM_SHARED ((size_t)227 << 10) /* of a block, all together, if asked for */
#define SIM_SHARED_UNASKED ((size_t)48 << 10)

/* One reserved range of addresses: shared memory first, then the device's. */
#define SIM_WINDOW ((size_t)1 << 35)
#define SIM_SHARED_ROOM ((size_t)1 << 20)
#define SIM_STATIC_AT ((size_t)512 << 10) /* variables in shared memory; below it what a launch asks for */
extern char *sim_window;
static inline size_t sim_offset(const void *p)
{
	return (size_t)((const char *)p - sim_window);
} /* huge: outside */

struct sim_who { /* who runs, for messages and for the watch */
	const char *kernel;
	int inside;               /* in a kernel */
	uint32_t run;             /* number of this block's run, or of a copy: never 0, grows */
	uint32_t first;           /* of the launch's first block */
	uint32_t barriers, syncs; /* those that this thread has passed: of the block, of its warp */
	uint32_t thread;          /* its number in the block */
};
extern struct sim_who sim_who;
void sim_begin_work(cudaStream_t s); /* a launch or a copy: gets its place in the order of streams */
/* A launch or copy of the number `run` comes before what is done now, by streams and events. */
int sim_before(uint32_t run);
extern int sim_streams; /* there are at most so many: with one all launches are in order */
const char *sim_stream_of(uint32_t run);
__attribute__((noreturn, format(printf, 1, 2))) void sim_fail(const char *fmt, ...);

size_t sim_room(const void *p, char **begin); /* of the piece of device memory at p: bytes, 0: none */
void sim_reserve(void);
void sim_forget_words(const void *p, size_t bytes); /* memory that was given back */
void sim_watch_block(size_t shared);                /* a block starts: its shared memory is poison */
void sim_copies_end(void);
size_t sim_watch_static(void);          /* bytes that variables in shared memory took */
size_t sim_allowed(const void *kernel); /* of dynamic shared memory */
/* sim_watch.cc, for sim_hopper.cc: what a thread has done before an arrival comes before what another does after its wait. */
void sim_release(uint32_t *clock); /* clock: of SIM_THREADS */
void sim_acquire(const uint32_t *clock);
void sim_join_warp(void **lanes); /* of the warp that runs: each knows what the others have done */
void sim_phases(void);            /* the block has such barriers */
void sim_fence(void);             /* this thread's stores, to engines */
void sim_engine_read(const void *p, size_t bytes,
		     uint32_t thread);        /* by a product of the warp whose first thread this is */
void sim_engine_write(void *p, size_t bytes); /* begins: nobody may touch it */
void sim_engine_wrote(void *p, size_t bytes); /* has come */
/* sim_hopper.cc */
void sim_hopper_block(void); /* a block starts */
void sim_hopper_end(void);   /* or ends */
int sim_phase_ended(uint64_t *b, int parity);
void sim_say_barrier(uint64_t *b, char *text, size_t room);
void sim_wait_for_phase(uint64_t *b, int parity); /* sim.cc: this fiber */
/* sim.cc */
extern uint64_t sim_effort; /* fibers resumed so far */
extern uint64_t sim_order;  /* all orders from here on follow from it */
void sim_seed(uint64_t seed);
void sim_blocks(const struct hd_sim_work *w, uint64_t most); /* so many of them, drawn */
/* sim_orders.cc */
void sim_launch(cudaStream_t s, const struct hd_sim_work *w);
extern int sim_noting; /* a launch's writes to device memory are noted, before they are made */
void sim_note(size_t word, uint32_t *place, uint8_t bytes, int atomic);

#endif
