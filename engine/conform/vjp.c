/* SPDX-License-Identifier: Apache-2.0
 * Compares gradients with central differences of the loss, in double, if the plugin has ops of its own or slot rewrite.
 * The vjp of an op must be the derivative of what it computes, and the rewritten graph must be the one that is
 * differentiated.
 */
#include <config.h>
#include "engine/conform/judge.h"
#include "engine/run/job.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES 2 /* entries per parameter */

static struct hd_inprocess *begin(const struct judge *j, const char *ini, struct outcome *o)
{
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	int planned;

	if (hd_inprocess_open(ini, 0, &r, &planned, &err) >= 0)
		return r;
	if (planned)
		outcome_set(o, JUDGED_WRONG, "%s", err.text);
	else
		outcome_refused(j, &err, o);
	return NULL;
}

static const struct node *next_of(const struct hd_plan *p, const struct node *n, const char *plugin)
{
	while (n && (n->inst < 0 || strcmp(p->inst[n->inst].plugin->name, plugin)))
		n = n->next;
	return n;
}

/* Lists the plugin's ops in the graph, each once, for the message. */
static char *ops_of(const struct hd_plan *p, const char *plugin)
{
	const struct node *first = next_of(p, p->first, plugin), *same;
	char *text = NULL;

	for (const struct node *n = first; n; n = next_of(p, n->next, plugin)) {
		for (same = first; same->v.op != n->v.op; same = next_of(p, same->next, plugin))
			;
		if (same == n)
			hd_append(&text, "%s%s", text ? ", " : "", n->v.op->name);
	}
	return text;
}

struct nudging {
	double *w, by;
	int64_t at;
};

static void nudge_run(void *ctx, int64_t global, int64_t local, int64_t count)
{
	const struct nudging *u = ctx;

	if (u->at >= global && u->at < global + count)
		u->w[local + u->at - global] += u->by;
}

/* Changes one element in all its copies. */
static void nudge(struct hd_inprocess *r, const struct tensor *t, int64_t at, double by)
{
	for (int k = 0; k < r->n; k++) {
		struct nudging u = { hd_inprocess_address(r, t, k), by, at };

		if (u.w)
			hd_slice_runs(r->program[k], t, nudge_run, &u);
	}
}

/* Returns the function whose slopes the gradients are. A router also has auxiliary losses, which the loss of a step
 * leaves out. Their sums are over tokens, like that of the loss. */
static double objective_of(const struct hd_inprocess *r)
{
	const struct hd_plan *p = r->plan;
	double sum = loss_of(r);

	for (size_t i = 0; i < p->nmoe_stats; i++) {
		const double *x = NULL;

		for (int k = 0; k < r->n && !x; k++) /* each stage has those of its own layers */
			x = hd_inprocess_address(r, p->moe_stats[i], k);
		sum += x ? p->model.aux_loss * x[0] + p->model.z_loss * x[1] : 0;
	}
	return sum;
}

static double loss_at(struct hd_inprocess *r, const struct tensor *t, int64_t at, double by)
{
	struct hd_err err = { 0 };
	double loss = NAN;

	nudge(r, t, at, by);
	if (hd_inprocess_step(r, &err) >= 0)
		loss = objective_of(r);
	nudge(r, t, at, -by);
	return loss;
}

/* The error of (L(x + h) - L(x - h)) / 2h is eps |L| / h by rounding, and h^2 |L'''| / 6 by truncation. With h =
 * eps^(1/3) both are eps^(2/3) times the scale of L and of its derivatives, 4e-11. The factor 300 allows for third
 * derivatives and sums of many terms. */
static double worst_of(struct hd_inprocess *r, const struct tensor *t, const double *g, double scale, double *want)
{
	double h = cbrt(DBL_EPSILON), worst = 0;
	int64_t n = hd_global_count(t), step = n > ENTRIES ? n / ENTRIES : 1;

	for (int64_t k = n > ENTRIES ? t->id % step : 0; k < n; k += step) {
		double slope = (loss_at(r, t, k, h) - loss_at(r, t, k, -h)) / (2 * h) * r->run.loss_scale;
		double off = fabs(slope - g[k]) / (300 * h * h * scale);

		if (!(off <= worst)) {
			worst = isnan(off) ? INFINITY : off;
			want[0] = slope;
			want[1] = g[k];
		}
	}
	return worst;
}

static void differences(struct hd_inprocess *r, const char *ops, struct outcome *o)
{
	struct hd_err err = { 0 };
	struct tensor **params = r->plan->tensors;
	double **gradients = hd_alloc(r->plan->ntensors * sizeof(double *)), scale, value[2];

	if (hd_inprocess_step(r, &err) < 0) {
		outcome_set(o, JUDGED_WRONG, "%s", err.text);
		free(gradients);
		return;
	}
	scale = (1 + fabs(loss_of(r))) * r->run.loss_scale;
	for (size_t i = 0; i < r->plan->ntensors; i++) {
		const struct tensor *t = params[i];
		const struct tensor *g = t->v.node || t->v.what != HD_TENSOR_PARAM ? NULL : hd_inprocess_gradient(r, t);

		gradients[i] = g ? hd_inprocess_assemble(r, g, NULL, NULL) : NULL;
		for (int64_t k = 0; gradients[i] && k < hd_global_count(t); k++)
			scale = fmax(scale, fabs(gradients[i][k]));
	}
	for (size_t i = r->plan->ntensors; i-- > 0 && o->verdict == JUDGED_OK;)
		if (gradients[i] && worst_of(r, params[i], gradients[i], scale, value) > 1)
			outcome_set(o, JUDGED_WRONG,
				    "the gradient of %s is %.9g; the finite difference of the loss is %.9g\n"
				    "it is the first wrong one in the order of backward; %s%s",
				    params[i]->v.name, value[1], value[0],
				    ops ? "the plugin's ops are " : "the plugin changes the graph in slot rewrite",
				    ops ? ops : "");
	for (size_t i = 0; i < r->plan->ntensors; i++)
		free(gradients[i]);
	free(gradients);
}

static void vjp(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	char *ini = layout_ini(j, t->layout), *ops;
	struct hd_inprocess *r = begin(j, ini, o);

	ops = r ? ops_of(r->plan, j->plugin->name) : NULL;
	if (r && !ops && !j->plugin->rewrites)
		outcome_set(o, JUDGED_SKIPPED, "it has no ops of its own and no slot rewrite");
	else if (r)
		differences(r, ops, o);
	free(ops);
	free(ini);
	hd_inprocess_close(r);
}

void vjps_add(struct judge *j)
{
	for (int f = families_first(j); f < families_end(j); f++) {
		struct layout *l = layout_alone(f, j->axes ? 2 : 0);
		char *text;

		l->layers = 2;
		text = layout_text(j, l);
		judge_add(j, vjp, l, 0, "gradients are slopes of the loss, %s", text);
		free(text);
	}
}
