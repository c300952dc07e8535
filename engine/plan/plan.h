/* SPDX-License-Identifier: Apache-2.0
 * engine/plan/plan.h - the plan: one layout of one model, from the logical graph to the placed and lowered one.
 *
 * Every view that plugins see (heddle/graph.h, heddle/host.h) is the first member of the engine's own struct, so a handle
 * is cast back without a table.  The plan describes all ranks at once; program.h cuts it for one.
 *
 *   model graph -> precision -> autodiff -> schedule -> (homes) -> place + reshard -> lower -> fuse       doc/architecture.md
 */
#ifndef HD_ENGINE_PLAN_H
#define HD_ENGINE_PLAN_H
#include <stdio.h>
#include <heddle/strategy.h>
#include "engine/config/train_config.h"
#include "engine/models/model.h"
#include "engine/plugin/registry.h"
#include "engine/passes/schedule_check.h"

struct dim {
	struct hd_dim v;
	int64_t padded;			/* extent in memory: >= v.n, divides by all axes that cut it */
	int id, inst;			/* inst: of the instance that made it (its name is local), or -1 */
};
struct axis {
	struct hd_axis v;
	int id, inst;
	int64_t stride;			/* ranks between neighbours on this axis */
};
struct group {
	struct hd_group v;
	struct axis *axes[HD_MAX_AXES];
	uint32_t n, role;
	int id;
	char *name;			/* "outer", "outer+inner" */
};

struct placement { struct hd_place on[HD_MAX_AXES]; };

struct tensor {
	struct hd_tensor v;
	struct hd_plan *plan;
	const struct hd_dim *dims[HD_MAX_DIMS];
	int64_t local[HD_MAX_DIMS];
	char *spec;
	struct placement at;
	const struct hd_dim *summed[HD_MAX_AXES];	/* partial there: the dim whose contraction made it so */
	int id, out;			/* out: which output of the maker */
	int placed;
	struct placement home;		/* leaves: asked for by slot homes */
	uint32_t homed;			/* bit per axis: home.on[axis] is set */
	uint32_t relayout;		/* states of plugins: HD_FOLD ... */
	int step;			/* 1: one per step (parameters, accumulators, what sync and update make); 0: one per micro-batch */
	int decay, init;		/* parameters: weight decay applies; enum hd_init */
	int decided;			/* parameters: what they are in is settled (precision.c) */
	struct tensor *master;		/* parameters of low precision, in training: the leaf that is updated */
	double init_std;
	struct tensor *assign;		/* leaves: the value it takes at the end of the step */
	int assigned;			/* it may be the value that a leaf takes: hd_assign */
	struct node **users; size_t nusers, cap_users;	/* may read it: each that ever did */
	struct tensor *with;		/* replaced by it, or NULL */
	struct tensor *twin;		/* data: the leaf that this is a copy of in another place */
	/* (expert, batch, slot, ...) of which only the rows are stored that are in use: first by expert, then by sample.  rows:
	 * how many of each (expert, batch), known in a step; most: at most so many of a (batch, slot).  NULL, 0: dense. */
	struct tensor *rows;
	int64_t most;
};

struct wait { struct wait *next; struct tensor *on; };

struct comm_args {
	uint32_t kind;			/* 0: no communication */
	struct group *group;
	int64_t index;
};

struct node {
	struct hd_node v;
	struct hd_plan *plan;
	struct node *prev, *next;	/* program order */
	struct tensor **ins, **outs;
	struct hd_reshard reshard;
	struct comm_args comm;
	char *attr, *reason;
	int id, block;			/* block: index in plan->blocks, or -1 */
	int inst;			/* of the plugin whose op this is, or -1 */
	int by;				/* instance in whose slot it was made, or -1 */
	int placed, dead, mark;
	struct hd_pos pos;		/* chunk, join, pick */
	int64_t parts;
	const struct hd_dim *along;
	struct group *queue;		/* NULL: compute */
	struct wait *waits;		/* starts when these are done (struct hd_graph_api, after) */
	const struct node *again;	/* backward's copy of this node of forward (remake.c), placed as that one is */
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
	int64_t coord;			/* on the stage axis */
	int64_t chunk;
};

