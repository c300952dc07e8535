/* SPDX-License-Identifier: Apache-2.0
 * heddle/graph.h - functions that read and build the graph of a plan.
 *
 * Before placement (slots mesh to storage) a tensor is logical: it has named dims with global sizes. In slot lower a
 * tensor is what one rank stores: the same dims with local sizes. Builders work on both. Every communication is a node;
 * a plugin never calls a communicator. So Heddle explains, prices, traces and watches a plugin's movements like its
 * own, and checks them for deadlock, with any comm module.
 */
#ifndef HEDDLE_GRAPH_H
#define HEDDLE_GRAPH_H
#include <heddle/host.h>
#ifdef __cplusplus
extern "C" {
#endif

/* What a tensor holds. */
enum {
	HD_TENSOR_ACT,   /* computed by a node and used in the same step */
	HD_TENSOR_DATA,  /* leaf: token ids, targets */
	HD_TENSOR_PARAM, /* leaf: a parameter */
	HD_TENSOR_GRAD,  /* a parameter's gradient: the accumulator, and the result of sync */
	HD_TENSOR_STATE, /* leaf, kept from step to step: optimizer moments, a plugin's own state */
	/* leaf: fp32 copy of a parameter with a lower precision; stored with the parameter's states, unless slot
	 * storage says otherwise */
	HD_TENSOR_MASTER,
};

struct hd_tensor { /* view */
	size_t size;
	const char *name;           /* parameters, states, gradients: the global name; others: a name for messages */
	struct hd_node *node;       /* the node that computes it; NULL: a leaf */
	const struct hd_tensor *of; /* gradient, state, master: the parameter that it belongs to */
	const char *spec;           /* "batch,seq,embed" */
	const struct hd_dim *const *dims;
	const int64_t *local;       /* per dim, the number of elements on one rank */
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
	const char *kind;  /* the kind of the op: einsum, map, norm, attention, reshard, update, ... */
	const char *attr;  /* attributes, "key=value ..."; printed by explain and part of the plan's hash */
	const char *block; /* the block of the model that it belongs to, or "" */
	struct hd_tensor *const *ins;
	struct hd_tensor *const *outs;
	const struct hd_reshard *reshard; /* for kind reshard only */
	uint32_t nin, nout;
	/* the unit that it belongs to: HD_UNIT_F, HD_UNIT_B, HD_UNIT_W, HD_UNIT_G, HD_UNIT_S, HD_UNIT_U */
	uint32_t phase;
	uint32_t stage;    /* nodes with equal stage run on the same ranks: only such nodes may be fused */
	const char *owner; /* the section that owns the op; "": an op of the engine */
};

/* Selects nodes; arguments. NULL fields and phases 0 match all nodes. Nodes of another instance's ops match only with
 * HD_MATCH_OTHERS, because their owner lowers them. Two sections of one plugin share `op`, but each sees only its own
 * nodes. */
enum { HD_MATCH_OTHERS = 1, HD_MATCH_MINE = 2 /* only nodes of the calling instance's ops */ };
struct hd_match {
	size_t size;
	const struct hd_op *op;
	const char *kind;
	const struct hd_axis *axis; /* reshards along this axis only */
	uint32_t phases, flags;     /* flags: HD_MATCH_OTHERS, HD_MATCH_MINE */
	const char *attr;           /* "key=value": the node must have this attribute */
	const struct hd_tensor *reads;
};

/* A position that may depend on the rank: item j has index (mul * me + add + step * j) mod parts. me is this rank's
 * member index in `group`, or 0 if group is NULL. Frozen. */
struct hd_pos {
	const struct hd_group *group;
	int32_t mul, add, step;
	uint32_t reserved[3];
};

/* Some members of a group: those with from <= member index < to. Frozen. */
struct hd_members {
	const struct hd_group *group;
	int32_t from, to;
	uint32_t reserved[2];
};

/* Collectives over the members of a group. `index` is the root (a member) or the shift. `dim` is the dim that is split
 * or joined, in member order. A dim that x lacks (NULL for a gather) becomes a new leading dim with one entry per
 * member. Sums are computed in member order, in at least fp32. Sums and maxima need a dtype that can be added: not
 * HD_DTYPE_B1, I8, E4M3 or E5M2. me is the member's own index, n the number of members.
 *   HD_COMM_ALL_REDUCE      x -> sum over the members                      HD_COMM_BROADCAST x of root -> on all
 *   HD_COMM_REDUCE_SCATTER  x -> this member's piece of the sum, along dim HD_COMM_REDUCE    x -> the sum, at root
 *   HD_COMM_ALL_GATHER      piece -> all pieces joined along dim           HD_COMM_GATHER    pieces -> joined, at root
 *   HD_COMM_ALL_TO_ALL      dim is the leading dim, with one entry per member: entry j goes to member j
 *   HD_COMM_SHIFT           x goes to member me + index, and comes from me - index, cyclically; -n < index < n
 *   HD_COMM_ALL_MAX         x -> maximum over the members
 *   HD_COMM_SCATTER         x of the root, split along dim -> piece j on member j
 *   HD_COMM_PERMUTE         x goes to member mul * me + index, cyclically. mul and n have no common divisor, so each
 *                           member receives one (mul 1: a shift; mul -1, index n - 1: the order reversed)
 * Slot rewrite may use PERMUTE. It then exchanges the pieces of a sharded dim, and does not move a replicated tensor.
 * Its gradient is the inverse permutation.
 *
 * Sums in a fixed order with any comm module, by messages between members:
 *   HD_COMM_RING_REDUCE_SCATTER     x -> piece me + 1 (cyclic) of the sum: piece c starts at member c and goes round
 *                                   the ring, and each member adds its own to it. With train.reduce = rank_order, the
 *                                   terms are added in member order
 *   HD_COMM_RING_ALL_GATHER         piece me + 1 -> all pieces joined along dim, passed on round the ring
 *   HD_COMM_ORDERED_REDUCE_SCATTER  x -> this member's piece of the sum, added in member order
 *
 * Between the members that hold the model (workers) and the spare members of a group of HD_ROLE_ALL along one axis,
 * since 0.12:
 *   HD_COMM_PUSH                    x on the workers -> the sum over them, added in member order. With a dim, spare
 *                                   member j gets piece j along it; without one, spare member `index`
 *                                   (0 ... spare - 1) gets all of it
 *   HD_COMM_PULL                    x on the spare members -> on all workers: the pieces joined along dim; without a
 *                                   dim, x of spare member `index`
 *
 * `wire` is the dtype in which these sums of fp32 send their values; 0: unchanged. Values are rounded to bf16 or fp16
 * before each message and added in fp32. In fp16 they are sent multiplied by 2^10. */
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
	/* Since 0.10: sums in a fixed order. */
	HD_COMM_RING_REDUCE_SCATTER,
	HD_COMM_RING_ALL_GATHER,
	HD_COMM_ORDERED_REDUCE_SCATTER,
	HD_COMM_PUSH, /* since 0.12 */
	HD_COMM_PULL
};
enum {                    /* the values that graph->scalar returns */
       HD_SCALAR_LR,      /* the learning rate of this step */
       HD_SCALAR_STEP,    /* the number of this step, from 1 */
       HD_SCALAR_SAMPLES, /* sequences in this step, over the whole job */
       /* this rank's member index in a group; differs between members, whatever its placement says */
       HD_SCALAR_INDEX,
};
enum {                       /* how a state begins */
       HD_INITIAL_VALUE,     /* every element is `value` */
       HD_INITIAL_NORMAL,    /* normal with standard deviation `value`; determined by name and global index */
       HD_INITIAL_PARAMETER, /* a copy of its parameter, which has the same dims */
};
/* How a state that is stored per member is read by a different number of members. */
enum { HD_RESHARD_SUM, HD_RESHARD_ZERO, HD_RESHARD_REFUSE };

