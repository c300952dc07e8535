/* SPDX-License-Identifier: Apache-2.0
 * engine/ops/build.h - builders of nodes by op name.  If an operand is NULL, the result is NULL.
 */
#ifndef HD_ENGINE_BUILD_H
#define HD_ENGINE_BUILD_H
#include "engine/graph/graph.h"

const struct op *hd_op_find(const char *name);                /* an op of the engine, or NULL */
const struct op_traits *hd_op_traits(const struct hd_op *op); /* for any op, also of plugins */
/* Returns the operands that a node needs if a plugin creates it by name; NULL: plugins cannot create one by name. */
const struct op_signature *hd_op_signature(const struct hd_op *op);
struct node *hd_node_make(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin, const char *fmt,
			  ...) HD_PRINTF(5, 6);
struct tensor *hd_op1(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin, const char *fmt, ...)
	HD_PRINTF(5, 6);
struct tensor *hd_einsum(struct hd_plan *p, struct tensor *a, struct tensor *b, const char *spec);
struct tensor *hd_map_new(struct hd_plan *p, struct tensor *const *ins, uint32_t nin, const char *expr);
/* If the node is the engine's attention, refuses a placement that gives a rank query heads without their key heads. */
int hd_attention_check(struct hd_plan *p, const struct node *n);

#endif
