/* SPDX-License-Identifier: Apache-2.0
 * Checks keys against their tables (types, ranges, defaults), and writes errors that name the place of a value.
 *
 * After a check every key of the tables is in the section, defaults included (marked as not given). So reading a value
 * is a lookup that cannot fail. A default of "" means that the reader derives the value: it is not converted.
 */
#include <config.h>
#include "engine/config/conf_impl.h"
#include "engine/base/parse.h"
#include "engine/names/unknown.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEYS 256

/* Returns a hint for two habits from other formats: comments after # and quoted values. */
static const char *slip(const char *value)
{
	size_t n = strlen(value);

	if (strstr(value, " #") || strstr(value, "\t#"))
		return " (a comment after a value begins with ;)";
	if (n > 1 && strchr("\"'", value[0]) && value[n - 1] == value[0])
		return " (values are written without quotes)";
	return "";
}

void hd_conf_slips(const struct hd_conf *c, char **lines)
{
	for (const struct hd_section *s = c->first; s; s = s->next)
		for (size_t i = 0; i < s->n; i++) {
			const struct hd_entry *e = &s->entries[i];

			if (!e->given || e->loaded || !*slip(e->value))
				continue;
			if (e->set)
				hd_append(lines, "%s", e->set);
			else
				hd_append(lines, "%s:%d: [%s] %s", c->path, e->line, s->label, e->key);
			hd_append(lines, ": %s is used as it stands%s\n", e->value, slip(e->value));
		}
}

int hd_section_fail(struct hd_conf *c, struct hd_section *s, const char *key, struct hd_err *err, int code,
		    const char *fmt, ...)
{
	const struct hd_entry *e = key ? hd_conf_entry_find(s, key) : NULL;
	int line = key && e && e->given ? e->line : s->line;
	char *text, *own, at[24] = "";
	va_list v;

	va_start(v, fmt);
	text = hd_vformat(fmt, v);
	va_end(v);
	if (e && e->given && e->loaded) { /* its place is that of load, which does not tell the key */
		own = text;
		text = hd_format("%s of %s: %s", key, hd_section_str(s, "load"), own);
		key = "load";
		free(own);
	}
	if (e && e->given)
		hd_append(&text, "%s", slip(e->value));
	if (line)
		snprintf(at, sizeof(at), ":%d", line);
	if (e && e->set)
		hd_err_set(err, code, "%s: %s", e->set, text);
	else
		hd_err_set(err, code, "%s%s: [%s]%s%s: %s", c->path, at, s->label, key ? " " : "", key ? key : "",
			   text);
	free(text);
	return code;
}

static const struct hd_option *option(const struct hd_key_table *t, uint32_t i)
{
	return (const void *)((const char *)t->keys + (size_t)i * (t->stride ? t->stride : sizeof(*t->keys)));
}

static const struct hd_option *option_find(const struct hd_key_table *tables, int n, const char *key)
{
	uint32_t i;
	int t;

	for (t = 0; t < n; t++)
		for (i = 0; i < tables[t].n; i++)
			if (!strcmp(option(&tables[t], i)->key, key))
				return option(&tables[t], i);
	return NULL;
}

#define FEW 12

static int is_of_runs(const struct hd_section *s)
{
	return hd_conf_is_plain(s->label) || hd_section_is(s, "strategy") || hd_section_is(s, "plugin");
}

/* Returns "`heddle keys train` prints all", or the keys themselves if they are few; the caller frees it. */
static char *all_keys_hint(const struct hd_section *s, const char *const *names, int n)
{
	const struct hd_entry *e = hd_conf_entry_find(s, hd_section_is(s, "plugin") ? "file" : "plugin");
	const char *plugin = e ? e->value : "";
	char *all = NULL;

	if (hd_conf_is_plain(s->label))
		return hd_format("`heddle keys %s` prints all", s->label);
	if (*plugin && is_of_runs(s))
		return hd_format("`heddle %s %s` prints all", strpbrk(plugin, "/.") ? "plugins" : "keys", plugin);
	for (int i = 0; i < n && n <= FEW; i++)
		hd_append(&all, "%s%s", i ? ", " : "keys: ", names[i]);
	return all ? all : hd_strdup("");
}

