/* SPDX-License-Identifier: Apache-2.0
 * Reads the special tokens before a single text, which each kind of post-processor names in its own way.
 */
#include <config.h>
#include "engine/text/leading.h"
#include <string.h>

static int bad(const char *type, struct hd_err *err)
{
	return hd_err_set(err, HD_EINVAL, "post_processor %s: its special tokens have no ids", type);
}

/* "special_tokens": {"<s>": {"ids": [1], ...}, ...} */
static int add_special(json_t *o, const char *name, struct hd_ids *to, struct hd_err *err)
{
	json_t *ids = json_object_get(json_object_get(json_object_get(o, "special_tokens"), name), "ids"), *id;
	size_t i;

	if (!json_array_size(ids))
		return bad("TemplateProcessing", err);
	json_array_foreach(ids, i, id) {
		if (!json_is_integer(id))
			return bad("TemplateProcessing", err);
		hd_ids_add(to, (int32_t)json_integer_value(id));
	}
	return HD_OK;
}

/* "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, ...] */
static int load_template(json_t *o, struct hd_ids *to, struct hd_err *err)
{
	json_t *part;
	size_t i;

	json_array_foreach(json_object_get(o, "single"), i, part) {
		json_t *special = json_object_get(part, "SpecialToken");

		if (json_object_get(part, "Sequence"))
			return HD_OK;
		HD_TRY(add_special(o, json_string_value(json_object_get(special, "id")), to, err));
	}
	return hd_err_set(err, HD_EINVAL, "post_processor TemplateProcessing: single has no Sequence");
}

/* "cls": ["<s>", 0] */
static int load_pair(json_t *o, struct hd_ids *to, struct hd_err *err)
{
	json_t *cls = json_array_get(json_object_get(o, "cls"), 1);

	if (!json_is_integer(cls))
		return bad(json_string_value(json_object_get(o, "type")), err);
	hd_ids_add(to, (int32_t)json_integer_value(cls));
	return HD_OK;
}

static int load_one(json_t *o, struct hd_ids *to, struct hd_err *err)
{
	const char *type = json_string_value(json_object_get(o, "type"));

	if (!type)
		type = "without a type";
	if (!strcmp(type, "ByteLevel")) /* it only changes offsets, and adds no token */
		return HD_OK;
	if (!strcmp(type, "TemplateProcessing"))
		return load_template(o, to, err);
	if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing"))
		return load_pair(o, to, err);
	return hd_err_set(err, HD_ENOTSUP,
			  "post_processor is %.60s; known: ByteLevel, TemplateProcessing, RobertaProcessing, "
			  "BertProcessing, Sequence",
			  type);
}

int hd_leading_load(struct hd_ids *leading, json_t *root, struct hd_err *err)
{
	json_t *o = json_object_get(root, "post_processor"), *one;
	const char *type = json_string_value(json_object_get(o, "type"));
	size_t i;

	if (!o || json_is_null(o))
		return HD_OK;
	if (!type || strcmp(type, "Sequence"))
		return load_one(o, leading, err);
	json_array_foreach(json_object_get(o, "processors"), i, one)
		HD_TRY(load_one(one, leading, err));
	return HD_OK;
}

size_t hd_leading_put(const struct hd_ids *leading, struct hd_ids *ids)
{
	size_t n = leading->n, bytes = n * sizeof(*ids->at);

	if (!n || (ids->n >= n && !memcmp(ids->at, leading->at, bytes)))
		return 0;
	hd_ids_append(ids, leading);
	memmove(ids->at + n, ids->at, (ids->n - n) * sizeof(*ids->at));
	memcpy(ids->at, leading->at, bytes);
	return n;
}
