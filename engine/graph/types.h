/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/types.h - the data types of a plan: dims, axes, placements, tensors, nodes.
 *
 * Every view that plugins see (heddle/graph.h, heddle/host.h) is the first member of the engine's own struct.  So the
 * engine casts a handle to its struct, without a table.  A plan describes all ranks at once; engine/program/program.h
 * cuts out the part of one rank.
 */
#ifndef HD_ENGINE_TYPES_H
#define HD_ENGINE_TYPES_H
#include <heddle/strategy.h>
#include "engine/config/train_config.h"
#include "engine/graph/op.h"
#include "engine/schedule/schedule_check.h"
#include "engine/plugin/registry.h"

struct hd_family;
/* How a leaf is initialised.  VALUE and PARAMETER are for plugins' states.  struct tensor, init_std, holds the standard
 * deviation or the value. */
enum hd_init { HD_INIT_NORMAL, HD_INIT_ZERO, HD_INIT_ONE, HD_INIT_VALUE, HD_INIT_PARAMETER };

struct hd_model {
	const struct hd_family *family;
	int64_t layers, embed, heads, kv_heads, head_dim, mlp, vocab, seq, max_seq;
	int64_t step_seq; /* tokens of a sequence per run: seq, or fewer with a cache (passes/cache.c) */
	double dropout, init_std, rope_theta, norm_eps;
	int64_t tie;
	/* The decoder's knobs, one per key of [model] (engine/models/decoder/knobs.c).  Choices are numbers:
	 * HD_NORM_..., ... */
	int64_t norm, norm_offset, activation, qk_norm, qkv_bias, out_bias, mlp_bias;
	int64_t window;            /* keys that a query sees in a layer with a window; 0: all */
	const char *window_layers; /* letters repeated over the layers: w has a window, f does not */
	double embed_scale, query_scale, attention_softcap, logit_softcap;
	int64_t rope_scaling, rope_truncate;
	const char *rope_short, *rope_long; /* longrope: one factor per rotated pair, separated by commas */
	double rotary_fraction, rope_theta_window, rope_factor, rope_original, rope_low, rope_high, rope_beta_fast,
		rope_beta_slow, rope_attention;
	/* Every moe_every-th layer has experts in place of its feed-forward layer; experts 0: no layer has. */
	int64_t experts, experts_per_token, moe_every, group_tokens;
	int64_t router;    /* HD_ROUTER_... */
	int second_random; /* second_expert = random */
	/* For the sigmoid router: the number of groups of experts, and how many of them a token may choose from. */
	int64_t router_groups, router_best_groups;
	/* The factor of the gates; for the sigmoid router, how far the bias moves per step. */
	double gate_scale, router_bias_rate;
	int64_t normalize_gates; /* whether the gates of a token's experts are scaled to sum to 1 */
	int64_t expert_mlp, dense_layers, shared_experts; /* expert_mlp 0: mlp */
	double capacity_factor, aux_loss, z_loss;         /* capacity_factor 0: no limit */
};

struct dim {
	struct hd_dim v;
	int64_t padded; /* extent in memory: at least v.n, divisible by all axes that shard the dim */
	int id, inst;   /* inst: the instance that created it, and within which its name is known; -1: the engine */
};
struct axis {
	struct hd_axis v;
	int id, inst;
	int64_t stride; /* distance in ranks between neighbours on this axis */
};
struct group {
	struct hd_group v;
	struct axis *axes[HD_MAX_AXES];
	uint32_t n, role;
	int id;
	char *name; /* "outer", "outer+inner" */
};

struct placement {
	struct hd_place on[HD_MAX_AXES];
};

