/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/types.h - what a plan is made of: dims, axes, placements, tensors, nodes.
 *
 * Every view that plugins see (heddle/graph.h, heddle/host.h) is the first member of the engine's own struct, so a handle
 * is cast back without a table.  The plan describes all ranks at once; engine/program/program.h cuts it for one.
 */
#ifndef HD_ENGINE_TYPES_H
#define HD_ENGINE_TYPES_H
#include <heddle/strategy.h>
#include "engine/config/train_config.h"
#include "engine/graph/op.h"
#include "engine/schedule/schedule_check.h"
#include "engine/plugin/registry.h"

struct hd_family;
/* VALUE, PARAMETER: of plugins' states.  init_std: the deviation, or the value. */
enum hd_init { HD_INIT_NORMAL, HD_INIT_ZERO, HD_INIT_ONE, HD_INIT_VALUE, HD_INIT_PARAMETER };

struct hd_model {
	const struct hd_family *family;
	int64_t layers, embed, heads, kv_heads, head_dim, mlp, vocab, seq, max_seq;
	int64_t step_seq; /* tokens of a sequence that the graph computes at once: seq, but with a cache (passes/cache.c) */
	double dropout, init_std, rope_theta, norm_eps;
	int64_t tie;
	/* The decoder's knobs, one a key of [model] (engine/models/decoder/knobs.c).  Choices are numbers: HD_NORM_..., ... */
	int64_t norm, norm_offset, activation, qk_norm, qkv_bias, out_bias, mlp_bias;
	int64_t window;            /* keys that a query of a layer with a window sees; 0: all */
	const char *window_layers; /* w and f, repeated over the layers: those with a window, those without */
	double embed_scale, query_scale, attention_softcap, logit_softcap;
	int64_t rope_scaling, rope_truncate;
	const char *rope_short, *rope_long; /* longrope: a factor for each pair that turns, with commas */
	double rotary_fraction, rope_theta_window, rope_factor, rope_original, rope_low, rope_high, rope_beta_fast,
		rope_beta_slow, rope_attention;
	/* A layer of experts in place of the feed-forward layer of every moe_every-th layer; experts 0: none. */
	int64_t experts, experts_per_token, moe_every, group_tokens;
	int64_t router;    /* HD_ROUTER_... */
	int second_random; /* second_expert = random */
	int64_t router_groups,
		router_best_groups;          /* sigmoid: groups of experts, and how many a token may choose from */
	double gate_scale, router_bias_rate; /* factor of the gates; sigmoid: how much the bias moves in a step */
	int64_t normalize_gates;             /* the gates of a token's experts sum to 1 */
	int64_t expert_mlp, dense_layers, shared_experts; /* expert_mlp 0: mlp */
	double capacity_factor, aux_loss, z_loss;         /* capacity_factor 0: no limit */
};

struct dim {
	struct hd_dim v;
	int64_t padded; /* extent in memory: >= v.n, divides by all axes that cut it */
	int id, inst;   /* inst: of the instance that made it (its name is local), or -1 */
};
struct axis {
	struct hd_axis v;
	int id, inst;
	int64_t stride; /* ranks between neighbours on this axis */
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
	const struct hd_dim *reduced_dim[HD_MAX_AXES]; /* partial there: the dim whose contraction made it so */
	int id, out;                                   /* out: which output of the maker */
	int placed;
	struct placement storage; /* leaves: asked for by slot storage */
	uint32_t stored;          /* bit per axis: home.on[axis] is set */
	int inst;                 /* states: 1 + the instance whose it is; 0: of the engine */
	uint32_t on_reshard;      /* states of plugins: HD_RESHARD_SUM ... */
	int step; /* 1: one per step (parameters, accumulators, what sync and update make); 0: one per micro-batch */
	int decay, init;       /* parameters: weight decay applies; enum hd_init */
	int no_gradient;       /* parameters: no loss depends on it smoothly, and none is missing */
	int decided;           /* parameters: what they are in is settled (precision.c) */
	struct tensor *master; /* parameters of low precision, in training: the leaf that is updated */
	double init_std;
	struct tensor *assign; /* leaves: the value it takes at the end of the step */
	struct tensor
		*then; /* states of plugins: the value it takes instead in the steps in which that is made, or NULL */
	uint32_t own;  /* states: bit per axis: each member along it has its own, though it is placed as replicated */
	int assigned;  /* it may be the value that a leaf takes: hd_assign */
	struct node **users;
	size_t nusers, cap_users;   /* may read it: each that ever did */
	struct tensor *replaced_by; /* replaced by it, or NULL */
	struct made *made;          /* what reshards have made of it so far (reshard.c) */
	struct tensor *source;      /* data: the leaf that this is a copy of in another place */
	/* (expert, batch, slot, ...) of which only the rows are stored that are in use: first by expert, then by sample.  rows:
	 * how many of each (expert, batch), known in a step; most: at most so many of a (batch, slot).  NULL, 0: dense. */
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
	int64_t index, mul; /* mul: of a permutation */
	uint32_t wire;      /* dtype of what is sent; 0: of the operand */
};

