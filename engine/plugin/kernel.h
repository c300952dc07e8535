/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/kernel.h - a plugin's kernel (heddle/kernel.h) in the form of an engine kernel.
 */
#ifndef HD_ENGINE_PLUGIN_KERNEL_H
#define HD_ENGINE_PLUGIN_KERNEL_H
#include "engine/device/device.h"
#include <heddle/kernel.h>

extern const struct hd_kernel hd_plugin_kernel; /* the same for all plugin kernels: it runs what was prepared */

/* hd_plugin_kernel_prepare prepares a launch of a kernel, for the instance that section [NAME] created. threads 0 means
 * 1. */
struct hd_kernel_owner {
	struct hd_strategy *self;
	const char *section;
	int threads;
};
int hd_plugin_kernel_prepare(const struct hd_kernel_ops *ops, const struct hd_kernel_owner *o,
			     const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err);
/* hd_plugin_kernel_bytes measures the host memory that such a launch would take, and frees it again. */
struct hd_kernel_bytes {
	int64_t kept;    /* allocated by prepare, for as long as the launch lives */
	int64_t scratch; /* shared by all launches */
};
int hd_plugin_kernel_bytes(const struct hd_kernel_ops *ops, const struct hd_kernel_owner *o,
			   const struct hd_kernel_desc *d, struct hd_kernel_bytes *bytes, struct hd_err *err);
/* Returns the memory that this launch takes. */
struct hd_kernel_bytes hd_plugin_kernel_takes(const struct hd_prep *p);
/* After a run: returns HD_OK, or an error whose text names the code that the plugin's run function returned. */
int hd_plugin_kernel_failed(const struct hd_prep *p, struct hd_err *err);

/* Tells whether the launch wrote directly after memory that it keeps. Only guarded memory is checked. */
int hd_plugin_kernel_overrun(const struct hd_prep *p);

/* -- kernel_memory.c ----------------------------------------------------------------------------------------------- */
/* hd_kernel_memory_keep returns zeroed memory that is aligned to a cache line and belongs to the list, or NULL.
 * hd_kernel_memory_free frees the list. */
struct kernel_memory;
void *hd_kernel_memory_keep(struct kernel_memory **list, size_t bytes);
void hd_kernel_memory_free(struct kernel_memory *list);
size_t hd_kernel_lines(size_t bytes); /* rounded up to whole cache lines */
/* 1: from now on, such memory ends at a page without access rights, except for the rest of a cache line. */
void hd_kernel_memory_guard(int on);
/* Tells whether the rest of a cache line after guarded memory was written. */
int hd_kernel_memory_overrun(const struct kernel_memory *list);
/* Scratch: one block for all launches of this process, as large as the largest request. hold returns 1, or 0 if memory
 * is short. Each hold needs one leave. at returns `bytes` bytes of the block, aligned to a cache line, valid until the
 * next hold. The rest of the last cache line follows, and then a page without access rights. */
int hd_kernel_scratch_hold(int64_t bytes);
void hd_kernel_scratch_leave(void);
void *hd_kernel_scratch_at(int64_t bytes);

#endif