struct inst {				/* an instance of a plugin: one [strategy NAME] */
	const char *name;
	struct hd_section *section;
	const struct hd_plugin_entry *plugin;
	struct hd_strategy *self;
	int open;
};

struct hd_plan {
	struct hd_conf *conf;
	struct hd_err *err;
	struct hd_err own;
	struct hd_train_config config;	/* [train] */
	struct hd_model model;
	int64_t ranks;
	int64_t node_size;		/* ranks of a host; 0: nobody knows */
	int train;			/* 0: forward only */
	int64_t batch, micro_batch, replicas, micros;	/* batch: of the graph = micro_batch x replicas */

	struct inst inst[HD_MAX_AXES];
	int ninst, cur;			/* cur: the instance whose slot or op runs, or -1 */
	const char *slot;		/* which slot runs: guards calls made out of turn */

	struct dim **dims; size_t ndims, cap_dims;
	struct axis *axes[HD_MAX_AXES]; int naxes;
	struct group **groups; size_t ngroups, cap_groups;
	struct rule *rules; size_t nrules, cap_rules;
	struct block *blocks; size_t nblocks, cap_blocks;
	struct axis *stages;		/* the axis that blocks are dealt to, or NULL */
	int64_t chunks;

	struct tensor **tensors; size_t ntensors, cap_tensors;
	struct node *first, *last, *anchor;	/* anchor: new nodes stand before it; NULL: at the end */
	int nnodes;
	int block;			/* of new nodes */
	uint32_t phase;
	struct group *queue;
	char *reason;

	struct hd_unit **units; int *nunits; size_t *cap_units; int64_t ncoords;	/* per coordinate of the stage axis */
	int separate_w;			/* the schedule has W units */
	struct hd_schedule_report timing;	/* when each unit begins and ends on paper; start is NULL: nobody knows (forward only) */

	struct tensor *loss, *nll, *logits, *norm, *factor, *ids, *targets;	/* what the run reads or feeds; NULL: absent */
	struct tensor **stats; size_t nstats, cap_stats;	/* sums of each layer of experts, in order (engine/graph/experts.h) */
	struct arena_block *heap;
	struct node ***readers;		/* by tensor id: NULL-terminated; once the graph is final (alias.c) */
	int walk_limit;			/* node_next returns no node made during the walk */
	struct made *made;		/* reshards so far (reshard.c) */
	uint32_t real;			/* dtype of masters, gradients and states: HD_F32; HD_F64 on the reference device */
	uint32_t low;			/* dtype of products' operands and activations: HD_BF16; 0: as `real` */
	int gelu;			/* products of `low` may take a gelu in */
	uint64_t hash;
};

static inline struct tensor *T(const struct hd_tensor *t) { return (struct tensor *)(uintptr_t)t; }
static inline struct node *N(const struct hd_node *n) { return (struct node *)(uintptr_t)n; }
static inline struct axis *A(const struct hd_axis *a) { return (struct axis *)(uintptr_t)a; }
static inline struct dim *D(const struct hd_dim *d) { return (struct dim *)(uintptr_t)d; }
static inline struct group *G(const struct hd_group *g) { return (struct group *)(uintptr_t)g; }

/* -- plan.c: the whole way ------------------------------------------------------------------------------------------- */
struct hd_plan_options {
	int64_t ranks;
	int train;			/* 1: with backward and update; 0: forward only */
	int generate;			/* logits of one position instead of the loss */
	int64_t global_batch;		/* 0: train.global_batch; else one of its ramp's sizes */
	int64_t data_vocab;		/* what the data say of the vocabulary; 0: nothing */
	uint32_t real;			/* 0: HD_F32 */
	uint32_t low;			/* HD_BF16: activations and what products read; 0: all is `real` */
	int gelu;			/* the device has products of bf16 that take a gelu in (kernel einsum_gelu) */
	int64_t node_size;		/* ranks of a host; 0: nobody knows, or not the same on all */
	int64_t *needs;			/* if not NULL: the ranks of the layout, where they are not `ranks` */
};
int hd_plan_create(struct hd_conf *c, const struct hd_plan_options *o, struct hd_plan **out, struct hd_err *err);
void hd_plan_destroy(struct hd_plan *p);
int hd_plan_sections(struct hd_conf *c, struct hd_err *err);	/* has the INI sections that nobody reads? */
void *hd_plan_alloc(struct hd_plan *p, size_t bytes);		/* zeroed, freed with the plan */
char *hd_plan_text(struct hd_plan *p, const char *fmt, ...) HD_PRINTF(2, 3);
int hd_slot_returned(struct hd_plan *p, int rc);		/* refuses codes that are none, and failures without a text */
int hd_plan_fail(struct hd_plan *p, int code, const char *fmt, ...) HD_PRINTF(3, 4);
int hd_inst_fail(struct hd_plan *p, int who, int code, const char *text);	/* of that section: "KEY: ..." is said of the key's line */
const char *hd_axis_key(const struct hd_plan *p, const struct hd_axis *axis);	/* the key of its section that says its size */
int64_t hd_plan_coord(const struct hd_plan *p, int64_t rank, const struct axis *a);