struct node {
	struct hd_node v;
	const struct op_traits *is; /* of v.op */
	struct hd_plan *plan;
	struct node *prev, *next;    /* program order */
	int64_t number;              /* grows along the program; 0: not in it.  See hd_node_precedes */
	struct tensor **ins, **outs; /* each list twice: the second is what the engine wrote (views.c) */
	struct hd_reshard reshard;
	struct comm_args comm;
	char *attr, *reason;
	int id, block; /* block: index in plan->blocks, or -1 */
	int inst;      /* of the plugin whose op this is, or -1 */
	int made_by;   /* instance in whose slot it was made, or -1 */
	int asked_by;  /* a message: 1 + the instance whose reshard it is, or 0 */
	int placed, dead, mark;
	struct hd_pos pos;      /* chunk, join, pick */
	struct hd_members only; /* it runs on these alone; group NULL: on all */
	struct hd_members
		chooses; /* a pick of two: the first on these, the second on all others; group NULL: another node */
	int64_t parts;
	const struct hd_dim *along;
	const struct hd_dim *
		*alongs; /* pack and unpack of members' pieces: the dim of each tensor that is in pieces; NULL: whole */
	int order;       /* chunk, block, unblock of members' pieces: HD_ORDER_CONTIGUOUS ... */
	struct group *queue;      /* NULL: compute */
	int64_t period;           /* runs in steps that are multiples of it; 0: in all */
	int local;                /* a view: a term of a sum as a member's own (struct hd_graph_api, local) */
	int in_update;            /* it runs only in a step whose norm is finite (plan_check.c) */
	struct dependency *waits; /* starts when these are done (struct hd_graph_api, after) */
	/* backward's copy of this node of forward (recompute.c), placed as that one is. */
	const struct node *recompute_of;
	uint32_t computes_for; /* the unit whose work it is, where it runs in another one (passes/loss/); 0: v.phase */
};

/* Where new nodes go, and what they are for.  A value: who moves a plan's cursor sets the whole of it (graph.h), keeps what it
 * was, and puts that back. */
struct cursor {
	struct node *before; /* they stand before it; NULL: at the end */
	uint32_t phase;
	int block;              /* index in plan->blocks, or -1 */
	struct group *queue;    /* NULL: compute */
	char *reason;           /* what `explain` says of them, or NULL */
	struct hd_members only; /* they run on these; group NULL: on all */
	int64_t period;         /* they run in steps that are multiples of it; 0: in all */
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
	int64_t coord; /* on the stage axis */
	int64_t chunk;
};

#define HD_MAX_INSTANCES 24
struct hd_slot {  /* of an instance, or of an op of its plugin */
	int inst; /* -1: none */
	const char *name;
};

struct inst { /* an instance of a plugin: one [strategy NAME], or [plugin NAME] */
	const char *name;
	struct hd_section *section;
	const struct hd_plugin_entry *plugin;
	struct hd_strategy *self;
	int open;
	int extension; /* a [plugin NAME]: it claims no axis */
};

/* A walk over the nodes: no node that is made during it is returned. */
struct node_walk {
	const struct hd_match *by;
	const struct node *at; /* what it returned last */
	int limit;
};

/* What a pointer that comes back from a plugin may be: looked up, never trusted. */
enum hd_handle_kind { HANDLE_NONE, HANDLE_DIM, HANDLE_AXIS, HANDLE_GROUP, HANDLE_TENSOR, HANDLE_NODE };
struct hd_handle {
	const void *at;
	enum hd_handle_kind kind;
};

