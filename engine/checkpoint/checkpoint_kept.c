/* SPDX-License-Identifier: Apache-2.0
 * What a checkpoint keeps from others for its users: the tokenizer's files, and from the loaded model
 * generation_config.json and the ids of special tokens. Without them transformers loads an empty tokenizer, and
 * generates until the wrong token.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/config/conf_impl.h"
#include "engine/file/file.h"
#include "engine/file/inside.h"
#include "engine/file/same_file.h"
#include "engine/text/special.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int hd_has_tokenizer(const char *dir)
{
	char *path = hd_format("%s/tokenizer.json", dir);
	int has = !access(path, R_OK);

	free(path);
	return has;
}

void hd_conf_tokenizer(struct hd_conf *c, const char *dir, const char *option)
{
	struct hd_section *s = hd_conf_section(c, NULL, "data");
	struct hd_entry *e = s ? hd_conf_entry_find(s, "tokenizer") : NULL;

	if (!s)
		return;
	if (!e)
		e = hd_conf_entry_add(s, "tokenizer", "", 0);
	free(e->value);
	e->value = hd_strdup(dir);
	e->given = 1;
	if (option) {
		free(e->set);
		e->set = hd_strdup(option);
	}
}

/* -- where from -------------------------------------------------------------------------------- */
/* Returns data.tokenizer, which may be `byte', or NULL if it is not given. */
static const char *tokenizer_given(const struct hd_job *j)
{
	struct hd_section *s = hd_conf_section(j->conf, NULL, "data");
	const struct hd_entry *e = s ? hd_conf_entry_find(s, "tokenizer") : NULL;

	return e && e->given ? e->value : NULL;
}

/* Returns data.tokenizer, or NULL if tokens are bytes or it is not given. */
static const char *tokenizer_path(const struct hd_job *j)
{
	const char *given = tokenizer_given(j);

	return given && strcmp(given, "byte") ? given : NULL;
}

/* Returns the directory of the model that was loaded, else the checkpoint that this run continues;
 * malloc'ed, or NULL. */
static char *origin(const struct hd_job *j)
{
	struct hd_section *model = hd_conf_section(j->conf, NULL, "model");
	const struct hd_entry *load = model ? hd_conf_entry_find(model, "load") : NULL;
	const char *from[] = { load ? load->value : "", j->checkpoint.resume, j->checkpoint.dir };
	char *found = NULL;

	for (size_t i = 0; i < HD_LEN(from) && !found; i++) {
		struct hd_err ignored = { 0 };

		if (from[i] && *from[i])
			found = hd_checkpoint_find(from[i], &ignored);
	}
	return found;
}

/* Files that belong to a tokenizer and are next to its file. */
static const char *const beside[] = {
	"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
	"tokenizer.model",       "chat_template.jinja"
};

/* -- files ------------------------------------------------------------------------------------- */
static int is_missing(const char *path)
{
	return access(path, F_OK) && errno == ENOENT;
}

/* Copies from/source to dir/name. A missing file is left out. So is a file elsewhere that a link leads to, since a
 * checkpoint may be given away. Other failures are errors: a checkpoint without its tokenizer would look complete. */
static int copy(const char *from, const char *source, const char *dir, const char *name, struct hd_err *err)
{
	struct hd_err why = { 0 };
	char *path = hd_format("%s/%s", from, source), *to = hd_format("%s/%s", dir, name), *bytes = NULL;
	size_t n = 0;
	int rc = HD_OK;

	if (hd_file_inside(from, source, &why) < 0)
		hd_log(HD_LOG_WARN, "%s; it is not copied into the checkpoint", why.text);
	else if (!is_missing(path)) {
		bytes = hd_file_read(path, &n, err);
		rc = bytes ? hd_file_write_bytes(to, bytes, n, err) : err->code;
	}
	free(path);
	free(bytes);
	free(to);
	return rc;
}

/* Returns the folder of the tokenizer's file, malloc'ed. */
static char *folder_of(const char *file)
{
	const char *slash = strrchr(file, '/');

	return hd_format("%.*s", slash ? (int)(slash - file) : 1, slash ? file : ".");
}

int hd_tokenizer_has(const char *tokenizer, const char *path)
{
	char *file = hd_tokenizer_file(tokenizer), *folder = folder_of(file);
	int same = hd_file_same(file, path);

	for (size_t i = 0; i < HD_LEN(beside) && !same; i++) {
		char *one = hd_format("%s/%s", folder, beside[i]);

		same = hd_file_same(one, path);
		free(one);
	}
	free(file);
	free(folder);
	return same;
}

