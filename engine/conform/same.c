/* SPDX-License-Identifier: Apache-2.0
 * Compares a layout with one rank, in double: loss, gradient norm and every gradient. If the plugin keeps a state,
 * which is read from the second step on, three steps are compared. Their learning rate is 0, so that parameters do not
 * change.
 *
 * Bounds. Layouts differ only in the order of sums. A sum of n terms is off by at most n u times the sum of their
 * absolute values, u = 2^-53. A gradient has passed sums of layout_terms terms in all. The error is compared with the
 * largest entry of all gradients. A gradient that is zero up to rounding (a bias of the keys) is a sum of terms as
 * large as those of others. The value of a state has also passed the plugin's own arithmetic, which may divide by a
 * number close to zero. As in serial.c, half of the digits of a double is left for that. A mistake in a state changes a
 * gradient by a share of its size.
 */
#include <config.h>
#include "engine/conform/judge.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 0x1p-53
#define STEPS 3 /* steps if the plugin has states */
#define BOUND_OF_STATES 0x1p-26

static void forget_one(struct judge *j)
{
	hd_inprocess_close(j->one);
	free(j->one_ini);
	j->one = NULL;
	j->one_ini = NULL;
}

struct hd_inprocess *one_rank(struct judge *j, const struct layout *l, const struct hd_plan *like, struct hd_err *err)
{
	char *ini = layout_one_ini(j, l, like->batch);
	int planned;

	if (j->one && !strcmp(ini, j->one_ini)) {
		free(ini);
		return j->one;
	}
	forget_one(j);
	j->one_ini = ini;
	if (hd_inprocess_open(ini, 1, &j->one, &planned, err) >= 0 && hd_inprocess_step(j->one, err) < 0) {
		hd_inprocess_close(j->one);
		j->one = NULL;
	}
	return j->one;
}

struct worst {
	double off;
	char where[200];
};

static void worse(struct worst *w, double off, const char *where)
{
	if (off <= w->off)
		return;
	w->off = off;
	snprintf(w->where, sizeof(w->where), "%s", where);
}

/* Returns the relative error; both values may be 0. */
static double off_by(double got, double want)
{
	return got == want ? 0 : fabs(got / want - 1);
}

static void compare_scalars(struct hd_inprocess *one, struct hd_inprocess *r, struct worst *w)
{
	for (int k = 0; k < r->n; k++) {
		double loss = hd_inprocess_scalar(r, r->plan->loss, k), norm = hd_inprocess_scalar(r, r->plan->norm, k);
		double want = hd_inprocess_scalar(one, one->plan->loss, 0);

		worse(w, off_by(loss, want), "loss");
		want = hd_inprocess_scalar(one, one->plan->norm, 0);
		worse(w, off_by(norm, want), "gradient norm");
	}
}

static double largest(struct hd_inprocess *one)
{
	double scale = 0;

	for (size_t i = 0; i < one->plan->ntensors; i++) {
		const struct tensor *t = one->plan->tensors[i];
		const struct tensor *g =
			t->v.node || t->v.what != HD_TENSOR_PARAM ? NULL : hd_inprocess_gradient(one, t);
		const double *x = g ? hd_inprocess_address(one, g, 0) : NULL;

		for (int64_t k = 0; x && k < hd_local_count(g); k++)
			scale = fmax(scale, fabs(x[k]));
	}
	return scale;
}

/* NaN compares as false with everything, so it becomes infinity. */
static double finite_or_infinite(double x)
{
	return isnan(x) ? INFINITY : x;
}

/* Compares in the order of backward, because an error in a layer spreads to earlier ones. */
static void compare_gradients(struct hd_inprocess *one, struct hd_inprocess *r, double bound, struct worst *w)
{
	double scale = largest(one);

	for (size_t i = one->plan->ntensors; i-- > 0;) {
		const struct tensor *t = one->plan->tensors[i], *want, *mine, *g;
		double *a, *b = NULL, off = 0, member_difference = 0;

		if (t->v.node || t->v.what != HD_TENSOR_PARAM || !(want = hd_inprocess_gradient(one, t)))
			continue;
		mine = hd_inprocess_param(r, t->v.name);
		g = mine ? hd_inprocess_gradient(r, mine) : NULL;
		a = hd_inprocess_assemble(one, want, NULL, NULL);
		b = g ? hd_inprocess_assemble(r, g, NULL, &member_difference) : NULL;
		for (int64_t k = 0; a && b && k < hd_global_count(want); k++)
			off = !(fabs(a[k] - b[k]) <= off) ? fabs(a[k] - b[k]) : off;
		off = a && b ? fmax(off, member_difference) / scale : NAN;
		if (!(off <= bound) && (w->off <= bound || strncmp(w->where, "gradient of", 11))) {
			w->off = isnan(off) ? INFINITY : off;
			snprintf(w->where, sizeof(w->where), "gradient of %.150s", t->v.name);
		} else if (w->off <= bound) {
			worse(w, off, t->v.name);
		}
		free(a);
		free(b);
	}
}

