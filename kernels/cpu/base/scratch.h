/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/scratch.h - memory for values of one launch.
 *
 * Launches follow each other, so all kernels share one piece, as large as the largest of those that are prepared wants.  Slot
 * `scratch` of a kernel says how much that is; its prepare takes what the same function says.
 */
#ifndef HD_KERNELS_CPU_BASE_SCRATCH_H
#define HD_KERNELS_CPU_BASE_SCRATCH_H
#include "engine/device/device.h"

#define HD_SCRATCH_ALIGN 4096 /* of where it begins */

/* The kernel may use so many bytes until it leaves.  Where the memory is changes with each of these, so run asks for it anew. */
int hd_scratch_join(int64_t bytes, const char *kernel, struct hd_err *err);
void hd_scratch_leave(void); /* the last one frees it */
void *hd_scratch(void);
int64_t hd_scratch_room(void);        /* what a launch may use now */
int64_t hd_scratch_bytes(void);       /* with what tables have */
void hd_scratch_table(int64_t bytes); /* of slot kept: a new one; less than 0: one is gone */

/* The end of a prepare: joins, and p's release frees its state and leaves.  If there is no memory, the state is freed now. */
int hd_scratch_take(struct hd_prep *p, int64_t bytes, const char *kernel, struct hd_err *err);
/* What a launch takes whose shapes `prepare` writes to p->n, as bytes_of reads them; 0: it would be refused. */
int64_t hd_scratch_by(const struct hd_kernel_desc *d,
		      int (*prepare)(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err),
		      int64_t (*bytes_of)(const struct hd_prep *p));

#endif
