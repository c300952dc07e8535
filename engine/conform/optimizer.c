/* SPDX-License-Identifier: Apache-2.0
 * A plugin's optimizer. Only its author knows what it should compute, but every optimizer must obey these rules:
 *
 *   lr      with a rate of 0 no parameter changes; with a small one the loss of the same samples falls
 *   clip    each new value reads the clipping factor, except for frozen parameters, whose new value is the old one
 *   scale   if the loss is scaled, the clipped gradients are the same, and so are the parameters
 *   decay   a weight decay changes something, or is refused
 *   layout  some steps lead to the same parameters in each layout, also where states are sharded
 *   fp32    from the same gradients, fp32 leads to the same parameters as double; so does bf16 with fp32 masters
 *   finite  all values stay finite
 */
#include <config.h>
#include "engine/conform/judge.h"
#include "kernels/ref/ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 3
/* Optimizers divide by sums of squares and take roots, so rounding errors grow. This share of the largest change per
 * step is allowed. */
#define TOLERANCE 1e-6
/* A gradient below this share of the largest one may be pure rounding. An optimizer that uses signs moves such an entry
 * as much as others. */
#define NOISE 1e-6
/* Half of the digits of fp32 are left for cancellation and division in the optimizer, as serial.c leaves half of those
 * of double. A parameter is also rounded in each step, which costs some units in the last place. */
#define TOLERANCE_FP32 0x1p-12
#define UNIT_FP32 0x1p-24
#define DECAY "0.1"

/* Returns the layout's INI with this optimizer and clipped gradients. */
static char *ini_of(const struct judge *j, const struct layout *l, const char *decay)
{
	static const char was[] = "optimizer = sgd\nclip = 0\n", none[] = "weight_decay = 0\n";
	char *ini = layout_ini(j, l), *at = strstr(ini, was), *behind = strstr(ini, none), *with;

	with = hd_format("%.*soptimizer = x\nclip = 0.001\n%.*sweight_decay = %s\n%s", (int)(at - ini), ini,
			 (int)(behind - at - (ptrdiff_t)strlen(was)), at + strlen(was), decay, behind + strlen(none));
	free(ini);
	return with;
}

static struct hd_inprocess *begin(const struct judge *j, const struct layout *l, struct outcome *o)
{
	char *ini = ini_of(j, l, "0");
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	int planned;

	if (hd_inprocess_open(ini, 0, &r, &planned, &err) < 0 && planned)
		outcome_set(o, JUDGED_WRONG, "the plan is accepted, but its program is not: %s", err.text);
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
	return hd_inprocess_assemble(r, t, NULL, NULL);
}

/* Returns the values of all parameters, indexed by the plan's tensors; entries of other tensors are NULL. */
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

/* Returns the largest change of a parameter's element; infinite if one is NaN. */
static double change_of(const struct tensor *t, const double *a, const double *b)
{
	double most = 0;

	for (int64_t k = 0; a && b && k < hd_global_count(t); k++) {
		double change = fabs(a[k] - b[k]);

		most = fmax(most, isnan(change) ? INFINITY : change);
	}
	return most;
}

/* -- what lr and clip mean ----------------------------------------------------------------------------------------- */
static int reads(const struct hd_plan *p, const struct tensor *value, const struct tensor *wanted)
{
	char *leads = hd_alloc(p->ntensors + 1); /* per tensor: 1 if it depends on `wanted` */
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

/* A gradient that is pure rounding (of the biases of keys) need not change its parameter. */
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
			outcome_set(o, JUDGED_WRONG, "%s is not finite after a step", t->v.name);
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
	hd_inprocess_close(r); /* its states are those after a step */
	r = o->verdict == JUDGED_OK ? begin(j, t->layout, o) : NULL;
	if (r && step(r, 1, 1e-4, o)) {
		before = hd_inprocess_scalar(r, r->plan->loss, 0);
		judge_change(r, was, o);
		if (o->verdict == JUDGED_OK && step(r, 2, -1, o)) {
			after = hd_inprocess_scalar(r, r->plan->loss, 0);
			if (!(after < before))
				outcome_set(o, JUDGED_WRONG,
					    "a step with a learning rate of 1e-4 does not reduce the loss of its own "
					    "samples: from %.12g to %.12g",
					    before, after);
		}
	}
	free_values(was, n);
	hd_inprocess_close(r);
}

/* -- layouts ------------------------------------------------------------------------------------------------------- */
/* Marks entries whose gradient was pure rounding in some step. */
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

/* How to compare the parameters of two runs. tolerance: share of the largest change. unit: share of each value itself
 * that rounding may add to that. */
struct comparing {
	double tolerance, unit;
	/* the middle of the message "NAME after step N ... by %.3g; the largest change is %.3g" */
	const char *off;
};