static int unknown_key(struct hd_conf *c, struct hd_section *s, const char *key, const struct hd_key_table *tables,
		       int ntables, struct hd_err *err)
{
	const char *names[MAX_KEYS];
	char *hint, *all;
	uint32_t i;
	int t, n = 0;

	if (hd_key_comes_later(s->label, key))
		return hd_section_fail(c, s, key, err, HD_EINVAL, "this key is not supported yet");
	for (t = 0; t < ntables; t++)
		for (i = 0; i < tables[t].n && n < MAX_KEYS; i++)
			names[n++] = option(&tables[t], i)->key;
	all = all_keys_hint(s, names, n);
	hint = hd_unknown_key_hint(is_of_runs(s) ? s->label : NULL, key, names, n, all);
	hd_section_fail(c, s, key, err, HD_EINVAL, "unknown key; %s", hint);
	free(hint), free(all);
	return err->code;
}

/* -- ranges ------------------------------------------------------------------------------------ */

/* Splits "lo..hi" into two strings; a missing end is "". */
static void bounds(const char *range, char lo[32], char hi[32])
{
	const char *dots = range ? strstr(range, "..") : NULL;

	*lo = *hi = 0;
	if (!dots)
		return;
	snprintf(lo, 32, "%.*s", (int)(dots - range), range);
	snprintf(hi, 32, "%s", dots + 2);
}

/* Returns -1 if the value is below the range, 1 if above, 0 if within. */
static int outside(const struct hd_option *o, const struct hd_entry *e, const char *lo, const char *hi)
{
	int64_t i;
	double d;

	if (o->type == HD_OPT_NUM) {
		if (!hd_word_num(lo, &d) && e->number < d)
			return -1;
		return !hd_word_num(hi, &d) && e->number > d;
	}
	if ((!hd_word_int(lo, &i) || !hd_word_bytes(lo, &i)) && e->integer < i)
		return -1;
	return (!hd_word_int(hi, &i) || !hd_word_bytes(hi, &i)) && e->integer > i;
}

/* Digits of an upper end that only keeps products of sizes within 64 bits. No message names such an end. */
#define FAR 10

static int check_range(struct hd_conf *c, struct hd_section *s, const struct hd_option *o, const struct hd_entry *e,
		       struct hd_err *err)
{
	char lo[32], hi[32];
	int side;

	bounds(o->range, lo, hi);
	side = outside(o, e, lo, hi);
	if (!side)
		return 0;
	if (*lo && *hi && strlen(hi) < FAR)
		return hd_section_fail(c, s, o->key, err, HD_EINVAL, "%s is not in %s..%s", e->value, lo, hi);
	return hd_section_fail(c, s, o->key, err, HD_EINVAL,
			       side < 0 ? "%s is too small, at least %s" : "%s is too large, at most %s", e->value,
			       side < 0 ? lo : hi);
}

/* -- choices ----------------------------------------------------------------------------------- */

static int check_choice(struct hd_conf *c, struct hd_section *s, const struct hd_option *o, const struct hd_entry *e,
			struct hd_err *err)
{
	char words[400], hint[480], *next = words, *word;
	const char *among[64];
	int n = 0, file = 0;

	snprintf(words, sizeof(words), "%s", o->range ? o->range : "");
	while ((word = strsep(&next, "|"))) {
		if (!strcmp(word, "FILE"))
			file = 1;
		else if (!strcmp(word, e->value))
			return 0;
		else if (n < (int)HD_LEN(among))
			among[n++] = word;
	}
	if (file && (strpbrk(e->value, "./") || !hd_suggest_nearest(e->value, among, n)))
		return 0; /* a bare word close to one of the choices is a typo, not a file */
	hd_suggest(hint, sizeof(hint), e->value, "choices", among, n);
	return hd_section_fail(c, s, o->key, err, HD_EINVAL, "'%s' is not a choice; %s%s%s%s", e->value, hint,
			       file ? " (a file of that name: ./" : "", file ? e->value : "", file ? ")" : "");
}

/* -- values ------------------------------------------------------------------------------------ */

/* Parses the value. Returns 0, HD_EINVAL, or HD_EABI for a type that this engine does not know. */
static int parse(uint32_t type, struct hd_entry *e)
{
	switch (type) {
	case HD_OPT_INT: return hd_parse_count(e->value, &e->integer);
	case HD_OPT_BOOL: return hd_word_bool(e->value, &e->integer);
	case HD_OPT_BYTES: return hd_word_bytes(e->value, &e->integer);
	case HD_OPT_NUM: return hd_word_num(e->value, &e->number);
	case HD_OPT_STR:
	case HD_OPT_CHOICE: return 0;
	default: return HD_EABI;
	}
}

