/* SPDX-License-Identifier: Apache-2.0
 * heddle keys: lists the keys that an INI may have.
 */
#include <config.h>
#include "engine/keys/keys.h"
#include "engine/base/json.h"
#include "engine/base/parse.h"
#include <stdlib.h>
#include <string.h>

#define MOST_SECTIONS 256

static const char *name_of(const struct hd_key_section *s)
{
	return strchr(s->label, ' ') ? strchr(s->label, ' ') + 1 : s->label;
}

/* Returns 1 if `asked` names the section: "train", "strategy x" or "x"; "strategy" names all of that kind. */
static int is_meant(const struct hd_key_section *s, const char *asked)
{
	size_t n = strlen(asked);

	return !strcmp(s->label, asked) || !strcmp(name_of(s), asked) ||
	       (!strncmp(s->label, asked, n) && s->label[n] == ' ');
}

static int choose(struct hd_key_section *s, int n, const char *asked, struct hd_err *err)
{
	const char *names[MOST_SECTIONS];
	char hint[480];
	int kept = 0, known = 0;

	for (int i = 0; i < n && known < MOST_SECTIONS; i++)
		names[known++] = strcmp(name_of(&s[i]), "NAME") ? name_of(&s[i]) : s[i].label;
	if (asked) {
		hd_suggest(hint, sizeof(hint), asked, "sections", names, known);
		for (int i = 0; i < n; i++)
			if (is_meant(&s[i], asked))
				s[kept++] = s[i];
		if (!kept)
			return hd_err_set(err, HD_EINVAL, "keys: there is no section %s; %s", asked, hint);
		return kept;
	}
	return n;
}

static void print_text(const struct hd_key_section *s, int n)
{
	for (int i = 0; i < n; i++) {
		printf("%s[%s]  %s\n", i ? "\n" : "", s[i].label, s[i].about);
		hd_keys_print(stdout, &s[i].keys);
	}
}

static int print_json(const struct hd_key_section *s, int n, struct hd_err *err)
{
	json_t *all = json_array(), *o;
	char *line;

	for (int i = 0; i < n; i++)
		for (uint32_t k = 0; k < s[i].keys.n; k++) {
			const struct hd_option *key = hd_key_at(&s[i].keys, k);

			o = json_pack("{s:s, s:s, s:s, s:s?, s:s, s:s}", "section", s[i].label, "key", key->key, "type",
				      hd_key_type(key), "default", key->default_value, "range", hd_key_range(key),
				      "help", key->help ? key->help : "");
			if (!o) /* JSON is UTF-8, and a plugin's texts need not be */
				hd_err_set(err, HD_EINVAL, "keys: [%s] %s: its text is not UTF-8", s[i].label,
					   key->key);
			json_array_append_new(all, o);
		}
	if (!err->code) {
		line = hd_json_line(json_incref(all));
		puts(line);
		free(line);
	}
	json_decref(all);
	return err->code;
}

int hd_verb_keys(struct hd_cli *c)
{
	struct hd_err err = { 0 };
	struct hd_key_section *s;
	int n = hd_key_sections(&s);

	if (hd_cli_has(c, "man") && hd_cli_has(c, "json"))
		n = hd_err_set(&err, HD_EINVAL, "keys: --json does nothing with --man");
	else
		n = choose(s, n, c->positional, &err);
	if (n > 0 && hd_cli_has(c, "man"))
		hd_keys_man(stdout, s, n);
	else if (n > 0 && hd_cli_has(c, "json"))
		print_json(s, n, &err);
	else if (n > 0)
		print_text(s, n);
	if (err.code)
		hd_log(HD_LOG_ERROR, "%s", err.text);
	free(s);
	return err.code ? 1 : 0;
}