struct tensor {
	struct hd_tensor v;
	struct hd_plan *plan;
	const struct hd_dim *dims[HD_MAX_DIMS];
	int64_t local[HD_MAX_DIMS];
	char *spec;
	struct placement at;
	const struct hd_dim *reduced_dim[HD_MAX_AXES]; /* where it is partial: the dim summed over */
	int id, out;                                   /* out: its index among the outputs of its node */
	int placed;
	struct placement storage; /* leaves: the placement that slot storage asked for */
	uint32_t stored;          /* one bit per axis: storage.on[axis] is set */
	int inst;                 /* states: 1 + the instance that owns it; 0: the engine */
	uint32_t on_reshard;      /* plugins' states: HD_RESHARD_SUM ... */
	/* 1: it exists once per step (parameters, accumulators, results of sync and update); 0: once per
	 * micro-batch. */
	int step;
	int decay, init; /* decay (parameters): weight decay applies; init: enum hd_init */
	/* Parameters: the loss is not differentiable in it, so a missing gradient is right. */
	int no_gradient;
	int decided;           /* parameters: precision.c has decided the dtype */
	struct tensor *master; /* parameters in low precision, in training: the fp32 leaf that is updated */
	double init_std;
	struct tensor *assign; /* leaves: the value that it takes at the end of the step */
	/* Plugins' states: the value that it takes instead of assign, in the steps in which that value is computed; or
	 * NULL. */
	struct tensor *then;
	/* States: one bit per axis.  Each member along it has its own value, although the placement is replicated. */
	uint32_t own;
	int assigned; /* it may be the value that a leaf takes (hd_assign) */
	struct node **users;
	size_t nusers, cap_users;   /* all nodes that ever read it; some no longer do */
	struct tensor *replaced_by; /* the tensor that replaced it, or NULL */
	struct made *made;          /* its copies in other placements so far (reshard.c) */
	struct tensor *source;      /* data: the leaf of which this is a copy in another placement */
	/* Of a ragged tensor (expert, batch, slot, ...) only the rows in use are stored, ordered by expert, then by
	 * sample.  ragged_counts: the number of rows of each (expert, batch), known at run time.  max_rows: the most
	 * rows that one (batch, slot) has, over all experts.  NULL and 0: the tensor is dense. */
	struct tensor *ragged_counts;
	int64_t max_rows;
};

struct dependency {
	struct dependency *next;
	struct tensor *on;
};

struct comm_args {
	uint32_t kind; /* 0: no communication */
	struct group *group;
	int64_t index, mul; /* index: the root, or the shift; mul: the factor of a permutation */
	uint32_t wire;      /* dtype that is sent; 0: the operand's */
};

struct node {
	struct hd_node v;
	const struct op_traits *is; /* traits of v.op */
	struct hd_plan *plan;
	struct node *prev, *next;    /* program order */
	int64_t number;              /* increases in program order; 0: not in the program (hd_node_precedes) */
	struct tensor **ins, **outs; /* each list is stored twice; plugins see the first (views.c) */
	struct hd_reshard reshard;
	struct comm_args comm;
	char *attr, *reason;
	int id, block; /* block: index in plan->blocks, or -1 */
	int inst;      /* the instance whose plugin's op this is, or -1 */
	int made_by;   /* the instance in whose slot it was created, or -1 */
	int asked_by;  /* send or receive: 1 + the instance that asked for the reshard, or 0 */
	int placed, dead, mark;
	struct hd_pos pos;      /* chunk, join, pick: the index of the piece */
	struct hd_members only; /* the members that run it; group NULL: all */
	/* A pick of two inputs: these members take the first, all others the second.  group NULL: a different node. */
	struct hd_members chooses;
	int64_t parts;
	const struct hd_dim *along;
	/* pack, unpack of members' pieces: the dim along which each tensor is divided; NULL: none */
	const struct hd_dim **alongs;
	int order;           /* chunk, block, unblock of members' pieces: HD_ORDER_CONTIGUOUS ... */
	struct group *queue; /* NULL: the compute queue */
	int64_t period;      /* it runs in the steps that are multiples of this; 0: in all */
	/* A view that makes a term of a sum the member's own value (struct hd_graph_api, local). */
	int local;
	int in_update;            /* it runs only if the step's norm is finite (plan_check.c) */
	struct dependency *waits; /* it starts when these are done (struct hd_graph_api, after) */
	/* Set in a copy that backward runs: the forward node that it recomputes (recompute.c).  Both are placed
	 * alike. */
	const struct node *recompute_of;
	/* The unit to which its work is charged, if it runs in a different one (passes/loss/); 0: v.phase. */
	uint32_t computes_for;
};

/* Where new nodes are inserted, and what they are for.  A plain value: code that moves a plan's cursor sets all fields
 * (graph.h).  Helpers such as hd_reshard_to restore it themselves; after a pass, plan.c does so. */
