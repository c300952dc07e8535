/* SPDX-License-Identifier: Apache-2.0
 * Finds the tokens that begin and end a text, which tokenizer.json itself does not tell.
 */
#include <config.h>
#include "engine/text/special.h"
#include <jansson.h>
#include <stdlib.h>

static char *sibling_path(const struct hd_tokenizer *t, const char *name)
{
	const char *path = hd_tokenizer_path(t), *slash = strrchr(path, '/');

	return hd_format("%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
}

static json_t *load_sibling(const struct hd_tokenizer *t, const char *name)
{
	char *path = sibling_path(t, name);
	json_t *o = json_load_file(path, 0, NULL);

	free(path);
	return o;
}

/* Refuses a token that is named but is not in the vocabulary. A different one in its place would end no text. */
static int not_known(const struct hd_tokenizer *t, const char *file, const char *key, const char *what,
		     struct hd_err *err)
{
	char *path = sibling_path(t, file);
	int rc = hd_err_set(err, HD_EINVAL, "%s: %s is %.100s, which is not in the vocabulary of %s", path, key, what,
			    hd_tokenizer_path(t));

	free(path);
	return rc;
}

/* Looks up "eos_token": "x", or {"content": "x"}. *id is -1 if the file does not contain it. */
static int by_name(const struct hd_tokenizer *t, const char *file, const char *key, int32_t *id, struct hd_err *err)
{
	json_t *o = load_sibling(t, file), *token = json_object_get(o, key);
	const char *text = json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
	int rc = HD_OK;

	*id = text ? hd_tokenizer_id(t, text) : -1;
	if (text && *id < 0)
		rc = not_known(t, file, key, text, err);
	json_decref(o);
	return rc;
}

/* Reads "eos_token_id": 2, or the first of [2, 3]. *id is -1 if the file does not contain it. */
static int by_number(const struct hd_tokenizer *t, const char *file, int32_t *id, struct hd_err *err)
{
	json_t *o = load_sibling(t, file), *eos = json_object_get(o, "eos_token_id");
	json_t *number = json_is_array(eos) ? json_array_get(eos, 0) : eos;
	json_int_t n = json_integer_value(number);
	int has = json_is_integer(number);
	char text[32];

	json_decref(o);
	snprintf(text, sizeof(text), "%lld", (long long)n);
	*id = has && n >= 0 && n < hd_tokenizer_vocab(t) ? (int32_t)n : -1;
	return has && *id < 0 ? not_known(t, file, "eos_token_id", text, err) : HD_OK;
}

/* Returns the only usual end token that the vocabulary has, or -1 if it has none or several. */
static int32_t guess_usual(const struct hd_tokenizer *t, const char **text)
{
	static const char *const usual[] = { "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>" };
	int32_t found = -1;

	for (size_t i = 0; i < HD_LEN(usual); i++) {
		int32_t id = hd_tokenizer_id(t, usual[i]);

		if (id >= 0 && found >= 0)
			return -1;
		found = id >= 0 ? id : found;
		*text = id >= 0 ? usual[i] : *text;
	}
	return found;
}

int32_t hd_tokenizer_begin(const struct hd_tokenizer *t)
{
	struct hd_err ignored = { 0 };
	int32_t id;

	by_name(t, "tokenizer_config.json", "bos_token", &id, &ignored);
	if (id < 0)
		by_name(t, "special_tokens_map.json", "bos_token", &id, &ignored);
	return id;
}

static int named_end(const struct hd_tokenizer *t, int32_t *id, struct hd_err *err)
{
	HD_TRY(by_name(t, "tokenizer_config.json", "eos_token", id, err));
	return *id < 0 ? by_name(t, "special_tokens_map.json", "eos_token", id, err) : HD_OK;
}

int32_t hd_tokenizer_end_without_config(const struct hd_tokenizer *t)
{
	struct hd_err ignored = { 0 };
	const char *guessed = NULL;
	int32_t id;

	return named_end(t, &id, &ignored) < 0 || id >= 0 ? id : guess_usual(t, &guessed);
}

int hd_tokenizer_end(const struct hd_tokenizer *t, int32_t *id, const char **guessed, struct hd_err *err)
{
	*guessed = NULL;
	HD_TRY(named_end(t, id, err));
	if (*id < 0)
		HD_TRY(by_number(t, "generation_config.json", id, err));
	if (*id < 0)
		HD_TRY(by_number(t, "config.json", id, err));
	if (*id < 0)
		*id = guess_usual(t, guessed);
	if (*id < 0)
		return hd_err_set(err, HD_EINVAL,
				  "%s: which token ends a text? tokenizer_config.json next to it must have eos_token",
				  hd_tokenizer_path(t));
	return HD_OK;
}
