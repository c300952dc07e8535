/* SPDX-License-Identifier: Apache-2.0
 * heddle/host.h - types, status codes, and the functions that the engine offers to a plugin.
 *
 * A plan is one layout, as one instance of a plugin sees it.  An instance is one section of the INI.  A plugin plans
 * and never runs: no slot sees a rank, and the same calls describe all ranks.  What depends on the rank is symbolic
 * (struct hd_pos).  So one process plans thousands of ranks, and ranks compare their plans by one hash.
 *
 * Ownership.  Handles (dims, axes, groups, tensors, nodes, blocks) and the strings in them belong to the engine and
 * live as long as the plan.  The engine copies what a plugin passes in before the call returns.  Every struct is one of
 * three:
 *   a view begins with `size` and grows at its end; the engine makes it, and the plugin only reads it and never
 *   copies or embeds it;
 *   arguments (struct hd_..._args, struct hd_match) begin with `size`, which the plugin sets to the struct's sizeof;
 *   they grow at their end too, where 0 means "as before", and the engine refuses an unknown field that is not 0;
 *   a frozen struct never changes; its reserved words are 0, and the engine refuses other values.
 * Calls with arguments have a short form for the usual case at the end of this header and of heddle/graph.h:
 * hd_rule(h, p, ...).
 *
 * Threads.  One thread calls one plan.  Several plans may live in one process, so a plugin keeps no mutable globals.
 *
 * Errors.  The first failure stays in the plan with its text (fail).  A builder that fails, or gets a NULL
 * tensor, returns NULL.  So a slot may build without tests and end with `return h->status(p)`.
 */
#ifndef HEDDLE_HOST_H
#define HEDDLE_HOST_H
#include <stddef.h>
#include <stdint.h>
#include <heddle/version.h>
#ifdef __cplusplus
extern "C" {
#endif

#define HD_MAX_DIMS 8  /* dims of one tensor */
#define HD_MAX_AXES 12 /* axes of one mesh */
#define HD_MAX_INS 16  /* inputs of one node, except where the op says otherwise */
#define HD_MAX_OUTS 8  /* outputs of one node */
#if defined(__GNUC__)
#define HD_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define HD_PRINTF(f, a)
#endif

/* Returned by every slot and by host functions that return int. */
enum {
	HD_OK = 0,
	HD_DEFAULT = 1, /* "not mine: do what you would do without me" */
	HD_EINVAL = -1, /* a value that cannot be used */
	HD_ENOMEM = -2,
	HD_ENOTSUP = -3, /* a correct request that this build or machine cannot serve */
	HD_EDIVIDE = -4, /* sizes that do not divide */
	HD_EABI = -5,    /* a plugin that does not fit this engine */
	HD_EBUG = -6,    /* a broken invariant */
	HD_EIO = -7,     /* a file or a peer */
};
enum { HD_LOG_ERROR, HD_LOG_WARN, HD_LOG_INFO, HD_LOG_DEBUG };

/* A dtype carries its class and its bits, so that an older plugin can size a type that it does not know. */
#define HD_DTYPE(cls, bits, variant) ((uint32_t)(cls) << 16 | (uint32_t)(bits) << 8 | (uint32_t)(variant))
#define HD_BITS(dtype) ((dtype) >> 8 & 0xff)
#define HD_DTYPE_F32 HD_DTYPE(3, 32, 0)
#define HD_DTYPE_F64 HD_DTYPE(3, 64, 0)
#define HD_DTYPE_F16 HD_DTYPE(3, 16, 0)
#define HD_DTYPE_BF16 HD_DTYPE(3, 16, 1)
#define HD_DTYPE_I32 HD_DTYPE(1, 32, 0)
#define HD_DTYPE_I64 HD_DTYPE(1, 64, 0)
#define HD_DTYPE_U8 HD_DTYPE(2, 8, 0)
/* Only casts know these.  They round to the nearest; a value out of range becomes the end of the range.  Scale with map
 * first. */
#define HD_DTYPE_I8 HD_DTYPE(1, 8, 0)
#define HD_DTYPE_E4M3 HD_DTYPE(3, 8, 0) /* up to 448 */
#define HD_DTYPE_E5M2 HD_DTYPE(3, 8, 1) /* up to 57344 */
/* One sign bit an element: a cast from float packs signs, a cast back gives +1 / -1. */
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
	int64_t n; /* elements of the whole dim; for `batch`: sequences of one micro-batch of all replicas */
};

