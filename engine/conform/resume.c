/* SPDX-License-Identifier: Apache-2.0
 * Reads a checkpoint of one layout into another, with the program itself and mpirun. The following losses and gradient
 * norms must be those of one rank that was never interrupted.
 *
 * The optimizer is AdamW with eps = 1, so that the update does not amplify an error of a gradient. Lost or reordered
 * moments change the loss by a thousandth or more, and rounding by a millionth (engine/against/compare.h bounds it).
 *
 * If each member has gradients of its own, it also has moments of its own, which differ from those of one rank. The
 * optimizer is then SGD, and only the loss is compared.
 */
#include <config.h>
#include "engine/against/compare.h"
#include "engine/conform/judge.h"
#include "engine/file/atomic_file.h"
#include "engine/file/file.h"
#include "engine/process/launch.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST 2 /* steps before the checkpoint, and in all */
#define STEPS 4

static int write_file(const char *dir, const char *name, const char *text, struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, name);
	int rc = hd_file_write(path, text, err);

	free(path);
	return rc;
}

/* Returns the INI of a run of the tiny model on text: it replaces the keys of a plan by those that a run needs. */
static char *run_ini(const char *optimizer, const char *ini, const char *dir, int steps)
{
	const char *vocab = strstr(ini, "vocab = "),
		   *train = strstr(ini, "micro_batch"); /* from here on, including the sections of plugins */
	int n = (int)(vocab - ini);

	return hd_format("%.*s[data]\ntrain = %s/text\nvalid_fraction = 0\n[train]\nseq = 8\nglobal_batch = 16\n"
			 "steps = %d\noptimizer = %s\nlr = 0.05\nschedule = constant\nclip = 0\nweight_decay = 0\n"
			 "threads = 1\ndevice = cpu\n%s",
			 n, ini, dir, steps, optimizer, train);
}

/* The plugin's own optimizer, if one rank can use it too. */
static const char *optimizer_of(const struct judge *j, int own_gradients)
{
	return own_gradients ? "sgd" : j->plugin->optimizer && !j->axes ? "x" : "adamw\neps = 1";
}

/* Returns the number of ranks of the layout, or 0 if it is refused. own_gradients may be NULL. */
static int64_t ranks_of(const char *ini, int *own_gradients)
{
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	int planned;
	int64_t n = hd_inprocess_open(ini, 0, &r, &planned, &err) >= 0 ? r->n : 0;

	if (r && own_gradients)
		*own_gradients = hd_plan_has_own_gradients(r->plan);
	hd_inprocess_close(r);
	return n;
}

/* Tells whether a line may be a reason. Notes that a run prints before its first step are not. */
static int is_reason(const char *line)
{
	static const char *const notes[] = { "initial weights ", "resumed from " };

	for (size_t i = 0; i < HD_LEN(notes); i++)
		if (!strncmp(line, notes[i], strlen(notes[i])))
			return 0;
	return 1;
}

/* Sets the error to the first reason that heddle printed (not mpirun), or to the last that names a plugin or a
 * difference. */
static void set_printed_reason(const char *output, int64_t ranks, struct hd_err *err)
{
	struct hd_err none = { 0 };
	char *text = hd_file_read(output, NULL, &none), *reason = NULL;

	for (char *line = text ? strtok(text, "\n") : NULL; line; line = strtok(NULL, "\n"))
		if (!strncmp(line, "heddle: ", 8) && is_reason(line + 8) &&
		    (!reason || strstr(line, "plugin") || strstr(line, "differ")))
			reason = line;
	hd_err_set(err, HD_EIO, "training on %lld rank%s failed: %s", (long long)ranks, hd_plural(ranks, "s"),
		   reason ? reason + 8 : "it printed no message");
	free(text);
}

static int train(const struct judge *j, const char *dir, const char *ini, const char *name, const char *from,
		 int64_t ranks, int steps, int own_gradients, struct hd_err *err)
{
	char *file = hd_format("%s.ini", name), *text = run_ini(optimizer_of(j, own_gradients), ini, dir, steps),
	     *output = hd_format("%s/%s.out", dir, name);
	char *set[] = { hd_format("%s/%s.ini", dir, name), hd_format("checkpoint.dir=%s/%s", dir, from),
			hd_format("checkpoint.resume=%s", strcmp(from, name) ? "auto" : "no"),
			hd_format("log.metrics=%s/%s.jsonl", dir, name) };
	char *argv[] = { (char *)(uintptr_t)j->options.program,
			 (char *)(uintptr_t) "train",
			 set[0],
			 (char *)(uintptr_t) "--set",
			 set[1],
			 (char *)(uintptr_t) "--set",
			 set[2],
			 (char *)(uintptr_t) "--set",
			 set[3] };

	write_file(dir, file, text, err);
	judge_waits(0); /* a watchdog in each rank ends a run that hangs */
	if (!err->code && hd_launch_run(ranks, 5, (int)HD_LEN(argv), argv, output))
		set_printed_reason(output, ranks, err);
	judge_waits(1);
	for (size_t i = 0; i < HD_LEN(set); i++)
		free(set[i]);
	free(file), free(text), free(output);
	return err->code;
}

/* Returns the index of a step, or -1. */
static int index_of(const struct hd_losses *x, int step)
{
	for (int i = 0; i < x->n; i++)
		if (x->step[i] == step)
			return i;
	return -1;
}

