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

int hd_pass_precision(struct hd_plan *p); /* what is of low precision; may be called again after changes */
int hd_pass_cache(struct hd_plan *p);     /* cache.c */
int hd_pass_autodiff(struct hd_plan *p);  /* backward nodes, accumulators, sync, norm, update */
int hd_pass_decompose(struct hd_plan *p); /* ops that a rule cuts along what they may not cut, in parts that may */
int hd_pass_schedule(struct hd_plan *p);  /* units per coordinate, checked */
/* Activations that backward computes again instead of keeping them (train.recompute). */
int hd_pass_recompute(struct hd_plan *p);
int hd_is_recomputed_by_choice(const struct node *n); /* of selective, beside what is cheap */
int hd_pass_place_leaves(struct hd_plan *p);          /* a leaf lives where its first use needs it */
int hd_pass_place(struct hd_plan *p);                 /* placements of all nodes; reshards appear */
int hd_pass_offload(struct hd_plan *p);               /* updates whose states are in host memory */
int hd_pass_pulls(struct hd_plan *p);    /* what servers update, workers get at the start of the next step */
int hd_pass_toposort(struct hd_plan *p); /* readers behind makers, whatever plugins have replaced */
int hd_pass_lower(struct hd_plan *p);    /* the reshards that no plugin took become communication */
int hd_pass_fuse(struct hd_plan *p);     /* adds into products, and the like */
int hd_pass_overlap(struct hd_plan *p);  /* weight gradients are computed beside collectives */

/* -- precision.c */
struct tensor *hd_master_new(struct hd_plan *p, struct tensor *w); /* what is updated in place of the parameter */
/* For hd_plan_options.low, of a run on this kind of device. */
uint32_t hd_precision_asked(const struct hd_train_config *t, int cuda);

/* -- reshard.c */
struct tensor *hd_reshard_to(struct hd_plan *p, struct tensor *x, const struct placement *need, struct node *reader);
struct tensor *hd_reshard_step(struct hd_plan *p, struct tensor *x, struct axis *a, const struct hd_place *to);
int hd_made_replicated(const struct tensor *x, const struct axis *a);

/* -- schedule.c */
struct hd_unit_times {
	double *f, *b, *w;
	int64_t parts;
};                                              /* seconds, by position in the model's order */
int64_t hd_plan_parts(const struct hd_plan *p); /* chunks that hold blocks, of all stages */
/* The units of each stage in time; t: or NULL, by counts of layers. */
void hd_plan_draw(const struct hd_plan *p, const struct hd_unit_times *t, FILE *f);
double hd_plan_bubble(
	const struct hd_plan *p); /* idle over busy time of the busiest stage; a unit takes as long as its layers */

/* -- members.c: nodes that some members run ------------------------------------------------------------------------------ */
int hd_check_members(struct hd_plan *p); /* each reads what its members have; sets unlike_axes */
/* Ranks in classes.  The ranks of a class run the same nodes, and differ in pieces of tensors alone.  Coordinates on `axes`
 * (bit per axis: that of the stages, and those of nodes that some members run) say which class. They are numbered, and a
 * number stands for all ranks that have them, the one whose other coordinates are 0 first. */
struct hd_classes {
	uint32_t axes;
	int64_t n, nranks;
	int64_t *ranks; /* by number: the rank whose other coordinates are 0 */
	int64_t *of;    /* by number: its class */
	int64_t *first; /* by class: its first number */
};
void hd_classes_find(const struct hd_plan *p, struct hd_classes *c);
void hd_classes_release(struct hd_classes *c);
int64_t hd_coords_count(const struct hd_plan *p, uint32_t axes); /* coordinates on these axes */
/* Of coordinates number k on these axes, 0 on all others. */
int64_t hd_coords_rank(const struct hd_plan *p, uint32_t axes, int64_t k);
/* Of a stage's ranks, if they differ, the one that computes most: of all of them, or of some across the mesh. */
int64_t hd_busiest_rank(const struct hd_plan *p, int64_t stage);

#endif
