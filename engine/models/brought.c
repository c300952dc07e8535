/* SPDX-License-Identifier: Apache-2.0
 * Checks the families of plugins (heddle/family.h); then they are used like those of this program. A mistake is
 * refused in one line that names the section, the plugin, the family, the entry and its value. A wrong table would
 * load somebody's weights into a different model.
 */
#include <config.h>
#include "engine/models/model.h"
#include "engine/models/decoder/hf.h"
#include "engine/models/decoder/knobs.h"
#include "engine/plugin/registry.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Keys of config.json in a list; a longer one lacks its end. Other lists need no limit, since no entry may be
 * repeated. */
#define MOST 1000

struct family_check {
	struct hd_conf *conf;
	struct hd_section *section;
	const struct hd_plugin_entry *plugin;
	const struct hd_family_ops *family;
	struct hd_err *err;
};

static const char *key_of_file(const struct hd_section *s)
{
	return hd_section_is(s, "plugin") ? "file" : "plugin";
}

static int HD_PRINTF(2, 3) wrong(const struct family_check *b, const char *fmt, ...)
{
	char *text;
	va_list v;

	va_start(v, fmt);
	text = hd_one_line(hd_vformat(fmt, v));
	va_end(v);
	hd_section_fail(b->conf, b->section, key_of_file(b->section), b->err, HD_EABI, "plugin %s, family %s: %s",
			b->plugin->name, b->family->name, text);
	free(text);
	return HD_EABI;
}

/* -- values of keys ------------------------------------------------------------------------------------------------ */
/* Whether a family may have a default for the key. Of the keys that are not read with the others, these few qualify. */
static int may_have_default(const struct hd_knob *k)
{
	static const char *const also[] = { "tie_embeddings", "experts", "experts_per_token",
					    "moe_every",      "router",  "normalize_gates" };

	for (size_t i = 0; i < HD_LEN(also); i++)
		if (!strcmp(also[i], k->key))
			return 1;
	return !k->derived;
}

static const struct hd_option *option_of(const char *key)
{
	for (uint32_t i = 0; i < hd_model_keys.n; i++)
		if (!strcmp(hd_model_keys.keys[i].key, key))
			return &hd_model_keys.keys[i];
	return NULL;
}

/* Returns why the value is invalid for the key, as a message without its "[model] key: ", or NULL if it is valid. The
 * caller frees it. */
static char *value_error(const struct hd_knob *k, const char *value)
{
	struct hd_key_table table = { option_of(k->key), 1, sizeof(struct hd_option) };
	char *ini = hd_format("[model]\n%s = %s\n", k->key, value), *text = NULL;
	struct hd_conf *conf = NULL;
	struct hd_err err = { 0 };
	const char *at;

	if (hd_conf_parse("a default", ini, NULL, 0, &conf, &err) < 0 ||
	    hd_section_check(conf, hd_conf_section(conf, NULL, "model"), &table, 1, &err) < 0) {
		at = strstr(err.text, "] ");
		at = at ? strstr(at, ": ") : NULL;
		text = hd_strdup(at ? at + 2 : err.text);
	}
	hd_conf_destroy(conf);
	free(ini);
	return text;
}

static int check_value(const struct family_check *b, const char *what, const char *key, const char *value)
{
	const struct hd_knob *k = hd_knob_find(key);
	char *text;

	if (!k)
		return wrong(b, "%s %s = %s: no adjustable key of [model] has this name", what, key,
			     value ? value : "");
	if (!value)
		return wrong(b, "%s %s has no value", what, key);
	if (k->kind == HD_KNOB_YES && strcmp(value, "yes") && strcmp(value, "no"))
		return wrong(b, "%s %s = %s: it must be yes or no", what, key, value);
	if (k->kind == HD_KNOB_INT && value[strspn(value, "0123456789")])
		return wrong(b, "%s %s = %s: it must be a whole number in digits", what, key, value);
	if (!strcmp(key, "window_layers") && (!*value || value[strspn(value, "wf")]))
		return wrong(b, "%s %s = %s: it must be letters w and f", what, key, value);
	text = value_error(k, value);
	if (text)
		wrong(b, "%s %s = %s: %s", what, key, value, text);
	free(text);
	return b->err->code;
}

static int check_defaults(const struct family_check *b)
{
	const struct hd_family_value *all = b->family->defaults;

	for (size_t i = 0; all && all[i].key; i++) {
		const struct hd_knob *k = hd_knob_find(all[i].key);

		HD_TRY(check_value(b, "default", all[i].key, all[i].value));
		if (!may_have_default(k))
			return wrong(b, "default %s = %s: each model sets it itself", all[i].key, all[i].value);
		for (size_t j = 0; j < i; j++)
			if (!strcmp(all[j].key, all[i].key))
				return wrong(b, "default %s = %s: it is already %s", all[i].key, all[i].value,
					     all[j].value);
	}
	return HD_OK;
}

