/* SPDX-License-Identifier: Apache-2.0
 * The configuration: its sections, the overrides of the command line, and the text that checkpoints keep.
 *
 * A section that is requested but not in the file is created and marked as not existing. So readers of keys need no
 * test for it, and it appears neither in the text nor when sections are listed.
 */
#include <config.h>
#include "engine/config/conf_impl.h"
#include "engine/file/file.h"
#include "engine/base/parse.h"
#include "engine/names/unknown.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- sections and entries ---------------------------------------------------------------------- */

struct hd_section *hd_conf_section_find(const struct hd_conf *c, const char *label)
{
	struct hd_section *s;

	for (s = c->first; s && strcmp(s->label, label); s = s->next)
		;
	return s;
}

struct hd_section *hd_conf_section_add(struct hd_conf *c, const char *label, int line, int exists)
{
	struct hd_section **end = &c->first, *s = hd_conf_section_find(c, label);

	if (!s) {
		s = hd_alloc(sizeof(*s));
		s->label = hd_strdup(label);
		s->name = strchr(s->label, ' ') ? strchr(s->label, ' ') + 1 : s->label;
	} else { /* requested before it existed: it moves to its place at the end */
		while (*end != s)
			end = &(*end)->next;
		*end = s->next;
		s->next = NULL;
	}
	while (*end)
		end = &(*end)->next;
	s->line = line;
	s->exists = exists;
	return *end = s;
}

struct hd_entry *hd_conf_entry_find(const struct hd_section *s, const char *key)
{
	size_t i;

	for (i = 0; i < s->n; i++)
		if (!strcmp(s->entries[i].key, key))
			return &s->entries[i];
	return NULL;
}

struct hd_entry *hd_conf_entry_add(struct hd_section *s, const char *key, const char *value, int line)
{
	struct hd_entry *e;

	s->entries = hd_grow(s->entries, s->n, &s->cap, sizeof(*e));
	e = &s->entries[s->n++];
	e->key = hd_strdup(key);
	e->value = hd_strdup(value);
	e->line = line;
	e->given = 1;
	return e;
}

/* -- --set ------------------------------------------------------------------------------------- */

#define MAX_NAMES 128
const char *const hd_conf_plain[] = { "model", "data", "train", "checkpoint", "log", NULL };

int hd_conf_is_plain(const char *name)
{
	for (int i = 0; hd_conf_plain[i]; i++)
		if (!strcmp(name, hd_conf_plain[i]))
			return 1;
	return 0;
}

static struct hd_section *set_section(struct hd_conf *c, const char *name, const char *key, struct hd_err *err)
{
	const char *names[MAX_NAMES], *near;
	struct hd_section *s = hd_conf_section_find(c, name);
	char *label, *hint;
	int n = 0;

	while (hd_conf_plain[n])
		names[n] = hd_conf_plain[n], n++;
	if (!s && hd_conf_is_plain(name))
		s = hd_conf_section_add(c, name, 0, 1);
	if (s)
		return s;
	for (s = c->first; s; s = s->next) {
		if (!strcmp(s->name, name))
			return s;
		if (s->name != s->label && n < MAX_NAMES)
			names[n++] = s->name;
	}
	if ((!strcmp(key, "plugin") || !strcmp(key, "file")) && *name && strlen(name) <= 60 && *name != ';' &&
	    !name[strcspn(name, " \t[]")]) { /* a ; after a blank would begin a comment */
		label = hd_format("%s %s", !strcmp(key, "plugin") ? "strategy" : "plugin", name);
		s = hd_conf_section_add(c, label, 0, 1);
		free(label);
		return s;
	}
	hint = hd_unknown_section_hint(name, names, n);
	near = hd_suggest_nearest(name, names, n);
	if (!near || strlen(name) < 3) /* in so short a name, one wrong letter is no typo */
		hd_append(&hint, "%s--set %s.plugin=PLUGIN before it adds one", near ? " " : "; ", name);
	hd_err_set(err, HD_EINVAL, "--set %s.%s: no section [%s] or [strategy %s]; %s", name, key, name, name, hint);
	free(hint);
	return NULL;
}

