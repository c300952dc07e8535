/* SPDX-License-Identifier: Apache-2.0
 * Families that the plugin defines, beyond the checks of its table. The model class of a small model is written to
 * config.json, which must be read as the same model. Each weight must have its own place in a checkpoint, whose tensors
 * must be filled completely.
 */
#include <config.h>
#include "engine/conform/judge.h"
#include "engine/models/decoder/hf.h"
#include "engine/models/decoder/knobs.h"
#include "engine/plan/plan.h"
#include <stdlib.h>
#include <string.h>

static struct hd_plan *planned(const char *ini, struct hd_conf **conf, struct outcome *o)
{
	const struct hd_plan_options options = { .ranks = 1 };
	struct hd_err err = { 0 };
	struct hd_plan *p = NULL;

	if (hd_conf_parse("the small model", ini, NULL, 0, conf, &err) >= 0)
		hd_plan_create(*conf, &options, &p, &err);
	if (err.code)
		outcome_set(o, JUDGED_WRONG, "%s", err.text);
	return p;
}

/* -- config.json --------------------------------------------------------------------------------------------------- */
static void compare_models(const struct hd_model *a, const struct hd_model *b, struct outcome *o)
{
	for (const struct hd_knob *k = hd_knob_next(NULL); k && o->verdict == JUDGED_OK; k = hd_knob_next(k)) {
		char one[80], other[80];

		hd_knob_text(a, k, one);
		hd_knob_text(b, k, other);
		/* 0 stands for a value that the engine computes, and that value is written */
		if (strcmp(one, other) && strcmp(k->key, "query_scale") && strcmp(k->key, "rope_original"))
			outcome_set(o, JUDGED_WRONG, "%s = %s is written to config.json and read as %s", k->key, one,
				    other);
	}
}

/* Reports the keys whose value is not the default and that the family cannot express. */
static void report_inexpressible_keys(const struct hd_model *m, struct outcome *o)
{
	char *text = NULL, value[80];

	for (const struct hd_knob *k = hd_knob_next(NULL); k; k = hd_knob_next(k))
		if (k->decoder && !hd_hf_theirs(m->family, k->key) && !hd_knob_is_default(m, k)) {
			hd_knob_text(m, k, value);
			hd_append(&text, "%s%s = %s", text ? ", " : "", k->key, value);
		}
	outcome_set(o, JUDGED_WRONG, "its keys of config.json cannot describe a model with its defaults: %s",
		    text ? text : "two of our keys that are one key there differ, or a choice has no word there");
	free(text);
}

/* Returns the INI with the model read from a config.json in place of [model]. */
static char *ini_with_model(const char *model, const char *ini)
{
	return hd_format("%s%s", model, strstr(ini, "[data]"));
}

static void config(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	struct hd_conf *conf = NULL, *other = NULL;
	char *ini = layout_ini(j, t->layout), *model = NULL, *again;
	struct hd_plan *p = planned(ini, &conf, o), *q;
	json_t *config = p ? hd_hf_config(&p->model) : NULL;
	const char *type = json_string_value(json_object_get(config, "model_type"));
	struct hd_err err = { 0 };

	if (p && strcmp(type ? type : "", p->model.family->model_type))
		report_inexpressible_keys(&p->model, o);
	else if (p && !(model = hd_hf_read(config, p->model.family, "config.json", &err)))
		outcome_set(o, JUDGED_WRONG, "a written config.json cannot be read back: %s", err.text);
	if (model) {
		again = ini_with_model(model, ini);
		q = planned(again, &other, o);
		if (q)
			compare_models(&p->model, &q->model, o);
		hd_plan_destroy(q);
		free(again);
	}
	json_decref(config);
	hd_plan_destroy(p);
	hd_conf_destroy(conf), hd_conf_destroy(other);
	free(ini), free(model);
}

/* -- weights ------------------------------------------------------------------------------------------------------- */
struct stored_weight {
	const char *name;
	struct hd_hf_region r;
	int64_t rows, cols;
};

static int64_t columns(const struct hd_hf_region *r)
{
	return r->ndim == 2 ? r->shape[1] : 1;
}

/* Returns the weight's place in a checkpoint, and the size of the part of a stored tensor that the weight itself
 * fills. */
static struct stored_weight stored(const struct tensor *t, const struct hd_model *m)
{
	struct stored_weight w = { .name = t->v.name, .rows = 1, .cols = 1 };

	m->family->hf(m, t->v.name, &w.r);
	for (uint32_t i = w.r.each ? 1 : 0; i < t->v.ndim; i++)
		*(w.r.ndim == 1 || (int)i < w.r.split + w.r.each ? &w.rows : &w.cols) *= t->dims[i]->n;
	return w;
}

static void check_weight_place(const struct stored_weight *all, size_t n, size_t i, struct outcome *o)
{
	const struct hd_hf_region *r = &all[i].r;
	int64_t filled = 0;

	for (size_t k = 0; k < n; k++) {
		const struct hd_hf_region *x = &all[k].r;

		if (strcmp(r->name, x->name))
			continue;
		filled += all[k].rows * all[k].cols;
		if (k < i && (r->at[0] == x->at[0] || columns(x) != columns(r) || x->shape[0] != r->shape[0]))
			outcome_set(o, JUDGED_WRONG, "weights %s and %s are at the same place of %s", all[k].name,
				    all[i].name, r->name);
	}
	if (o->verdict == JUDGED_OK && filled != r->shape[0] * columns(r))
		outcome_set(o, JUDGED_WRONG, "weights fill %lld of the %lld x %lld elements of %s", (long long)filled,
			    (long long)r->shape[0], (long long)columns(r), r->name);
}

static void weights(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	struct hd_conf *conf = NULL;
	char *ini = layout_ini(j, t->layout);
	struct hd_plan *p = planned(ini, &conf, o);
	struct stored_weight *all = p ? hd_alloc((p->ntensors + 1) * sizeof(*all)) : NULL;
	size_t n = 0;

	for (size_t i = 0; p && i < p->ntensors; i++)
		if (!p->tensors[i]->v.node && p->tensors[i]->v.what == HD_TENSOR_PARAM)
			all[n++] = stored(p->tensors[i], &p->model);
	for (size_t i = 0; i < n && o->verdict == JUDGED_OK; i++)
		check_weight_place(all, n, i, o);
	free(all);
	hd_plan_destroy(p);
	hd_conf_destroy(conf);
	free(ini);
}

void families_add(struct judge *j)
{
	for (int f = FAMILIES; f < families_end(j); f++) {
		judge_add(j, config, layout_alone(f, 0), 0, "family %s: config.json says what a model is",
			  family_name(j, f));
		judge_add(j, weights, layout_alone(f, 0), 0, "family %s: each weight has its place", family_name(j, f));
	}
}
