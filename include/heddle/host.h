/* SPDX-License-Identifier: Apache-2.0
 * heddle/host.h - types, status codes, and the functions that the engine offers to a plugin.
 *
 * A plan is one layout, as one instance of a plugin sees it. An instance is one section of the INI. A plugin plans and
 * never runs: no slot sees a rank, and the same calls describe all ranks. Values that depend on the rank are symbolic
 * (struct hd_pos). So one process can plan thousands of ranks, and ranks compare their plans by one hash.
 *
 * Ownership. Handles (dims, axes, groups, tensors, nodes, blocks) and the strings in them belong to the engine and live
 * as long as the plan. The engine copies everything that a plugin passes in before the call returns. Every struct is of
 * one of three sorts:
 *   a view begins with `size` and may grow at its end; the engine creates it, and the plugin only reads it and never
 *   copies or embeds it;
 *   arguments (struct hd_..._args, struct hd_match) begin with `size`, which the plugin sets to the struct's sizeof.
 *   They may grow at their end too, where 0 means "as before"; the engine refuses an unknown field that is not 0;
 *   a frozen struct never changes; its reserved words must be 0, and the engine refuses other values.
 * Calls that take arguments have a short form for the usual case, such as hd_rule(h, p, ...). The short forms are at
 * the end of this header and of heddle/graph.h.
 *
 * Threads. Only one thread calls the functions of a plan. Several plans may live in one process, so a plugin must not
 * have mutable globals.
 *
 * Errors. The plan keeps the first failure with its text (fail). A builder returns NULL if it fails or if an input
 * tensor is NULL. So a slot may build without checking each result, and end with `return h->status(p)`.
 */