static int set_value(struct hd_conf *c, char *name, char *key, char *value, struct hd_err *err)
{
	struct hd_section *s;
	struct hd_entry *e;
	char *p;

	for (p = value; *p; p++) /* characters that could not be read back from hd_conf_text */
		if (iscntrl((unsigned char)*p) || (*p == ';' && p > value && isspace((unsigned char)p[-1])))
			return hd_err_set(err, HD_EINVAL,
					  "--set %s.%s: a value cannot hold a control character, "
					  "nor a ; after a blank",
					  name, key);
	s = set_section(c, name, key, err);
	if (!s)
		return HD_EINVAL;
	e = hd_conf_entry_find(s, key);
	if (!e)
		e = hd_conf_entry_add(s, key, "", 0);
	free(e->value);
	free(e->set);
	e->value = hd_strdup(value);
	e->set = hd_format("--set %s.%s", name, key);
	return 0;
}

/* Returns 1 if a line of the file could begin with this key. */
static int is_key(const char *key)
{
	const char *p = key;

	while (*p && !iscntrl((unsigned char)*p) && !strchr(":;#[] ", *p))
		p++;
	return p > key && !*p && p - key <= HD_LONGEST_KEY;
}

/* Returns 1 if a section could have this name. */
static int is_section(const char *name)
{
	const char *p = name;

	while (*p && !iscntrl((unsigned char)*p))
		p++;
	return p > name && !*p;
}

static int set_apply(struct hd_conf *c, const char *set, struct hd_err *err)
{
	char *name = hd_strdup(set), *eq = strchr(name, '='), *dot = NULL, *key = NULL;
	int rc;

	if (eq) {
		*eq = 0;
		dot = strrchr(name, '.');
	}
	if (dot) {
		*dot = 0;
		key = hd_parse_trim(dot + 1);
	}
	if (!dot || !is_key(key) || !is_section(hd_parse_trim(name)))
		rc = hd_err_set(err, HD_EINVAL, "--set %s: write section.key=value", set);
	else
		rc = set_value(c, hd_parse_trim(name), key, hd_parse_trim(eq + 1), err);
	free(name);
	return rc;
}

/* -- the whole --------------------------------------------------------------------------------- */

int hd_conf_parse(const char *name, const char *text, const char *const *sets, int nsets, struct hd_conf **out,
		  struct hd_err *err)
{
	struct hd_conf *c = hd_alloc(sizeof(*c));
	int i, rc;

	c->path = hd_strdup(name);
	rc = hd_conf_file(c, text, err);
	for (i = 0; rc == 0 && i < nsets; i++)
		rc = set_apply(c, sets[i], err);
	if (rc)
		hd_conf_destroy(c);
	else
		*out = c;
	return rc;
}

int hd_conf_read(const char *path, const char *const *sets, int nsets, struct hd_conf **out, struct hd_err *err)
{
	size_t len;
	char *text = hd_file_slurp(path, &len);
	int rc;

	if (!text)
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	if (memchr(text, 0, len))
		rc = hd_err_set(err, HD_EINVAL, "%s: not a text file (byte %zu is zero)", path, strlen(text));
	else
		rc = hd_conf_parse(path, text, sets, nsets, out, err);
	free(text);
	return rc;
}

void hd_conf_destroy(struct hd_conf *c)
{
	struct hd_section *s, *next;
	size_t i;

	if (!c)
		return;
	for (s = c->first; s; s = next) {
		next = s->next;
		for (i = 0; i < s->n; i++) {
			free(s->entries[i].key);
			free(s->entries[i].value);
			free(s->entries[i].set);
		}
		free(s->entries);
		free(s->label);
		free(s);
	}
	free(c->path);
	free(c);
}

