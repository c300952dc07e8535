/* SPDX-License-Identifier: Apache-2.0
 * engine/passes/passes.h - the passes over the graph of a plan, in the order in which they run (doc/architecture.md).
 */
#ifndef HD_ENGINE_PASSES_H
#define HD_ENGINE_PASSES_H
#include <stdio.h>
#include "engine/graph/graph.h"
#include "engine/graph/mesh.h"
#include "engine/graph/placement.h"
#include "engine/ops/build.h"

/* Decides which tensors are in low precision; may run again after the graph has changed. */
int hd_pass_precision(struct hd_plan *p);
int hd_pass_cache(struct hd_plan *p); /* generation with a cache of keys and values */
/* For a plan with a cache: sets p->reads_other_tokens if a node does not compute each token by itself. */
void hd_find_reader_of_other_tokens(struct hd_plan *p);
int hd_pass_autodiff(struct hd_plan *p); /* backward nodes, accumulators, sync, norm, update */
/* Splits ops that a rule shards along a dim that they may not shard into phases that may. */
int hd_pass_decompose(struct hd_plan *p);
int hd_pass_schedule(struct hd_plan *p); /* orders the units of each stage, and checks the order */
/* Copies the nodes whose results backward recomputes instead of keeping them (train.recompute). */
int hd_pass_recompute(struct hd_plan *p);
/* Whether train.recompute = selective adds it to the cheap ops. */
int hd_is_recomputed_by_choice(const struct node *n);
int hd_pass_place_leaves(struct hd_plan *p); /* places each leaf where its first reader needs it */
int hd_pass_place(struct hd_plan *p);        /* places all nodes, and inserts reshards */
/* Copies operands and results of updates whose states are in host memory. */
int hd_pass_offload(struct hd_plan *p);
/* Workers get the parameters that servers update at the start of the next step. */
int hd_pass_pulls(struct hd_plan *p);
/* Moves readers after the nodes that compute their operands, since plugins may have replaced these by later ones. */
int hd_pass_toposort(struct hd_plan *p);
int hd_pass_lower(struct hd_plan *p);   /* turns the reshards that no plugin replaced into communication */
int hd_pass_fuse(struct hd_plan *p);    /* fuses additions into products, and the like */
int hd_pass_overlap(struct hd_plan *p); /* computes weight gradients while collectives are in flight */

/* -- precision.c */
/* The leaf that is updated instead of the parameter. */
struct tensor *hd_master_new(struct hd_plan *p, struct tensor *w);
/* Returns hd_plan_options.compute_dtype for a run on this kind of device. */
uint32_t hd_precision_asked(const struct hd_train_config *t, int cuda);

/* -- reshard.c */
struct tensor *hd_reshard_to(struct hd_plan *p, struct tensor *x, const struct placement *need, struct node *reader);
struct tensor *hd_reshard_step(struct hd_plan *p, struct tensor *x, struct axis *a, const struct hd_place *to);
int hd_made_replicated(const struct tensor *x, const struct axis *a);

/* -- schedule.c */
struct hd_unit_times {
	double *f, *b, *w;
	int64_t parts;
};                                              /* seconds, indexed by position in the model's order */
int64_t hd_plan_parts(const struct hd_plan *p); /* number of chunks that hold blocks, over all stages */
/* Draws the units of each stage over time.  t: measured times, or NULL: a unit's time is proportional to its number of
 * layers. */
void hd_plan_draw(const struct hd_plan *p, const struct hd_unit_times *t, FILE *f);
/* Returns idle over busy time of the busiest stage. A unit takes as long as its layers. */
double hd_plan_bubble(const struct hd_plan *p);

/* -- members.c: nodes that some members run ------------------------------------------------------------------------------ */
/* Checks that each node reads only what its members hold; sets unlike_axes. */
int hd_check_members(struct hd_plan *p);
/* Classes of ranks.  All ranks of a class run the same nodes; only the shards that they hold differ.  The class depends
 * on the coordinates on `axes` alone (one bit per axis): the axis of the stages, and the axes of nodes that only some
 * members run.  Each combination of these coordinates has a number.  A number stands for all ranks that have them; its
 * representative is the one whose other coordinates are 0. */
struct hd_classes {
	uint32_t axes;
	int64_t n, nranks;
	int64_t *ranks; /* by number: the representative */
	int64_t *of;    /* by number: its class */
	int64_t *first; /* by class: its first number */
};
void hd_classes_find(const struct hd_plan *p, struct hd_classes *c);
void hd_classes_release(struct hd_classes *c);
int64_t hd_coords_count(const struct hd_plan *p, uint32_t axes); /* combinations of coordinates on these axes */
/* Returns the rank with combination number k of coordinates on these axes, and 0 on all others. */
int64_t hd_coords_rank(const struct hd_plan *p, uint32_t axes, int64_t k);
/* Returns the rank of a stage that computes most, if its ranks differ.  Of many ranks only a sample across the mesh is
 * compared. */
int64_t hd_busiest_rank(const struct hd_plan *p, int64_t stage);

#endif