#ifndef HEDDLE_HOST_H
#define HEDDLE_HOST_H
#include <stddef.h>
#include <stdint.h>
#include <heddle/version.h>
#ifdef __cplusplus
extern "C" {
#endif

#define HD_MAX_DIMS 8  /* maximum dims of one tensor */
#define HD_MAX_AXES 12 /* maximum axes of one mesh */
#define HD_MAX_INS 16  /* maximum inputs of one node, unless the op says otherwise */
#define HD_MAX_OUTS 8  /* maximum outputs of one node */
#if defined(__GNUC__)
#define HD_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define HD_PRINTF(f, a)
#endif

/* Status codes, returned by every slot and by host functions that return int. */
enum {
	HD_OK = 0,
	HD_DEFAULT = 1, /* "not mine: do what you would do without me" */
	HD_EINVAL = -1, /* a value that cannot be used */
	HD_ENOMEM = -2,
	HD_ENOTSUP = -3, /* a correct request that this build or machine cannot serve */
	HD_EDIVIDE = -4, /* sizes that do not divide */
	HD_EABI = -5,    /* a plugin that is incompatible with this engine */
	HD_EBUG = -6,    /* a broken invariant */
	HD_EIO = -7,     /* a failure of a file or a peer */
};
enum { HD_LOG_ERROR, HD_LOG_WARN, HD_LOG_INFO, HD_LOG_DEBUG };

/* A dtype encodes its class and its number of bits, so that an older plugin can size a type that it does not know. */
#define HD_DTYPE(cls, bits, variant) ((uint32_t)(cls) << 16 | (uint32_t)(bits) << 8 | (uint32_t)(variant))
#define HD_BITS(dtype) ((dtype) >> 8 & 0xff)
#define HD_DTYPE_F32 HD_DTYPE(3, 32, 0)
#define HD_DTYPE_F64 HD_DTYPE(3, 64, 0)
#define HD_DTYPE_F16 HD_DTYPE(3, 16, 0)
#define HD_DTYPE_BF16 HD_DTYPE(3, 16, 1)
#define HD_DTYPE_I32 HD_DTYPE(1, 32, 0)
#define HD_DTYPE_I64 HD_DTYPE(1, 64, 0)
#define HD_DTYPE_U8 HD_DTYPE(2, 8, 0)
/* Only casts compute with these dtypes; other nodes only move them. Casts round to nearest and saturate at the ends of
 * the range, so scale with map first. */
#define HD_DTYPE_I8 HD_DTYPE(1, 8, 0)
#define HD_DTYPE_E4M3 HD_DTYPE(3, 8, 0) /* largest value 448 */
#define HD_DTYPE_E5M2 HD_DTYPE(3, 8, 1) /* largest value 57344 */
/* One sign bit per element: a cast from float packs the signs, and a cast back gives +1 or -1. */
#define HD_DTYPE_B1 HD_DTYPE(2, 1, 0)

struct hd_plan;
struct hd_op;
struct hd_node;
struct hd_tensor;
struct hd_graph_api;
struct hd_record_api;
struct hd_strategy; /* each plugin completes this type privately */

struct hd_dim { /* view; interned per plan: equal names are equal pointers */
	size_t size;
	const char *name;
	int64_t n; /* global number of elements; for `batch`: sequences of one micro-batch over all replicas */
};

/* An axis has `n` coordinates that hold the model. After these it may have `spare` further ones (n, n + 1, ...) that do
 * not: dedicated servers. The number of ranks is the product of (n + spare) over all axes. Since 0.12, one axis of a
 * layout may have spare coordinates, but not the axis of the stages.
 *
 * Rules shard along the n coordinates only. Batch, data, loss and means concern only these, and a rank at a spare
 * coordinate runs no node of the model. It holds and runs what a strategy places there: leaves that slot storage stores
 * in a place of HD_ROLE_SPARE, and the nodes that read them. An update runs where the state of its parameter is. A
 * parameter whose state is at spare coordinates has its master there, even if the parameter is fp32. The update reads
 * and writes the master. HD_COMM_PUSH sends the gradient there, and HD_COMM_PULL brings the new value back. On the
 * other axes a spare rank has coordinates like any rank. So if an inner axis shards parameters over 2 ranks, each
 * server consists of two ranks. */
struct hd_axis { /* view */
	size_t size;
	const char *name; /* the name of the INI section, or section.suffix */
	int64_t n, spare;
	int32_t mine; /* 1 if the calling instance claimed the axis */
};
struct hd_group { /* view: the members along one or several axes; the last axis varies fastest in their numbers */
	size_t size;
	int64_t n;
};

/* The placement of one tensor along one axis. Frozen. */
enum { HD_PLACE_REPLICATED, HD_PLACE_SHARD, HD_PLACE_PARTIAL, HD_PLACE_PINNED };
enum { HD_RED_SUM, HD_RED_MAX };
/* Coordinates of an axis: those that hold the model, the spare ones (the last of a group), or, since 0.12, all of them.
 * The loss, the gradient norm and the clipping factor are on all coordinates. */
enum { HD_ROLE_CORE, HD_ROLE_SPARE, HD_ROLE_ALL };
/* Which pieces of a sharded dim member i of n has. HD_ORDER_CONTIGUOUS: piece i of n. HD_ORDER_ZIGZAG: pieces i and
 * 2n-1-i of 2n, one after the other, so that a causal mask gives every member the same work. Zigzag is only for the dim
 * seq, along one axis. */
enum { HD_ORDER_CONTIGUOUS, HD_ORDER_ZIGZAG };
struct hd_place {
	uint8_t kind;  /* HD_PLACE_REPLICATED: the same on every member; HD_PLACE_PINNED: only at coordinate `index` */
	uint8_t red;   /* HD_PLACE_PARTIAL: the reduction that is still to be done, HD_RED_SUM or HD_RED_MAX */
	uint8_t role;  /* coordinates, HD_ROLE_CORE ...; a shard with HD_ROLE_SPARE is one of `spare` pieces */
	uint8_t order; /* HD_PLACE_SHARD: which pieces a member has, HD_ORDER_CONTIGUOUS ... */
	/* HD_PLACE_PINNED: the pipeline stage; with HD_ROLE_SPARE the server that owns the tensor, from 0. Members of
	 * any other axis cannot own a tensor alone. */
	int32_t index;
	/* HD_PLACE_SHARD: order among the axes that shard this dim, low levels outside; 0: by mesh order */
	int32_t level;
	const struct hd_dim *dim; /* HD_PLACE_SHARD: the sharded dim */
	uint32_t reserved[2];
};
/* The memory that stores a tensor. Slot storage may put optimizer states and masters into HD_SPACE_HOST. Kernels of the
 * host then update them there; the engine brings the gradients to the host and the new values back. If a device has no
 * memory of its own, both spaces are the same. Everything else must be in HD_SPACE_DEVICE; the engine refuses another
 * space. */
enum { HD_SPACE_DEVICE, HD_SPACE_HOST };

struct hd_block { /* view: a piece of the model at which a stage may begin: embed, layer 0, ..., head */
	size_t size;
	const char *name;
	double flops; /* FLOPs of forward, per micro-batch of one replica */
	int64_t param_bytes, boundary_bytes;
};

/* Flags of a rule. */
enum {
	/* The dim may be padded so that it divides (vocab). The padding is zero in parameters, gradients and states,
	 * and neither the loss nor a checkpoint contains it. But a node that maps zero to another value makes sums over
	 * the dim wrong: an einsum of map "a + 1" counts the padding too. So sum first, and add after the sum. */
	HD_RULE_PAD = 1,
	/* Skip the rule if the dim does not divide. Without this flag the engine refuses the layout, with both numbers.
	 * With HD_RULE_INSIDE, the rule is skipped if the micro-batch does not divide; it does not affect the default
	 * micro-batch. */
	HD_RULE_IF_DIVIDES = 2,
	/* Dim batch: shard the micro-batch of one replica instead of adding replicas. */
	HD_RULE_INSIDE = 4,
	/* This axis lies inside all axes that shard the dim without this flag, so the dim can be gathered along this
	 * axis alone. */
	HD_RULE_INNERMOST = 8,
	/* Shard nothing. Nodes with this dim that no earlier rule shards on the axis stay replicated, in spite of later
	 * rules. */
	HD_RULE_KEEP_REPLICATED = 16,
	/* This axis lies outside all axes that shard the dim without this flag. The dim is never gathered along this
	 * axis alone. */
	HD_RULE_OUTERMOST = 32,
	/* Dim seq: shard in the order HD_ORDER_ZIGZAG. */
	HD_RULE_ZIGZAG = 64,
};
/* Kinds of units. F, B and W are forward, backward and weight gradients of one chunk for one micro-batch. G, S and U
 * run once per step: the gather of parameters to where they are used, the sync of gradients, and the update. */
enum { HD_UNIT_F = 1, HD_UNIT_B = 2, HD_UNIT_W = 4, HD_UNIT_U = 8, HD_UNIT_G = 16, HD_UNIT_S = 32 };

struct hd_axis_args {
	size_t size;
	/* NULL: the axis has the section's name. Two axes of one instance need different suffixes */
	const char *suffix;
	int64_t n, spare; /* spare: since 0.12. With size = auto, argument `left` of slot mesh is n + spare */
};
struct hd_group_args {
	size_t size;
	const struct hd_axis *const *axes;
	uint32_t naxes, role; /* role: HD_ROLE_CORE; since 0.12 also HD_ROLE_SPARE, HD_ROLE_ALL */
};
struct hd_rule_args {
	size_t size;
	const char *dim;
	const struct hd_axis *axis;
	const char *kind; /* NULL: nodes of all kinds */
	uint32_t flags, reserved;
};
struct hd_stage_args {
	size_t size;
	const struct hd_block *block;
	const struct hd_axis *axis;
	int64_t coord, chunk;
};
struct hd_unit_args {
	size_t size;
	const struct hd_axis *axis;
	int64_t coord, chunk, micro;
	uint32_t kind, reserved; /* kind: HD_UNIT_F, HD_UNIT_B or HD_UNIT_W */
};

struct hd_host {
	size_t size;
	uint32_t abi_major, abi_minor;
	/* -- messages and memory (since 0.1, like everything below) ------------------------------------------------ */
	void (*log)(struct hd_plan *p, int32_t level, const char *file, int32_t line, const char *fmt, ...)
		HD_PRINTF(5, 6);
	/* Refuses the plan with one sentence, without a newline, that names the object and both numbers. A text of the
	 * form "KEY: ..." is reported at that key's line of the INI. The plan keeps the first refusal. Returns code. */
	int (*fail)(struct hd_plan *p, int32_t code, const char *fmt, ...) HD_PRINTF(3, 4);
	/* Returns HD_OK, or the code of the plan's first failure. */
	int (*status)(struct hd_plan *p);
	/* Returns zeroed host memory that is freed with the plan. Returns NULL with an error only for too many bytes.
	 * An instance without other memory does not need close. */
	void *(*alloc)(struct hd_plan *p, size_t bytes);
	/* Returns a pointer to the value of a feature "vendor.name", or NULL if this engine lacks it. The value of
	 * "heddle.node_size" is an int64_t: the ranks per node, 0 if unknown. */
	const void *(*query)(struct hd_plan *p, const char *feature);
	/* -- the INI; defaults and ranges are applied already. A key that `options` lacks, or declares with the type of
	 * a different call, fails and reads as 0 or "". So test the value before you divide by it. */
	int64_t (*opt_int)(struct hd_plan *p, const char *key); /* int, bool, bytes */
	double (*opt_num)(struct hd_plan *p, const char *key);
	const char *(*opt_str)(struct hd_plan *p, const char *key); /* str, choice */
	/* Returns the content of the file that the key names, zero-terminated and owned by the plan. A relative path
	 * may also be relative to the INI. Returns NULL without an error if the file cannot be read. Returns NULL with
	 * an error if it contains a zero byte. */
	const char *(*opt_text)(struct hd_plan *p, const char *key);
	/* -- names and mesh ---------------------------------------------------------------------------------------- */
	/* Returns a dim of the model, or NULL without an error if the model has no such dim. */
	const struct hd_dim *(*dim)(struct hd_plan *p, const char *name);
	/* Returns a dim of the plugin's own with n elements. Its name is local to the instance. */
	const struct hd_dim *(*dim_new)(struct hd_plan *p, const char *name, int64_t n);
	/* Claims an axis; slot mesh only. Axes claimed earlier are inside those claimed later. A size that does not
	 * divide is reported at the INI key with the suffix's name, or at `size`. */
	const struct hd_axis *(*axis)(struct hd_plan *p, const struct hd_axis_args *x);
	/* Walks over all axes, innermost first; prev NULL begins, and NULL ends. */
	const struct hd_axis *(*axis_next)(struct hd_plan *p, const struct hd_axis *prev);
	/* Returns the group of the members along these axes. */
	const struct hd_group *(*group)(struct hd_plan *p, const struct hd_group_args *x);
	/* -- rules and stages: slot rules only --------------------------------------------------------------------- */
	/* Shards dim along axis in nodes of this kind (hd_op.kind; NULL: all kinds). For a node and an axis, the axis's
	 * first matching rule decides. A rule matches if it names the node's kind (or no kind) and one of its dims. So
	 * a rule for one kind must precede a rule of a different dim for all kinds: heads for attention, then seq for
	 * all kinds. A rule for kind norm and the dim that norms reduce decomposes the norm. The kinds attention, norm,
	 * embedding, position, xent, route and combine include their backward ops. A kind that no op has causes a
	 * warning.
	 *
	 * Dims of Heddle's models: batch, seq, position, embed, heads, kv_heads, head_dim, mlp, vocab; with experts
	 * also expert, slot, router_expert, topk. A rule for a dim that the model lacks has no effect and is no error,
	 * so that one plugin can serve several families. But an axis that shards nothing causes a warning. The dim
	 * "layer" deals the blocks to the coordinates of the axis, contiguously and evenly; `stage` deals them one by
	 * one. */
	int (*rule)(struct hd_plan *p, const struct hd_rule_args *x);
	/* Walks over the model's blocks in order; prev NULL begins, and NULL ends. */
	const struct hd_block *(*block_next)(struct hd_plan *p, const struct hd_block *prev);
	/* Puts one block on a stage: coordinate coord of the axis, chunk number chunk. A block is on one stage, and each
	 * stage must have a block. */
	int (*stage)(struct hd_plan *p, const struct hd_stage_args *x);
	/* -- units: slot schedule only. Append them in the order in which the coordinate runs them. In a plan without
	 * HD_UNIT_W units, HD_UNIT_B includes the weight gradients. The engine adds the G, S and U units itself. */
	int (*unit)(struct hd_plan *p, const struct hd_unit_args *x);
	const struct hd_graph_api *graph;
	const struct hd_record_api *record;
};
#define HD_HAS(table, field) ((table)->size >= offsetof(__typeof__(*(table)), field) + sizeof((table)->field))
#define HD_LOG(h, p, level, ...) (h)->log(p, level, __FILE__, __LINE__, __VA_ARGS__)

/* -- short forms of the calls with arguments, for the usual case --------------------------------------------------- */
static inline const struct hd_axis *hd_axis_new(const struct hd_host *h, struct hd_plan *p, const char *suffix,
						int64_t n)
{
	const struct hd_axis_args x = { sizeof(x), suffix, n, 0 };

	return h->axis(p, &x);
}

static inline const struct hd_group *hd_group_of(const struct hd_host *h, struct hd_plan *p,
						 const struct hd_axis *const *axes, uint32_t naxes)
{
	const struct hd_group_args x = { sizeof(x), axes, naxes, HD_ROLE_CORE };

	return h->group(p, &x);
}

static inline int hd_rule(const struct hd_host *h, struct hd_plan *p, const char *dim, const struct hd_axis *axis,
			  const char *kind, uint32_t flags)
{
	const struct hd_rule_args x = { sizeof(x), dim, axis, kind, flags, 0 };

	return h->rule(p, &x);
}

static inline int hd_stage(const struct hd_host *h, struct hd_plan *p, const struct hd_block *b,
			   const struct hd_axis *axis, int64_t coord, int64_t chunk)
{
	const struct hd_stage_args x = { sizeof(x), b, axis, coord, chunk };

	return h->stage(p, &x);
}

static inline int hd_unit(const struct hd_host *h, struct hd_plan *p, const struct hd_axis *axis, int64_t coord,
			  uint32_t kind, int64_t chunk, int64_t micro)
{
	const struct hd_unit_args x = { sizeof(x), axis, coord, chunk, micro, kind, 0 };

	return h->unit(p, &x);
}

#ifdef __cplusplus
}
#endif
#endif
