/* SPDX-License-Identifier: Apache-2.0
 * engine/plan/host_impl.h - what the files of the facade share.
 */
#ifndef HD_ENGINE_HOST_IMPL_H
#define HD_ENGINE_HOST_IMPL_H
#include "engine/plan/plan.h"
#include <string.h>

static inline int hd_in_slot(const struct hd_plan *p, const char *slot)
{
	return p->slot && !strcmp(p->slot, slot);
}

int hd_out_of_turn(struct hd_plan *p, const char *what, const char *slot); /* refuses the call */

/* -- host_mesh.c: what struct hd_host says of the layout ------------------------------------------------------------------- */
const struct hd_dim *hd_host_dim(struct hd_plan *p, const char *name);
const struct hd_dim *hd_host_dim_new(struct hd_plan *p, const char *name, int64_t n);
const struct hd_axis *hd_host_axis(struct hd_plan *p, const char *suffix, int64_t n, int64_t spare);
const struct hd_axis *hd_host_axis_next(struct hd_plan *p, const struct hd_axis *prev);
const struct hd_group *hd_host_group(struct hd_plan *p, const struct hd_axis *const *axes, uint32_t n, uint32_t role);
int hd_host_rule(struct hd_plan *p, const char *name, const struct hd_axis *axis, const char *kind, uint32_t flags);
const struct hd_block *hd_host_block_next(struct hd_plan *p, const struct hd_block *prev);
int hd_host_stage(struct hd_plan *p, const struct hd_block *b, const struct hd_axis *axis, int64_t coord,
		  int64_t chunk);
int hd_host_unit(struct hd_plan *p, const struct hd_axis *axis, int64_t coord, uint32_t kind, int64_t chunk,
		 int64_t micro);

/* -- basic.c: slots open and mesh of plugins that leave them out, of the instance whose turn it is -------------------------- */
int hd_basic_open(struct hd_plan *p);
int hd_basic_mesh(struct hd_plan *p, int64_t n);

#endif