/* -- keys of config.json ------------------------------------------------------------------------------------------- */
/* Checks values "theirs=ours|...": every word of ours must be a value of the key. */
static int check_words(const struct family_check *b, const struct hd_family_key *k)
{
	const struct hd_knob *knob = hd_knob_find(k->ours);
	const char *at = k->values;

	if (knob->kind != HD_KNOB_CHOICE)
		return at ? wrong(b, "key %s: values \"%s\", but model.%s is not a choice", k->theirs, at, k->ours)
			  : HD_OK;
	if (!at || !*at)
		return wrong(b, "key %s: values are missing, but model.%s is a choice", k->theirs, k->ours);
	for (; *at; at += strcspn(at, "|"), at += *at == '|') {
		size_t n = strcspn(at, "|"), first = strcspn(at, "=|");
		char *word = hd_format("%.*s", (int)(n - first - (first < n)), at + first + (first < n));
		int bad =
			first == n || n - first > 39 || first > 39
				? wrong(b, "key %s: values \"%.*s\": it must be \"theirs=ours\"", k->theirs, (int)n, at)
				: check_value(b, k->theirs, k->ours, word);

		free(word);
		HD_TRY(bad);
	}
	return HD_OK;
}

static int check_key(const struct family_check *b, const struct hd_family_key *k)
{
	if (!*k->theirs)
		return wrong(b, "keys: an entry's name is empty");
	if (k->flags & ~(uint64_t)HD_FAMILY_KEY_NULL)
		return wrong(b, "key %s: flags are 0x%llx, this engine knows 0x%x", k->theirs,
			     (unsigned long long)k->flags, HD_FAMILY_KEY_NULL);
	if (!k->ours)
		return k->absent && strcmp(k->absent, "-")
			       ? wrong(b, "key %s: absent \"%s\", but it is not a key of [model]", k->theirs, k->absent)
			       : HD_OK;
	if (!hd_knob_find(k->ours))
		return wrong(b, "key %s: no adjustable key of [model] has the name %s", k->theirs, k->ours);
	HD_TRY(check_words(b, k));
	if (!k->absent || !strcmp(k->absent, "!") || !strcmp(k->absent, "-"))
		return HD_OK;
	return check_value(b, "absent", k->ours, k->absent);
}

static int check_keys(const struct family_check *b)
{
	static const char *const must[] = { "layers", "embed", "heads", "vocab", "max_seq" };
	const struct hd_family_key *all = b->family->keys;
	const struct hd_family f = { .keys = all };

	for (size_t i = 0; all[i].theirs; i++) {
		if (i == MOST)
			return wrong(b, "keys: the list has no terminator within %d entries", MOST);
		HD_TRY(check_key(b, &all[i]));
	}
	for (size_t i = 0; i < HD_LEN(must); i++)
		if (!hd_hf_theirs(&f, must[i]))
			return wrong(b, "keys: no key gives model.%s", must[i]);
	return HD_OK;
}

/* -- names of weights ---------------------------------------------------------------------------------------------- */
static size_t stars(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '*';
	return n;
}

static int check_name(const struct family_check *b, size_t i)
{
	const struct hd_family_name *all = b->family->names, *n = &all[i];

	if (!n->theirs || !*n->theirs)
		return wrong(b, "weight %s has no name", n->ours);
	if (!hd_decoder_weight(n->ours))
		return wrong(b, "weight %s is %s: the decoder has no weight %s", n->ours, n->theirs, n->ours);
	if (stars(n->ours) != stars(n->theirs) || strlen(n->theirs) > 90)
		return wrong(b, "weight %s is %s: it must have the same number of *, and at most 90 bytes", n->ours,
			     n->theirs);
	for (size_t j = 0; j < i; j++) {
		if (!strcmp(all[j].ours, n->ours))
			return wrong(b, "weight %s is %s, but it is already %s", n->ours, n->theirs, all[j].theirs);
		if (!strcmp(all[j].theirs, n->theirs) &&
		    (!hd_decoder_joins(n->ours) || hd_decoder_joins(all[j].ours) != hd_decoder_joins(n->ours)))
			return wrong(b, "weights %s and %s are both %s", all[j].ours, n->ours, n->theirs);
	}
	return HD_OK;
}