static void compare(const struct comparing *c, struct hd_inprocess *one, struct hd_inprocess *r, double **was,
		    char *const *noise, struct outcome *o)
{
	double moved = 0;

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < one->plan->ntensors && o->verdict == JUDGED_OK; i++) {
			const struct tensor *t = one->plan->tensors[i],
					    *mine = was[i] ? hd_inprocess_param(r, t->v.name) : NULL;
			double *a = was[i] ? values(one, t) : NULL,
			       *b = mine ? values(r, mine->master ? mine->master : mine) : NULL, off = 0;

			if (!pass)
				moved = fmax(moved, change_of(t, was[i], a));
			for (int64_t k = 0; pass && a && b && k < hd_global_count(t); k++) {
				double apart = fabs(a[k] - b[k]) - c->unit * fabs(a[k]);

				if (!(noise && noise[i] && noise[i][k]) && !(apart <= off))
					off = isnan(apart) ? INFINITY : apart;
			}
			if (off > c->tolerance * moved)
				outcome_set(o, JUDGED_WRONG, "%s after step %d %s by %.3g; the largest change is %.3g",
					    t->v.name, STEPS, c->off, off, moved);
			free(a), free(b);
		}
}

/* Makes steps in both runs, compares their parameters, and closes both. NULL: a run that could not begin. scale: factor
 * of r's loss per step; NULL: 1. */
static void both_lead_to(const struct comparing *c, struct hd_inprocess *one, struct hd_inprocess *r,
			 const double *scale, struct outcome *o)
{
	int begun = one && r;
	double **was = begun ? all_values(one) : NULL, unscaled = begun ? r->run.loss_scale : 1;
	char **noise = begun ? hd_alloc((one->plan->ntensors + 1) * sizeof(*noise)) : NULL;

	for (int64_t k = 1; begun && k <= STEPS && o->verdict == JUDGED_OK; k++) {
		r->run.loss_scale = unscaled * (scale ? scale[k - 1] : 1);
		if (step(one, k, 0.01, o) && step(r, k, 0.01, o))
			mark_noise(one, noise);
	}
	if (begun && o->verdict == JUDGED_OK)
		compare(c, one, r, was, noise, o);
	for (size_t i = 0; begun && i < one->plan->ntensors; i++)
		free(noise[i]);
	free(noise);
	if (begun)
		free_values(was, one->plan->ntensors);
	hd_inprocess_close(one);
	hd_inprocess_close(r);
}

static void layouts(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	static const struct comparing c = { .tolerance = TOLERANCE, .off = "differs from one rank's" };
	struct layout *alone = layout_alone(t->layout->family, j->axes ? 1 : 0);
	struct hd_inprocess *r = begin(j, t->layout, o), *one = r ? begin(j, alone, o) : NULL;

	both_lead_to(&c, one, r, NULL, o);
	free(alone);
}

/* -- clipping and decay, in numbers -------------------------------------------------------------------------------- */
/* Scales the loss by powers of two, so that gradient x factor is the same number except for the last bit. */
static void scaled(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	static const struct comparing c = {
		.tolerance = TOLERANCE,
		.off = "depends on the scale of the loss, though gradients are clipped to the "
		       "same norm (hd_update.gradient x hd_update.factor): it differs"
	};
	static const double scale[STEPS] = { 1, 4, 0.5 };
	struct hd_inprocess *one = begin(j, t->layout, o), *r = one ? begin(j, t->layout, o) : NULL;

	both_lead_to(&c, one, r, scale, o);
}

static void decays(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	char *ini = ini_of(j, t->layout, DECAY);
	struct hd_inprocess *one = begin(j, t->layout, o), *r = NULL;
	struct hd_err err = { 0 };
	int planned, differs = 0;

	if (one && hd_inprocess_open(ini, 0, &r, &planned, &err) < 0 && outcome_refused(j, &err, o))
		o->verdict = JUDGED_OK; /* correct for an optimizer without decay */
	if (r && step(one, 1, 0.01, o) && step(r, 1, 0.01, o)) {
		for (size_t i = 0; i < one->plan->ntensors; i++) {
			const struct tensor *p = one->plan->tensors[i];
			double *a = is_param(p) ? values(one, p) : NULL,
			       *b = a ? values(r, hd_inprocess_param(r, p->v.name)) : NULL;

			differs |= change_of(p, a, b) > 0;
			free(a), free(b);
		}
		if (!differs)
			outcome_set(o, JUDGED_WRONG,
				    "train.weight_decay = " DECAY
				    " is accepted but does nothing: a step leads to the same parameters as with 0. Use "
				    "hd_update.weight_decay, or refuse values other than 0 in slot update");
	}
	hd_inprocess_close(one);
	hd_inprocess_close(r);
	free(ini);
}

/* -- precision ----------------------------------------------------------------------------------------------------- */
/* In each step the run in double uses the gradients of the other run, so only the optimizer's own arithmetic differs.
 * Gradients are copied as soon as they are complete, since an update may reuse their memory. */
struct kept_gradients {
	double **of; /* indexed by the tensors of the plan from which they are copied */
	double norm, factor;
};

