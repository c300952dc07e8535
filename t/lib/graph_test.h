/* SPDX-License-Identifier: Apache-2.0
 * t/lib/graph_test.h - runs plans that are built by hand or from an INI, on the reference device in double.  One
 * process runs all ranks; several ranks need t/lib/sim_ranks.h.
 *
 *	struct hd_plan *p = gt_plan(2);				// two micro-batches; one replica
 *	hd_dim_get(p, "row", 3);
 *	struct tensor *w = gt_param(p, "w", "row");
 *	gt_build(p, gt_loss(p, hd_map_new(p, &w, 1, "exp(a)")));	// sum of the result times fixed weights; all arrows
 *	struct gt_run *r = gt_open(p, NULL);
 *	double loss = gt_compute(r), *g = gt_gradient(r, w, 0);
 *	gt_close(r);						// and the plan with it
 *
 * A failure in between is kept in the plan and makes gt_open return NULL; gt_why returns its text.
 */
#ifndef HD_T_LIB_GRAPH_TEST_H
#define HD_T_LIB_GRAPH_TEST_H
#include "engine/graph/traffic.h"
#include "engine/plan/plan.h"
#include "engine/run/run.h"

#define GT_RANKS 64

struct gt_run {
	struct hd_plan *plan;
	int n; /* ranks */
	struct hd_program *g[GT_RANKS];
	char *mem[GT_RANKS]; /* persistent, then transient */
	int64_t persistent;
	struct hd_run run;
	int64_t vocab; /* ids are below it */
};

struct hd_conf *gt_conf(const char *text); /* on failure NULL, and gt_why has the text */
struct hd_plan *gt_plan(int64_t micros);
struct hd_plan *gt_plan_of(const char *ini, int64_t ranks, uint32_t real); /* by hd_plan_create; on failure NULL */
void gt_plan_destroy(struct hd_plan *p); /* also destroys its conf, whose sections the plan refers to until the end */
const char *gt_why(void);

struct axis *gt_axis(struct hd_plan *p, const char *name, int64_t n);
struct tensor *gt_param(struct hd_plan *p, const char *name, const char *spec);
struct tensor *gt_loss(struct hd_plan *p, struct tensor *y);
int gt_build(struct hd_plan *p, struct tensor *nll); /* runs autodiff, place, lower, fuse, overlap, schedule */
int gt_lower(struct hd_plan *p);                     /* runs lower, fuse, overlap, schedule, for nodes placed by hand */

/* Builds and binds the programs of all ranks, and initialises parameters by name and global index (not to zero or one).
 * Returns NULL on failure. */
struct gt_run *gt_open(struct hd_plan *p, struct hd_communicator **(*members)(struct hd_plan *p, int64_t rank));
void gt_close(struct gt_run *r);
void gt_poison(struct gt_run *r);    /* all transient memory becomes NaN */
double gt_compute(struct gt_run *r); /* runs one rank; returns the loss */
int gt_fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out);
double *gt_address(struct gt_run *r, const struct tensor *t, int rank);
struct tensor *gt_gradient_of(const struct hd_plan *p, const struct tensor *param); /* the one that the update reads */
struct tensor *gt_param_named(const struct hd_plan *p, const char *name);

/* Compares gradients with central differences, for at most `entries` elements per parameter.  Returns the worst
 * |difference| divided by its tolerance (1 is the limit), whose parameter *where names; NaN if the run failed. */
double gt_differences(struct gt_run *r, int entries, const char **where);

#endif