/* -- graph.c ---------------------------------------------------------------------------------------------------------- */
const struct hd_dim *hd_dim_get(struct hd_plan *p, const char *name, int64_t n);	/* made if absent and n > 0 */
struct tensor *hd_tensor_new(struct hd_plan *p, const char *name, uint32_t what, uint32_t dtype,
			     const struct hd_dim *const *dims, uint32_t ndim);
struct tensor *hd_leaf(struct hd_plan *p, const char *name, uint32_t what, uint32_t dtype, const char *spec);
struct node *hd_node_new(struct hd_plan *p, const struct hd_op *op, struct tensor *const *ins, uint32_t nin, const char *attr);
struct node *hd_node_make(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin, const char *fmt, ...)
	HD_PRINTF(5, 6);
struct node *hd_node_again(struct hd_plan *p, const struct node *n, struct tensor *const *ins);	/* the same of other operands */
void hd_node_insert(struct hd_plan *p, struct node *n);
void hd_node_move(struct hd_plan *p, struct node *n, struct node *before);
int hd_node_adopt(struct hd_plan *p, struct node *n, const struct hd_shape *outs, uint32_t nout);
/* Inputs are set with these two only. */
void hd_set_input(struct hd_plan *p, struct node *n, uint32_t i, struct tensor *t);
void hd_set_inputs(struct hd_plan *p, struct node *n, struct tensor *const *ins, uint32_t nin);
int hd_check_users(struct hd_plan *p);
void hd_assign(struct tensor *leaf, struct tensor *value);	/* it takes value at the end of the step; NULL: stays */
void hd_replace(struct hd_plan *p, struct tensor *old, struct tensor *with);
void hd_drop_dead(struct hd_plan *p);
const struct hd_op *hd_op_find(const char *name);
int hd_has_dim(const struct tensor *t, const struct hd_dim *d);
int64_t hd_local_count(const struct tensor *t);
int64_t hd_local_bytes(const struct tensor *t);
/* Of a tensor of rows that are counted: at most so many on a rank; so many if experts are chosen equally; elements of one. */
int64_t hd_rows_most(const struct tensor *t);
double hd_rows_balanced(const struct tensor *t);
int64_t hd_row_count(const struct tensor *t);
int64_t hd_whole_count(const struct tensor *t);
int hd_block_begin(struct hd_plan *p, const char *name);
/* Short builders for models: NULL in, NULL out. */
struct tensor *hd_einsum(struct hd_plan *p, struct tensor *a, struct tensor *b, const char *spec);
struct tensor *hd_map(struct hd_plan *p, struct tensor *const *ins, uint32_t nin, const char *expr);
struct tensor *hd_op1(struct hd_plan *p, const char *op, struct tensor *const *ins, uint32_t nin, const char *fmt, ...)
	HD_PRINTF(5, 6);
/* A parameter, with weight decay if it has two or more dims; init: enum hd_init.  And one that exists already, by name. */
struct tensor *hd_param(struct hd_plan *p, const char *name, const char *spec, int init, double std);
struct tensor *hd_param_find(struct hd_plan *p, const char *name);
uint32_t hd_parse_dims(struct hd_plan *p, const char *spec, const struct hd_dim **dims);

double hd_root(double x);		/* sqrt, exact; without libm's header in model files */

