/* SPDX-License-Identifier: Apache-2.0
 * Compares an approximate plugin with its serial definition (heddle/serial.h): losses and parameters over some steps of
 * SGD.
 *
 * Bound. Both sides differ only in the order of sums, by layout_terms u, which is about 1e-12 here. Divisions in the
 * definition (by the length of a column that is close to zero) amplify this. Half of the digits of a double is left for
 * that: 2^-26 of the largest change of a parameter. A mistake in the algorithm is a share of the change itself.
 */
#include <config.h>
#include "engine/conform/judge.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 2, MOST = 4 }; /* numbers of members */
#define STEPS 5               /* with every = 2: two steps that agree, and one after them */
#define LR 0.25
#define BOUND 0x1p-26

struct apart {
	double off, moved; /* moved: largest change of a parameter since the beginning, by the definition */
	char where[200];
};

static void worse(struct apart *a, double off, const char *what, const char *name)
{
	if (off <= a->off)
		return;
	a->off = isnan(off) ? INFINITY : off;
	snprintf(a->where, sizeof(a->where), "%s%.150s", what, name);
}

/* -- the layout, and one rank --------------------------------------------------------------------------- */
/* Appends "PLUGIN key=value ..." as a section. */
static void add_beside(char **ini, const char *text)
{
	int n = (int)strcspn(text, " ");

	hd_append(ini, "[strategy beside]\nplugin = %.*s\n", n, text);
	layout_exact(ini, text + n);
}

static void add_own(const struct judge *j, char **ini, int64_t size, const char *keys)
{
	int strategy = j->plugin->strategy_slot != NULL;

	hd_append(ini, "[%s x]\n%s = %s\n", strategy ? "strategy" : "plugin", strategy ? "plugin" : "file",
		  j->plugin->path);
	if (size)
		hd_append(ini, "size = %lld\n", (long long)size);
	if (keys)
		layout_exact(ini, keys);
}

static char *ini_of_layout(const struct judge *j, const struct layout *l)
{
	const struct hd_serial_ops *s = j->plugin->serial;
	char *ini = layout_model_ini(j, l, layout_batch(l), 1);

	if (s->beside)
		add_beside(&ini, s->beside);
	add_own(j, &ini, l->piece[0].size, s->keys);
	return ini;
}

/* Opens a run of one rank. own = 1: with the plugin's own options (`one`). own = 0: without the plugin, with the share
 * of one of `members` members. */
static int open_one(const struct judge *j, const struct layout *l, const struct hd_plan *like, int own, int64_t members,
		    struct hd_inprocess **out, struct hd_err *err)
{
	char *ini = layout_model_ini(j, l, layout_batch(l) / members, like->batch / members);
	int planned, rc;

	if (own)
		add_own(j, &ini, 0, j->plugin->serial->one);
	rc = hd_inprocess_open(ini, 1, out, &planned, err);
	free(ini);
	return rc;
}

static void begin_step(struct hd_inprocess *r, int64_t step, double loss_scale)
{
	r->run.step = step;
	r->run.lr = LR;
	r->run.loss_scale = loss_scale;
}

/* -- comparing ----------------------------------------------------------------------------------------------------- */
static int is_param(const struct tensor *t)
{
	return !t->v.node && t->v.what == HD_TENSOR_PARAM;
}

static void compare_param(const struct hd_inprocess *r, const char *name, const double *want, const double *first,
			  int64_t n, struct apart *a)
{
	const struct tensor *t = hd_inprocess_param(r, name);
	double copies = 0, *have = t ? hd_inprocess_assemble(r, t, NULL, &copies) : NULL;
	double off = have ? copies : NAN;

	for (int64_t i = 0; have && i < n; i++) {
		double d = fabs(have[i] - want[i]);

		off = d <= off ? off : d;
		a->moved = fmax(a->moved, fabs(want[i] - first[i]));
	}
	worse(a, off, "parameter ", name);
	free(have);
}

static void compare_loss(const struct hd_inprocess *r, double want, struct apart *a)
{
	for (int k = loss_rank(r, 0); k >= 0; k = loss_rank(r, k + 1))
		worse(a, fabs(hd_inprocess_scalar(r, r->plan->loss, k) / want - 1), "loss", "");
}

/* Returns 1 if a step is wrong, and sets the outcome. */
static int judge_step(const struct apart *a, int64_t step, struct outcome *o)
{
	double bound = BOUND * fmax(a->moved, BOUND);

	if (a->off <= bound)
		return 0;
	outcome_set(
		o, JUDGED_WRONG,
		"%s after step %lld differs from that of the serial definition by %.3g; %.3g is allowed (the largest "
		"change of a parameter is %.3g)",
		a->where, (long long)step, a->off, bound, a->moved);
	return 1;
}

static int both_ran(int rc, struct hd_err *err, struct outcome *o)
{
	if (rc >= 0)
		return 1;
	outcome_set(o, JUDGED_WRONG, "%s", err->text);
	return 0;
}

