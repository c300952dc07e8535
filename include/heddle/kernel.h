/* SPDX-License-Identifier: Apache-2.0
 * heddle/kernel.h - kernels of a plugin.  Slot record of its ops launches them by name, like those of the engine.
 *
 * A kernel is for one device.  prepare is called once per launch, before step 1: it does what depends on shapes alone,
 * and asks for memory.  Then run is called in every step with the same addresses.  Tensors are dense and row-major in
 * the order of their dims.  run reads its inputs and writes its outputs, all of them, and nothing else.  The same
 * inputs in the same step give the same outputs: what a kernel keeps from run to run is in no checkpoint.
 * If the engine has a kernel of the same name, the plugin's own ops get the plugin's.
 *
 *   cpu    run computes, on at most `threads` threads, and returns when it is done
 *   cuda   run enqueues on `stream` and returns: it does not wait, and allocates nothing.  What it enqueues may be recorded
 *          once and replayed in all later steps, so it reads what changes from step to step in *step, on the device
 *   ref    as cpu, and every float operand is HD_DTYPE_F64: the device of the engine's own tests
 */
#ifndef HEDDLE_KERNEL_H
#define HEDDLE_KERNEL_H
#include <heddle/op.h>
#ifdef __cplusplus
extern "C" {
#endif

struct hd_operand { /* view: as one rank holds it */
	size_t size;
	const struct hd_dim *const *dims;
	const int64_t *n;     /* per dim, elements here */
	const int64_t *first; /* global index of the first; an index of dims[i]->n or more is padding */
	uint32_t ndim, dtype;
};

struct hd_step { /* values that change from step to step; on cuda in the device's memory */
	size_t size;
	uint64_t seed;
	int64_t step;          /* from 1 */
	double lr, loss_scale; /* loss_scale: 1 / (tokens of the global batch) */
	int32_t train;         /* 0: evaluation */
	uint32_t zero;
};

struct hd_kernel_prepare { /* the engine fills all fields but `state` */
	size_t size;
	const char *attr; /* of the launch */
	const struct hd_operand *const *ins, *const *outs;
	uint32_t nin, nout;
	int32_t threads, zero;
	/* Zeroed host memory that lives as long as the launch.  A plan counts it: on cpu and ref, to know how much it is, the
	 * engine also calls prepare and then release before the first one that stays. */
	void *(*alloc)(struct hd_kernel_prepare *a, size_t bytes);
	/* Refuses, with one sentence that names the operand and both values.  Returns code. */
	int (*fail)(struct hd_kernel_prepare *a, int32_t code, const char *fmt, ...) HD_PRINTF(3, 4);
	void *state; /* the kernel's own; run gets it again */
};

struct hd_kernel_run {
	size_t size;
	void *state;
	void *const *ins, *const *outs;
	void *stream; /* cuda: the cudaStream_t; else NULL */
	const struct hd_step *step;
	int64_t sample0; /* index, within the step's global batch, of this micro-batch's first sample over all ranks */
	int32_t threads, zero;
	void *scratch; /* what slot scratch asked for, with anything in it; else NULL.  Since 1.2 */
};

struct hd_kernel_ops { /* static const data */
	size_t size;
	const char *name, *device; /* device: "cpu", "cuda" or "ref" */
	/* Returns HD_OK, or what a->fail returned. */
	int (*prepare)(struct hd_strategy *self, struct hd_kernel_prepare *a);
	/* Returns HD_OK.  Another value ends the run with the kernel's name and this number (cuda: the last error of
	 * the launch). */
	int (*run)(const struct hd_kernel_run *a);
	void (*release)(void *state); /* frees what prepare made without alloc; NULL: there is nothing */
	/* cpu, ref: bytes of working memory of run, by shapes and threads alone.  All launches share them, so a plan counts
	 * those of the largest.  Called before prepare.  NULL: none.  Since 1.2.  On cuda, or for memory with dims, use an
	 * output of the op that no node reads. */
	int64_t (*scratch)(struct hd_strategy *self, const struct hd_kernel_prepare *a);
};

#ifdef __cplusplus
}
#endif
#endif