/* An axis has `n` coordinates that hold the model and `spare` more (n, n + 1, ...) that hold none: dedicated
 * servers.  Ranks = product of (n + spare) over all axes.  Since 0.12, one axis of a layout may have spare ones, but
 * not that of the stages.  Rules shard along the n alone.  Batch, data, loss and means belong to the n, and a rank
 * at a spare coordinate runs no node of the model.  It has what a strategy puts there: a leaf by slot storage, in a
 * place of HD_ROLE_SPARE, and the nodes that read it.  An update runs where its parameter's state is.  A parameter
 * whose state is at spare coordinates has its master there, in fp32 too; the update reads and writes the master.
 * HD_COMM_PUSH sends the gradient there, and HD_COMM_PULL brings the new value back.  On other axes a spare rank
 * has coordinates like all ranks: with parameters sharded over 2 inside, each server is two ranks. */
struct hd_axis { /* view */
	size_t size;
	const char *name; /* the INI section's name, or section.suffix */
	int64_t n, spare;
	int32_t mine; /* claimed by the asking instance */
};
struct hd_group { /* view: members along one or several axes, numbered with the last axis fastest */
	size_t size;
	int64_t n;
};

/* Where one tensor is on one axis.  Frozen. */
enum { HD_PLACE_REPLICATED, HD_PLACE_SHARD, HD_PLACE_PARTIAL, HD_PLACE_PINNED };
enum { HD_RED_SUM, HD_RED_MAX };
/* Coordinates of an axis: those that hold the model, the spare ones (the last of a group), or, since 0.12, all.  The
 * loss, the gradient norm and the factor of clipping are on all. */
enum { HD_ROLE_CORE, HD_ROLE_SPARE, HD_ROLE_ALL };
/* The pieces of member i of n.  HD_ORDER_CONTIGUOUS: piece i of n.  HD_ORDER_ZIGZAG: pieces i and 2n - 1 - i of 2n,
 * one after the other, so that a causal mask gives each member the same work.  Zigzag is for the dim seq, along one
 * axis. */
enum { HD_ORDER_CONTIGUOUS, HD_ORDER_ZIGZAG };
struct hd_place {
	uint8_t kind;  /* HD_PLACE_REPLICATED: the same on every member; HD_PLACE_PINNED: only at coordinate `index` */
	uint8_t red;   /* HD_PLACE_PARTIAL: the reduction that is still to be done: HD_RED_SUM or HD_RED_MAX */
	uint8_t role;  /* which coordinates: HD_ROLE_CORE ...; a shard of HD_ROLE_SPARE is one of `spare` pieces */
	uint8_t order; /* HD_PLACE_SHARD: which pieces a member has, HD_ORDER_CONTIGUOUS ... */
	int32_t index; /* HD_PLACE_PINNED: a pipeline stage; with HD_ROLE_SPARE the server that owns it, from 0 */
	int32_t level; /* HD_PLACE_SHARD: among the axes that shard this dim, low levels are outer; 0: by mesh order */
	const struct hd_dim *dim; /* HD_PLACE_SHARD */
	uint32_t reserved[2];
};
/* The memory that holds a tensor.  Slot storage may put optimizer states and masters into HD_SPACE_HOST.  The host's
 * kernels update them there; the engine brings the gradients there and the new values back.  If a device has no
 * memory of its own, both spaces are the same.  Everything else is in HD_SPACE_DEVICE, and the engine refuses
 * another value. */
enum { HD_SPACE_DEVICE, HD_SPACE_HOST };

struct hd_block { /* view: a piece of the model that a stage may begin with: embed, layer 0, ..., head */
	size_t size;
	const char *name;
	double flops; /* forward, per micro-batch of one replica */
	int64_t param_bytes, boundary_bytes;
};

/* Flags of a rule. */
enum {
	/* The dim may be padded to divide (vocab).  Neither the loss nor a checkpoint shows the padding, which is zero in
	 * parameters, gradients and states.  A node that makes something else of zero shows it to sums over the dim:
	 * einsum of map "a + 1" counts the padding too.  So sum first, and add behind the sum. */
	HD_RULE_PAD = 1,
	/* Skip the rule where the dim does not divide.  Without this flag the engine refuses, with both numbers.  With
	 * HD_RULE_INSIDE: where the micro-batch does not divide.  Such a rule does not affect its default size. */
	HD_RULE_IF_DIVIDES = 2,
	/* Dim batch: shards one replica's micro-batch instead of adding replicas. */
	HD_RULE_INSIDE = 4,
	/* The axis is inside all axes that shard the dim without this flag.  So the dim can be gathered along this
	 * axis alone. */
	HD_RULE_INNERMOST = 8,
	/* Shards nothing.  Nodes with this dim that no earlier rule shards on the axis stay replicated, in spite of
	 * later rules. */
	HD_RULE_KEEP_REPLICATED = 16,
	/* The axis is outside all axes that shard the dim without this flag.  The dim is never gathered along it
	 * alone. */
	HD_RULE_OUTERMOST = 32,
	/* Dim seq: the order is HD_ORDER_ZIGZAG. */
	HD_RULE_ZIGZAG = 64,
};
/* Kinds of units.  F, B, W: forward, backward, weight gradients of one chunk for one micro-batch.  G, S, U run once a
 * step: gather of parameters to where they are used, sync of gradients, update. */
