/* SPDX-License-Identifier: Apache-2.0
 * heddle plugins: lists the plugins found and why some are refused; for one plugin, the keys that its section of the
 * INI may have.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/keys/keys.h"
#include "engine/plugin/registry.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const struct hd_option *option(const struct hd_strategy_ops *o, uint32_t i)
{
	return (const void *)((const char *)o->options + (size_t)i * o->option_size);
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

static const char *state(const struct hd_plugin_entry *e)
{
	if (e->why)
		return "refused";
	return e->hidden ? "hidden" : "accepted";
}

static char *abi_of(const struct hd_plugin_entry *e)
{
	if (e->why && !e->abi_major && !e->abi_minor)
		return hd_strdup("-");
	return hd_format("%u.%u", e->abi_major, e->abi_minor);
}

static void print_list(FILE *out, struct hd_plugin_entry **e, size_t n)
{
	const char *(*rows)[HD_TABLE_COLUMNS + 1] = hd_alloc((n + 1) * sizeof(*rows));
	static const char *const head[] = { "name", "version", "ABI", "state", "path" };

	if (!n)
		fprintf(out, "no plugins found\n");
	memcpy(rows[0], head, sizeof(head));
	for (size_t i = 0; i < n; i++) {
		rows[i + 1][0] = e[i]->name;
		rows[i + 1][1] = *e[i]->version ? e[i]->version : "-";
		rows[i + 1][2] = abi_of(e[i]);
		rows[i + 1][3] = state(e[i]);
		rows[i + 1][4] = e[i]->why ? hd_format("%s: %s", e[i]->path, e[i]->why) : hd_strdup(e[i]->path);
	}
	if (n)
		hd_table_print(out, (const char *const(*)[HD_TABLE_COLUMNS + 1]) rows, n + 1);
	for (size_t i = 1; i <= n; i++) {
		free((char *)rows[i][2]);
		free((char *)rows[i][4]);
	}
	free(rows);
}

static void print_one(FILE *out, const struct hd_plugin_entry *e)
{
	const struct hd_key_table keys = { e->ops->options, e->ops->noptions, e->ops->option_size };

	fprintf(out, "%s %s, ABI %u.%u, %s\n", e->name, e->version, e->abi_major, e->abi_minor, e->path);
	if (e->approximate)
		fprintf(out, "approximate: does not train the same model as one rank, except with %s\n",
			e->approximate);
	for (size_t i = 0; e->families && e->families[i]; i++)
		fprintf(out, "model family: %s\n", e->families[i]->name);
	hd_keys_print(out, &keys);
}

static json_t *json_of(const struct hd_plugin_entry *e)
{
	char *abi = abi_of(e);
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:s?, s:s?}", "name", e->name, "path", e->path, "version",
			      e->version, "abi", abi, "accepted", !e->why, "hidden", e->hidden, "why", e->why,
			      "approximate", e->approximate);

	free(abi);
	return j;
}

static json_t *families_json(const struct hd_plugin_entry *e)
{
	json_t *list = json_array();

	for (size_t i = 0; e->families && e->families[i]; i++)
		json_array_append_new(list, json_string(e->families[i]->name));
	return list;
}

static json_t *options_json(const struct hd_strategy_ops *o)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < o->noptions; i++) {
		const struct hd_option *k = option(o, i);

		json_array_append_new(list, json_pack("{s:s, s:s, s:s?, s:s?, s:s}", "key", k->key, "type",
						      hd_key_type(k), "default", k->default_value, "range", k->range,
						      "help", or_empty(k->help)));
	}
	return list;
}

static int print_json(FILE *out, json_t *j, struct hd_err *err)
{
	int rc = j ? json_dumpf(j, out, JSON_INDENT(1)) : -1;

	json_decref(j);
	fputc('\n', out);
	if (rc) /* JSON is UTF-8, but a path or a plugin's help need not be */
		return hd_err_set(err, HD_EINVAL, "a plugin's path or text is not UTF-8");
	return 0;
}

static int print_all(FILE *out, int json, struct hd_err *err)
{
	struct hd_plugin_entry **e;
	int n = hd_registry_scan(&e), rc = 0;

	if (json) {
		json_t *list = json_array();

		for (int i = 0; i < n; i++)
			json_array_append_new(list, json_of(e[i]));
		rc = print_json(out, list, err);
	} else {
		print_list(out, e, (size_t)n);
	}
	free(e);
	return rc;
}

int hd_plugins_print(FILE *out, const char *name_or_path, int json, struct hd_err *err)
{
	struct hd_plugin_entry *e;
	json_t *j;

	if (!name_or_path)
		return print_all(out, json, err);
	HD_TRY(hd_registry_find(name_or_path, NULL, &e, err));
	if (!json) {
		print_one(out, e);
		return 0;
	}
	j = json_of(e);
	json_object_set_new(j, "options", options_json(e->ops));
	json_object_set_new(j, "families", families_json(e));
	return print_json(out, j, err);
}

int hd_verb_plugins(struct hd_cli *c)
{
	struct hd_err err = { 0 };

	if (hd_plugins_print(stdout, c->positional, hd_cli_has(c, "json"), &err) < 0)
		hd_log(HD_LOG_ERROR, "%s", err.text);
	return err.code ? 1 : 0;
}
