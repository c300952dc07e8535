/* SPDX-License-Identifier: Apache-2.0
 * Verb `plugins`: what is found and why something is refused; of one plugin, the keys that its
 * section of the INI may have.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/plugin/registry.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 4

static const char *type_name(uint32_t type)
{
	static const char *const names[] = { "int", "bool", "bytes", "number", "text", "choice" };

	return type < HD_LEN(names) ? names[type] : "?";
}

static const struct hd_option *option(const struct hd_strategy_ops *o, uint32_t i)
{
	return (const void *)((const char *)o->options + (size_t)i * o->option_size);
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

/* Rows of COLUMNS texts and a last one that is not padded. */
static void print_table(FILE *out, const char *const (*rows)[COLUMNS + 1], size_t n)
{
	int width[COLUMNS] = { 0 };

	for (size_t i = 0; i < n; i++) {
		for (int c = 0; c < COLUMNS; c++) {
			int w = (int)strlen(rows[i][c]);

			width[c] = w > width[c] ? w : width[c];
		}
	}
	for (size_t i = 0; i < n; i++) {
		for (int c = 0; c < COLUMNS; c++)
			fprintf(out, "%s%-*s", c ? "  " : "", width[c], rows[i][c]);
		fprintf(out, "  %s\n", rows[i][COLUMNS]);
	}
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
	const char *(*rows)[COLUMNS + 1] = hd_alloc((n + 1) * sizeof(*rows));
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
		print_table(out, (const char *const(*)[COLUMNS + 1]) rows, n + 1);
	for (size_t i = 1; i <= n; i++) {
		free((char *)rows[i][2]);
		free((char *)rows[i][4]);
	}
	free(rows);
}

static const char *default_text(const struct hd_option *k)
{
	if (!k->default_value)
		return "(must be given)";
	return *k->default_value ? k->default_value : "(none)";
}

static const char *range_text(const struct hd_option *k)
{
	if (k->range)
		return k->range;
	return k->type == HD_OPT_BOOL ? "yes|no" : "any";
}

static void print_one(FILE *out, const struct hd_plugin_entry *e)
{
	uint32_t n = e->ops->noptions;
	const char *(*rows)[COLUMNS + 1] = hd_alloc((n + 1) * sizeof(*rows));
	static const char *const head[] = { "key", "type", "default", "range", "meaning" };

	fprintf(out, "%s %s, ABI %u.%u, %s\n", e->name, e->version, e->abi_major, e->abi_minor, e->path);
	if (e->approximate)
		fprintf(out, "approximate: not what one rank computes, but with %s\n", e->approximate);
	memcpy(rows[0], head, sizeof(head));
	for (uint32_t i = 0; i < n; i++) {
		const struct hd_option *k = option(e->ops, i);

		rows[i + 1][0] = k->key;
		rows[i + 1][1] = type_name(k->type);
		rows[i + 1][2] = default_text(k);
		rows[i + 1][3] = range_text(k);
		rows[i + 1][4] = or_empty(k->help);
	}
	if (n)
		print_table(out, (const char *const(*)[COLUMNS + 1]) rows, n + 1);
	else
		fprintf(out, "no options\n");
	free(rows);
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

static json_t *options_json(const struct hd_strategy_ops *o)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < o->noptions; i++) {
		const struct hd_option *k = option(o, i);

		json_array_append_new(list, json_pack("{s:s, s:s, s:s?, s:s?, s:s}", "key", k->key, "type",
						      type_name(k->type), "default", k->default_value, "range",
						      k->range, "help", or_empty(k->help)));
	}
	return list;
}

static int print_json(FILE *out, json_t *j, struct hd_err *err)
{
	int rc = j ? json_dumpf(j, out, JSON_INDENT(1)) : -1;

	json_decref(j);
	fputc('\n', out);
	if (rc) /* texts of JSON are UTF-8: a path or a plugin's help need not be */
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
	return print_json(out, j, err);
}

int hd_verb_plugins(struct hd_cli *c)
{
	struct hd_err err = { 0 };

	if (hd_plugins_print(stdout, c->positional, hd_cli_has(c, "json"), &err) < 0)
		hd_log(HD_LOG_ERROR, "%s", err.text);
	return err.code ? 1 : 0;
}