enum { HD_UNIT_F = 1, HD_UNIT_B = 2, HD_UNIT_W = 4, HD_UNIT_U = 8, HD_UNIT_G = 16, HD_UNIT_S = 32 };

struct hd_axis_args {
	size_t size;
	const char *suffix; /* NULL: the axis has the section's name.  Two axes of one instance need two suffixes */
	int64_t n, spare;   /* spare: since 0.12.  Argument `left` of slot mesh is n + spare */
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
	/* -- talk, memory (since 0.1, as all below) ------------------------------------------------------------------ */
	void (*log)(struct hd_plan *p, int32_t level, const char *file, int32_t line, const char *fmt, ...)
		HD_PRINTF(5, 6);
	/* Refuses, with one sentence without a newline that names the object and both numbers.  "KEY: ..." is
	 * reported at that key's line of the INI.  The plan keeps the first refusal.  Returns code. */
	int (*fail)(struct hd_plan *p, int32_t code, const char *fmt, ...) HD_PRINTF(3, 4);
	int (*status)(struct hd_plan *p);
	/* Zeroed host memory, freed with the plan.  An instance without other memory needs no close. */
	void *(*alloc)(struct hd_plan *p, size_t bytes);
	/* "vendor.feature"; NULL: this engine does not have it.  "heddle.node_size": int64_t, the ranks of a node, 0 if unknown. */
	const void *(*query)(struct hd_plan *p, const char *feature);
	/* -- the INI; defaults and ranges are applied already.  A key that is not in `options`, or has the type of
	 * another call there, fails and reads as 0: test before you divide by it. -------------------------------- */
	int64_t (*opt_int)(struct hd_plan *p, const char *key); /* int, bool, bytes */
	double (*opt_num)(struct hd_plan *p, const char *key);
	const char *(*opt_str)(struct hd_plan *p, const char *key); /* str, choice */
	/* Content of the file that the key names, also relative to the INI, or NULL. */
	const char *(*opt_text)(struct hd_plan *p, const char *key);
	/* -- names and mesh ------------------------------------------------------------------------------------------ */
	const struct hd_dim *(*dim)(struct hd_plan *p, const char *name); /* NULL, no error: the model has none */
	/* The name is local to the instance. */
	const struct hd_dim *(*dim_new)(struct hd_plan *p, const char *name, int64_t n);
	/* Slot mesh only.  The axis that is claimed first is the inner one.  A size that does not divide is reported
	 * at the key with the suffix as its name, or at `size`. */
	const struct hd_axis *(*axis)(struct hd_plan *p, const struct hd_axis_args *x);
	/* All axes, innermost first. */
	const struct hd_axis *(*axis_next)(struct hd_plan *p, const struct hd_axis *prev);
	const struct hd_group *(*group)(struct hd_plan *p, const struct hd_group_args *x);
	/* -- rules and stages: slot rules only ----------------------------------------------------------------------- */
	/* Shards dim along axis in nodes of this kind (hd_op.kind; NULL: all).  For a node and an axis, the
	 * axis' first rule that names the node's kind (or none) and one of its dims decides.  So a rule for one kind
	 * stands before a rule of another dim for all kinds: heads for attention, then seq for all kinds.  A rule for kind norm and the dim
	 * that norms are over decomposes the norm.  attention, norm, embedding, position, xent, route and combine
	 * include their backward.  A kind that no op has causes a warning.  Dims of Heddle's models: batch, seq,
	 * position, embed, heads, kv_heads, head_dim, mlp, vocab; with experts also expert, slot, router_expert, topk.  A dim that the
	 * model lacks is no error and has no effect (one plugin for several families), but an axis that shards
	 * nothing causes a warning.  The dim "layer" deals the blocks to the coordinates of the axis, contiguous and
	 * even; `stage` deals them one by one. */
	int (*rule)(struct hd_plan *p, const struct hd_rule_args *x);
	const struct hd_block *(*block_next)(struct hd_plan *p, const struct hd_block *prev);
	int (*stage)(struct hd_plan *p, const struct hd_stage_args *x);
	/* -- units: slot schedule only; append them in the order in which this coordinate runs them.  In a plan without
	 * HD_UNIT_W units, HD_UNIT_B includes the weight gradients.  G, S and U units are the engine's. -------- */
	int (*unit)(struct hd_plan *p, const struct hd_unit_args *x);
	const struct hd_graph_api *graph;
	const struct hd_record_api *record;
};
#define HD_HAS(table, field) ((table)->size >= offsetof(__typeof__(*(table)), field) + sizeof((table)->field))
#define HD_LOG(h, p, level, ...) (h)->log(p, level, __FILE__, __LINE__, __VA_ARGS__)

/* -- the usual case of the calls with arguments ---------------------------------------------------------------------- */
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
