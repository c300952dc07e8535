/* SPDX-License-Identifier: Apache-2.0
 * t/lib/one_rank.h - compares a layout's run with one rank's: the loss, the gradient norm, and every gradient,
 * assembled from its shards.  Runs with t/lib/sim_ranks.h, in double on the reference device.  Included by one file of
 * a test, instead of that header.
 *
 *	one = gt_open(plan of one rank, NULL); gt_compute(one);
 *	like_one_rank(gt_open(plan of the layout, sim_members), "four ranks", "llama");		// one check
 */
#ifndef HD_T_LIB_ONE_RANK_H
#define HD_T_LIB_ONE_RANK_H
#include "t/lib/sim_ranks.h"
#include "t/lib/tap.h"
#include <float.h>

static struct gt_run *one; /* the run of one rank, for the present model */

/* Compares a rank's part of a gradient with the complete one.  Returns the worst difference, and the sum of squares in
 * *squares. */
static double compare_part(struct gt_run *r, const struct tensor *g, const struct tensor *whole, int rank,
			   double *squares)
{
	double *w = gt_address(one, whole, 0), *x = gt_address(r, g, rank), worst = 0;
	int64_t n = hd_local_count(g), off[HD_MAX_DIMS], have[HD_MAX_DIMS];

	*squares = 0;
	for (uint32_t d = 0; d < g->v.ndim; d++) {
		off[d] = hd_offset(r->plan, g, d, rank);
		have[d] = hd_elements_here(r->plan, g, d, rank);
	}
	for (int64_t i = 0; i < n; i++) {
		int64_t rest = i, global = 0, at[HD_MAX_DIMS], inside = 1;
		double off_by;

		for (uint32_t d = g->v.ndim; d-- > 0; rest /= g->local[d])
			at[d] = rest % g->local[d] + off[d];
		for (uint32_t d = 0; d < g->v.ndim; d++) {
			inside &= at[d] - off[d] < have[d];
			global = global * g->dims[d]->n + at[d];
		}
		off_by = fabs(x[i] - (inside ? w[global] : 0));
		*squares += off_by * off_by;
		if (!(off_by <= worst))
			worst = off_by;
	}
	return worst;
}

static double compare(struct gt_run *r, const struct tensor *g, const struct tensor *whole)
{
	double worst = 0, squares;

	for (int k = 0; k < r->n; k++) {
		double off = hd_tensor_here(r->g[k], g) ? compare_part(r, g, whole, k, &squares) : 0;

		if (!(off <= worst))
			worst = off;
	}
	return worst;
}

/* Returns the worst difference relative to the largest entry of all gradients, since a bias of the keys has a gradient
 * of mere rounding. */
static double all_gradients(struct gt_run *r, const char **where)
{
	double worst = 0, scale = 0;

	for (size_t i = 0; i < one->plan->ntensors; i++) {
		struct tensor *t = one->plan->tensors[i], *w, *g, *whole;
		double off;

		if (t->v.node || t->v.what != HD_TENSOR_PARAM)
			continue;
		whole = gt_gradient_of(one->plan, t);
		if (!whole) /* the bias of a router's choice has none */
			continue;
		for (int64_t k = 0; k < hd_global_count(t); k++)
			scale = fmax(scale, fabs(gt_address(one, whole, 0)[k]));
		w = gt_param_named(r->plan, t->v.name);
		g = w ? gt_gradient_of(r->plan, w) : NULL;
		off = g ? compare(r, g, whole) : NAN;
		if (!(off <= worst)) {
			worst = off;
			*where = t->v.name;
		}
	}
	return worst / scale;
}

/* Compares a scalar on each rank with that of one rank.  Returns the largest relative difference. */
static double worst_value(struct gt_run *r, const struct tensor *t, const struct tensor *whole)
{
	double want = *gt_address(one, whole, 0), worst = 0;

	for (int k = 0; k < r->n; k++) {
		double off = fabs(*gt_address(r, t, k) / want - 1);

		if (!(off <= worst))
			worst = off;
	}
	return worst;
}

/* In double, with sums of some hundred terms through a few layers, a different order of sums changes far less than
 * 1e-12. */
static void like_one_rank(struct gt_run *r, const char *name, const char *what)
{
	const char *why = r ? sim_compute(r) : gt_why(), *where = "";
	double off = why ? NAN : all_gradients(r, &where);
	double loss = why ? NAN : worst_value(r, r->plan->loss, one->plan->loss);
	double norm = why ? NAN : worst_value(r, r->plan->norm, one->plan->norm);

	if (!ok(off < 1e-12 && loss < 1e-12 && norm < 1e-12, "%s: loss, norm and gradients equal those of one rank, %s",
		name, what))
		note("%s: gradients differ by %g (%s), loss by %g, norm by %g", why ? why : "it ran", off, where, loss,
		     norm);
}

#endif
