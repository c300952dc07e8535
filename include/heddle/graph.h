/* SPDX-License-Identifier: Apache-2.0
 * heddle/graph.h - functions that read and build the program.
 *
 * Before placement (slots mesh to storage) a tensor is logical: named dims, global sizes.  In slot lower a tensor is
 * what one rank holds: the same dims with local sizes.  Builders work on both.  All communication is a node.  A
 * plugin never calls a communicator.  So Heddle explains, prices, traces and watches a plugin's movements like its
 * own, and checks them for deadlock, over any comm module.
 */
#ifndef HEDDLE_GRAPH_H
#define HEDDLE_GRAPH_H
#include <heddle/host.h>
#ifdef __cplusplus
extern "C" {
#endif

/* What a tensor is. */
enum {
	HD_TENSOR_ACT,   /* a node makes it, and the same step uses it */
	HD_TENSOR_DATA,  /* leaf: token ids, targets */
	HD_TENSOR_PARAM, /* leaf: a parameter */
	HD_TENSOR_GRAD,  /* a parameter's gradient: the accumulator, and the result of sync */
	HD_TENSOR_STATE, /* leaf kept from step to step: optimizer moments, a plugin's own state */
	/* leaf: fp32 copy of a parameter of lower precision; stored with its states, unless slot storage says
	 * otherwise */
	HD_TENSOR_MASTER,
};

struct hd_tensor { /* view */
	size_t size;
	const char *name;           /* parameters, states, gradients: the global name; else for messages */
	struct hd_node *node;       /* the maker; NULL: a leaf */
	const struct hd_tensor *of; /* gradient, state, master: its parameter */
	const char *spec;           /* "batch,seq,embed" */
	const struct hd_dim *const *dims;
	const int64_t *local;       /* per dim, elements on one rank */
	uint32_t ndim, dtype, what; /* what: HD_TENSOR_ACT ... */
	uint32_t space;             /* HD_SPACE_DEVICE, HD_SPACE_HOST */
};

struct hd_reshard { /* view: one movement along one axis */
	size_t size;
	const struct hd_axis *axis;
	struct hd_place have, need;
};

struct hd_node { /* view */
	size_t size;
	const struct hd_op *op;
	const char *kind;  /* of the op: einsum, map, norm, attention, reshard, update, ... */
	const char *attr;  /* text, "key=value ...": printed by explain, part of the plan's hash */
	const char *block; /* the model's block, or "" */
	struct hd_tensor *const *ins;
	struct hd_tensor *const *outs;
	const struct hd_reshard *reshard; /* kind reshard only */
	uint32_t nin, nout;
	uint32_t phase; /* the unit it belongs to: HD_UNIT_F, HD_UNIT_B, HD_UNIT_W, HD_UNIT_G, HD_UNIT_S, HD_UNIT_U */
	uint32_t stage; /* nodes of equal stage run on the same ranks: only such nodes may be fused */
	const char *owner; /* the section whose op this is; "": an op of the engine */
};

/* Arguments; NULL fields and phases 0 match all.  Only HD_MATCH_OTHERS matches nodes of another instance's ops,
 * because their owner lowers them.  Two sections of one plugin share `op`, and each sees its own nodes. */
enum { HD_MATCH_OTHERS = 1, HD_MATCH_MINE = 2 /* only nodes of the asking instance's ops */ };
struct hd_match {
	size_t size;
	const struct hd_op *op;
	const char *kind;
	const struct hd_axis *axis; /* reshards along this axis */
	uint32_t phases, flags;     /* flags: HD_MATCH_OTHERS, HD_MATCH_MINE */
	const char *attr;           /* "key=value": one of the node's attributes */
	const struct hd_tensor *reads;
};

/* A position that may depend on the rank: item j has index (mul * me + add + step * j) mod parts, where me is the
 * member index in `group` (0 if NULL).  Frozen. */
struct hd_pos {
	const struct hd_group *group;
	int32_t mul, add, step;
	uint32_t reserved[3];
};

/* Some members of a group: those with from <= index < to.  Frozen. */
struct hd_members {
	const struct hd_group *group;
	int32_t from, to;
	uint32_t reserved[2];
};

/* Collectives over the members of a group.  `index`: the root (a member), or the shift.  `dim`: the dim that is split
 * or joined, in member order; one that x does not have (NULL for a gather) is a new leading dim with one entry a
 * member.  Sums are computed in member order, in at least fp32.
 * Sums and maxima are of numbers that can be added: not of HD_DTYPE_B1, I8, E4M3 or E5M2.
 *   HD_COMM_ALL_REDUCE      x -> sum over the members                      HD_COMM_BROADCAST  x of the root -> on all
 *   HD_COMM_REDUCE_SCATTER  x -> this member's piece of the sum, along dim HD_COMM_REDUCE     x -> the sum, at the root
 *   HD_COMM_ALL_GATHER      piece -> all pieces joined along dim           HD_COMM_GATHER     pieces -> joined, at the root
 *   HD_COMM_ALL_TO_ALL      dim is leading, one entry a member: entry j goes to member j
 *   HD_COMM_SHIFT           x goes to member me + index, comes from me - index, cyclic; -n < index < n
 *   HD_COMM_ALL_MAX         x -> maximum over the members
 *   HD_COMM_SCATTER         x of the root, split along dim -> piece j on member j
 *   HD_COMM_PERMUTE         x goes to member mul * me + index, cyclic; mul and the number of members have no common divisor, so
 *                           each member gets one (mul 1: a shift; mul -1, index n - 1: the order of the members reversed).
 * Slot rewrite may use PERMUTE.  The pieces of a sharded dim then change places, and a replicated tensor does not
 * move.  Its gradient is the inverse permutation.
 * Sums in a stated order over any comm module, by messages from member to member:
 *   HD_COMM_RING_REDUCE_SCATTER     x -> piece me + 1 (cyclic) of the sum: piece c begins at member c and goes round, and each
 *                                   adds its own to what comes; with train.reduce = rank_order, added up in member order
 *   HD_COMM_RING_ALL_GATHER         piece me + 1 -> all pieces joined along dim, passed on round the ring
 *   HD_COMM_ORDERED_REDUCE_SCATTER  x -> this member's piece of the sum, added up in member order
 * Between the members that hold the model (workers) and the spare ones of a group of HD_ROLE_ALL along one axis, since
 * 0.12:
 *   HD_COMM_PUSH                    x on the workers -> the sum over them, added up in their order: with a dim piece j along it
 *                                   on spare member j, else (index 0 ... spare - 1) all of it on that one
 *   HD_COMM_PULL                    x on the spare members -> on all workers: pieces joined along dim; else x of spare member
 *                                   `index`
 * `wire`: the dtype in which these sums of fp32 are sent; 0: as they are.  Values are rounded to bf16 or fp16 before
 * each message and added in fp32.  In fp16 they are sent multiplied by 2^10. */
enum {
	HD_COMM_ALL_REDUCE = 1,
	HD_COMM_REDUCE_SCATTER,
	HD_COMM_ALL_GATHER,
	HD_COMM_ALL_TO_ALL,
	HD_COMM_BROADCAST,
	HD_COMM_REDUCE,
	HD_COMM_GATHER,
	HD_COMM_SCATTER,
	HD_COMM_SHIFT,
	HD_COMM_ALL_MAX,
	HD_COMM_PERMUTE, /* since 0.5 */
	/* Since 0.10: sums in a stated order. */
	HD_COMM_RING_REDUCE_SCATTER,
	HD_COMM_RING_ALL_GATHER,
	HD_COMM_ORDERED_REDUCE_SCATTER,
	HD_COMM_PUSH, /* since 0.12 */
	HD_COMM_PULL
};
enum {                    /* what graph->scalar gives */
       HD_SCALAR_LR,      /* the learning rate of this step */
       HD_SCALAR_STEP,    /* from 1 */
       HD_SCALAR_SAMPLES, /* sequences of this step, of the whole job */
       HD_SCALAR_INDEX,   /* this rank's member index in a group; it differs between members, whatever its placement */
};
enum {                       /* how a state begins */
       HD_INITIAL_VALUE,     /* all `value` */
       HD_INITIAL_NORMAL,    /* normal, deviation `value`, by name and global index */
       HD_INITIAL_PARAMETER, /* as its parameter, whose dims it has */
};
enum { HD_RESHARD_SUM, HD_RESHARD_ZERO, HD_RESHARD_REFUSE }; /* a plugin's state read into another layout */

struct hd_storage_args {
	size_t size;
	struct hd_tensor *leaf;
	const struct hd_axis *axis;
	const struct hd_place *place;
	uint32_t space, reserved; /* space: HD_SPACE_DEVICE; of states and masters also HD_SPACE_HOST */
};
struct hd_cursor_args {
	size_t size;
	struct hd_node *anchor;
	const struct hd_group *queue; /* NULL: the compute queue */
};
struct hd_comm_args {
	size_t size;
	const struct hd_group *group;
	struct hd_tensor *x;
	const struct hd_dim *dim;
	int64_t index;
	uint32_t kind, wire; /* kind: HD_COMM_ALL_REDUCE ...; wire: of sums in a stated order, or 0 */
	int64_t mul;         /* HD_COMM_PERMUTE; since 0.5 */
};
struct hd_state_args {
	size_t size;
	const char *name;
	struct hd_tensor *like;
	uint32_t dtype, relayout; /* relayout: HD_RESHARD_SUM ... */
};

struct hd_graph_api {
	size_t size;
	/* -- read ---------------------------------------------------------------------------------------------------- */
	/* Walks in program order; prev NULL begins.  Nodes made during the walk are not returned, nor are nodes
	 * whose results are all replaced.  A walk may be inside another. */
	struct hd_node *(*node_next)(struct hd_plan *p, struct hd_node *prev, const struct hd_match *m);
	struct hd_tensor *(*leaf_next)(struct hd_plan *p, struct hd_tensor *prev, uint32_t what);
	const struct hd_place *(*place)(struct hd_plan *p, const struct hd_tensor *t, const struct hd_axis *axis);
	double (*attr)(const char *attr, const char *key, double otherwise);
	/* "a,b,c". */
	uint32_t (*attr_dims)(struct hd_plan *p, const char *attr, const char *key, const struct hd_dim **dims);
	/* -- change -------------------------------------------------------------------------------------------------- */
	/* Sets where a leaf is stored between its uses (slot storage).  Updates run where the state is stored;
	 * gathers, scatters, pushes and pulls follow.  Gradients (HD_TENSOR_GRAD) are stored in two places.  The
	 * result of a node of kind accumulate is where the micro-batches' contributions are added up.  The result of
	 * a node of kind sync is where the update reads it.  An update without a state runs there. */
	int (*storage)(struct hd_plan *p, const struct hd_storage_args *x);
	/* All readers of `old` read `with`.  Both have the same dtype and the same dims in the same order; in slot
	 * lower the same local sizes and placement too.  The plugin answers for the placement that its own comm
	 * nodes produce.  A sum over the wrong members is not detected here: only the loss differs from that of one
	 * rank.  Nodes that are not needed any more are dropped. */
	int (*replace)(struct hd_plan *p, struct hd_tensor *old, struct hd_tensor *with);
	/* Nodes made from now on belong to anchor's unit, block and reason, stand before it in program order, and run on the
	 * queue.  Communication always runs on its own group's queue.  Slots lower and rewrite need an anchor first.
	 * A node of a unit runs on its block's stage and reads what is there. To send something else from stage to stage, set
	 * the cursor at the node that made the operand for the sender's part. Set it at the reshard for the rest. */
	int (*cursor)(struct hd_plan *p, const struct hd_cursor_args *x);
	/* The maker of t starts when u is computed.  Nodes start in the order in which they were built; another
	 * order is refused. */
	int (*after)(struct hd_plan *p, struct hd_tensor *t, const struct hd_tensor *u);
	/* -- build --------------------------------------------------------------------------------------------------- */
	/* An op of the engine; NULL, without an error, if there is none. */
	const struct hd_op *(*op)(struct hd_plan *p, const char *name);
	struct hd_node *(*node)(struct hd_plan *p, const struct hd_op *op, struct hd_tensor *const *ins, uint32_t nin,
				const char *attr, ...)HD_PRINTF(5, 6);
	/* Product over all inputs (at most two), summed over the dims that are not in `dims`. */
	struct hd_tensor *(*einsum)(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin,
				    const struct hd_dim *const *dims, uint32_t ndim);
	/* Elementwise, broadcast by dim name to the dims of the first input; the inputs are a, b, c, ... in the text: "a +
	 * sign(b) * %.17g".  + - * / exp log tanh erf sqrt abs sign round floor min max where(c,x,y), numbers.  Differentiated
	 * by the engine and compiled for its device. */
	struct hd_tensor *(*map)(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin, const char *expr,
				 ...)HD_PRINTF(4, 5);
	struct hd_tensor *(*cast)(struct hd_plan *p, struct hd_tensor *x, uint32_t dtype);
	/* Piece at(0) of x split in `parts` along dim. */
	struct hd_tensor *(*chunk)(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *dim, int64_t parts,
				   const struct hd_pos *at);
	/* n equal pieces joined along dim: xs[j] goes to slot at(j); at NULL: slot j. */
	struct hd_tensor *(*join)(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_dim *dim,
				  const struct hd_pos *at);
	/* xs[at(0)]. */
	struct hd_tensor *(*pick)(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_pos *at);
	/* One flat tensor of one new dim, the result's dims[0] (test the result before you read it: it is NULL after
	 * a failure).  Needs equal dtypes.  Its length is a multiple of `multiple`; gaps are zero or ignored.
	 * unpack is the inverse. */
	struct hd_tensor *(*pack)(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, int64_t multiple);
	int (*unpack)(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like, uint32_t n,
		      struct hd_tensor **out);
	struct hd_tensor *(*comm)(struct hd_plan *p, const struct hd_comm_args *x);
	/* One step along one axis.  If x is on another stage than the cursor's unit, a step along another axis than
	 * that of the stages runs on the stage of x, in the unit that made x. */
	struct hd_tensor *(*reshard)(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis,
				     const struct hd_place *to);
	/* A tensor kept from step to step: zero at step 0, with the local sizes and placement of `like`.  Before there are
	 * placements, one like a parameter or its gradient lives with it, and another one where its first reader needs it.  The
	 * checkpoint has it as section.name.parameter.  If `like` belongs to no parameter (a constant), the name alone must
	 * differ from state to state, so put the parameter's name into it: x->of->name of a gradient x.  Names have letters,
	 * digits, ".", "_" and "-".  One that is replicated or sharded is stored once.  A partial
	 * one is stored per member.  When it is read into another size, HD_RESHARD_SUM keeps its sum,
	 * HD_RESHARD_ZERO starts at zero, and HD_RESHARD_REFUSE stops. */
	struct hd_tensor *(*state)(struct hd_plan *p, const struct hd_state_args *x);
	/* The state takes the value at the end of the step: until then every node reads the old one, whenever it was made.
	 * For a replicated state a term of a sum is refused: sum it first.  A value that each micro-batch makes anew is
	 * refused where a step has several micro-batches.  The state may have a second value, made by nodes of `every`,
	 * which it takes in their steps. */
	int (*assign)(struct hd_plan *p, struct hd_tensor *state, struct hd_tensor *value);
	/* -- nodes that some members run (since 0.4) ------------------------------------------------------------------- */
	/* Slot lower, units F, B and W: nodes made from now on run on these members alone.  NULL, or a new cursor:
	 * on all again.  Their results exist there alone: other nodes of these members, or of fewer, may read them,
	 * and `either`.  The group must not have the axis of the stages.  All members of a group take part in
	 * communication, so its group must have no axis of these members'.  Ranks still have one plan.  The engine
	 * selects the nodes of a rank when it makes the rank's program. */
	int (*only)(struct hd_plan *p, const struct hd_members *who);
	/* yes on these members, no on the others; of equal dims, local sizes and dtype.  No bytes move. */
	struct hd_tensor *(*either)(struct hd_plan *p, const struct hd_members *who, struct hd_tensor *yes,
				    struct hd_tensor *no);
	/* -- since 0.4 ----------------------------------------------------------------------------------------------- */
	/* A number of the run as a tensor without dims: HD_SCALAR_LR ...  g: HD_SCALAR_INDEX only.  In slot lower it is on the
	 * stage of the cursor's node. */
	struct hd_tensor *(*scalar)(struct hd_plan *p, uint32_t what, const struct hd_group *g);
	/* Tensors of these dims: one value; the global index along one of the dims; random numbers, uniform in
	 * [0, 1).  These depend on the run's seed, the plugin's section, `name` and the global index, not on the
	 * layout.  each_step: new ones in each step. */
	struct hd_tensor *(*constant)(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim, double value);
	struct hd_tensor *(*iota)(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim,
				  const struct hd_dim *along);
	struct hd_tensor *(*random)(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim,
				    const char *name, int32_t each_step);
	/* The value of a state of this plugin before step 1, instead of 0: HD_INITIAL_... */
	int (*initial)(struct hd_plan *p, struct hd_tensor *state, uint32_t how, double value);
	/* x with dim `to` in place of `from`: the same elements.  A product of x and its copy over the other dims then is a Gram
	 * matrix.  `to` has as many elements as `from`; x is gathered where `from` is sharded. */
	struct hd_tensor *(*rename)(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *from,
				    const struct hd_dim *to);
	/* The k->n largest entries of x along a dim, in the order of their indices.  Of equal entries it takes the
	 * first.  magnitude: by absolute value.  *values and *index (i32) have dim k in place of `along`. */
	int (*topk)(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *along, const struct hd_dim *k,
		    int32_t magnitude, struct hd_tensor **values, struct hd_tensor **index);
	/* gather: entries of x along a dim.  index has the dims of x with another one in place of `along`; an index
	 * out of range gives zero.  scatter is the inverse: it puts the entries of x at their places along `to` (in
	 * place of `from`), with zero elsewhere.  It adds entries at one place, and drops an index out of range.
	 * unique: no two entries have one place. */
	struct hd_tensor *(*gather)(struct hd_plan *p, struct hd_tensor *x, struct hd_tensor *index,
				    const struct hd_dim *along);
	struct hd_tensor *(*scatter)(struct hd_plan *p, struct hd_tensor *x, struct hd_tensor *index,
				     const struct hd_dim *from, const struct hd_dim *to, int32_t unique);
	/* As replace, for one reader alone. */
	int (*replace_in)(struct hd_plan *p, struct hd_node *reader, struct hd_tensor *old, struct hd_tensor *with);
	/* The value that a leaf takes at the end of this step (of the optimizer, or of assign); NULL, no error: it stays. */
	struct hd_tensor *(*updated)(struct hd_plan *p, struct hd_tensor *leaf);
	/* Nodes made from now on, until the next cursor, run only in steps that are multiples of `steps`.  Only such
	 * nodes may read their results.  The results may also be assigned to a leaf, which stays as it is in other
	 * steps. */
	int (*every)(struct hd_plan *p, int64_t steps);
	/* -- since 0.9: what differs from member to member on purpose ---------------------------------------------------- */
	/* Slot lower: turns x, a term of a sum along the axis, into a value of this member.  Nothing moves.  From
	 * here on members compute different values, which the plan calls replicated, and the plugin must bring them
	 * together again.  Each member then has its own gradient norm; metrics have that of the first. */
	struct hd_tensor *(*local)(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis);
	/* Slot lower: each member along the axis has its own value of this state, of a section or of the optimizer.
	 * The checkpoint has it per member, as NAME@member.  With another number of members it begins anew
	 * (HD_RESHARD_ZERO), or the checkpoint is refused (HD_RESHARD_REFUSE).  A parameter is the same on all
	 * members: the model's files, evaluation and generation use it.  Weights of a member's own are a state that
	 * begins as the parameter and replaces it in training. */
	int (*own)(struct hd_plan *p, struct hd_tensor *state, const struct hd_axis *axis, uint32_t relayout);
	/* -- since 0.10 ---------------------------------------------------------------------------------------------- */
	/* Each xs[i] consists of `parts` equal pieces along dims[i].  pack_pieces makes one flat tensor, like pack;
	 * each part of it has one piece of every xs[i].  So unpack makes the pieces of what a reduce-scatter leaves.
	 * unpack_pieces is the inverse: like[i] is a piece, flat the all-gather of packed pieces, and out[i] whole.
	 * One node and n, whatever `parts` is. */
	struct hd_tensor *(*pack_pieces)(struct hd_plan *p, struct hd_tensor *const *xs,
					 const struct hd_dim *const *dims, uint32_t n, int64_t parts);
	int (*unpack_pieces)(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like,
			     const struct hd_dim *const *dims, uint32_t n, int64_t parts, struct hd_tensor **out);
};

/* -- the usual case of the calls with arguments ---------------------------------------------------------------------- */
static inline int hd_storage(const struct hd_graph_api *g, struct hd_plan *p, struct hd_tensor *leaf,
			     const struct hd_axis *axis, const struct hd_place *place)
{
	const struct hd_storage_args x = { sizeof(x), leaf, axis, place, HD_SPACE_DEVICE, 0 };

	return g->storage(p, &x);
}

static inline int hd_cursor(const struct hd_graph_api *g, struct hd_plan *p, struct hd_node *anchor,
			    const struct hd_group *queue)
{
	const struct hd_cursor_args x = { sizeof(x), anchor, queue };

	return g->cursor(p, &x);
}

static inline struct hd_tensor *hd_comm(const struct hd_graph_api *g, struct hd_plan *p, uint32_t kind,
					const struct hd_group *group, struct hd_tensor *x, const struct hd_dim *dim,
					int64_t index)
{
	const struct hd_comm_args a = { sizeof(a), group, x, dim, index, kind, 0, 0 };

	return g->comm(p, &a);
}

static inline struct hd_tensor *hd_comm_permute(const struct hd_graph_api *g, struct hd_plan *p,
						const struct hd_group *group, struct hd_tensor *x, int64_t mul,
						int64_t add)
{
	const struct hd_comm_args a = { sizeof(a), group, x, NULL, add, HD_COMM_PERMUTE, 0, mul };

	return g->comm(p, &a);
}

/* dtype: a state like a parameter mostly takes the parameter's (u->param->dtype).  That is fp64 on the reference device, which computes
 * no other type. */
static inline struct hd_tensor *hd_state(const struct hd_graph_api *g, struct hd_plan *p, const char *name,
					 struct hd_tensor *like, uint32_t dtype, uint32_t relayout)
{
	const struct hd_state_args x = { sizeof(x), name, like, dtype, relayout };

	return g->state(p, &x);
}

/* Ops of the engine that `op`, `launch` and hd_match.kind know since 0.1 (inputs -> outputs; attributes).  A trailing
 * _d or _dw is the backward op.
 *   einsum (a, b -> c), sum (a -> c), add (x, ... -> y), map (a, ... -> y), cast, copy (x -> y), fill (like -> y; value)
 *   norm (x, w[, b] -> y, rstd[, mean]; eps, rms)   norm_d (x, w, rstd[, mean], dy -> dx)
 *   norm_dw (x, rstd[, mean], dy -> dw[, db])       a rule for the dim and kind norm: decomposed, so that it may be sharded
 *   attention (q, k, v -> o, lse; causal, scale)    attention_d (q, k, v, o, lse, do -> dq, dk, dv)
 *   gelu (x -> y)  gelu_d (x, dy -> dx)             swiglu (a, b -> y)  swiglu_d (a, b, dy -> da, db)
 *   embedding (ids, w -> x)  embedding_dw (ids, dx -> dw)      position (x, w -> y)  position_dw (dy -> dw)
 *   rope (x -> y; theta)  dropout (x -> y; p, site)
 *   xent (logits, targets -> max, sum, target), xent_combine, xent_d: cross entropy in parts that may be sharded
 *   route (logits -> gates, slots, sums), dispatch (x, slots -> d), combine (y, slots, gates -> x)      experts
 *   chunk, join, pick, pack, unpack, comm, reshard, constant, iota, uniform, scalar, renamed, largest, take, put
 *   adamw (w, g, m, v, factor -> w, m, v; beta1, beta2, eps, decay)   sgd (w, g, factor -> w; decay)   of kind update
 * kernels/README.md describes each.
 */
#ifdef __cplusplus
}
#endif
#endif
