/* SPDX-License-Identifier: Apache-2.0
 * heddle/kernel.h - kernels of a plugin. Slot record of its ops launches them by name, like the engine's kernels.
 *
 * A kernel is for one device. The engine calls prepare once per launch, before step 1; prepare does the work that
 * depends on shapes alone and allocates memory. The engine then calls run in every step with the same addresses.
 * Tensors are dense and row-major in the order of their dims. run reads its inputs and writes all elements of its
 * outputs, and touches nothing else. The same inputs in the same step must give the same outputs, because no checkpoint
 * contains what a kernel keeps between runs. If the engine has a kernel of the same name, the plugin's own ops use the
 * plugin's kernel.
 *
 *   cpu    run computes on at most `threads` threads, and returns when it is done
 *   cuda   run enqueues work on `stream` and returns: it does not wait, and allocates nothing. The engine may record
 *          this work once and replay it in all later steps. So the work reads values that change between steps from
 *          *step, in device memory
 *   ref    like cpu, but every float operand is HD_DTYPE_F64; the engine's own tests use this device
 */
#ifndef HEDDLE_KERNEL_H
#define HEDDLE_KERNEL_H
#include <heddle/op.h>
#ifdef __cplusplus
extern "C" {
#endif

struct hd_operand { /* view: a tensor as one rank stores it */
	size_t size;
	const struct hd_dim *const *dims;
	const int64_t *n; /* per dim, the number of elements on this rank */
	/* per dim, the global index of the first element here; indices from dims[i]->n on are padding */
	const int64_t *first;
	uint32_t ndim, dtype;
};

struct hd_step { /* values that change from step to step; on cuda this struct is in device memory */
	size_t size;
	uint64_t seed;
	int64_t step;          /* counted from 1 */
	double lr, loss_scale; /* loss_scale: 1 / (tokens of the global batch) */
	int32_t train;         /* 0: evaluation */
	uint32_t zero;
};

struct hd_kernel_prepare { /* the engine fills all fields except `state` */
	size_t size;
	const char *attr; /* the attributes of the launch */
	const struct hd_operand *const *ins, *const *outs;
	uint32_t nin, nout;
	int32_t threads, zero;
	/* Returns zeroed host memory that lives as long as the launch, or NULL if memory is short. The plan counts this
	 * memory. To measure it on cpu and ref, the engine also calls prepare and then release, before the prepare
	 * whose state it keeps. */
	void *(*alloc)(struct hd_kernel_prepare *a, size_t bytes);
	/* Refuses the launch with one sentence that names the operand and both values. Returns code. */
	int (*fail)(struct hd_kernel_prepare *a, int32_t code, const char *fmt, ...) HD_PRINTF(3, 4);
	void *state; /* the kernel's own data, which the engine passes to run and release */
};

struct hd_kernel_run {
	size_t size;
	void *state;
	void *const *ins, *const *outs;
	void *stream; /* cuda: the cudaStream_t; otherwise NULL */
	const struct hd_step *step;
	int64_t sample0; /* index of this micro-batch's first sample in the step's global batch, over all ranks */
	int32_t threads, zero;
	void *scratch; /* the uninitialized memory that slot scratch asked for, or NULL. Since 1.2 */
};

struct hd_kernel_ops { /* static const data */
	size_t size;
	const char *name, *device; /* device: "cpu", "cuda" or "ref" */
	/* Returns HD_OK, or the value that a->fail returned. */
	int (*prepare)(struct hd_strategy *self, struct hd_kernel_prepare *a);
	/* Returns HD_OK. Any other value ends the run with a message that has the kernel's name and this value. On
	 * cuda, return the last error of the launch. */
	int (*run)(const struct hd_kernel_run *a);
	void (*release)(void *state); /* frees what prepare allocated other than with alloc; NULL: nothing to free */
	/* cpu, ref: returns the bytes of working memory that run needs, which depend on shapes and threads alone. All
	 * launches share this memory, so a plan counts only the largest request. Called before prepare. NULL: none.
	 * Since 1.2. On cuda, or for memory that has dims, use an output of the op that no node reads. */
	int64_t (*scratch)(struct hd_strategy *self, const struct hd_kernel_prepare *a);
};

#ifdef __cplusplus
}
#endif
#endif
