/* SPDX-License-Identifier: Apache-2.0
 * Collects a plugin's checks, the cheapest first, and runs them.
 */
#include <config.h>
#include "engine/conform/judge.h"
#include <stdlib.h>
#include <string.h>

/* Tells whether the section is the plugin's: its value is a name or a path, perhaps with lib, heddle_ and .so. */
static int names_plugin(const struct hd_section *s, const struct hd_plugin_entry *e)
{
	char *name = hd_registry_name(hd_section_str(s, e->strategy_slot ? "plugin" : "file"));
	int same = !strcmp(name, e->name);

	free(name);
	return same;
}

/* Appends the keys that say how tokens choose experts in the user's INI to j->router. A plugin that replaces that choice
 * may need some of them, such as as many experts of a token as there are. */
static void router_of_conf(struct judge *j, struct hd_conf *conf)
{
	static const char *const keys[] = {
		"router",        "experts_per_token", "capacity_factor", "group_tokens",
		"second_expert", "aux_loss",          "z_loss",          "normalize_gates"
	};
	const struct hd_section *s = hd_conf_section(conf, NULL, "model");

	for (size_t i = 0; s && i < HD_LEN(keys); i++)
		if (hd_section_has(s, keys[i]))
			hd_append(&j->router, "%s = %s\n", keys[i], hd_section_str(s, keys[i]));
}

/* Appends the keys of the plugin's section in the user's INI to j->keys, one per line. The mesh and its size are drawn
 * instead. */
static int keys_of_conf(struct judge *j, struct hd_err *err)
{
	const struct hd_strategy_ops *o = j->plugin->ops;
	struct hd_conf *conf = NULL;
	struct hd_section *s = NULL;

	HD_TRY(hd_conf_read(j->options.conf, NULL, 0, &conf, err));
	while ((s = hd_conf_next(conf, j->plugin->strategy_slot ? "strategy" : "plugin", s))) {
		if (!names_plugin(s, j->plugin))
			continue;
		for (uint32_t i = 0; i < o->noptions; i++) {
			const struct hd_option *k = (const void *)((const char *)o->options + i * o->option_size);

			if (hd_section_has(s, k->key))
				hd_append(&j->keys, "%s = %s\n", k->key, hd_section_str(s, k->key));
		}
		break;
	}
	router_of_conf(j, conf);
	hd_conf_destroy(conf);
	return s ? HD_OK
		 : hd_err_set(err, HD_EINVAL, "%s: no section names the plugin %s", j->options.conf, j->plugin->name);
}

/* Tells whether the plugin claims axes. If it does, a run on one rank with the plugin differs from one without it. */
static int claims_axes(const struct judge *j)
{
	int claims = 1;

	for (int f = families_first(j); f < families_end(j) && claims; f++) {
		struct layout *l = layout_alone(f, 0);
		char *ini = layout_ini(j, l);
		struct hd_plan_options o = { .ranks = 1, .train = 1, .after = "slot-mesh" };
		struct hd_conf *conf = NULL;
		struct hd_plan *p = NULL;
		struct hd_err err = { 0 };

		if (hd_conf_parse("layout", ini, NULL, 0, &conf, &err) >= 0 && hd_plan_create(conf, &o, &p, &err) >= 0)
			claims = p->naxes > 0;
		hd_plan_destroy(p);
		hd_conf_destroy(conf);
		free(ini);
		free(l);
	}
	return claims;
}

/* Finds the plugins with which this one can be combined: all that an INI can name, except itself. */
static void find_others(struct judge *j)
{
	int n = hd_registry_scan(&j->others);

	for (int i = 0; i < n; i++)
		if (!j->others[i]->why && j->others[i]->strategy_slot && !j->others[i]->hidden &&
		    strcmp(j->others[i]->name, j->plugin->name))
			j->others[j->nothers++] = j->others[i];
}

static void release(struct judge *j)
{
	for (size_t i = 0; i < j->n; i++) {
		free(j->tasks[i].name);
		free(j->tasks[i].layout);
	}
	free(j->tasks), free(j->keys), free(j->given), free(j->router), free(j->others);
	free(j->tried), free(j->compared), free(j->tried_beside), free(j->compared_beside);
	json_decref(j->results), json_decref(j->warnings), json_decref(j->refusals);
}

int hd_conform(const struct hd_conform_options *o, FILE *out, struct hd_err *err)
{
	struct judge j = { .options = *o, .keys = hd_strdup(""), .router = hd_strdup("") };
	struct hd_plugin_entry *e = NULL;
	int rc = hd_registry_find(o->plugin, NULL, &e, err);

	j.plugin = e;
	if (rc >= 0 && !e->is_strategy && !e->families && !e->optimizer)
		rc = hd_err_set(err, HD_ENOTSUP,
				"plugin %s: it has only kernels and no slots, so there is nothing to test", e->path);
	if (rc >= 0 && o->conf)
		rc = keys_of_conf(&j, err);
	if (rc < 0) {
		free(j.keys), free(j.router);
		return rc;
	}
	j.given = hd_strdup(j.keys);
	if (e->approximate)
		layout_exact(&j.keys, e->approximate);
	j.results = json_array(), j.warnings = json_array(), j.refusals = json_object();
	find_others(&j);
	j.tried = hd_alloc((size_t)families_end(&j) * sizeof(int));
	j.compared = hd_alloc((size_t)families_end(&j) * sizeof(int));
	j.tried_beside = hd_alloc((size_t)(j.nothers + 1) * sizeof(int));
	j.compared_beside = hd_alloc((size_t)(j.nothers + 1) * sizeof(int));
	/* a [plugin] claims no axes, so it is not asked */
	j.axes = e->strategy_slot ? judge_ask(&j, claims_axes, 1) : 0;
	tables_add(&j);
	families_add(&j);
	if (e->is_strategy) {
		meshes_add(&j);
		kernels_add(&j);
		vjps_add(&j);
	}
	optimizer_add(&j);
	same_add(&j);
	serial_add(&j);
	resume_add(&j);
	judge_all(&j, out);
	tap_end(&j, out);
	rc = j.failed;
	if (o->only && !j.printed)
		rc = hd_err_set(err, HD_EINVAL, "conform: --only '%s': no check has this in its name", o->only);
	release(&j);
	return rc;
}
