/* SPDX-License-Identifier: Apache-2.0
 * The slots over many meshes: sizes that divide and sizes that do not, training, evaluation and generation.  A size is
 * accepted, and then every rank has a program, or refused with a sentence, and twice with the same one.
 */
#include <config.h>
#include "engine/conform/judge.h"
#include "engine/program/match.h"
#include "engine/run/run.h"
#include "kernels/ref/ref.h"
#include <stdlib.h>
#include <string.h>

static const int64_t sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 64 };

struct told {
	int refused;
	uint64_t hash;
	char text[sizeof(((struct hd_err *)0)->text)];
};

/* Every class of ranks has a program, and the ranks' programs meet. */
static int programs(struct hd_plan *p, struct hd_err *err)
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
		hd_program_destroy(g);
	}
	if (!err->code)
		hd_match_all(m, err);
	hd_match_destroy(m);
	hd_classes_release(&c);
	return err->code;
}

static void plan(const char *ini, int role, struct told *t, struct outcome *o)
{
	struct hd_plan_options options = {
		.ranks = 1, .train = !role, .generate = role == 2, .master_dtype = HD_DTYPE_F64 /* as ref computes */
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
	if (p && programs(p, &err) < 0)
		outcome_set(o, JUDGED_WRONG, "the plan is accepted, and a program is not: %s", err.text);
	else if (!p && (err.code == HD_EBUG || !*err.text))
		outcome_set(o, JUDGED_WRONG, "%s", *err.text ? err.text : "refused without a message");
	snprintf(t->text, sizeof(t->text), "%s", err.text);
	hd_plan_destroy(p);
	hd_conf_destroy(conf);
}

static void twice(const char *ini, int role, struct outcome *o)
{
	static const char *const roles[] = { "training", "evaluation", "generation" };
	struct told a, b;

	plan(ini, role, &a, o);
	if (o->verdict == JUDGED_OK)
		plan(ini, role, &b, o);
	if (o->verdict == JUDGED_OK && (a.refused != b.refused || a.hash != b.hash || strcmp(a.text, b.text)))
		outcome_set(
			o, JUDGED_WRONG,
			"planned twice for %s, it differs (%s%016llx, then %s%016llx): the ranks' plans would differ",
			roles[role], a.text, (unsigned long long)a.hash, b.text, (unsigned long long)b.hash);
}

static void meshes(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	char *ini = layout_ini(j, t->layout);

	for (int role = 0; role < 3 && o->verdict == JUDGED_OK; role++)
		twice(ini, role, o);
	free(ini);
}

void meshes_add(struct judge *j)
{
	for (int f = families_first(j); f < families_end(j); f++)
		for (size_t i = 0; i < (j->axes ? HD_LEN(sizes) : 1); i++) {
			struct layout *l = layout_alone(f, j->axes ? sizes[i] : 0);
			char *text = layout_text(j, l);

			judge_add(j, meshes, l, -1, "plans or refuses, %s", text);
			free(text);
		}
}