struct hd_storage_args {
	size_t size;
	struct hd_tensor *leaf;
	const struct hd_axis *axis;
	const struct hd_place *place;
	uint32_t space, reserved; /* space: HD_SPACE_DEVICE; for states and masters also HD_SPACE_HOST */
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
	uint32_t kind, wire; /* kind: HD_COMM_ALL_REDUCE ...; wire: for sums in a fixed order, else 0 */
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
	/* -- read -------------------------------------------------------------------------------------------------- */
	/* Walks over the matching nodes in program order. prev NULL begins; NULL ends. The walk skips nodes built
	 * during it, and nodes whose results are all replaced. Walks may be nested. */
	struct hd_node *(*node_next)(struct hd_plan *p, struct hd_node *prev, const struct hd_match *m);
	/* Walks over the leaves of one sort (HD_TENSOR_PARAM ...), and with HD_TENSOR_GRAD over gradients that slot
	 * storage can store. prev NULL begins; NULL ends. */
	struct hd_tensor *(*leaf_next)(struct hd_plan *p, struct hd_tensor *prev, uint32_t what);
	/* Returns the placement of t along the axis. */
	const struct hd_place *(*place)(struct hd_plan *p, const struct hd_tensor *t, const struct hd_axis *axis);
	/* Returns the number of a key in a node's attributes, or `otherwise` if the key is missing. */
	double (*attr)(const char *attr, const char *key, double otherwise);
	/* Reads an attribute "KEY=a,b,c" that lists dims. Fills dims (room for HD_MAX_DIMS) and returns their number, 0
	 * if the key is missing. */
	uint32_t (*attr_dims)(struct hd_plan *p, const char *attr, const char *key, const struct hd_dim **dims);
	/* -- change ------------------------------------------------------------------------------------------------ */
	/* Sets where a leaf is stored between its uses; slot storage only. Updates run where the state is stored; the
	 * engine adds gathers, scatters, pushes and pulls. A gradient (HD_TENSOR_GRAD) has two places. The result of a
	 * node of kind accumulate is where contributions of the micro-batches are added up. The result of a node of
	 * kind sync is where the update reads the gradient. An update without a state runs there.
	 *
	 * In this slot, local of a parameter or a state is what other sections leave on a rank; a call changes it at
	 * once. Gradients have no placement yet: local is the global size, so look at their parameter (of).
	 *
	 * A plan that only evaluates has no states and no gradients, and shares the memory of parameters. So nothing
	 * but parameters may decide where a parameter is stored. Otherwise a run that has both plans is refused. */
	int (*storage)(struct hd_plan *p, const struct hd_storage_args *x);
	/* Makes all readers of `old` read `with`. Both need the same dtype and the same dims in the same order; in slot
	 * lower also the same local sizes and placement. The plugin is responsible for the placement that its own comm
	 * nodes produce. A sum over the wrong members is not detected here: only the loss then differs from that of one
	 * rank. Nodes that are no longer needed are dropped. */
	int (*replace)(struct hd_plan *p, struct hd_tensor *old, struct hd_tensor *with);
	/* Sets where new nodes go. They belong to anchor's unit, block and reason, precede it in program order, and run
	 * on the queue. Communication always runs on its own group's queue. Slots lower and rewrite must call this
	 * first.
	 *
	 * A node of a unit runs on its block's stage and reads what is there. To send something else between stages,
	 * use two cursors. Build the sender's part at the node that computed the operand, and the rest at the
	 * reshard. */
	int (*cursor)(struct hd_plan *p, const struct hd_cursor_args *x);
	/* Delays the node that computes t until u is computed. Nodes start in the order in which they were built; a
	 * contrary order is refused. */
	int (*after)(struct hd_plan *p, struct hd_tensor *t, const struct hd_tensor *u);
	/* -- build ------------------------------------------------------------------------------------------------- */
	/* Returns an op of the engine, or NULL without an error if no op has this name. */
	const struct hd_op *(*op)(struct hd_plan *p, const char *name);
	struct hd_node *(*node)(struct hd_plan *p, const struct hd_op *op, struct hd_tensor *const *ins, uint32_t nin,
				const char *attr, ...)HD_PRINTF(5, 6);
	/* Returns the product of all inputs (at most two), summed over the dims that `dims` does not list. */
	struct hd_tensor *(*einsum)(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin,
				    const struct hd_dim *const *dims, uint32_t ndim);
	/* Returns an elementwise function of the inputs, each broadcast by dim name to the dims of the first. The text
	 * calls them a, b, c, ...: "a + sign(b) * %.17g". It may use + - * / exp log tanh erf sqrt abs sign round floor
	 * min max where(c,x,y) and numbers. The engine differentiates the expression and compiles it for the device. */
	struct hd_tensor *(*map)(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin, const char *expr,
				 ...)HD_PRINTF(4, 5);
	/* Converts between floats, and from or to one of the dtypes of 8 bits or fewer. No cast makes or reads I32 and
	 * I64: topk makes indices, and an op with a kernel of its own makes other integers. */
	struct hd_tensor *(*cast)(struct hd_plan *p, struct hd_tensor *x, uint32_t dtype);
	/* chunk, join, pick, pack, unpack and those of pieces below are for slot lower alone. Before it, tensors have
	 * the extents of the whole model. chunk returns piece at(0) of x, which is split into `parts` equal pieces
	 * along dim. */
	struct hd_tensor *(*chunk)(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *dim, int64_t parts,
				   const struct hd_pos *at);
	/* Joins n equal pieces along dim: xs[j] becomes piece at(j); if at is NULL, piece j. */
	struct hd_tensor *(*join)(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_dim *dim,
				  const struct hd_pos *at);
	/* Returns xs[at(0)]. */
	struct hd_tensor *(*pick)(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_pos *at);
	/* Packs tensors of equal dtype into one flat tensor with a single new dim, the result's dims[0]. Test the
	 * result before you read it: it is NULL after a failure. Its length is a multiple of `multiple`; gaps are zero
	 * or ignored. unpack is the inverse: it fills out[i] with a tensor like like[i]. */
	struct hd_tensor *(*pack)(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, int64_t multiple);
	int (*unpack)(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like, uint32_t n,
		      struct hd_tensor **out);
	struct hd_tensor *(*comm)(struct hd_plan *p, const struct hd_comm_args *x);
	/* Changes the placement of x by one step along one axis. x may be on another stage than the cursor's unit. A
	 * step along an axis other than that of the stages then runs on the stage of x, in the unit that computed x. */
	struct hd_tensor *(*reshard)(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis,
				     const struct hd_place *to);
	/* Returns a tensor that is kept from step to step. It is zero before step 1, and has the local sizes and
	 * placement of `like`. In slots before placement, a state like a parameter or its gradient lives with that
	 * parameter. Any other state lives where its first reader needs it.
	 *
	 * The checkpoint stores it as section.name.parameter. If `like` belongs to no parameter (a constant), the name
	 * alone must be unique. So put a parameter's name into it: x->of->name for a gradient x. Names consist of
	 * letters, digits, ".", "_" and "-". A replicated or sharded state is stored once, and any layout reads it. A
	 * partial one is stored per member. With a different number of members, HD_RESHARD_SUM keeps the sum over them.
	 * HD_RESHARD_ZERO then starts again from the initial value, and HD_RESHARD_REFUSE refuses the checkpoint. */
	struct hd_tensor *(*state)(struct hd_plan *p, const struct hd_state_args *x);
	/* Sets the value that the state takes at the end of the step. Until then every node reads the old value, even
	 * nodes built later. The value may itself be a parameter or a state: its old value, even if it changes in the
	 * same step. A replicated state must not get a term of a sum: sum it first. A value that each
	 * micro-batch computes afresh is refused if a step has several micro-batches. A second call may assign a value
	 * from nodes of `every`; the state takes that value in their steps. */
	int (*assign)(struct hd_plan *p, struct hd_tensor *state, struct hd_tensor *value);
	/* -- nodes that some members run (since 0.4) --------------------------------------------------------------- */
	/* Slot lower, units F, B and W: nodes built from now on run on these members only. NULL, or a new cursor: on
	 * all members again. Their results exist only there. Nodes of these members, or of fewer, may read them, and so
	 * may `either`. The group must not contain the axis of the stages, nor have HD_ROLE_SPARE. All members of a
	 * group take part in communication, so the group of a comm node must not contain an axis of these members.
	 * Ranks still share one plan: the engine selects the nodes of a rank when it creates the rank's program. */
	int (*only)(struct hd_plan *p, const struct hd_members *who);
	/* Returns `yes` on these members and `no` on the others. Both have equal dims, local sizes and dtype. No bytes
	 * move. */
	struct hd_tensor *(*either)(struct hd_plan *p, const struct hd_members *who, struct hd_tensor *yes,
				    struct hd_tensor *no);
	/* -- since 0.4 --------------------------------------------------------------------------------------------- */
	/* Returns a number of the run as a tensor without dims: HD_SCALAR_LR ... g is for HD_SCALAR_INDEX only. In slot
	 * lower the result is on the stage of the cursor's node. */
	struct hd_tensor *(*scalar)(struct hd_plan *p, uint32_t what, const struct hd_group *g);
	/* Return tensors with these dims: a constant; the global index along one of the dims; random numbers, uniform
	 * in [0, 1). The random numbers depend on the run's seed, the plugin's section, `name` and the global index,
	 * but not on the layout. If each_step is not 0, every step has new ones. */
	struct hd_tensor *(*constant)(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim, double value);
	struct hd_tensor *(*iota)(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim,
				  const struct hd_dim *along);
	struct hd_tensor *(*random)(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim,
				    const char *name, int32_t each_step);
	/* Sets the value of one of the plugin's states before step 1, instead of 0: HD_INITIAL_... */
	int (*initial)(struct hd_plan *p, struct hd_tensor *state, uint32_t how, double value);
	/* Returns x with dim `to`, which has as many elements, in place of `from`. The product of x and this copy over
	 * the other dims is then a Gram matrix. x is gathered where `from` is sharded. */
	struct hd_tensor *(*rename)(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *from,
				    const struct hd_dim *to);
	/* Finds the k->n largest entries of x along a dim, in the order of their indices; among equal entries, the
	 * first ones. If magnitude is not 0, it compares absolute values. *values and *index (i32) have dim k in place
	 * of `along`. */
	int (*topk)(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *along, const struct hd_dim *k,
		    int32_t magnitude, struct hd_tensor **values, struct hd_tensor **index);
	/* gather returns entries of x along a dim. index has the dims of x, with a different dim in place of `along`;
	 * an index out of range gives zero.
	 *
	 * scatter is the inverse: it adds the entries of x at their indices along `to`, which replaces `from`. All
	 * other elements are zero, and entries with an index out of range are dropped. unique: promises that no two
	 * entries have the same index. */
	struct hd_tensor *(*gather)(struct hd_plan *p, struct hd_tensor *x, struct hd_tensor *index,
				    const struct hd_dim *along);
	struct hd_tensor *(*scatter)(struct hd_plan *p, struct hd_tensor *x, struct hd_tensor *index,
				     const struct hd_dim *from, const struct hd_dim *to, int32_t unique);
	/* Like replace, but for one reader. */
	int (*replace_in)(struct hd_plan *p, struct hd_node *reader, struct hd_tensor *old, struct hd_tensor *with);
	/* Returns the value that a leaf takes at the end of this step, from the optimizer or from assign. Returns NULL
	 * without an error if the leaf does not change. */
	struct hd_tensor *(*updated)(struct hd_plan *p, struct hd_tensor *leaf);
	/* Nodes built from now on, until the next cursor, run only in steps that are multiples of `steps`. Only such
	 * nodes may read their results. The results may also be assigned to a leaf, which then stays unchanged in other
	 * steps. */
	int (*every)(struct hd_plan *p, int64_t steps);
	/* -- since 0.9: values that differ between members on purpose ---------------------------------------------- */
	/* Slot lower: turns x, a term of a sum along the axis, into a value of this member. Nothing moves. From here on
	 * members compute different values, although the plan calls them replicated, and the plugin must combine them
	 * again. Each member then has its own gradient norm; the metrics report that of the first. */
	struct hd_tensor *(*local)(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis);
	/* Slot lower: gives each member along the axis its own value of this state, whether of a section or of the
	 * optimizer. The checkpoint stores it per member, as NAME@member. With a different number of members the state
	 * starts again from its initial value (HD_RESHARD_ZERO), or the checkpoint is refused (HD_RESHARD_REFUSE). A
	 * parameter is always the same on all members, because the model's files, evaluation and generation use it. If
	 * members need weights of their own, use a state that begins as the parameter and replaces it in training. */
	int (*own)(struct hd_plan *p, struct hd_tensor *state, const struct hd_axis *axis, uint32_t relayout);
	/* -- since 0.10 -------------------------------------------------------------------------------------------- */
	/* Each xs[i] consists of `parts` equal pieces along dims[i]. pack_pieces packs them into one flat tensor of
	 * `parts` parts; each part contains one piece of every xs[i]. After a reduce-scatter of it, unpack yields the
	 * pieces of one member. unpack_pieces is the inverse: flat is the all-gather of packed pieces, like[i] is a
	 * piece, and out[i] becomes complete. pack_pieces builds one node and unpack_pieces n nodes, whatever `parts`
	 * is. */
	struct hd_tensor *(*pack_pieces)(struct hd_plan *p, struct hd_tensor *const *xs,
					 const struct hd_dim *const *dims, uint32_t n, int64_t parts);
	int (*unpack_pieces)(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like,
			     const struct hd_dim *const *dims, uint32_t n, int64_t parts, struct hd_tensor **out);
};

