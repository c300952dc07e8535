/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/scratch.h - memory for the values of one launch.
 *
 * Launches follow each other, so all kernels share one piece of memory, as large as the largest prepared launch needs.
 * Slot `scratch` of a kernel returns how much a launch needs. Its prepare takes what the same function returns.
 */
#ifndef HD_KERNELS_CPU_BASE_SCRATCH_H
#define HD_KERNELS_CPU_BASE_SCRATCH_H
#include "engine/device/device.h"

#define HD_SCRATCH_ALIGN 4096 /* alignment of its start */

/* Lets the kernel use `bytes` bytes until it leaves. Each of these calls may move the memory, so run calls
 * hd_scratch() every time. */
int hd_scratch_join(int64_t bytes, const char *kernel, struct hd_err *err);
void hd_scratch_leave(void); /* the last kernel that leaves frees it */
void *hd_scratch(void);
int64_t hd_scratch_room(void);  /* bytes that a launch may use now */
int64_t hd_scratch_bytes(void); /* bytes in all, with those of tables */
/* Adds the bytes of a new table (slot kept); negative: of one that was freed. */
void hd_scratch_table(int64_t bytes);

/* Ends a prepare: joins, and sets p's release, which frees its state and leaves. Without memory, it frees the state
 * and fails. */
int hd_scratch_take(struct hd_prep *p, int64_t bytes, const char *kernel, struct hd_err *err);
/* Returns a launch's bytes of scratch: `prepare` writes its shapes to p->n, and bytes_of reads them. 0: prepare would
 * refuse it. */
int64_t hd_scratch_of_shape(const struct hd_kernel_desc *d,
			    int (*prepare)(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err),
			    int64_t (*bytes_of)(const struct hd_prep *p));

#endif
