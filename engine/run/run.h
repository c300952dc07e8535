/* SPDX-License-Identifier: Apache-2.0
 * engine/run/run.h - a program bound to memory, and its steps.
 *
 *   hd_program_bind                        record.c: kernels prepared; bind.c: addresses resolved
 *   hd_program_compute, hd_program_update  run.c:    one step, with staging.c where the device has memory of its own
 *   hd_program_find_nan                    nan_hunt.c
 *   hd_program_work, hd_program_products   bench_run.c
 */
#ifndef HD_ENGINE_RUN_H
#define HD_ENGINE_RUN_H
#include "engine/plugin/kernel.h"
#include "engine/program/program.h"
#include "engine/passes/passes.h"

/* Storage of the leaves (by the plan's tensors: persistent, in the order of their ids) and of everything else.
 * members: by the plan's group ids.  The device's kernels are prepared; autotune comes after. */
struct hd_bind {
	const struct hd_device_ops *device;
	char *persistent, *transient;
	char *host; /* what is in the host's memory, where the device has its own: persistent, then transient */
	struct hd_communicator **members;
	int threads;   /* what plugins' kernels are told; 0: 1 */
	int dry;       /* only what plugins have made is recorded, to be looked at */
	int asks;      /* kernels are asked for their memory; the device's are not prepared for that */
	char *staging; /* host memory that movements between ranks go through; NULL: they reach the tensors */
};
/* Bytes of it, where the device's memory is not the host's and movements are made by the host. */
int64_t hd_program_staging(const struct hd_program *g);
/* Records what plugins have put into the program of a class of ranks, without memory: what their kernels are given is checked.
 * Where an op's record asks for its rank's index, it is asked for each rank of the class that has another one. */
int hd_program_try(struct hd_program *g, const struct hd_device_ops *device, const struct hd_classes *c,
		   int64_t class_number, struct hd_err *err);
/* The same of the program's own rank alone, with kernels of plugins for so many threads; instead of what was recorded before. */
int hd_program_record(struct hd_program *g, const struct hd_device_ops *device, int threads, struct hd_err *err);
/* Sets memory.scratch, kept, plugin_scratch and plugin_kept, of a run with so many threads. */
int hd_program_scratch(struct hd_program *g, const struct hd_device_ops *device, int threads, struct hd_err *err);
/* What kernels of plugins have now, of a program that is bound. */
int64_t hd_program_plugin_bytes(const struct hd_program *g);
/* One launch of those that hd_program_scratch asks. */
struct hd_tables_counted { /* the tables that were counted */
	uint64_t *v;
	size_t n, cap;
};
void hd_ask_kernel(struct program_memory *m, struct hd_tables_counted *counted, const struct hd_kernel *k,
		   const struct hd_kernel_desc *d, int threads);
int hd_ask_plugin_kernel(struct program_memory *m, const struct hd_kernel_ops *k, const struct hd_kernel_owner *o,
			 const struct hd_kernel_desc *d, struct hd_err *err);
int hd_program_bind(struct hd_program *g, const struct hd_bind *b, struct hd_err *err);
/* A tensor's bytes for the host, to read or write: the memory itself, or a copy that unmap writes back.  Of leaves not on this rank:
 * NULL.  Not within a step.  The memory of two copies is kept for those that follow, until it is forgotten or the program ends. */
enum { HD_MAP_READ = 1, HD_MAP_WRITE };
void hd_clear_pages(void *data, size_t bytes); /* to zero, by all threads of the rank */
void *hd_program_map(const struct hd_program *g, const struct tensor *t, int64_t micro, int how);
void hd_program_unmap(const struct hd_program *g, const struct tensor *t, int64_t micro, void *data, int how);
void hd_program_forget_copies(const struct hd_program *g); /* after a walk over all that a rank holds */
struct host_copies *hd_host_copies_create(void);
void hd_host_copies_destroy(struct hd_program *g);
double hd_program_scalar(const struct hd_program *g, const struct tensor *t); /* of micro-batch 0 */

/* fill: writes the ids of a data leaf's slice for one micro-batch. */
typedef int (*hd_fill_fn)(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out);
/* A step in two parts: up to the gradient norm, and the update.  HD_EIO: a peer is gone, and has been reported. */
int hd_program_compute(struct hd_program *g, struct hd_run *run, hd_fill_fn fill, void *ctx);
int hd_program_update(struct hd_program *g, struct hd_run *run);
/* Between steps, on all ranks: parameters that servers update take what these have now, as the next step would.  Elsewhere nothing. */
int hd_program_pull(struct hd_program *g);
/* Computes again and looks at every result: the first that is not finite is named in err (0: all are finite). received: 1 if
 * what it was made from was not finite either, so it came from another rank. */
int hd_program_find_nan(struct hd_program *g, struct hd_run *run, hd_fill_fn fill, void *ctx, int *received,
			struct hd_err *err);
/* Between steps: the first parameter with values here that are not finite, as "3 of the 64 values of NAME"; malloc'ed.  NULL: none. */
char *hd_program_spoilt_text(const struct hd_program *g);
/* Seconds of the step's matrix products alone, on the memory that the step uses: the bound of what a step can reach. */
double hd_program_products(struct hd_program *g, struct hd_run *run);
/* From now on; 0: no more.  steps: how many there will be. */
void hd_program_trace(struct hd_program *g, int32_t step, int64_t steps);
/* bytes: of a launch's operands, each once; flops: of its products; bound: the least seconds known for it, or 0. */
struct launch_time {
	const char *name;
	size_t from, to; /* commands from ... to - 1: several run as one where a kernel can join them */
	double seconds, bytes, flops, bound;
};
/* Adds what command i is to do; bounds: with the least seconds known, which may have to be measured. */
void hd_program_work(const struct hd_program *g, size_t i, int bounds, struct launch_time *t);
/* The least seconds known of the products that hd_program_products runs, with operands as they lie or packed; any: in any
 * layout.  0: not known for one of them. */
double hd_program_bound(const struct hd_program *g, int any);

/* record.c: the launches of each node. */
int hd_pass_record(struct hd_program *g, const struct hd_bind *b, struct hd_err *err);

#endif
