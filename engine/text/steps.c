/* SPDX-License-Identifier: Apache-2.0
 * Loads what the parts of tokenizer.json have in common: a component has a type, or is a sequence of other components.
 */
#include <config.h>
#include "engine/text/steps.h"
#include <stdlib.h>

static int unknown(const struct hd_step_family *part, const char *type, struct hd_err *err)
{
	char *known = hd_strdup("");

	for (int i = 0; i < part->nknown; i++)
		hd_append(&known, "%s, ", part->known[i].type);
	hd_err_set(err, HD_ENOTSUP, "%s is %.60s; known: %sSequence", part->name, type ? type : "without a type",
		   known);
	free(known);
	return err->code;
}

static int load_sequence(struct hd_steps *s, const struct hd_step_family *part, json_t *o, struct hd_err *err)
{
	json_t *list = json_object_get(o, part->list), *one;
	size_t i;

	if (!json_is_array(list))
		return hd_err_set(err, HD_EINVAL, "%s: a Sequence without %s", part->name, part->list);
	json_array_foreach(list, i, one)
		HD_TRY(hd_steps_load(s, part, one, err));
	return HD_OK;
}

int hd_steps_load(struct hd_steps *s, const struct hd_step_family *part, json_t *o, struct hd_err *err)
{
	const char *type = json_string_value(json_object_get(o, "type"));
	struct hd_err why = { 0 };
	struct hd_text_step *to;
	int i = 0;

	if (!o || json_is_null(o))
		return HD_OK;
	if (type && !strcmp(type, "Sequence"))
		return load_sequence(s, part, o, err);
	while (type && i < part->nknown && strcmp(type, part->known[i].type))
		i++;
	if (!type || i == part->nknown)
		return unknown(part, type, err);
	s->all = hd_grow(s->all, s->n, &s->cap, sizeof(*s->all));
	to = &s->all[s->n++];
	to->kind = part->known[i].kind;
	if (part->known[i].load && part->known[i].load(to, o, &why) < 0)
		return hd_err_set(err, why.code, "%s %s: %s", part->name, type, why.text);
	return HD_OK;
}

void hd_steps_release(struct hd_steps *s)
{
	for (size_t i = 0; i < s->n; i++) {
		hd_pattern_release(&s->all[i].pattern);
		free(s->all[i].content);
	}
	free(s->all);
}

int hd_step_pattern(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	json_t *pattern = json_object_get(o, "pattern"), *text = json_object_get(pattern, "String");
	json_t *regex = json_object_get(pattern, "Regex");

	if (json_is_string(regex))
		return hd_regex_compile(json_string_value(regex), json_string_length(regex), &s->pattern.regex, err);
	if (!json_is_string(text))
		return hd_err_set(err, HD_EINVAL, "no pattern with a String or a Regex");
	s->pattern.text = hd_strdup(json_string_value(text));
	s->pattern.n = json_string_length(text);
	return HD_OK;
}

int hd_step_content(struct hd_text_step *s, json_t *o, const char *key, struct hd_err *err)
{
	json_t *text = json_object_get(o, key);

	if (!json_is_string(text))
		return hd_err_set(err, HD_EINVAL, "no %s", key);
	s->content = hd_strdup(json_string_value(text));
	s->ncontent = json_string_length(text);
	return HD_OK;
}

int hd_step_mark(struct hd_text_step *s, json_t *o, const char *key, struct hd_err *err)
{
	HD_TRY(hd_step_content(s, o, key, err));
	return s->ncontent ? HD_OK : hd_err_set(err, HD_EINVAL, "%s is empty", key);
}

int hd_step_flag(json_t *o, const char *key, int otherwise)
{
	json_t *flag = json_object_get(o, key);

	return json_is_boolean(flag) ? json_is_true(flag) : otherwise;
}