struct hd_plan_options;
struct held_message;
struct plan_index;
struct hd_plan {
	const struct hd_plan_options *options; /* while it is made; NULL: by hand */
	int asking;                            /* made to hear what its rules say of the batch, and thrown away */
	struct held_message *held;             /* what plugins have said meanwhile */
	int quiet;                             /* what plugins warn of is not printed */
	struct hd_conf *conf;
	struct hd_err *err;
	struct hd_err own;
	struct hd_train_config config; /* [train] */
	struct hd_model model;
	int64_t ranks;
	int64_t node_size; /* ranks of a host; 0: unknown */
	int train;         /* 0: forward only */
	int64_t past;      /* positions whose keys and values are kept from run to run (passes/cache.c); 0: none */
	int64_t batch, micro_batch, replicas, micros; /* batch: of the graph = micro_batch x replicas */
	double model_flops; /* of the matrix products of a micro-batch of all replicas, whatever the layout repeats */
	int64_t loss_parts; /* at least so many parts of a micro-batch one after the other from logits on; 0: one */

	struct inst inst[HD_MAX_INSTANCES];
	int ninst;
	struct hd_slot slot;        /* that runs: guards calls made out of turn */
	const struct node *about;   /* what a pass works on: who made it is named where it fails; or NULL */
	struct inst *optimizer;     /* the instance whose optimizer updates, or NULL */
	const struct hd_host *host; /* what plugins call */

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
	struct axis *stages; /* the axis that blocks are dealt to, or NULL */
	int64_t chunks;

	struct tensor **tensors;
	size_t ntensors, cap_tensors;
	int64_t parameter_bytes; /* of those made so far, whole */
	struct node *first, *last;
	int nnodes;
	int numbered;         /* the numbers of nodes are right */
	struct cursor cursor; /* of new nodes */

	struct hd_schedule_unit **units;
	int *nunits;
	size_t *cap_units;
	int64_t ncoords; /* per coordinate of the stage axis */
	int separate_w;  /* the schedule has W units */
	/* When each unit begins and ends on paper; start is NULL: unknown (forward only). */
	struct hd_schedule_report timing;

	/* What the run reads or feeds; NULL: absent. */
	struct tensor *loss, *nll, *logits, *norm, *factor, *ids, *targets;
	struct tensor **moe_stats;
	size_t nmoe_stats,
		cap_moe_stats; /* sums of each layer of experts, in order (engine/models/decoder/experts.h) */
	struct arena_block *heap;
	struct hd_handle *handles; /* open addressing; cap_handles is a power of 2, or 0 */
	size_t nhandles, cap_handles;
	struct plan_index *index; /* for programs, once the graph is final (engine/program/plan_index.c) */
	uint32_t unlike_axes;     /* bit per axis: ranks differ along it; once the graph is final (members.c) */
	struct node_walk *walks;
	size_t nwalks, cap_walks; /* of node_next, not at their end: the innermost last */
	/* Dtype of masters, gradients and states: HD_DTYPE_F32; HD_DTYPE_F64 on the reference device. */
	uint32_t master_dtype;
	uint32_t compute_dtype; /* dtype of products' operands and activations: HD_DTYPE_BF16; 0: as `real` */
	int gelu;               /* products of `low` may take a gelu in */
	int own_memory;         /* the device has memory of its own: HD_SPACE_HOST is not HD_SPACE_DEVICE */
	int noted_space;        /* that it has none was said */
	int whole_logits;       /* unless train.loss_parts says something else */
	int residuals_apart;    /* the gradient of a norm neither adds that of the residual stream nor makes sums */
	int loss_apart;         /* logits are read once for their statistics, and again for their gradient */
	int own_loss;           /* slot rewrite changed what lies between nll and the loss */
	int separate;           /* a slope or sums are not made beside something else: the device cannot */
	uint64_t hash;
};

/* Something is under way behind it, and waited for later: between ranks, or between a device's memory and its host's. */
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
/* The node that makes t; NULL: a leaf */
static inline struct node *hd_maker(const struct tensor *t)
{
	return t->v.node ? N(t->v.node) : NULL;
}
/* n: may be NULL, which is nothing */
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
