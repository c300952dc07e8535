/* SPDX-License-Identifier: Apache-2.0
 * A plugin's optimizer.  What it should compute only its author knows, but any optimizer obeys this:
 *
 *   lr      with a rate of 0 no parameter changes; with a small one the loss of the same samples falls
 *   clip    each new value reads the factor of clipping, but of parameters that it freezes: their new value is the old one
 *   layout  some steps lead to the same parameters in each layout, also where states are sharded
 *   finite  so are they all
 */
#include <config.h>
#include "engine/conform/judge.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 3
/* Optimizers divide by sums of squares and take roots, so rounding grows: of the largest change of a step, this much. */
#define TOLERANCE 1e-6
/* What is smaller, of the largest gradient, may be rounding alone, and an optimizer of signs moves it by as much as others. */
#define NOISE 1e-6

/* The layout with this optimizer, and gradients that are clipped. */
static char *ini_of(const struct judge *j, const struct layout *l)
{
	static const char was[] = "optimizer = sgd\nclip = 0\n";
	char *ini = layout_ini(j, l), *at = strstr(ini, was), *with;

	with = hd_format("%.*soptimizer = x\nclip = 0.001\n%s", (int)(at - ini), ini, at + strlen(was));
	free(ini);
	return with;
}

static struct hd_inprocess *begin(const struct judge *j, const struct layout *l, struct outcome *o)
{
	char *ini = ini_of(j, l);
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	int planned;

	if (hd_inprocess_open(ini, 0, &r, &planned, &err) < 0 && planned)
		outcome_set(o, JUDGED_WRONG, "the plan is accepted, and its program is not: %s", err.text);
	else if (!r)
		outcome_refused(j, &err, o);
	else
		outcome_constant(j, r->plan, o);
	free(ini);
	return r;
}

static int step(struct hd_inprocess *r, int64_t number, double lr, struct outcome *o)
{
	struct hd_err err = { 0 };

	r->run.step = number;
	r->run.lr = lr;
	if ((lr >= 0 ? hd_inprocess_train(r, &err) : hd_inprocess_step(r, &err)) < 0)
		outcome_set(o, JUDGED_WRONG, "step %lld: %s", (long long)number, err.text);
	return o->verdict == JUDGED_OK;
}

static int is_param(const struct tensor *t)
{
	return !t->v.node && t->v.what == HD_TENSOR_PARAM;
}

static double *values(const struct hd_inprocess *r, const struct tensor *t)
{
	return hd_inprocess_whole(r, t, NULL, NULL);
}

/* Of all parameters, by the plan's tensors; the others are NULL. */
static double **all_values(const struct hd_inprocess *r)
{
	double **all = hd_alloc((r->plan->ntensors + 1) * sizeof(*all));

	for (size_t i = 0; i < r->plan->ntensors; i++)
		all[i] = is_param(r->plan->tensors[i]) ? values(r, r->plan->tensors[i]) : NULL;
	return all;
}

static void free_values(double **all, size_t n)
{
	for (size_t i = 0; all && i < n; i++)
		free(all[i]);
	free(all);
}

/* The largest change of a parameter; of a value that is no number, infinite. */
static double change_of(const struct tensor *t, const double *a, const double *b)
{
	double most = 0;

	for (int64_t k = 0; a && b && k < hd_global_count(t); k++) {
		double change = fabs(a[k] - b[k]);

		most = fmax(most, isnan(change) ? INFINITY : change);
	}
	return most;
}

/* -- what lr and clip mean ------------------------------------------------------------------------------------------ */
static int reads(const struct hd_plan *p, const struct tensor *value, const struct tensor *wanted)
{
	char *leads = hd_alloc(p->ntensors + 1); /* from `wanted` to here */
	int found;

	leads[wanted->id] = 1;
	for (const struct node *n = p->first; n; n = n->next)
		for (uint32_t i = 0; i < n->v.nin; i++)
			for (uint32_t k = 0; leads[n->ins[i]->id] && k < n->v.nout; k++)
				leads[n->outs[k]->id] = 1;
	found = leads[value->id];
	free(leads);
	return found;
}

static int is_frozen(const struct tensor *t)
{
	return t->assign == t;
}

