/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/select.h - select, which copies bytes. So all devices share its check, and cpu and ref its run.
 */
#ifndef HD_KERNELS_PREPARE_SELECT_H
#define HD_KERNELS_PREPARE_SELECT_H
#include <string.h>
#include "engine/device/device.h"

static inline int hd_prepare_select(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	if (d->nin != 1 || d->nout != 1 || d->in[0].ndim != 3 || d->out[0].ndim != 2)
		return hd_err_set(err, HD_EINVAL, "select: (batch, seq, embed) -> (batch, embed)");
	p->n[0] = d->in[0].n[0];
	p->n[1] = d->in[0].n[1];
	p->n[2] = d->in[0].n[2] * HD_BITS(d->in[0].dtype) / 8;
	return HD_OK;
}

static inline void hd_run_select(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	for (int64_t b = 0; b < p->n[0]; b++)
		memcpy((char *)out[0] + b * p->n[2], (const char *)in[0] + (b * p->n[1] + r->position) * p->n[2],
		       (size_t)p->n[2]);
}

#endif