struct cursor {
	struct node *before; /* new nodes are inserted before it; NULL: at the end */
	uint32_t phase;
	int block;              /* index in plan->blocks, or -1 */
	struct group *queue;    /* NULL: the compute queue */
	char *reason;           /* the reason that `explain` prints, or NULL */
	struct hd_members only; /* the members that run them; group NULL: all */
	int64_t period;         /* they run in the steps that are multiples of this; 0: in all */
};

struct rule {
	const struct hd_dim *dim;
	struct axis *axis;
	char *kind;
	uint32_t flags;
};

struct block {
	struct hd_block v;
	char *name;
	int64_t coord; /* its coordinate on the stage axis */
	int64_t chunk;
	int staged; /* a plugin has put it there by `stage` */
};

#define HD_MAX_INSTANCES 24
struct hd_slot {  /* the slot that is running, of an instance or of an op of its plugin */
	int inst; /* -1: no slot */
	const char *name;
};

struct inst { /* an instance of a plugin: one section [strategy NAME] or [plugin NAME] */
	const char *name;
	struct hd_section *section;
	const struct hd_plugin_entry *plugin;
	struct hd_strategy *self;
	int open;
	int extension; /* a [plugin NAME]: it claims no axis */
};

/* A plugin's walk over the nodes.  It does not return nodes that are created during the walk: their ids are not below
 * limit. */
struct node_walk {
	const struct hd_match *by;
	const struct node *at; /* the node that it returned last */
	int limit;
};

/* What kind of object a plugin's pointer refers to.  The engine looks the pointer up and never trusts it. */
enum hd_handle_kind { HANDLE_NONE, HANDLE_DIM, HANDLE_AXIS, HANDLE_GROUP, HANDLE_TENSOR, HANDLE_NODE };
struct hd_handle {
	const void *at;
	enum hd_handle_kind kind;
};

struct hd_plan_options;
struct held_message;
struct plan_index;
struct hd_plan {
	/* Set only while hd_plan_create builds the plan; NULL afterwards, and in a graph built by hand. */
	const struct hd_plan_options *options;
	/* The plan only finds out which batch its rules ask for, and is then discarded. */
	int asking;
	struct held_message *held; /* messages of plugins while `asking` is set */
	int quiet;                 /* warnings of plugins are not printed */
	struct hd_conf *conf;
	struct hd_err *err;
	struct hd_err own;
	struct hd_train_config config; /* [train] */
	struct hd_model model;
	int64_t ranks;
	int64_t node_size; /* ranks per host; 0: unknown */
	int *node_asked;   /* set to 1 if a plugin asks for node_size; may be NULL */
	int train;         /* 0: forward only */
	int64_t past;      /* positions whose keys and values are kept between runs (passes/cache.c); 0: none */
	const char *reads_other_tokens; /* an op that is wrong for a run of only some tokens of a sequence, or NULL */
	int64_t batch, micro_batch, replicas, micros; /* batch of the graph = micro_batch x replicas */
	/* FLOPs of the matrix products for one micro-batch of all replicas, without any work that the layout
	 * repeats. */
	double model_flops;
	/* From the logits on, a micro-batch is computed in at least this many parts, one after the other; 0: not
	 * divided. */
	int64_t loss_parts;

	struct inst inst[HD_MAX_INSTANCES];
	int ninst;
	struct hd_slot slot; /* the slot that is running: guards against calls at the wrong time */
	/* The node that a pass works on, or NULL.  If the pass fails, the message names the plugin that created the
	 * node. */
	const struct node *about;
	struct inst *optimizer;     /* the instance whose optimizer updates, or NULL */
	const struct hd_host *host; /* the functions that plugins call */

	struct dim **dims;
	size_t ndims, cap_dims;
	struct axis *axes[HD_MAX_AXES];
	int naxes;
	struct group **groups;
	size_t ngroups, cap_groups;
	struct rule *rules;
	size_t nrules, cap_rules;
	struct block *blocks;
	size_t nblocks, cap_blocks;
	struct axis *stages; /* the axis whose coordinates are stages, or NULL */
	int64_t chunks;