/* If members have gradients of their own, only their weights agree. Compares the parameters after a step of SGD with lr
 * 1. The scale is the largest gradient or the parameter's largest value, whichever is larger, since both are
 * rounded. */
static int compare_updated(struct hd_inprocess *one, struct hd_inprocess *r, struct worst *w, struct hd_err *err)
{
	double scale = largest(one);

	one->run.lr = r->run.lr = 1;
	HD_TRY(hd_inprocess_update(one, err));
	HD_TRY(hd_inprocess_update(r, err));
	for (size_t i = 0; i < one->plan->ntensors; i++) {
		const struct tensor *t = one->plan->tensors[i], *mine = hd_inprocess_param(r, t->v.name);
		double *a, *b, off = 0, member_difference = 0, most = scale;

		if (t->v.node || t->v.what != HD_TENSOR_PARAM)
			continue;
		a = hd_inprocess_assemble(one, t, NULL, NULL);
		b = mine ? hd_inprocess_assemble(r, mine, NULL, &member_difference) : NULL;
		for (int64_t k = 0; a && b && k < hd_global_count(t); k++) {
			off = !(fabs(a[k] - b[k]) <= off) ? fabs(a[k] - b[k]) : off;
			most = fmax(most, fabs(a[k]));
		}
		worse(w, finite_or_infinite(a && b ? fmax(off, member_difference) / most : NAN), t->v.name);
		free(a);
		free(b);
	}
	return HD_OK;
}

static void judge_own_gradients(struct judge *j, struct hd_inprocess *one, struct hd_inprocess *r, struct outcome *o)
{
	double bound = UNIT * (double)layout_terms(r->plan);
	struct worst w = { 0 };
	struct hd_err err = { 0 };

	for (int k = 0; k < r->n; k++)
		worse(&w,
		      finite_or_infinite(fabs(hd_inprocess_scalar(r, r->plan->loss, k) /
						      hd_inprocess_scalar(one, one->plan->loss, 0) -
					      1)),
		      "loss");
	if (compare_updated(one, r, &w, &err) < 0)
		outcome_set(o, JUDGED_WRONG, "%s", err.text);
	else if (w.off > bound)
		outcome_set(o, JUDGED_WRONG,
			    "%s after an update (each member has its own gradients here) differs from one rank's by "
			    "%.3g; rounding explains %.3g (%lld sums in double)",
			    w.where, w.off, bound, (long long)layout_terms(r->plan));
	forget_one(j); /* its weights have changed */
}

static int has_states(const struct judge *j, const struct hd_plan *p)
{
	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];

		if (!t->v.node && t->v.what == HD_TENSOR_STATE && t->inst > 0 &&
		    p->inst[t->inst - 1].plugin == j->plugin)
			return 1;
	}
	return 0;
}

static int step_on(struct hd_inprocess *r, struct hd_err *err)
{
	r->run.lr = 0;
	HD_TRY(hd_inprocess_update(r, err));
	r->run.step++;
	return hd_inprocess_step(r, err);
}

static void compare_step(struct hd_inprocess *one, struct hd_inprocess *r, int step, struct outcome *o)
{
	double bound = step ? BOUND_OF_STATES : UNIT * (double)layout_terms(r->plan);
	struct worst w = { 0 };
	char *first, *why;

	compare_scalars(one, r, &w);
	w.off = finite_or_infinite(w.off);
	compare_gradients(one, r, bound, &w);
	if (w.off <= bound)
		return;
	first = first_difference(one, r, bound, largest(one));
	why = step ? hd_format(" in step %d, after updates with a learning rate of 0; %.3g is allowed", step + 1, bound)
		   : hd_format("; rounding explains %.3g (%lld sums in double)", bound,
			       (long long)layout_terms(r->plan));
	outcome_set(o, JUDGED_WRONG, "%s differs from one rank's by %.3g%s%s%s", w.where, w.off, why, first ? "\n" : "",
		    first ? first : "");
	free(first), free(why);
}

static void judge_states(struct judge *j, struct hd_inprocess *one, struct hd_inprocess *r, struct outcome *o)
{
	struct hd_err err = { 0 };

	for (int step = 1; step < STEPS && o->verdict == JUDGED_OK; step++)
		if (step_on(one, &err) < 0 || step_on(r, &err) < 0)
			outcome_set(o, JUDGED_WRONG, "step %d: %s", step + 1, err.text);
		else
			compare_step(one, r, step, o);
	forget_one(j);
}