static int copy_beside(const char *from, const char *dir, struct hd_err *err)
{
	for (size_t i = 0; i < HD_LEN(beside); i++)
		HD_TRY(copy(from, beside[i], dir, beside[i], err));
	return HD_OK;
}

static int copy_tokenizer(const char *path, const char *dir, struct hd_err *err)
{
	char *file = hd_tokenizer_file(path), *slash = strrchr(file, '/'), *from = folder_of(file);
	int rc = copy(from, slash ? slash + 1 : file, dir, "tokenizer.json", err);

	if (rc >= 0)
		rc = copy_beside(from, dir, err);
	free(file);
	free(from);
	return rc;
}

/* Returns the path of the tokenizer, malloc'ed, or NULL. Its file may be gone: it was in a step that this run continued
 * and has since removed, or somebody cleaned up. The steps saved since the start have the same tokenizer. */
static char *tokenizer_there(const struct hd_job *j)
{
	const char *path = tokenizer_path(j);
	char *file = path ? hd_tokenizer_file(path) : NULL, *own;
	int gone = file && access(file, F_OK);

	free(file);
	if (!gone)
		return path ? hd_strdup(path) : NULL;
	own = *j->checkpoint.dir ? hd_checkpoint_own_tokenizer(j->checkpoint.dir) : NULL;
	if (!own)
		hd_log(HD_LOG_WARN, "data.tokenizer: %s no longer exists; the checkpoint is saved without a tokenizer",
		       path);
	return own;
}

int hd_kept_write(const struct hd_job *j, const char *dir, struct hd_err *err)
{
	char *tokenizer = tokenizer_there(j), *from = origin(j);
	int rc = tokenizer ? copy_tokenizer(tokenizer, dir, err) : HD_OK;

	/* A run on ids may continue a model whose tokenizer has another format, such as SentencePiece's. */
	if (rc >= 0 && from && !tokenizer_given(j))
		rc = copy_beside(from, dir, err);
	if (rc >= 0 && from)
		rc = copy(from, "generation_config.json", dir, "generation_config.json", err);
	free(tokenizer);
	free(from);
	return rc;
}

/* -- special tokens ---------------------------------------------------------------------------- */
/* Returns NULL if the file does not exist or cannot be read. */
static json_t *json_in(const char *dir, const char *name)
{
	struct hd_err ignored = { 0 };
	char *text = hd_file_read_inside(dir, name, &ignored);
	json_t *o = text ? json_loads(text, 0, NULL) : NULL;

	free(text);
	return o;
}

static int is_ours(const char *dir)
{
	char *ours = hd_format("%s/heddle/conf.ini", dir);
	int is = !access(ours, F_OK);

	free(ours);
	return is;
}

static int from_config(json_t *config, const char *dir)
{
	static const char *const keys[] = { "bos_token_id", "eos_token_id", "pad_token_id" };
	json_t *theirs = dir ? json_in(dir, "config.json") : NULL;
	int found = json_is_object(theirs);

	for (size_t i = 0; i < HD_LEN(keys) && found; i++) {
		json_t *id = json_object_get(theirs, keys[i]);

		if (id)
			json_object_set(config, keys[i], id);
		else if (!is_ours(dir)) /* the default of their class counts */
			json_object_del(config, keys[i]);
	}
	json_decref(theirs);
	return found;
}

static void from_tokenizer(json_t *config, const char *path)
{
	struct hd_tokenizer *t = NULL;
	struct hd_err ignored = { 0 };
	const char *guessed;
	int32_t id;

	if (!path || hd_tokenizer_open(path, &t, &ignored) < 0)
		return;
	id = hd_tokenizer_end(t, &id, &guessed, &ignored) >= 0 ? id : -1;
	json_object_set_new(config, "eos_token_id", id >= 0 ? json_integer(id) : json_null());
	id = hd_tokenizer_begin(t);
	json_object_set_new(config, "bos_token_id", id >= 0 ? json_integer(id) : json_null());
	hd_tokenizer_close(t);
}

void hd_kept_special(const struct hd_job *j, json_t *config)
{
	char *from = origin(j);

	if (!from_config(config, from))
		from_tokenizer(config, tokenizer_path(j));
	free(from);
}

