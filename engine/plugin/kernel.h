/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/kernel.h - a kernel of a plugin (heddle/kernel.h) as one of the engine's.
 */
#ifndef HD_ENGINE_PLUGIN_KERNEL_H
#define HD_ENGINE_PLUGIN_KERNEL_H
#include "engine/device/device.h"
#include <heddle/kernel.h>

extern const struct hd_kernel hd_plugin_kernel; /* of all of them: it runs what was prepared */

/* As slot prepare of a kernel, of the instance that the section [NAME] made.  threads 0: 1. */
struct hd_kernel_owner {
	struct hd_strategy *self;
	const char *section;
	int threads;
};
int hd_plugin_kernel_prepare(const struct hd_kernel_ops *ops, const struct hd_kernel_owner *o,
			     const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err);
/* What such a launch would take of the host's memory, which is given back. */
struct hd_kernel_bytes {
	int64_t kept;    /* by prepare, as long as the launch lives */
	int64_t scratch; /* shared with all others */
};
int hd_plugin_kernel_bytes(const struct hd_kernel_ops *ops, const struct hd_kernel_owner *o,
			   const struct hd_kernel_desc *d, struct hd_kernel_bytes *bytes, struct hd_err *err);
/* What this one takes. */
struct hd_kernel_bytes hd_plugin_kernel_takes(const struct hd_prep *p);
/* After a run: what the plugin's function returned, with a text, if that was no HD_OK. */
int hd_plugin_kernel_failed(const struct hd_prep *p, struct hd_err *err);

/* -- kernel_memory.c -------------------------------------------------------------------------------------------------- */
/* Zeroed, and aligned to a cache line; in the list until that is freed.  NULL: there is none. */
struct kernel_memory;
void *hd_kernel_memory_keep(struct kernel_memory **list, size_t bytes);
void hd_kernel_memory_free(struct kernel_memory *list);
/* One piece for all launches of this process, as large as the largest wants.  hold: 1, or 0 if there is no memory; leave: once for
 * each hold.  at: so many bytes of it, aligned to a cache line, until the next hold. */
int hd_kernel_scratch_hold(int64_t bytes);
void hd_kernel_scratch_leave(void);
void *hd_kernel_scratch_at(int64_t bytes);

#endif