static void compare_value(struct outcome *o, const char *what, int step, double one, double b, double bound)
{
	if (o->verdict == JUDGED_OK && !(fabs(b / one - 1) <= bound))
		outcome_set(
			o, JUDGED_WRONG,
			"%s of step %d is %.9g, but %.9g on one rank that was not interrupted: they differ by %.3g, "
			"and rounding explains %.3g",
			what, step, b, one, fabs(b / one - 1), bound);
}

static void compare(const char *dir, int64_t terms, int own_gradients, struct outcome *o)
{
	const struct hd_comparison c = { .terms = terms };
	struct hd_losses one, b;
	struct hd_err err = { 0 };

	if (hd_losses_read(dir, "one", &one, &err) < 0 || hd_losses_read(dir, "b", &b, &err) < 0)
		outcome_set(o, JUDGED_WRONG, "%s", err.text);
	else if (index_of(&b, 1) >= 0)
		outcome_set(o, JUDGED_WRONG, "it starts again at step 0 instead of resuming from the checkpoint");
	for (int step = FIRST + 1; step <= STEPS && o->verdict == JUDGED_OK; step++) {
		int i = index_of(&one, step), k = index_of(&b, step);
		double bound = hd_comparison_bound(&c, step - 1);

		if (i < 0 || k < 0) {
			outcome_set(o, JUDGED_WRONG, "step %d is not in the metrics", step);
			return;
		}
		compare_value(o, "loss", step, one.loss[i], b.loss[k], bound);
		if (!own_gradients)
			compare_value(o, "gradient norm", step, one.norm[i], b.norm[k], bound);
	}
}

static int runs(struct judge *j, const char *dir, const char *one, const char *a, const char *b, int *own_gradients,
		struct hd_err *err)
{
	int64_t ranks = ranks_of(a, own_gradients);
	char text[3000];

	for (size_t i = 0; i + 1 < sizeof(text); i++)
		text[i] = (char)('a' + i * i % 23);
	text[sizeof(text) - 1] = 0;
	HD_TRY(write_file(dir, "text", text, err));
	HD_TRY(train(j, dir, one, "one", "one", 1, STEPS, *own_gradients, err));
	HD_TRY(train(j, dir, a, "a", "a", ranks, FIRST, *own_gradients, err));
	return train(j, dir, b, "b", "a", ranks_of(b, NULL), STEPS, *own_gradients, err);
}

static void resumed(struct judge *j, const struct layout *la, const struct layout *lb, struct outcome *o)
{
	char *one = layout_one_ini(j, la, 1), *a = layout_ini(j, la), *b = layout_ini(j, lb),
	     *dir = hd_file_temporary("heddle-conform");
	char *ta = layout_text(j, la), *tb = layout_text(j, lb);
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 }, removed = { 0 };
	int planned, own_gradients = 0;

	o->name = hd_format("resumes: a checkpoint of %s, read into %s", ta, tb);
	hd_launch_hold_signals(); /* until the directory is removed */
	if (!mkdtemp(dir)) {
		outcome_set(o, JUDGED_SKIPPED, "%s: the directory cannot be created: %s", dir, strerror(errno));
	} else {
		if (runs(j, dir, one, a, b, &own_gradients, &err) < 0)
			outcome_set(o, JUDGED_WRONG, "%s", err.text);
		else if (hd_inprocess_open(one, 1, &r, &planned, &err) >= 0)
			compare(dir, layout_terms(r->plan), own_gradients, o);
		if (hd_dir_remove(dir, &removed) < 0)
			outcome_set(o, JUDGED_WRONG, "%s could not be removed", dir);
	}
	hd_launch_release_signals();
	hd_inprocess_close(r);
	free(one), free(a), free(b), free(ta), free(tb), free(dir);
}

static int accepted(const struct judge *j, const struct layout *l)
{
	char *ini = layout_ini(j, l);
	int yes = ranks_of(ini, NULL) > 0;

	free(ini);
	return yes;
}

/* How the second layout differs from the first. */
enum { LARGER, SMALLER, BESIDE, PAIRS };
static const char *const pairs[PAIRS] = { "in a larger layout", "in a smaller layout", "beside another plugin" };

static int beside(const struct judge *j, struct layout *b)
{
	int found = 0;

	for (int k = 0; k < j->nothers && !found; k++) {
		b->n = 2;
		b->piece[0].size = j->axes ? 2 : 0;
		b->piece[1] = (struct judge_piece){ .other = k, .size = 2 };
		found = accepted(j, b);
	}
	return found;
}

/* Tries both layouts with the first family that accepts them. */
static void resume(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	for (int f = families_first(j); f < families_end(j) && (j->axes || t->number == BESIDE); f++) {
		struct layout *a = layout_alone(f, !j->axes               ? 0
						   : t->number == SMALLER ? 4
									  : 2),
			      *b = layout_alone(f, !j->axes               ? 0
						   : t->number == SMALLER ? 2
									  : 4);
		int found = accepted(j, a) && (t->number == BESIDE ? beside(j, b) : j->axes && accepted(j, b));

		if (found)
			resumed(j, a, b, o);
		free(a), free(b);
		if (found)
			return;
	}
	outcome_set(o, JUDGED_SKIPPED, "%s",
		    !j->axes && t->number != BESIDE ? "it claims no axis, so it has no size"
						    : "no two of its layouts are accepted");
}

void resume_add(struct judge *j)
{
	for (int k = 0; k < PAIRS && j->options.program; k++)
		judge_add(j, resume, NULL, k, "resumes a checkpoint %s", pairs[k]);
}