char *hd_checkpoint_own_tokenizer(const char *path)
{
	struct hd_err ignored = { 0 };
	char *dir = hd_checkpoint_find(path, &ignored);

	if (dir && hd_has_tokenizer(dir))
		return dir;
	free(dir);
	return NULL;
}

/* -- where a text ends ------------------------------------------------------------------------- */
static void add_end(json_t *id, struct hd_ids *out)
{
	json_int_t is = json_is_integer(id) ? json_integer_value(id) : -1;

	if (is >= 0 && is <= INT32_MAX)
		hd_ids_add(out, (int32_t)is);
}

/* Adds the ids of "eos_token_id": 2, or [2, 3]. */
static void add_ends(json_t *config, struct hd_ids *out)
{
	json_t *eos = json_object_get(config, "eos_token_id"), *one;
	size_t i;

	add_end(eos, out);
	json_array_foreach(eos, i, one)
		add_end(one, out);
}

static int is_zero(json_t *config, const char *key)
{
	json_t *id = json_object_get(config, key);

	return json_is_integer(id) && !json_integer_value(id);
}

/* Returns whether a checkpoint of Heddle does not know these ids. Earlier versions wrote 0 for both if neither a
 * tokenizer nor a loaded model gave them, and byte 0 ends no text. */
static int says_nothing(json_t *config, const char *dir)
{
	return is_ours(dir) && is_zero(config, "bos_token_id") && is_zero(config, "eos_token_id");
}

void hd_checkpoint_ends(const char *path, const struct hd_tokenizer *t, struct hd_ids *out)
{
	struct hd_err ignored = { 0 };
	char *dir = hd_checkpoint_find(path, &ignored);
	json_t *generation = dir ? json_in(dir, "generation_config.json") : NULL;
	json_t *config = dir ? json_in(dir, "config.json") : NULL;
	int32_t end;

	add_ends(generation, out);
	if (json_is_null(json_object_get(generation, "eos_token_id")))
		t = NULL; /* it says that texts do not end */
	else if (!out->n && config && !says_nothing(config, dir))
		add_ends(config, out);
	end = !out->n && t ? hd_tokenizer_end_without_config(t) : -1;
	if (end >= 0)
		hd_ids_add(out, end);
	json_decref(generation);
	json_decref(config);
	free(dir);
}

/* Returns whether a setting changes which token is the likeliest, or when a text may end. */
static int has_effect(json_t *value, double neutral)
{
	if (json_is_number(value))
		return json_number_value(value) != neutral;
	if (json_is_string(value))
		return json_string_length(value) > 0;
	return json_is_array(value) ? json_array_size(value) > 0 : json_is_object(value) && json_object_size(value) > 0;
}

void hd_checkpoint_warn_generation(const char *path)
{
	static const struct {
		const char *key;
		double neutral;
	} keys[] = { { "repetition_penalty", 1 },
		     { "encoder_repetition_penalty", 1 },
		     { "guidance_scale", 1 },
		     { "exponential_decay_length_penalty", 0 },
		     { "stop_strings", 0 },
		     { "no_repeat_ngram_size", 0 },
		     { "min_length", 0 },
		     { "min_new_tokens", 0 },
		     { "num_beams", 1 },
		     { "bad_words_ids", 0 },
		     { "sequence_bias", 0 },
		     { "suppress_tokens", 0 },
		     { "begin_suppress_tokens", 0 },
		     { "forced_bos_token_id", -1 },
		     { "forced_eos_token_id", -1 } };
	struct hd_err ignored = { 0 };
	char *dir = hd_checkpoint_find(path, &ignored), *list = NULL;
	json_t *generation = dir ? json_in(dir, "generation_config.json") : NULL;

	for (size_t i = 0; i < HD_LEN(keys); i++)
		if (has_effect(json_object_get(generation, keys[i].key), keys[i].neutral))
			hd_append(&list, "%s%s", list ? ", " : "", keys[i].key);
	if (list)
		hd_log(HD_LOG_WARN,
		       "%s/generation_config.json: %s: not used, so texts differ from those of transformers", dir,
		       list);
	if (dir && !generation && hd_file_has(dir, "generation_config.json"))
		hd_log(HD_LOG_WARN,
		       "%s/generation_config.json: is not a file of JSON in that directory: not used, not even for "
		       "eos_token_id",
		       dir);
	json_decref(generation);
	free(list);
	free(dir);
}