static void judge_clip(const struct hd_inprocess *r, struct outcome *o)
{
	const struct hd_plan *p = r->plan;
	int learn = 0;

	for (size_t i = 0; i < p->ntensors && o->verdict == JUDGED_OK; i++) {
		const struct tensor *t = p->tensors[i];

		learn += is_param(t) && !is_frozen(t);
		if (is_param(t) && !is_frozen(t) && t->assign && p->factor && !reads(p, t->assign, p->factor))
			outcome_set(o, JUDGED_WRONG,
				    "the new value of %s does not read the factor of clipping (hd_update.factor)",
				    t->v.name);
	}
	if (!learn)
		outcome_set(o, JUDGED_WRONG, "it freezes all parameters");
}

static void judge_standstill(const struct hd_inprocess *r, double **was, struct outcome *o)
{
	for (size_t i = 0; i < r->plan->ntensors && o->verdict == JUDGED_OK; i++) {
		const struct tensor *t = r->plan->tensors[i];
		double *now = was[i] ? values(r, t) : NULL, change = change_of(t, was[i], now);

		if (change > 0)
			outcome_set(o, JUDGED_WRONG, "with a learning rate of 0, %s changes by %.3g", t->v.name,
				    change);
		free(now);
	}
}

static double largest_of(const struct hd_inprocess *r, const struct tensor *t)
{
	const struct tensor *g = hd_inprocess_gradient(r, t);
	double *x = g ? values(r, g) : NULL, most = 0;

	for (int64_t k = 0; x && k < hd_global_count(t); k++)
		most = fmax(most, fabs(x[k]));
	free(x);
	return most;
}

/* A gradient that is rounding alone (of the biases of keys) need not move anything. */
static void judge_change(const struct hd_inprocess *r, double **was, struct outcome *o)
{
	double scale = 0;

	for (size_t i = 0; i < r->plan->ntensors; i++)
		scale = was[i] ? fmax(scale, largest_of(r, r->plan->tensors[i])) : scale;
	for (size_t i = 0; i < r->plan->ntensors && o->verdict == JUDGED_OK; i++) {
		const struct tensor *t = r->plan->tensors[i];
		double *now = was[i] ? values(r, t) : NULL, change = change_of(t, was[i], now);

		if (now && !is_frozen(t) && !(change > 0) && largest_of(r, t) > NOISE * scale)
			outcome_set(o, JUDGED_WRONG, "with a learning rate of 1e-4, %s does not change", t->v.name);
		else if (isinf(change))
			outcome_set(o, JUDGED_WRONG, "%s is not finite behind a step", t->v.name);
		free(now);
	}
}

static void obeys(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	struct hd_inprocess *r = begin(j, t->layout, o);
	double **was, before, after;
	size_t n;

	if (!r)
		return;
	was = all_values(r);
	n = r->plan->ntensors;
	judge_clip(r, o);
	if (o->verdict == JUDGED_OK && step(r, 1, 0, o))
		judge_standstill(r, was, o);
	hd_inprocess_close(r); /* its states have seen a step */
	r = o->verdict == JUDGED_OK ? begin(j, t->layout, o) : NULL;
	if (r && step(r, 1, 1e-4, o)) {
		before = hd_inprocess_scalar(r, r->plan->loss, 0);
		judge_change(r, was, o);
		if (o->verdict == JUDGED_OK && step(r, 2, -1, o)) {
			after = hd_inprocess_scalar(r, r->plan->loss, 0);
			if (!(after < before))
				outcome_set(
					o, JUDGED_WRONG,
					"a step with a learning rate of 1e-4 takes the loss of its own samples from %.12g to "
					"%.12g",
					before, after);
		}
	}
	free_values(was, n);
	hd_inprocess_close(r);
}

/* -- layouts -------------------------------------------------------------------------------------------------------- */
/* Entries that had no gradient but rounding, in some step. */
static void mark_noise(const struct hd_inprocess *one, char **noise)
{
	double scale = 0;

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < one->plan->ntensors; i++) {
			const struct tensor *t = one->plan->tensors[i],
					    *g = is_param(t) ? hd_inprocess_gradient(one, t) : NULL;
			double *x = g ? values(one, g) : NULL;

			if (pass && x && !noise[i])
				noise[i] = hd_alloc((size_t)hd_global_count(t));
			for (int64_t k = 0; x && k < hd_global_count(t); k++)
				if (!pass)
					scale = fmax(scale, fabs(x[k]));
				else
					noise[i][k] |= fabs(x[k]) < NOISE * scale;
			free(x);
		}
}