static int convert(struct hd_conf *c, struct hd_section *s, const struct hd_option *o, struct hd_entry *e,
		   struct hd_err *err)
{
	static const char *const what[] = {
		[HD_OPT_INT] = "a whole number (K, M or G may follow it)",
		[HD_OPT_BOOL] = "yes or no",
		[HD_OPT_BYTES] = "a size (a whole number; K, M, G or T may follow it)",
		[HD_OPT_NUM] = "a number",
	};
	int rc;

	if (!*e->value && o->default_value && (!*o->default_value || o->type == HD_OPT_STR))
		return 0;
	if (!*e->value)
		return hd_section_fail(c, s, o->key, err, HD_EINVAL, "no value after the =");
	rc = parse(o->type, e);
	if (rc == HD_EABI)
		return hd_section_fail(c, s, o->key, err, rc, "option type %u is not known here", o->type);
	if (rc)
		return hd_section_fail(c, s, o->key, err, rc, "'%s' is not %s", e->value, what[o->type]);
	if (o->type == HD_OPT_CHOICE)
		return check_choice(c, s, o, e, err);
	if (o->type == HD_OPT_STR || o->type == HD_OPT_BOOL)
		return 0;
	if (o->type == HD_OPT_NUM)
		e->integer = (int64_t)(e->number > -9e18 && e->number < 9e18 ? e->number : 0);
	else
		e->number = (double)e->integer;
	return check_range(c, s, o, e, err);
}

/* Adds the option's entry with its default if the user gave none. */
static int fill(struct hd_conf *c, struct hd_section *s, const struct hd_option *o, struct hd_err *err)
{
	struct hd_entry *e = hd_conf_entry_find(s, o->key);

	if (e && e->given)
		return 0; /* already converted, with the other keys of the file */
	if (!o->default_value)
		return hd_section_fail(c, s, o->key, err, HD_EINVAL, "missing; it has no default");
	if (!e) {
		e = hd_conf_entry_add(s, o->key, o->default_value, 0);
		e->given = 0;
	}
	return convert(c, s, o, e, err);
}

int hd_section_check(struct hd_conf *c, struct hd_section *s, const struct hd_key_table *tables, int ntables,
		     struct hd_err *err)
{
	const struct hd_option *o;
	uint32_t i;
	size_t k;
	int t;

	for (k = 0; k < s->n; k++)
		if (s->entries[k].given && !option_find(tables, ntables, s->entries[k].key))
			return unknown_key(c, s, s->entries[k].key, tables, ntables, err);
	for (k = 0; k < s->n; k++)
		if (s->entries[k].given) {
			o = option_find(tables, ntables, s->entries[k].key);
			HD_TRY(convert(c, s, o, &s->entries[k], err));
		}
	for (t = 0; t < ntables; t++)
		for (i = 0; i < tables[t].n; i++)
			HD_TRY(fill(c, s, option(&tables[t], i), err));
	return 0;
}

/* -- reading ----------------------------------------------------------------------------------- */

int hd_section_has(const struct hd_section *s, const char *key)
{
	const struct hd_entry *e = hd_conf_entry_find(s, key);

	return e && e->given;
}

int hd_section_given_by_user(const struct hd_section *s, const char *key)
{
	const struct hd_entry *e = hd_conf_entry_find(s, key);

	return e && e->given && !e->loaded;
}

int hd_section_set(const struct hd_section *s, const char *key)
{
	const struct hd_entry *e = hd_conf_entry_find(s, key);

	return e && e->set;
}

int64_t hd_section_int(const struct hd_section *s, const char *key)
{
	const struct hd_entry *e = hd_conf_entry_find(s, key);

	return e ? e->integer : 0;
}

double hd_section_num(const struct hd_section *s, const char *key)
{
	const struct hd_entry *e = hd_conf_entry_find(s, key);

	return e ? e->number : 0;
}

const char *hd_section_str(const struct hd_section *s, const char *key)
{
	const struct hd_entry *e = hd_conf_entry_find(s, key);

	return e ? e->value : "";
}