static int check_names(const struct family_check *b)
{
	const struct hd_family_name *all = b->family->names;

	for (size_t i = 0; all && all[i].ours; i++)
		HD_TRY(check_name(b, i));
	return HD_OK;
}

/* -- the table ----------------------------------------------------------------------------------------------------- */
static int check_table(const struct family_check *b)
{
	const struct hd_family_ops *f = b->family;

	if (!f->model_type || !*f->model_type)
		return wrong(b, "model_type is missing");
	if (!f->class_name || !*f->class_name)
		return wrong(b, "class_name is missing");
	if (!f->keys)
		return wrong(b, "keys are missing");
	if (hd_family_find(f->name))
		return wrong(b, "there is already a family %s", f->name);
	if (hd_family_of_type(f->model_type) || !strcmp(f->model_type, "heddle"))
		return wrong(b, "model_type %s already belongs to another family", f->model_type);
	if (f->window > HD_FAMILY_WINDOW_TYPES)
		return wrong(b, "window is %u, this engine knows 0..%d", f->window, HD_FAMILY_WINDOW_TYPES);
	if (f->window_absent < 0)
		return wrong(b, "window_absent is %lld, it must be 0 or more", (long long)f->window_absent);
	HD_TRY(check_defaults(b));
	HD_TRY(check_keys(b));
	return check_names(b);
}

static int64_t number_of(const struct hd_family *f, const char *key, int64_t otherwise)
{
	const char *value = hd_family_default(f, key);

	return value ? strtoll(value, NULL, 10) : otherwise;
}

static struct hd_family *family_of(const struct hd_family_ops *o)
{
	const struct hd_family plain = { .name = o->name,
					 .model_type = o->model_type,
					 .class = o->class_name,
					 HD_DECODER_FAMILY,
					 .defaults = o->defaults,
					 .keys = o->keys,
					 .names = o->names,
					 .window = o->window,
					 .window_pattern = o->window_every,
					 .window_absent = o->window_absent,
					 .expert_names = &hd_experts_of_mlp };
	struct hd_family *f = hd_alloc(sizeof(*f));
	const char *router;

	*f = plain;
	f->experts = number_of(f, "experts", 0);
	f->moe_every = number_of(f, "moe_every", f->experts ? 1 : 2);
	router = hd_family_default(f, "router");
	f->router = router ? hd_router_of(router) : f->experts ? HD_ROUTER_TOPK : HD_ROUTER_GSHARD;
	return f;
}

/* -- loading ------------------------------------------------------------------------------------------------------- */
static struct {
	const struct hd_plugin_entry **all;
	size_t n, cap;
} known;

static int is_known(const struct hd_plugin_entry *e)
{
	for (size_t i = 0; i < known.n; i++)
		if (known.all[i] == e)
			return 1;
	return 0;
}

static int add_families(struct family_check *b)
{
	const struct hd_family_ops *const *all = b->plugin->families;

	if (!all || is_known(b->plugin))
		return HD_OK;
	for (size_t i = 0; all[i]; i++) {
		b->family = all[i];
		HD_TRY(check_table(b));
		hd_family_add(family_of(all[i]));
	}
	known.all = hd_grow(known.all, known.n, &known.cap, sizeof(struct hd_plugin_entry *));
	known.all[known.n++] = b->plugin;
	return HD_OK;
}

int hd_plugin_of_section(struct hd_conf *c, struct hd_section *s, struct hd_plugin_entry **e, struct hd_err *err)
{
	const char *slash = strrchr(hd_conf_path(c), '/'), *key = key_of_file(s);
	char *dir = slash ? hd_format("%.*s", (int)(slash - hd_conf_path(c)), hd_conf_path(c)) : hd_strdup(".");
	struct hd_err why = { 0 };

	if (hd_registry_find(hd_section_str(s, key), dir, e, &why) < 0)
		hd_section_fail(c, s, key, err, why.code, "%s", why.text);
	free(dir);
	return why.code;
}

int hd_families_load(struct hd_conf *c, struct hd_err *err)
{
	struct hd_section *s = NULL;

	while ((s = hd_conf_next(c, NULL, s))) {
		struct family_check b = { .conf = c, .section = s, .err = err };
		struct hd_plugin_entry *e = NULL;

		if ((!hd_section_is(s, "strategy") && !hd_section_is(s, "plugin")) ||
		    !hd_section_has(s, key_of_file(s)))
			continue;
		HD_TRY(hd_plugin_of_section(c, s, &e, err));
		b.plugin = e;
		HD_TRY(add_families(&b));
	}
	return HD_OK;
}