static int step_of(struct hd_inprocess *r, struct hd_err *err)
{
	HD_TRY(hd_inprocess_step(r, err));
	return hd_inprocess_update(r, err);
}

/* -- one rank with the plugin's own options ---------------------------------------------------------------- */
static int64_t count_params(const struct hd_inprocess *r)
{
	int64_t n = 0;

	for (size_t i = 0; i < r->plan->ntensors; i++)
		n += is_param(r->plan->tensors[i]);
	return n;
}

static double **copies_of(const struct hd_inprocess *one)
{
	double **all = hd_alloc(((size_t)count_params(one) + 1) * sizeof(*all));
	size_t n = 0;

	for (size_t i = 0; i < one->plan->ntensors; i++)
		if (is_param(one->plan->tensors[i]))
			all[n++] = hd_inprocess_assemble(one, one->plan->tensors[i], NULL, NULL);
	return all;
}

static void free_copies(double **all)
{
	for (size_t i = 0; all && all[i]; i++)
		free(all[i]);
	free(all);
}

static void by_one(struct hd_inprocess *r, struct hd_inprocess *one, struct apart *a, struct outcome *o)
{
	double **first = copies_of(one);
	struct hd_err err = { 0 };

	for (int64_t step = 1; step <= STEPS && o->verdict == JUDGED_OK; step++) {
		size_t n = 0;

		begin_step(r, step, r->run.loss_scale);
		begin_step(one, step, one->run.loss_scale);
		if (!both_ran(step_of(one, &err), &err, o) || !both_ran(step_of(r, &err), &err, o))
			break;
		for (size_t i = 0; i < one->plan->ntensors; i++) {
			const struct tensor *t = one->plan->tensors[i];

			if (is_param(t))
				compare_param(r, t->v.name, hd_inprocess_address(one, t, 0), first[n],
					      hd_local_count(t), a),
					n++;
		}
		compare_loss(r, hd_inprocess_scalar(one, one->plan->loss, 0), a);
		judge_step(a, step, o);
	}
	free_copies(first);
}

/* -- the plugin's function ------------------------------------------------------------------------------------ */
static void by_update(struct hd_inprocess *r, struct hd_inprocess *alone, struct apart *a, struct outcome *o)
{
	struct serial_model *m = serial_model_create(r, alone, LR);
	struct hd_err err = { 0 };
	const struct serial_param *x;

	for (int64_t step = 1; step <= STEPS && o->verdict == JUDGED_OK; step++) {
		double loss;

		begin_step(r, step, r->run.loss_scale);
		begin_step(alone, step, r->run.loss_scale);
		if (!both_ran(serial_model_step(m, step, &loss, &err), &err, o) || !both_ran(step_of(r, &err), &err, o))
			break;
		for (size_t i = 0; (x = serial_model_param(m, i)); i++)
			compare_param(r, x->name, x->param, x->first, x->n, a);
		compare_loss(r, loss, a);
		judge_step(a, step, o);
	}
	serial_model_destroy(m);
}

/* Returns how far the parameters are from those of one rank without the plugin, after the same number of steps. */
static double off_plain(struct hd_inprocess *r, struct hd_inprocess *plain, struct outcome *o)
{
	struct apart a = { 0 };
	struct hd_err err = { 0 };

	for (int64_t step = 1; step <= STEPS && o->verdict == JUDGED_OK; step++) {
		begin_step(plain, step, plain->run.loss_scale);
		both_ran(step_of(plain, &err), &err, o);
	}
	for (size_t i = 0; i < plain->plan->ntensors && o->verdict == JUDGED_OK; i++) {
		const struct tensor *t = plain->plan->tensors[i];

		if (is_param(t))
			compare_param(r, t->v.name, hd_inprocess_address(plain, t, 0),
				      hd_inprocess_address(plain, t, 0), hd_local_count(t), &a);
	}
	return a.off;
}

/* Returns the same for the layout with `size` members, from its beginning; 0 if it is refused. */
static double off_plain_of(const struct judge *j, const struct layout *l, int64_t size, struct outcome *o)
{
	struct layout *other = layout_alone(l->family, size);
	char *ini = ini_of_layout(j, other);
	struct hd_inprocess *r = NULL, *plain = NULL;
	struct hd_err err = { 0 };
	double off = 0;
	int planned;

	if (hd_inprocess_open(ini, 0, &r, &planned, &err) >= 0 &&
	    both_ran(open_one(j, other, r->plan, 0, 1, &plain, &err), &err, o)) {
		for (int64_t step = 1; step <= STEPS && o->verdict == JUDGED_OK; step++) {
			begin_step(r, step, r->run.loss_scale);
			both_ran(step_of(r, &err), &err, o);
		}
		off = off_plain(r, plain, o);
	}
	hd_inprocess_close(r);
	hd_inprocess_close(plain);
	free(ini), free(other);
	return off;
}