/* -- short forms of the calls with arguments, for the usual case --------------------------------------------------- */
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

/* dtype: a state like a parameter mostly has the parameter's dtype (u->param->dtype). That is fp64 on the reference
 * device, which computes in no other float type. */
static inline struct hd_tensor *hd_state(const struct hd_graph_api *g, struct hd_plan *p, const char *name,
					 struct hd_tensor *like, uint32_t dtype, uint32_t relayout)
{
	const struct hd_state_args x = { sizeof(x), name, like, dtype, relayout };

	return g->state(p, &x);
}

/* The engine's ops, as the names for `op`, `launch` and hd_match.kind (inputs -> outputs; attributes). All since 0.1. A
 * name with a trailing _d or _dw is the backward op. An op refuses attributes that it does not know, and numbers that are
 * not complete.
 *   einsum (a, b -> c), sum (a -> c), add (x, ... -> y), map (a, ... -> y), cast, copy (x -> y),
 *   fill (like -> y; value)
 *   norm (x, w[, b] -> y, rstd[, mean]; eps, rms)   norm_d (x, w, rstd[, mean], dy -> dx)
 *   norm_dw (x, rstd[, mean], dy -> dw[, db])       a rule for the dim and kind norm decomposes these, to shard the dim
 *   attention (q, k, v -> o, lse; causal, scale)    attention_d (q, k, v, o, lse, do -> dq, dk, dv)
 *   gelu (x -> y)  gelu_d (x, dy -> dx)             swiglu (a, b -> y)  swiglu_d (a, b, dy -> da, db)
 *   embedding (ids, w -> x)  embedding_dw (ids, dx -> dw)      position (x, w -> y)  position_dw (dy -> dw)
 *   rope (x -> y; theta)  dropout (x -> y; p, site)
 *   xent (logits, targets -> max, sum, target), xent_combine, xent_d: cross entropy in parts that may be sharded
 *   route (logits -> gates, slots, sums), dispatch (x, slots -> d), combine (y, slots, gates -> x): for experts
 *   chunk, join, pick, pack, unpack, comm, reshard, constant, iota, uniform, scalar, renamed, largest, take, put
 *   adamw (w, g, m, v, factor -> w, m, v; beta1, beta2, eps, decay)   sgd (w, g, factor -> w; decay): kind update
 * kernels/README.md describes each op.
 */
#ifdef __cplusplus
}
#endif
#endif
