/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/op.h - what the engine knows of an op beyond struct hd_op: passes, memory plan and executor ask for this and
 * never for a name.  An op says it beside its struct hd_op (engine/ops/); a plugin's op has none of it.
 */
#ifndef HD_ENGINE_OP_H
#define HD_ENGINE_OP_H
#include <heddle/op.h>

/* Ops that a pass treats in a way of their own.  Each but ROLE_UPDATE is one op's. */
enum op_role {
	ROLE_NONE,
	ROLE_ACCUMULATE,
	ROLE_ADD,
	ROLE_ATTENTION,
	ROLE_BLOCK,
	ROLE_CAST,
	ROLE_CHUNK,
	ROLE_COMM,
	ROLE_EINSUM,
	ROLE_FILL,
	ROLE_GELU,
	ROLE_GELU_D,
	ROLE_JOIN,
	ROLE_MAP,
	ROLE_NORM,
	ROLE_NORM2,
	ROLE_NORM_D,
	ROLE_PACK,
	ROLE_PICK,
	ROLE_RESHARD,
	ROLE_ROUTE,
	ROLE_SYNC,
	ROLE_TOTAL,
	ROLE_UNBLOCK,
	ROLE_UNPACK,
	ROLE_UPDATE,
	ROLE_VIEW,
};
enum op_flag {
	OP_PLUGIN = 1,     /* a plugin's */
	OP_CHEAP = 2,      /* recomputed in backward rather than kept: its first result, train.recompute = cheap */
	OP_ROWS = 4,       /* takes rows that are counted, and reads their numbers as its last input */
	OP_MOVES_ROWS = 8, /* takes rows that are counted, and only moves them */
	OP_NAMES = 16,     /* its result is a name for bytes that are there already: neither reads nor writes */
	OP_ARRANGES = 32,  /* the same elements, in another order or on another rank */
	OP_PIECES = 64,    /* its result is its operands, or pieces of them, put together or apart */
	OP_MATMUL = 128,   /* its time is that of a product */
};
struct op_traits {
	enum op_role role;
	uint32_t flags;
	uint64_t fp32_inputs; /* bit i: input i stays fp32 where other operands are bf16 */
};

struct op {
	struct hd_op v;
	struct op_traits is;
};

#endif
