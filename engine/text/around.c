/* SPDX-License-Identifier: Apache-2.0
 * Special tokens around a single text, as each kind of post-processor names them.
 */
#include <config.h>
#include "engine/text/around.h"
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
static int load_template(struct hd_around *a, json_t *o, struct hd_err *err)
{
	json_t *part;
	size_t i;
	int behind = 0;

	json_array_foreach(json_object_get(o, "single"), i, part) {
		json_t *special = json_object_get(part, "SpecialToken");

		if (json_object_get(part, "Sequence"))
			behind = 1;
		else if (add_special(o, json_string_value(json_object_get(special, "id")),
				     behind ? &a->after : &a->before, err) < 0)
			return err->code;
	}
	return behind ? HD_OK : hd_err_set(err, HD_EINVAL, "post_processor TemplateProcessing: single has no Sequence");
}

/* "cls": ["<s>", 0], "sep": ["</s>", 2] */
static int load_pair(struct hd_around *a, json_t *o, struct hd_err *err)
{
	json_t *cls = json_array_get(json_object_get(o, "cls"), 1), *sep = json_array_get(json_object_get(o, "sep"), 1);

	if (!json_is_integer(cls) || !json_is_integer(sep))
		return bad(json_string_value(json_object_get(o, "type")), err);
	hd_ids_add(&a->before, (int32_t)json_integer_value(cls));
	hd_ids_add(&a->after, (int32_t)json_integer_value(sep));
	return HD_OK;
}

static int load_one(struct hd_around *a, json_t *o, struct hd_err *err)
{
	const char *type = json_string_value(json_object_get(o, "type"));

	if (!type)
		type = "without a type";
	if (!strcmp(type, "ByteLevel")) /* it moves offsets, and adds no token */
		return HD_OK;
	if (!strcmp(type, "TemplateProcessing"))
		return load_template(a, o, err);
	if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing"))
		return load_pair(a, o, err);
	return hd_err_set(err, HD_ENOTSUP,
			  "post_processor is %.60s; known: ByteLevel, TemplateProcessing, RobertaProcessing, "
			  "BertProcessing, Sequence",
			  type);
}

int hd_around_load(struct hd_around *a, json_t *root, struct hd_err *err)
{
	json_t *o = json_object_get(root, "post_processor"), *one;
	const char *type = json_string_value(json_object_get(o, "type"));
	size_t i;

	if (!o || json_is_null(o))
		return HD_OK;
	if (!type || strcmp(type, "Sequence"))
		return load_one(a, o, err);
	json_array_foreach(json_object_get(o, "processors"), i, one)
		HD_TRY(load_one(a, one, err));
	return HD_OK;
}

void hd_around_release(struct hd_around *a)
{
	hd_ids_release(&a->before);
	hd_ids_release(&a->after);
}
