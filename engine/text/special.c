/* SPDX-License-Identifier: Apache-2.0
 * Which token ends a text: tokenizer.json itself does not say it.
 */
#include <config.h>
#include "engine/text/special.h"
#include <jansson.h>
#include <stdlib.h>

static json_t *beside(const struct hd_tokenizer *t, const char *name)
{
	const char *path = hd_tokenizer_path(t), *slash = strrchr(path, '/');
	char *file = hd_format("%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
	json_t *o = json_load_file(file, 0, NULL);

	free(file);
	return o;
}

/* "eos_token": "x", or {"content": "x"} */
static int32_t by_name(const struct hd_tokenizer *t, const char *file, const char *key)
{
	json_t *o = beside(t, file), *token = json_object_get(o, key);
	const char *text = json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
	int32_t id = text ? hd_tokenizer_id(t, text) : -1;

	json_decref(o);
	return id;
}

/* "eos_token_id": 2, or [2, 3] */
static int32_t by_number(const struct hd_tokenizer *t, const char *file)
{
	json_t *o = beside(t, file), *eos = json_object_get(o, "eos_token_id");
	json_t *number = json_is_array(eos) ? json_array_get(eos, 0) : eos;
	json_int_t id = json_is_integer(number) ? json_integer_value(number) : -1;

	json_decref(o);
	return id >= 0 && id < hd_tokenizer_vocab(t) ? (int32_t)id : -1;
}

static int32_t by_habit(const struct hd_tokenizer *t)
{
	static const char *const usual[] = { "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>" };
	int32_t found = -1;

	for (size_t i = 0; i < HD_LEN(usual); i++) {
		int32_t id = hd_tokenizer_id(t, usual[i]);

		if (id >= 0 && found >= 0)
			return -1;
		found = id >= 0 ? id : found;
	}
	return found;
}

int32_t hd_tokenizer_begin(const struct hd_tokenizer *t)
{
	int32_t id = by_name(t, "tokenizer_config.json", "bos_token");

	return id >= 0 ? id : by_name(t, "special_tokens_map.json", "bos_token");
}

int32_t hd_tokenizer_end_token(const struct hd_tokenizer *t)
{
	int32_t id = by_name(t, "tokenizer_config.json", "eos_token");

	if (id < 0)
		id = by_name(t, "special_tokens_map.json", "eos_token");
	return id >= 0 ? id : by_habit(t);
}

int hd_tokenizer_end(const struct hd_tokenizer *t, int32_t *id, struct hd_err *err)
{
	*id = by_name(t, "tokenizer_config.json", "eos_token");
	if (*id < 0)
		*id = by_name(t, "special_tokens_map.json", "eos_token");
	if (*id < 0)
		*id = by_number(t, "generation_config.json");
	if (*id < 0)
		*id = by_number(t, "config.json");
	if (*id < 0)
		*id = by_habit(t);
	if (*id < 0)
		return hd_err_set(err, HD_EINVAL,
				  "%s: which token ends a text? tokenizer_config.json beside it must have eos_token",
				  hd_tokenizer_path(t));
	return HD_OK;
}
