/* SPDX-License-Identifier: Apache-2.0
 * Checks the plugin's tables for errors that would mislead a user, beyond those for which the loader refuses a plugin.
 */
#include <config.h>
#include "engine/conform/judge.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct hd_option *option_of(const struct hd_strategy_ops *o, uint32_t i)
{
	return (const void *)((const char *)o->options + (size_t)i * o->option_size);
}

static void names(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	(void)t;
	if (!*j->plugin->version)
		outcome_set(o, JUDGED_WRONG, "the version is empty");
	for (const char *c = j->plugin->name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
			outcome_set(o, JUDGED_WRONG, "name \"%s\": an INI takes only letters, digits, _ and -",
				    j->plugin->name);
}

static void keys(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	const struct hd_strategy_ops *s = j->plugin->ops;

	(void)t;
	for (uint32_t i = 0; i < s->noptions && o->verdict == JUDGED_OK; i++) {
		const struct hd_option *k = option_of(s, i);

		if (k->key[strspn(k->key, "abcdefghijklmnopqrstuvwxyz0123456789_")])
			outcome_set(o, JUDGED_WRONG, "option %s: keys have small letters, digits and _", k->key);
		if (!k->help || !*k->help) /* the loader has checked that it is one line, and that keys are unique */
			outcome_set(o, JUDGED_WRONG, "option %s: its help is missing", k->key);
	}
}

/* Checks lines from the plugin as if a user had written them in an INI. */
static void try_keys(const struct hd_key_table *table, const char *lines, const char *what, struct outcome *o)
{
	char *ini = hd_format("[strategy x]\n%s", lines);
	struct hd_conf *conf = NULL;
	struct hd_err err = { 0 };

	if (hd_conf_parse("plugin", ini, NULL, 0, &conf, &err) < 0 ||
	    hd_section_check(conf, hd_conf_section(conf, "strategy", "x"), table, 1, &err) < 0)
		outcome_set(o, JUDGED_WRONG, "%s refused: %s", what, err.text);
	hd_conf_destroy(conf);
	free(ini);
}

static void defaults(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	const struct hd_strategy_ops *s = j->plugin->ops;

	(void)t;
	for (uint32_t i = 0; i < s->noptions && o->verdict == JUDGED_OK; i++) {
		struct hd_option one = *option_of(s, i);
		struct hd_key_table table = { &one, 1, sizeof(one) };
		char *line, *what;

		if (!one.default_value || !*one.default_value)
			continue;
		line = hd_format("%s = %s\n", one.key, one.default_value);
		what = hd_format("option %s: its default is", one.key);
		try_keys(&table, line, what, o);
		free(line), free(what);
	}
}

/* Checks one key at a time, so that a missing mandatory key does not matter. */
static void try_text(struct judge *j, const char *what, const char *text, struct outcome *o)
{
	const struct hd_strategy_ops *s = j->plugin->ops;
	struct hd_exact_key k;

	while (text && o->verdict == JUDGED_OK && hd_exact_next(&text, &k))
		for (uint32_t i = 0; i < s->noptions; i++) {
			struct hd_option one = *option_of(s, i);
			struct hd_key_table table = { &one, 1, sizeof(one) };
			char *line;

			if ((int)strlen(one.key) != k.nkey || strncmp(one.key, k.key, (size_t)k.nkey))
				continue;
			line = hd_format("%s = %.*s\n", one.key, k.nvalue, k.value);
			try_keys(&table, line, what, o);
			free(line);
		}
}

static void exact_keys(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	const struct hd_serial_ops *s = j->plugin->serial;

	(void)t;
	try_text(j, "approximate is", j->plugin->approximate, o);
	try_text(j, "serial.keys is", s ? s->keys : NULL, o);
	try_text(j, "serial.one is", s ? s->one : NULL, o);
}

void tables_add(struct judge *j)
{
	judge_add(j, names, NULL, 0, "has a name and a version");
	judge_add(j, keys, NULL, 0, "its options have keys and help");
	judge_add(j, defaults, NULL, 0, "the defaults of its options are in their ranges");
	if (j->plugin->approximate)
		judge_add(j, exact_keys, NULL, 0, "the keys that make it exact are in their ranges");
}