/* -- the arrows ------------------------------------------------------------------------------------------------------- */
int hd_precision(struct hd_plan *p);		/* what is of low precision; may be called again after changes */
int hd_autodiff(struct hd_plan *p);		/* backward nodes, accumulators, sync, norm, update */
int hd_phases(struct hd_plan *p);		/* ops that a rule cuts along what they may not cut, in parts that may */
int hd_remake(struct hd_plan *p);		/* what is made again in backward instead of kept (train.recompute) */
int hd_place_leaves(struct hd_plan *p);		/* a leaf lives where its first use needs it */
int hd_place(struct hd_plan *p);		/* placements of all nodes; reshards appear */
struct tensor *hd_reshard(struct hd_plan *p, struct tensor *x, const struct placement *need, struct node *reader);
int hd_made_whole(const struct hd_plan *p, const struct tensor *x, const struct axis *a);
struct tensor *hd_reshard_step(struct hd_plan *p, struct tensor *x, struct axis *a, const struct hd_place *to);
int hd_order(struct hd_plan *p);		/* readers behind makers, whatever plugins have replaced */
int hd_lower(struct hd_plan *p);		/* the reshards that no plugin took become communication */
int hd_fuse(struct hd_plan *p);			/* adds into products, and the like */
int hd_overlap(struct hd_plan *p);		/* weight gradients are computed beside collectives */
int hd_schedule(struct hd_plan *p);		/* units per coordinate, checked */

struct hd_unit_times { double *f, *b, *w; int64_t parts; };	/* seconds, by position in the model's order */
int hd_unit_times_read(const struct hd_plan *p, const char *path, struct hd_unit_times *t, struct hd_err *err);	/* from a trace */
void hd_unit_times_release(struct hd_unit_times *t);
int64_t hd_plan_parts(const struct hd_plan *p);	/* chunks that hold blocks, of all stages */
void hd_plan_draw(const struct hd_plan *p, const struct hd_unit_times *t, FILE *f);	/* the units of each stage in time; t: or NULL, by counts */
double hd_plan_bubble(const struct hd_plan *p);	/* idle over busy time of the busiest stage, in unit counts */

/* -- placements ------------------------------------------------------------------------------------------------------- */
int hd_place_equal(const struct hd_place *a, const struct hd_place *b);
int hd_placement_equal(const struct hd_plan *p, const struct placement *a, const struct placement *b);
const struct hd_dim *hd_cut_by_rules(const struct hd_plan *p, const struct node *n, const struct axis *a);	/* or NULL */
void hd_localize(struct hd_plan *p, struct tensor *t);		/* local extents from the placement */
int hd_cut_order(const struct hd_plan *p, const struct placement *at, const struct hd_dim *d, int axes[HD_MAX_AXES]);	/* outer first */
const char *hd_placement_text(struct hd_plan *p, const struct placement *at);
/* Stage of a node on the stage axis; -1: it has none. */
int64_t hd_node_stage(const struct hd_plan *p, const struct node *n);
int64_t hd_offset(const struct hd_plan *p, const struct tensor *t, uint32_t dim, int64_t rank);	/* global index of its first element */

uint32_t hd_precision_asked(const struct hd_train_config *t, int cuda);	/* for hd_plan_options.low, of a run on this kind of device */
uint32_t hd_gradient_dtype(const struct hd_plan *p, const struct hd_tensor *x);
const char *hd_gradient_attr(const struct hd_tensor *dout, const struct hd_tensor *x);	/* "" or " fp32=1" */

extern const struct hd_host hd_host_table;
extern const struct hd_graph_api hd_graph_table;
extern const struct hd_record_api hd_record_table;
struct tensor *hd_build_comm(struct hd_plan *p, uint32_t kind, struct group *g, struct tensor *x, const struct hd_dim *dim,
			     int64_t index);
struct group *hd_group_get(struct hd_plan *p, struct axis *const *axes, uint32_t n, uint32_t role);
int64_t hd_comm_node_bytes(const struct node *n);	/* sent by the busiest member, once; of rows: if choices are equal */
int64_t hd_comm_node_sent(const struct hd_plan *p, const struct node *n, int64_t rank);	/* the same, by this rank */
int64_t hd_comm_node_largest(const struct node *n);	/* by the busiest, at most */
const struct tensor *hd_comm_node_subject(const struct node *n);	/* what a movement moves: its operand, as the model made it */
const char *hd_comm_node_subject_name(const struct node *n);	/* or that of the op which made it */

#endif
