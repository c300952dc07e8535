/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/op.h - the engine's own properties of an op, beyond struct hd_op.  Passes, memory plan and executor
 * check these, and never a name.  An op declares them next to its struct hd_op (engine/ops/).  A plugin's op cannot:
 * hd_op_traits gives it the few that its kind and flags imply.
 */
#ifndef HD_ENGINE_OP_H
#define HD_ENGINE_OP_H
#include <heddle/op.h>

/* Ops that some pass treats specially.  Except for OP_ROLE_TRANSFER and OP_ROLE_UPDATE, each is the role of one op. */
enum op_role {
	OP_ROLE_NONE,
	OP_ROLE_ACCUMULATE,
	OP_ROLE_ADD,
	OP_ROLE_ATTENTION,
	OP_ROLE_ATTENTION_D,
	OP_ROLE_BLOCK,
	OP_ROLE_CAST,
	OP_ROLE_CHUNK,
	OP_ROLE_COMM,
	OP_ROLE_EINSUM,
	OP_ROLE_FILL,
	OP_ROLE_GELU,
	OP_ROLE_GELU_D,
	OP_ROLE_GELU_SLOPE,
	OP_ROLE_GELU_SLOPE_D,
	OP_ROLE_JOIN,
	OP_ROLE_MAP,
	OP_ROLE_NLL,
	OP_ROLE_NORM,
	OP_ROLE_NORM2,
	OP_ROLE_NORM_D,
	OP_ROLE_NORM_DW,
	OP_ROLE_NORM_D_ADD,
	OP_ROLE_PACK,
	OP_ROLE_PICK,
	OP_ROLE_PULLED,
	OP_ROLE_RESHARD,
	OP_ROLE_ROUTE,
	OP_ROLE_SUM,
	OP_ROLE_SYNC,
	OP_ROLE_TOTAL,
	OP_ROLE_TRANSFER,
	OP_ROLE_UNBLOCK,
	OP_ROLE_UNPACK,
	OP_ROLE_UPDATE,
	OP_ROLE_VIEW,
	OP_ROLE_XENT,
	OP_ROLE_XENT_COMBINE,
	OP_ROLE_XENT_D,
};
enum op_flag {
	OP_FLAG_PLUGIN = 1, /* an op of a plugin */
	/* backward recomputes its first result instead of keeping it (train.recompute = cheap) */
	OP_FLAG_CHEAP = 2,
	OP_FLAG_ROWS = 4,       /* takes ragged tensors, and reads their row counts as its last input */
	OP_FLAG_MOVES_ROWS = 8, /* takes ragged tensors, and only moves their rows */
	OP_FLAG_NAMES = 16,     /* its result names bytes that exist already: the op neither reads nor writes */
	OP_FLAG_ARRANGES = 32,  /* its result has the same elements, in a different order or on a different rank */
	OP_FLAG_PIECES = 64,    /* its result is its operands, or pieces of them, joined or split */
	OP_FLAG_MATMUL = 128,   /* its time is that of a matrix product */
	/* With a cache, right for a run of some tokens of a sequence, although it reads positions or lists seq as
	 * unshardable */
	OP_FLAG_WITH_CACHE = 256,
};
struct op_traits {
	enum op_role role;
	uint32_t flags;
	uint64_t fp32_inputs; /* bit i: input i stays fp32 where other operands are bf16 */
};

struct op_signature {
	uint32_t least, most; /* minimum and maximum number of inputs */
	const char *dims;     /* one character per leading input: its number of dims; +: one or more, .: any */
	/* The keys of its attributes, separated by blanks; all ops also know fp32 and rows. KEY= has a text as its
	 * value, all others have numbers. NULL: its attributes are an expression. */
	const char *keys;
};

struct op {
	struct hd_op v;
	struct op_traits is;
};

/* What an op's slot record receives.  Plugins see a handle; the engine's own ops call the same functions through it. */
struct hd_record {
	const struct hd_record_api *api;
	/* Functions of the recorder (engine/run/record.c). */
	int64_t (*index)(struct hd_record *r, const struct hd_group *g);
	int (*launch)(struct hd_record *r, const char *kernel, struct hd_tensor *const *ins, uint32_t nin,
		      struct hd_tensor *const *outs, uint32_t nout, const char *attr);
};

#endif
