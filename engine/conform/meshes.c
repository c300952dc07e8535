/* SPDX-License-Identifier: Apache-2.0
 * The slots over many meshes: sizes that divide and sizes that do not, for training, evaluation and generation. Either
 * a size is accepted, and then every rank has a program; or it is refused with a sentence, the same one both times.
 */
#include <config.h>
#include "engine/base/hash.h"
#include "engine/conform/judge.h"
#include "engine/conform/parts/habits.h"
#include "engine/process/launch.h"
#include "engine/program/match.h"
#include "engine/run/run.h"
#include "kernels/ref/ref.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 64 };

struct told {
	int refused;
	uint64_t hash, recorded; /* hash: of the plan; recorded: of the kernels of all programs */
	char text[sizeof(((struct hd_err *)0)->text)];
};

/* Checks that each class of ranks has a program, and that the programs of all ranks match. */
static int programs(struct hd_plan *p, uint64_t *recorded, struct hd_err *err)
{
	struct hd_classes c;
	struct hd_match_run *m;

	hd_classes_find(p, &c);
	m = hd_match_create(p, &c);
	for (int64_t k = 0; k < c.n && !err->code; k++) {
		struct hd_program_options o = { .rank = c.ranks[c.first[k]], .device = hd_device_ref() };
		struct hd_program *g = NULL;

		if (hd_program_build(p, &o, &g, err) >= 0 && hd_program_try(g, o.device, &c, k, err) >= 0)
			hd_match_add(m, k, g);
		*recorded = hd_hash_add(*recorded, g ? g->recorded : 0);
		hd_program_destroy(g);
	}
	if (!err->code)
		hd_match_all(m, err);
	hd_match_destroy(m);
	hd_classes_release(&c);
	return err->code;
}

static void plan(const struct judge *j, const char *ini, int role, struct told *t, struct outcome *o)
{
	struct hd_plan_options options = {
		.ranks = 1, .train = !role, .generate = role == 2, .master_dtype = HD_DTYPE_F64 /* as on ref */
	};
	struct hd_conf *conf = NULL;
	struct hd_plan *p = NULL;
	struct hd_err err = { 0 };
	int64_t needs = 0;

	*t = (struct told){ 0 };
	options.needs = &needs;
	if (hd_conf_parse("layout", ini, NULL, 0, &conf, &err) >= 0 && hd_plan_create(conf, &options, &p, &err) < 0 &&
	    needs) {
		err = (struct hd_err){ 0 };
		options.ranks = needs;
		options.needs = NULL;
		hd_plan_create(conf, &options, &p, &err);
	}
	t->refused = !p;
	t->hash = p ? p->hash : 0;
	if (p && programs(p, &t->recorded, &err) < 0)
		outcome_set(o, JUDGED_WRONG, "the plan is accepted, but a program is not: %s", err.text);
	else if (p && !role)
		outcome_constant(j, p, o);
	else if (!p && outcome_refused(j, &err, o))
		o->verdict = JUDGED_OK; /* refused with a sentence */
	snprintf(t->text, sizeof(t->text), "%s", err.text);
	hd_plan_destroy(p);
	hd_conf_destroy(conf);
}

/* Plans in a separate process that looks as if a launcher had started it as rank 1. A plan that depends on the rank,
 * the process, the time or earlier calls differs there. */
static void plan_elsewhere(const struct judge *j, const char *ini, int role, struct told *t, struct outcome *o)
{
	struct told *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = shared == MAP_FAILED ? -1 : fork();
	int status = 0;

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		hd_launch_pretend("1");
		judge_limit(j);
		plan(j, ini, role, shared, o);
		_exit(0);
	}
	judge_waits(10);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	judge_waits(1);
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == JUDGE_ENDED)
		_exit(JUDGE_ENDED);
	if (pid > 0)
		*t = *shared;
	else
		plan(j, ini, role, t, o);
	if (shared != MAP_FAILED)
		munmap(shared, sizeof(*shared));
}