static void keep_gradients(void *ctx, struct hd_inprocess *r, int rank)
{
	struct kept_gradients *k = ctx;
	const struct hd_plan *p = r->plan;

	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *g = is_param(p->tensors[i]) ? hd_inprocess_gradient(r, p->tensors[i]) : NULL;

		free(k->of[i]);
		k->of[i] = g ? values(r, g) : NULL;
	}
	k->norm = hd_inprocess_scalar(r, p->norm, rank);
	k->factor = hd_inprocess_scalar(r, p->factor, rank);
}

struct low_precision { /* a run and a copy of its gradients */
	struct hd_inprocess *r;
	struct kept_gradients kept;
};

static void take_gradients(void *ctx, struct hd_inprocess *exact, int rank)
{
	const struct low_precision *low = ctx;
	const struct hd_plan *p = exact->plan;

	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i], *g = is_param(t) ? hd_inprocess_gradient(exact, t) : NULL,
				    *mine = g ? hd_inprocess_param(low->r, t->v.name) : NULL;

		if (mine && low->kept.of[mine->id])
			memcpy(hd_inprocess_address(exact, g, rank), low->kept.of[mine->id],
			       (size_t)hd_global_count(g) * sizeof(double));
	}
	*hd_inprocess_address(exact, p->norm, rank) = low->kept.norm;
	*hd_inprocess_address(exact, p->factor, rank) = low->kept.factor;
}

static const char *precision_name(const struct judge_task *t)
{
	return t->number ? "bf16 with fp32 masters" : "fp32";
}

static void judge_finite(const struct judge_task *t, const struct hd_inprocess *r, int64_t number, struct outcome *o)
{
	for (size_t i = 0; i < r->plan->ntensors && o->verdict == JUDGED_OK; i++) {
		const struct tensor *p = r->plan->tensors[i];
		double *x = is_param(p) ? values(r, p->master ? p->master : p) : NULL;

		for (int64_t k = 0; x && k < hd_global_count(p) && o->verdict == JUDGED_OK; k++)
			if (!isfinite(x[k]))
				outcome_set(
					o, JUDGED_WRONG,
					"%s is not finite after step %lld in %s, but it is in double: does a product "
					"or a square underflow to 0, or overflow?",
					p->v.name, (long long)number, precision_name(t));
		free(x);
	}
}

static struct hd_inprocess *begin_low(const struct judge *j, const struct judge_task *t, struct outcome *o)
{
	char *ini = ini_of(j, t->layout, "0");
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	int planned = 0;

	if (hd_device_cpu()->open(1, &err) >= 0)
		hd_inprocess_open_on(ini, hd_device_cpu(), t->number ? HD_DTYPE_BF16 : 0, &r, &planned, &err);
	if (!r && planned)
		outcome_set(o, JUDGED_WRONG, "the plan is accepted, but its program is not: %s", err.text);
	else if (!r)
		outcome_refused(j, &err, o);
	free(ini);
	return r;
}

static void precise(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	const struct comparing c = {
		.tolerance = TOLERANCE_FP32,
		.unit = 2 * STEPS * UNIT_FP32,
		.off = t->number
			       ? "differs, in bf16 with fp32 masters, from the result in double with the same gradients"
			       : "differs, in fp32, from the result in double with the same gradients"
	};
	struct low_precision low = { .r = begin_low(j, t, o) };
	struct hd_inprocess *exact = low.r ? begin(j, t->layout, o) : NULL;
	double **was = exact ? all_values(exact) : NULL;

	if (exact) {
		low.kept.of = hd_alloc((low.r->plan->ntensors + 1) * sizeof(*low.kept.of));
		low.r->normed = keep_gradients, low.r->ctx = &low.kept;
		exact->normed = take_gradients, exact->ctx = &low;
	}
	for (int64_t k = 1; exact && k <= STEPS && o->verdict == JUDGED_OK; k++)
		if (step(low.r, k, 0.01, o) && step(exact, k, 0.01, o))
			judge_finite(t, low.r, k, o);
	if (exact && o->verdict == JUDGED_OK)
		compare(&c, exact, low.r, was, NULL, o);
	if (exact) {
		free_values(was, exact->plan->ntensors);
		free_values(low.kept.of, low.r->plan->ntensors);
	}
	hd_inprocess_close(exact);
	hd_inprocess_close(low.r);
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

/* Adds layouts in which an option with few values has its largest: that shards states most. */
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
	judge_add(j, scaled, layout_alone(f, j->axes ? 1 : 0), 0, "its optimizer uses clipped gradients, %s",
		  family_name(j, f));
	judge_add(j, decays, layout_alone(f, j->axes ? 1 : 0), 0, "its optimizer uses weight_decay or refuses it, %s",
		  family_name(j, f));
	judge_add(j, precise, layout_alone(f, j->axes ? 1 : 0), 0, "its optimizer works in fp32, %s",
		  family_name(j, f));
	judge_add(j, precise, layout_alone(f, j->axes ? 1 : 0), 1, "its optimizer works in bf16 with fp32 masters, %s",
		  family_name(j, f));
	for (int k = 0; k < j->nothers; k++)
		add_beside(j, f, k, "");
	for (int k = 0; k < j->nothers; k++)
		add_most(j, f, k);
}