char *hd_conf_text(const struct hd_conf *c)
{
	const struct hd_section *s;
	const struct hd_entry *e;
	char *out = hd_strdup("");
	size_t i;

	for (s = c->first; s; s = s->next) {
		if (!s->exists)
			continue;
		hd_append(&out, "%s[%s]\n", *out ? "\n" : "", s->label);
		for (i = 0; i < s->n; i++) {
			e = &s->entries[i];
			if (!e->given)
				continue;
			/* a ; after a blank would begin a comment */
			hd_append(&out, "%s =%s%s\n", e->key, *e->value == ';' ? "" : " ", e->value);
		}
	}
	return out;
}

const char *hd_conf_path(const struct hd_conf *c)
{
	return c->path;
}

struct hd_section *hd_conf_section(struct hd_conf *c, const char *kind, const char *name)
{
	char *label = kind ? hd_format("%s %s", kind, name) : hd_strdup(name);
	struct hd_section *s = hd_conf_section_find(c, label);

	if (!s)
		s = hd_conf_section_add(c, label, 0, 0);
	free(label);
	return s;
}

static int is_kind(const struct hd_section *s, const char *kind)
{
	size_t n = kind ? strlen(kind) : 0;

	if (!kind)
		return 1;
	return s->name == s->label + n + 1 && !strncmp(s->label, kind, n);
}

struct hd_section *hd_conf_next(struct hd_conf *c, const char *kind, struct hd_section *prev)
{
	struct hd_section *s = prev ? prev->next : c->first;

	while (s && !(s->exists && is_kind(s, kind)))
		s = s->next;
	return s;
}

int hd_section_is(const struct hd_section *s, const char *kind)
{
	return is_kind(s, kind);
}

const char *hd_section_name(const struct hd_section *s)
{
	return s->name;
}

/* Fails with the nearest section as the user would write it, among [name] and [kind NAME]. */
static int unknown_section(struct hd_conf *c, struct hd_section *s, const char *const *names, const char *const *kinds,
			   struct hd_err *err)
{
	const char *all[MAX_NAMES], *kind = NULL;
	char *made[MAX_NAMES], *hint;
	int n = 0, i;

	for (i = 0; names && names[i] && n < MAX_NAMES; i++)
		made[n++] = hd_format("[%s]", names[i]);
	for (i = 0; kinds && kinds[i] && n < MAX_NAMES; i++) {
		if (is_kind(s, kinds[i]) || !strcmp(s->label, kinds[i]))
			kind = kinds[i];
		made[n++] = s->name == s->label ? hd_format("[%s NAME]", kinds[i])
						: hd_format("[%s %s]", kinds[i], s->name);
	}
	for (i = 0; i < n; i++)
		all[i] = made[i];
	if (kind) {
		hint = hd_format("the section needs a name: [%s NAME]", kind);
	} else {
		char *word = hd_format("[%s]", s->label);

		hint = hd_unknown_section_hint(word, all, n);
		free(word);
	}
	while (n)
		free(made[--n]);
	if (s->line)
		hd_err_set(err, HD_EINVAL, "%s:%d: [%s]: unknown section; %s", c->path, s->line, s->label, hint);
	else
		hd_err_set(err, HD_EINVAL, "%s: [%s]: unknown section; %s", c->path, s->label, hint);
	free(hint);
	return err->code;
}

int hd_conf_known(struct hd_conf *c, const char *const *names, const char *const *kinds, struct hd_err *err)
{
	struct hd_section *s;
	int i, known;

	for (s = c->first; s; s = s->next) {
		known = !s->exists;
		for (i = 0; !known && names && names[i]; i++)
			known = !strcmp(s->label, names[i]);
		for (i = 0; !known && kinds && kinds[i]; i++)
			known = is_kind(s, kinds[i]);
		if (!known)
			return unknown_section(c, s, names, kinds, err);
	}
	return 0;
}

void hd_conf_drop_lines(struct hd_conf *c)
{
	for (struct hd_section *s = c->first; s; s = s->next) {
		s->line = 0;
		for (size_t i = 0; i < s->n; i++)
			s->entries[i].line = 0;
	}
}