/* Plans in this process, and reports a slot that prints to the standard output, which belongs to the program. */
static void plan_quietly(const struct judge *j, const char *ini, int role, struct told *t, struct outcome *o)
{
	struct hd_output output;
	char printed[80];

	hd_output_keep(&output);
	plan(j, ini, role, t, o);
	if (hd_output_printed(&output, printed, sizeof(printed)) && o->verdict == JUDGED_OK)
		outcome_set(o, JUDGED_WRONG, "a slot prints to the standard output, which is the program's: %s",
			    printed);
	hd_output_return(&output);
}

static void twice(const struct judge *j, const char *ini, int role, struct outcome *o)
{
	static const char *const roles[] = { "training", "evaluation", "generation" };
	struct told a, b;

	plan_quietly(j, ini, role, &a, o);
	if (o->verdict == JUDGED_OK)
		plan_elsewhere(j, ini, role, &b, o);
	if (o->verdict == JUDGED_OK && a.hash == b.hash && a.recorded != b.recorded)
		outcome_set(
			o, JUDGED_WRONG,
			"when planned twice for %s, slot record launches different kernels, or different attributes: "
			"the ranks would not compute the same",
			roles[role]);
	if (o->verdict == JUDGED_OK && (a.refused != b.refused || a.hash != b.hash || strcmp(a.text, b.text)))
		outcome_set(o, JUDGED_WRONG,
			    "when planned twice for %s, the plan differs (%s%016llx, then %s%016llx): the ranks' plans "
			    "would differ",
			    roles[role], a.text, (unsigned long long)a.hash, b.text, (unsigned long long)b.hash);
}

static void meshes(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	char *ini = layout_ini(j, t->layout);

	for (int role = 0; role < 3 && o->verdict == JUDGED_OK; role++)
		twice(j, ini, role, o);
	free(ini);
}

/* Returns 1 if an axis of the plugin shards something, 0 if none does, and -1 if the layout is refused. */
static int is_busy(const struct judge *j, int family)
{
	struct layout *l = layout_alone(family, 2);
	char *ini = layout_ini(j, l);
	struct hd_plan_options o = { .ranks = 2, .train = 1 };
	struct hd_conf *conf = NULL;
	struct hd_plan *p = NULL;
	struct hd_err err = { 0 };
	int busy = -1;

	if (hd_conf_parse("layout", ini, NULL, 0, &conf, &err) >= 0)
		hd_plan_create(conf, &o, &p, &err);
	if (p)
		busy = 0;
	for (int a = 0; p && a < p->naxes; a++)
		busy |= !hd_is_idle_axis(p, a);
	hd_plan_destroy(p);
	hd_conf_destroy(conf);
	free(ini);
	free(l);
	return busy;
}

static void shards(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	int accepted = 0, busy = 0;

	(void)t;
	for (int f = families_first(j); f < families_end(j); f++) {
		int is = is_busy(j, f);

		accepted += is >= 0;
		busy += is > 0;
	}
	if (!accepted)
		outcome_set(o, JUDGED_SKIPPED, "no layout of 2 members is accepted");
	else if (!busy)
		outcome_set(o, JUDGED_WRONG,
			    "nothing is sharded along its axis in any family of models, so all its members compute the "
			    "same. Do its rules spell dims as the models do?");
}

void meshes_add(struct judge *j)
{
	if (j->axes)
		judge_add(j, shards, NULL, 0, "its axis shards something");
	for (int f = families_first(j); f < families_end(j); f++)
		for (size_t i = 0; i < (j->axes ? HD_LEN(sizes) : 1); i++) {
			struct layout *l = layout_alone(f, j->axes ? sizes[i] : 0);
			char *text = layout_text(j, l);

			judge_add(j, meshes, l, -1, "plans or refuses, %s", text);
			free(text);
		}
}
