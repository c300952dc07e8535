/* SPDX-License-Identifier: Apache-2.0
 * engine/ops/ops.h - the engine's own ops, described by the same struct as a plugin's (heddle/op.h): shape, dims that
 * may be sharded, vjp, place, cost, record.  There is one family of ops per file; doc/extending.md shows how to add
 * one.
 */
#ifndef HD_ENGINE_OPS_H
#define HD_ENGINE_OPS_H
#include "engine/device/device.h"
#include "engine/graph/graph.h"
#include "engine/graph/mesh.h"
#include "engine/graph/placement.h"
#include "engine/ops/build.h"

#define HD_SHAPE_ARGS \
	struct hd_strategy *self, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins, uint32_t nin, \
		struct hd_shape *outs, uint32_t *nout
#define HD_VJP_ARGS \
	struct hd_strategy *self, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout, uint64_t want, \
		struct hd_tensor **din
/* Refuses a gradient that the op does not compute: some compute only that of their first output. */
int hd_vjp_of_first(struct hd_plan *p, const struct hd_node *n, struct hd_tensor *const *dout);
#define HD_PLACE_ARGS \
	struct hd_strategy *self, struct hd_plan *p, const struct hd_node *n, const struct hd_axis *axis, \
		const struct hd_place *have, struct hd_place *need, struct hd_place *out

/* Set the shape of an output: like an input, or with the dims of attribute "out=a,b". */
void hd_shape_like(struct hd_shape *s, const struct hd_tensor *t);
int hd_shape_attr(struct hd_plan *p, const char *attr, struct hd_shape *s, uint32_t dtype);
int hd_same_as_first(HD_SHAPE_ARGS); /* one output, like input 0 */
/* Records the kernel that has the op's name. */
int hd_record_plain(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n);
/* Sums x over the dims that `like` does not have. */
struct hd_tensor *hd_sum_to(struct hd_plan *p, struct tensor *x, const struct tensor *like);
/* Returns the place where terms can be added up: that of the first that is no partial sum, or partial if all are. */
const struct hd_place *hd_common_place(const struct hd_place *have, uint32_t n);
/* Returns the local elements; for ragged tensors, those that a rank has if the tokens choose experts equally. */
double hd_expected_elements(const struct hd_tensor *t);

/* Each op is a struct op, hd_op_NAME, in one of the files here, and a line of list.h. */
#define IS(which, ...) \
	{ \
		OP_ROLE_##which, __VA_ARGS__ \
	}
#define PLAIN \
	{ \
		.role = OP_ROLE_NONE \
	}
#define OP(id) extern const struct op hd_op_##id;
#include "engine/ops/list.h"
#undef OP

#endif
