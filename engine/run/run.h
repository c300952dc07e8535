/* SPDX-License-Identifier: Apache-2.0
 * engine/run/run.h - a program bound to memory, and its steps.
 *
 *   hd_program_bind                        record.c: kernels prepared; bind.c: addresses resolved
 *   hd_program_compute, hd_program_update  run.c:    one step, with staging.c if the device has memory of its own
 *   hd_program_find_nan                    nan_hunt.c
 *   hd_program_work, hd_program_products   bench_run.c
 */
#ifndef HD_ENGINE_RUN_H
#define HD_ENGINE_RUN_H
#include "engine/plugin/kernel.h"
#include "engine/program/program.h"
#include "engine/passes/passes.h"

/* What a program is bound to. persistent holds the leaves, by the plan's tensors in the order of their
 * ids; transient holds everything else. members is indexed by the plan's group ids. Binding prepares
 * the device's kernels; autotuning comes later. */
struct hd_bind {
	const struct hd_device_ops *device;
	char *persistent, *transient;
	char *host; /* host memory, if the device has its own: first the persistent part, then the transient one */
	struct hd_communicator **members;
	int threads;   /* number of threads that plugins' kernels are told; 0: 1 */
	int dry;       /* records only what plugins have added, to check it */
	int asks;      /* asks kernels for their memory; does not prepare the device's kernels */
	char *staging; /* host memory for movements between ranks; NULL: they reach the tensors directly */
};
/* Returns the bytes of staging memory, if device memory is not host memory and the host does the movements. */
int64_t hd_program_staging(const struct hd_program *g);
/* Records what plugins have added to the program of a class of ranks, to check what their kernels
 * are given. Needs no memory. If an op's record function asks for its rank's index, it is called
 * for each rank of the class with a different one. */
int hd_program_try(struct hd_program *g, const struct hd_device_ops *device, const struct hd_classes *c,
		   int64_t class_number, struct hd_err *err);
/* Does the same for the program's own rank alone, with plugins' kernels for the given number
 * of threads. Replaces what was recorded before. */
int hd_program_record(struct hd_program *g, const struct hd_device_ops *device, int threads, struct hd_err *err);
/* Sets memory.scratch, kept, plugin_scratch and plugin_kept, for a run with the given number of threads. */
int hd_program_scratch(struct hd_program *g, const struct hd_device_ops *device, int threads, struct hd_err *err);
/* Returns the memory that plugins' kernels have now, in a bound program. */
int64_t hd_program_plugin_bytes(const struct hd_program *g);
/* The two functions below ask one launch for its memory, as hd_program_scratch does for all. */
struct hd_tables_counted { /* tables counted so far */
	uint64_t *v;
	size_t n, cap;
};
void hd_ask_kernel(struct program_memory *m, struct hd_tables_counted *counted, const struct hd_kernel *k,
		   const struct hd_kernel_desc *d, int threads);
int hd_ask_plugin_kernel(struct program_memory *m, const struct hd_kernel_ops *k, const struct hd_kernel_owner *o,
			 const struct hd_kernel_desc *d, struct hd_err *err);
int hd_program_bind(struct hd_program *g, const struct hd_bind *b, struct hd_err *err);
/* Returns a tensor's bytes for the host to read or write. That is the memory itself, or a copy that unmap writes back.
 * NULL for leaves that are not on this rank. Not allowed within a step. The memory of two copies is kept for later
 * calls, until hd_program_forget_copies or the end of the program. */
enum { HD_MAP_READ = 1, HD_MAP_WRITE };
void hd_clear_pages(void *data, size_t bytes); /* sets to zero, with all threads of the rank */
void *hd_program_map(const struct hd_program *g, const struct tensor *t, int64_t micro, int how);
void hd_program_unmap(const struct hd_program *g, const struct tensor *t, int64_t micro, void *data, int how);
void hd_program_forget_copies(const struct hd_program *g); /* call after a walk over all of a rank's tensors */
struct host_copies *hd_host_copies_create(void);
void hd_host_copies_destroy(struct hd_program *g);
double hd_program_scalar(const struct hd_program *g, const struct tensor *t); /* the value for micro-batch 0 */

/* Writes the ids of a data leaf's slice for one micro-batch. */
typedef int (*hd_fill_fn)(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out);
/* Run a step in two parts: up to the gradient norm, and the update. HD_EIO: a peer is gone, which has been reported. */
int hd_program_compute(struct hd_program *g, struct hd_run *run, hd_fill_fn fill, void *ctx);
int hd_program_update(struct hd_program *g, struct hd_run *run);
/* Sets err after one of the two has failed with code rc, unless err is set; what: what was running. Other ranks would
 * wait for this one, so if there are any, prints err and ends all ranks. Returns the code. */
int hd_program_failed(const struct hd_program *g, int rc, const char *what, struct hd_err *err);
/* Gives parameters that servers update the servers' current values, as the next step would. All ranks call it, between
 * steps. Without servers, it does nothing. */
int hd_program_pull(struct hd_program *g);
/* Computes again and checks every result. err names the first one that is not finite; code 0 if all are finite.
 * received: 1 if an operand was not finite either, so the value came from another rank. */
int hd_program_find_nan(struct hd_program *g, struct hd_run *run, hd_fill_fn fill, void *ctx, int *received,
			struct hd_err *err);
/* Describes the first parameter with values here that are not finite, as "3 of the 64 values of NAME". The caller
 * frees it. NULL: none. Call it between steps. */
char *hd_program_spoilt_text(const struct hd_program *g);
/* Returns the seconds of the step's matrix products alone, on the step's memory: a lower bound for the step's time. */
double hd_program_products(struct hd_program *g, struct hd_run *run);
/* Traces from now on, as that step; 0: no more. steps: how many will be traced. */
void hd_program_trace(struct hd_program *g, int32_t step, int64_t steps);
/* bytes: a launch's operands, each counted once; flops: those of products;
 * bound: the shortest known time in seconds, or 0. */
struct launch_time {
	const char *name;
	size_t from, to; /* commands from ... to - 1; several if a kernel runs them as one */
	double seconds, bytes, flops, bound;
};
/* Adds the work of command i to *t. bounds: also the shortest known time, which may have to be measured. */
void hd_program_work(const struct hd_program *g, size_t i, int bounds, struct launch_time *t);
/* Returns the shortest known time of the products that hd_program_products runs, in seconds. Their operands are in
 * their own layout or packed; any: in any layout. 0: *unknown, one of them, is not known. */
double hd_program_bound(const struct hd_program *g, int any, const struct hd_node **unknown);

/* record.c: records the launches of each node. */
int hd_pass_record(struct hd_program *g, const struct hd_bind *b, struct hd_err *err);

#endif