/* Checks copies after an update, in a layout that equals one rank up to rounding. */
static void judge_copies(const struct hd_inprocess *r, struct outcome *o)
{
	char *differ = copies_differ(r);

	if (differ)
		outcome_set(o, JUDGED_WRONG, "%s", differ);
	free(differ);
}

static void update_all(struct hd_inprocess *r, struct outcome *o)
{
	struct hd_err err = { 0 };

	r->run.lr = 1;
	if (hd_inprocess_update(r, &err) < 0)
		outcome_set(o, JUDGED_WRONG, "%s", err.text);
}

static void judge_run(struct judge *j, const struct layout *l, struct hd_inprocess *r, struct outcome *o)
{
	struct hd_err err = { 0 };
	struct hd_inprocess *one = one_rank(j, l, r->plan, &err);

	if (!one) {
		outcome_set(o, JUDGED_WRONG, "one rank does not run: %s", err.text);
		return;
	}
	if (hd_inprocess_step(r, &err) < 0) {
		outcome_set(o, JUDGED_WRONG, "%s", err.text);
		return;
	}
	if (hd_plan_has_own_gradients(r->plan)) {
		judge_own_gradients(j, one, r, o);
	} else {
		compare_step(one, r, 0, o);
		if (o->verdict == JUDGED_OK && has_states(j, r->plan))
			judge_states(j, one, r, o);
		if (o->verdict == JUDGED_OK)
			update_all(r, o);
	}
	if (o->verdict == JUDGED_OK)
		judge_copies(r, o);
}

/* Returns 1 if the layout was refused. */
static int same_or_refused(struct judge *j, const struct layout *l, struct outcome *o)
{
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	char *ini = layout_ini(j, l);
	int planned, refused = 0;

	o->layout = *l;
	o->compared = hd_inprocess_open(ini, 0, &r, &planned, &err) >= 0;
	if (o->compared)
		judge_run(j, l, r, o);
	else if (planned)
		outcome_set(o, JUDGED_WRONG, "the plan is accepted, but its program is not: %s", err.text);
	else
		refused = outcome_refused(j, &err, o);
	hd_inprocess_close(r);
	free(ini);
	return refused;
}

/* Few layouts allow experts without a capacity. A layout that is refused with them is compared with a capacity
 * instead. */
static int same_layout(struct judge *j, const struct layout *l, const char *drawn, struct outcome *o)
{
	int refused = same_or_refused(j, l, o);
	struct outcome with = { 0 };
	struct layout limited = *l;
	char *text;

	limited.limited = 1;
	if (!refused || !family_has_experts(j, l->family) || same_or_refused(j, &limited, &with)) {
		free(with.why);
		return refused;
	}
	text = layout_text(j, &limited);
	free(o->why), free(o->name);
	*o = with;
	o->name = hd_format("equals one rank, %s%s", drawn, text);
	free(text);
	return 0;
}

static void same(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	same_layout(j, t->layout, "", o);
}

#define DRAWS 10

/* Draws layouts until one is accepted, since only the plugins know what divides and which combinations work. Name and
 * reason are those of the last. */
static void same_drawn(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	int refused = 1;
	char *before = NULL;

	for (int again = 0; again < DRAWS && refused; again++) {
		struct layout *l = layout_draw(j, t->layout->family, t->number, again);
		char *text = layout_text(j, l), *drawn = hd_format("drawn %lld, ", (long long)t->number);

		free(o->why), free(o->name);
		*o = (struct outcome){ 0 };
		o->name = hd_format("equals one rank, %s%s", drawn, text);
		refused = same_layout(j, l, drawn, o);
		if (refused && again + 1 < DRAWS)
			hd_append(&before, "%s %s", before ? ";" : "", text);
		free(text), free(drawn);
		free(l);
	}
	if (refused) {
		char *why = o->why;

		o->why = NULL;
		outcome_set(o, JUDGED_SKIPPED, "%s (drawn before, and refused too:%s)", why, before);
		free(why);
	}
	free(before);
}

static void add(struct judge *j, struct layout *l)
{
	char *text = layout_text(j, l);

	judge_add(j, same, l, 0, "equals one rank, %s", text);
	free(text);
}

void same_add(struct judge *j)
{
	for (int f = families_first(j); f < families_end(j); f++) {
		layouts_fixed(j, f, add);
		for (int64_t i = 0; i < j->options.layouts; i++)
			judge_add(j, same_drawn, layout_alone(f, 0), j->options.from + i,
				  "equals one rank, drawn %lld, %s", (long long)(j->options.from + i),
				  family_name(j, f));
	}
}