/* Checks that the definition differs from one rank without the plugin. With keys that make the plugin exact, the
 * comparison would be empty. An approximate algorithm may be exact with some numbers of members, but not with all. */
static void differs_from_plain(const struct judge *j, const struct layout *l, struct hd_inprocess *r,
			       struct hd_inprocess *plain, double moved, struct outcome *o)
{
	double off = off_plain(r, plain, o);
	int64_t size = l->piece[0].size;

	if (o->verdict != JUDGED_OK || off > BOUND * moved)
		return;
	if (j->plugin->serial->update && off_plain_of(j, l, size == LEAST ? MOST : LEAST, o) > BOUND * moved)
		return;
	outcome_set(o, JUDGED_WRONG,
		    "the serial definition trains like one rank without the plugin (parameters differ by %.3g after %d "
		    "steps%s), so it defines nothing approximate",
		    off, STEPS, j->plugin->serial->update ? ", with 2 members and with 4" : "");
}

static void compare(struct judge *j, const struct layout *l, struct hd_inprocess *r, struct outcome *o)
{
	int64_t members = j->plugin->serial->update ? l->piece[0].size : 1;
	struct hd_inprocess *one = NULL, *plain = NULL;
	struct hd_err err = { 0 };
	struct apart a = { 0 };

	if (r->plan->batch % members || layout_batch(l) % members)
		outcome_set(o, JUDGED_SKIPPED, "%lld members do not divide the %lld sequences of a micro-batch",
			    (long long)members, (long long)r->plan->batch);
	else if (both_ran(open_one(j, l, r->plan, members == 1, members, &one, &err), &err, o)) {
		if (j->plugin->serial->update)
			by_update(r, one, &a, o);
		else
			by_one(r, one, &a, o);
	}
	if (o->verdict == JUDGED_OK && both_ran(open_one(j, l, r->plan, 0, 1, &plain, &err), &err, o))
		differs_from_plain(j, l, r, plain, a.moved, o);
	hd_inprocess_close(one);
	hd_inprocess_close(plain);
}

static void serial(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	char *ini = ini_of_layout(j, t->layout);
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	int planned;

	if (hd_inprocess_open(ini, 0, &r, &planned, &err) >= 0)
		compare(j, t->layout, r, o);
	else
		outcome_set(o, JUDGED_WRONG, "the layout of the serial definition is refused: %s", err.text);
	hd_inprocess_close(r);
	free(ini);
}

/* -- without the keys that make it exact ----------------------------------------------------------------- */
/* All other checks set the keys that make the plugin exact. So only this one notices that its default settings are
 * refused. */
static void with_defaults(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	char *ini = layout_model_ini(j, t->layout, layout_batch(t->layout), 1);
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	int planned;

	add_own(j, &ini, t->layout->piece[0].size, NULL);
	hd_append(&ini, "%s", j->given);
	if (hd_inprocess_open(ini, 0, &r, &planned, &err) < 0)
		outcome_set(o, JUDGED_WRONG, "the layout is refused: %s", err.text);
	for (int64_t step = 1; step <= STEPS && o->verdict == JUDGED_OK; step++) {
		begin_step(r, step, r->run.loss_scale);
		if (both_ran(step_of(r, &err), &err, o) && !isfinite(loss_of(r)))
			outcome_set(o, JUDGED_WRONG, "the loss of step %lld is %g", (long long)step, loss_of(r));
	}
	hd_inprocess_close(r);
	free(ini);
}

static void without_table(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	(void)j, (void)t;
	outcome_set(o, JUDGED_SKIPPED, "it is approximate, and has no table serial (since ABI 1.1)");
}

static void add(struct judge *j, int family, int64_t size)
{
	const struct hd_serial_ops *s = j->plugin->serial;
	char *text = hd_format("%s: %s", family_name(j, family), j->plugin->name);

	if (size)
		hd_append(&text, " %lld", (long long)size);
	if (s->keys)
		hd_append(&text, " (%s)", s->keys);
	if (s->beside)
		hd_append(&text, ", %s", s->beside);
	judge_add(j, serial, layout_alone(family, size), 0, "equals its serial definition, %s, %d steps", text, STEPS);
	free(text);
}

void serial_add(struct judge *j)
{
	const struct hd_serial_ops *s = j->plugin->serial;

	if (!j->plugin->approximate)
		return;
	for (int f = families_first(j); f < families_end(j); f++)
		judge_add(j, with_defaults, layout_alone(f, j->axes ? 2 : 0), 0, "trains %d steps as it comes, %s",
			  STEPS, family_name(j, f));
	if (!s)
		judge_add(j, without_table, NULL, 0, "equals its serial definition");
	for (int f = families_first(j); s && f < families_end(j); f++)
		for (int64_t size = s->update ? LEAST : 0; size <= (s->update ? MOST : 0); size += MOST - LEAST)
			add(j, f, size);
}
