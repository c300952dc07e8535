/* SPDX-License-Identifier: Apache-2.0
 * Gradients of 16 bits in transit, which halves the bytes. They are rounded before they are sent, and become fp32 again
 * on receipt, where they are added. bf16 has the range of fp32. fp16 does not, and gradients are small, because they
 * are divided by the tokens of the global batch. So fp16 gradients are sent multiplied by 2^10. The smallest value that
 * is not lost is then 2^-34. A value above 2^6 becomes infinite; the run then skips the step and reports where. Scaling
 * by a power of two changes no bit of the values in between.
 */
#include "dp.h"

#define SCALE "1024"

/* Returns x in the dtype in transit. wire = fp32 means unchanged: full precision, which on the reference device is
 * double. */
struct hd_tensor *dp_to_wire(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x)
{
	if (!x || x->dtype == s->wire || s->wire == HD_DTYPE_F32)
		return x;
	if (s->wire == HD_DTYPE_F16)
		x = s->g->map(p, &x, 1, "a * " SCALE);
	return s->g->cast(p, x, s->wire);
}

struct hd_tensor *dp_from_wire(struct hd_strategy *s, struct hd_plan *p, struct hd_tensor *x, uint32_t dtype)
{
	if (!x || x->dtype == dtype)
		return x;
	x = s->g->cast(p, x, dtype);
	return s->wire == HD_DTYPE_F16 ? s->g->map(p, &x, 1, "a / " SCALE) : x;
}

struct hd_tensor *dp_comm(struct hd_strategy *s, struct hd_plan *p, uint32_t kind, const struct hd_group *g,
			  struct hd_tensor *flat, int64_t index)
{
	struct hd_tensor *x = dp_to_wire(s, p, flat);
	const struct hd_dim *dim = kind == HD_COMM_ALL_REDUCE || !x ? NULL : x->dims[0];

	return flat ? dp_from_wire(s, p, hd_comm(s->g, p, kind, g, x, dim, index), flat->dtype) : NULL;
}

struct hd_tensor *dp_sum(struct hd_strategy *s, struct hd_plan *p, uint32_t kind, const struct hd_group *g,
			 struct hd_tensor *flat)
{
	struct hd_comm_args a = { .size = sizeof(a), .group = g, .x = flat, .kind = kind };

	if (!flat || g->n == 1)
		return flat;
	a.dim = flat->dims[0];
	a.wire = s->wire == HD_DTYPE_F32 || s->wire == flat->dtype ? 0 : s->wire;
	return s->g->comm(p, &a);
}