static void compare(struct hd_inprocess *one, struct hd_inprocess *r, double **was, char *const *noise,
		    struct outcome *o)
{
	double moved = 0;

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < one->plan->ntensors && o->verdict == JUDGED_OK; i++) {
			const struct tensor *t = one->plan->tensors[i],
					    *mine = was[i] ? hd_inprocess_param(r, t->v.name) : NULL;
			double *a = was[i] ? values(one, t) : NULL, *b = mine ? values(r, mine) : NULL, off = 0;

			if (!pass)
				moved = fmax(moved, change_of(t, was[i], a));
			for (int64_t k = 0; pass && a && b && k < hd_global_count(t); k++)
				if (!(noise[i] && noise[i][k]) && !(fabs(a[k] - b[k]) <= off))
					off = isnan(a[k] - b[k]) ? INFINITY : fabs(a[k] - b[k]);
			if (off > TOLERANCE * moved)
				outcome_set(
					o, JUDGED_WRONG,
					"%s behind step %d differs from one rank's by %.3g, and the largest change is %.3g",
					t->v.name, STEPS, off, moved);
			free(a), free(b);
		}
}

static void layouts(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	struct layout *alone = layout_alone(t->layout->family, j->axes ? 1 : 0);
	struct hd_inprocess *r = begin(j, t->layout, o), *one = r ? begin(j, alone, o) : NULL;
	double **was = one ? all_values(one) : NULL;
	char **noise = one ? hd_alloc((one->plan->ntensors + 1) * sizeof(*noise)) : NULL;

	for (int64_t k = 1; one && k <= STEPS && o->verdict == JUDGED_OK; k++)
		if (step(one, k, 0.01, o) && step(r, k, 0.01, o))
			mark_noise(one, noise);
	if (one && o->verdict == JUDGED_OK)
		compare(one, r, was, noise, o);
	for (size_t i = 0; one && i < one->plan->ntensors; i++)
		free(noise[i]);
	free(noise);
	if (one)
		free_values(was, one->plan->ntensors);
	hd_inprocess_close(one);
	hd_inprocess_close(r);
	free(alone);
}

static void add_beside(struct judge *j, int family, int other, const char *keys)
{
	struct layout *l = layout_alone(family, j->axes ? 1 : 0);
	char *text;

	l->n = 2;
	l->piece[1] = (struct judge_piece){ .other = other, .size = 2 };
	snprintf(l->piece[1].keys, sizeof(l->piece[1].keys), "%s", keys);
	text = layout_text(j, l);
	judge_add(j, layouts, l, 0, "its optimizer makes the same of a model, %s", text);
	free(text);
}

/* Options with few values, each at its largest: where states are sharded most. */
static void add_most(struct judge *j, int family, int other)
{
	const struct hd_strategy_ops *o = j->others[other]->ops;

	for (uint32_t i = 0; i < o->noptions; i++) {
		const struct hd_option *k = (const void *)((const char *)o->options + (size_t)i * o->option_size);
		long long least, most;
		char line[100];

		if (k->type != HD_OPT_INT || !k->range || sscanf(k->range, "%lld..%lld", &least, &most) != 2 ||
		    most - least >= 8)
			continue;
		snprintf(line, sizeof(line), "%s = %lld\n", k->key, most);
		add_beside(j, family, other, line);
	}
}

void optimizer_add(struct judge *j)
{
	int f = families_first(j);

	if (!j->plugin->optimizer)
		return;
	judge_add(j, obeys, layout_alone(f, j->axes ? 1 : 0), 0, "its optimizer obeys lr and clip, %s",
		  family_name(j, f));
	for (int k = 0; k < j->nothers; k++)
		add_beside(j, f, k, "");
	for (int k = 0; k < j->nothers; k++)
		add_most(j, f, k);
}
