/* SPDX-License-Identifier: Apache-2.0
 * engine/ops/record.h - what slot record of an op is given: who records its kernels.  Plugins see a handle; the engine's own ops
 * call the same functions through it.
 */
#ifndef HD_ENGINE_OPS_RECORD_H
#define HD_ENGINE_OPS_RECORD_H
#include <heddle/op.h>

struct hd_record {
	const struct hd_record_api *api;
	/* Of whoever records (engine/run/record.c). */
	int64_t (*index)(struct hd_record *r, const struct hd_group *g);
	int (*launch)(struct hd_record *r, const char *kernel, struct hd_tensor *const *ins, uint32_t nin,
		      struct hd_tensor *const *outs, uint32_t nout, const char *attr);
};

#endif
