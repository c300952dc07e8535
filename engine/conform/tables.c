/* SPDX-License-Identifier: Apache-2.0
 * What the plugin's tables say: beyond what the loader refuses, what would mislead a user.
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
			outcome_set(o, JUDGED_WRONG, "name \"%s\": letters, digits, _ and - are all that an INI takes",
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
		if (!k->help || !*k->help) /* that it is one line, and no key stands twice, the loader has seen */
			outcome_set(o, JUDGED_WRONG, "option %s: its help is missing", k->key);
	}
}

/* A default is checked as what a user writes is. */
static void defaults(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	const struct hd_strategy_ops *s = j->plugin->ops;

	(void)t;
	for (uint32_t i = 0; i < s->noptions && o->verdict == JUDGED_OK; i++) {
		const struct hd_option *k = option_of(s, i);
		struct hd_option one = *k;
		struct hd_key_table table = { &one, 1, sizeof(one) };
		struct hd_conf *conf = NULL;
		struct hd_err err = { 0 };
		char *ini;

		if (!k->default_value || !*k->default_value)
			continue;
		ini = hd_format("[strategy x]\n%s = %s\n", k->key, k->default_value);
		if (hd_conf_parse("default", ini, NULL, 0, &conf, &err) < 0 ||
		    hd_section_check(conf, hd_conf_section(conf, "strategy", "x"), &table, 1, &err) < 0)
			outcome_set(o, JUDGED_WRONG, "option %s: its default is refused: %s", k->key, err.text);
		hd_conf_destroy(conf);
		free(ini);
	}
}

void tables_add(struct judge *j)
{
	judge_add(j, names, NULL, 0, "has a name and a version");
	judge_add(j, keys, NULL, 0, "its options have keys and help");
	judge_add(j, defaults, NULL, 0, "the defaults of its options are in their ranges");
}