	struct tensor **tensors;
	size_t ntensors, cap_tensors;
	int64_t parameter_bytes; /* global bytes of the parameters created so far */
	struct node *first, *last;
	int nnodes;
	int numbered;         /* the nodes' numbers are up to date */
	struct cursor cursor; /* where new nodes are inserted */

	struct hd_schedule_unit **units;
	int *nunits;
	size_t *cap_units;
	int64_t ncoords; /* coordinates of the stage axis; units, nunits and cap_units have one entry for each */
	int separate_w;  /* the schedule has W units */
	/* When each unit begins and ends in the simulated schedule; start is NULL if that is unknown (forward only). */
	struct hd_schedule_report timing;

	/* The tensors that a run reads or feeds; NULL: absent. */
	struct tensor *loss, *nll, *logits, *norm, *factor, *ids, *targets;
	struct tensor **moe_stats;
	/* The router sums of each layer of experts, in order (engine/models/decoder/experts.h). */
	size_t nmoe_stats, cap_moe_stats;
	struct arena_block *heap;
	struct hd_handle *handles; /* open addressing; cap_handles is a power of 2, or 0 */
	size_t nhandles, cap_handles;
	/* An index for programs, built once the graph is final (engine/program/plan_index.c). */
	struct plan_index *index;
	/* One bit per axis: ranks along it may run different nodes.  Set once the graph is final (members.c). */
	uint32_t unlike_axes;
	struct node_walk *walks;
	size_t nwalks, cap_walks; /* unfinished walks of node_next, the innermost last */
	/* Dtype of masters, gradients and states: HD_DTYPE_F32; HD_DTYPE_F64 on the reference device. */
	uint32_t master_dtype;
	uint32_t compute_dtype; /* dtype of activations and of products' operands: HD_DTYPE_BF16; 0: master_dtype */
	int gelu;               /* a gelu may be fused into products in compute_dtype */
	int own_memory;         /* the device has its own memory, so HD_SPACE_HOST differs from HD_SPACE_DEVICE */
	int pulls;              /* after a step, only the masters of some parameters are up to date (hd_pass_pulls) */
	int noted_space;        /* the note that the device has none was printed */
	int undivided_logits;   /* logits are not divided into parts, unless train.loss_parts says otherwise */
	/* The gradient of a norm does not add the residual stream's gradient, and does not compute sums. */
	int separate_residual_adds;
	int separate_loss_gradient; /* logits are read once for their statistics, and once more for their gradient */
	int own_loss;               /* slot rewrite changed the nodes between nll and the loss */
	/* No kernel of the device computes a slope or sums together with its main result. */
	int no_multi_output_kernels;
	uint64_t hash;
};

/* Returns whether two micro-batches are computed at a time (train.overlap_micro_batches). */
static inline int hd_computes_pairs(const struct hd_plan *p)
{
	return p->config.overlap_micro_batches && p->train;
}
static inline int hd_micros_at_once(const struct hd_plan *p)
{
	return hd_computes_pairs(p) ? 2 : 1;
}

/* Returns whether the node starts a transfer that is waited for later: between ranks, or between a device's memory and
 * its host's. */
static inline int hd_node_moves(const struct node *n)
{
	return n->comm.kind || n->is->role == OP_ROLE_TRANSFER;
}

static inline struct tensor *T(const struct hd_tensor *t)
{
	return (struct tensor *)(uintptr_t)t;
}
static inline struct node *N(const struct hd_node *n)
{
	return (struct node *)(uintptr_t)n;
}
/* Returns the node that computes t, or NULL if t is a leaf. */
static inline struct node *hd_maker(const struct tensor *t)
{
	return t->v.node ? N(t->v.node) : NULL;
}
/* Returns whether n has this role; n may be NULL. */
static inline int hd_is(const struct node *n, enum op_role role)
{
	return n && n->is->role == role;
}
static inline struct axis *A(const struct hd_axis *a)
{
	return (struct axis *)(uintptr_t)a;
}
static inline struct dim *D(const struct hd_dim *d)
{
	return (struct dim *)(uintptr_t)d;
}
static inline struct group *G(const struct hd_group *g)
{
	return (struct group *)(uintptr_t)g;
}

#endif
