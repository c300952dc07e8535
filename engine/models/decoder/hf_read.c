/* SPDX-License-Identifier: Apache-2.0
 * Translates config.json into keys of [model]. The family must know every key: a setting that is silently ignored
 * would load somebody's weights into a different model.
 */
#include <config.h>
#include "engine/models/decoder/hf.h"
#include "engine/models/decoder/knobs.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys that tell nothing about the graph. */
static const char *const metadata[] = {
	"architectures",
	"model_type",
	"transformers_version",
	"torch_dtype",
	"dtype",
	"use_cache",
	"bos_token_id",
	"eos_token_id",
	"pad_token_id",
	"pretraining_tp",
	"auto_map",
	"is_llama_config",
	"cache_implementation",
	"output_router_logits",
	"transformers.js_config",
	"task_specific_params",
	"unsloth_fixed",
	"unsloth_version",
	"id2label",
	"label2id",
	"problem_type",
	"name_or_path",
	"heddle",
};

/* Keys of published files that have no effect with these values, in families that do not have the keys. */
static const struct hd_family_key harmless[] = {
	{ "rope_interleaved", NULL, "false", NULL, 0 },
	{ "use_mrope", NULL, "false", NULL, 0 },
	{ "full_attn_mod", NULL, "1", NULL, 0 },
	{ "interpolate_factor", NULL, "1", NULL, 0 },
	{ "lm_head_bias", NULL, "false", NULL, 0 },
	{ "mlp_bias", NULL, "false", NULL, 0 },
	{ "pruned_heads", NULL, "{}", NULL, 0 },
	{ "is_decoder", NULL, "true|false", NULL, 0 }, /* every class here is a decoder, whatever the value */
	{ "output_attentions", NULL, "false", NULL, 0 },
	{ "output_hidden_states", NULL, "false", NULL, 0 },
	{ "output_past", NULL, "true|false", NULL, 0 }, /* the original name of use_cache */
	{ "torchscript", NULL, "false", NULL, 0 },
	{ "use_bfloat16", NULL, "false", NULL, 0 },
	{ "n_special", NULL, "0", NULL, 0 },
	{ "predict_special_tokens", NULL, "true", NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

void hd_hf_set(struct hd_hf_reader *r, const char *key, const char *fmt, ...)
{
	char *text;
	va_list v;

	va_start(v, fmt);
	text = hd_vformat(fmt, v);
	va_end(v);
	json_object_set_new(r->keys, key, json_string(text));
	free(text);
}

void hd_hf_set_number(struct hd_hf_reader *r, const char *key, double x)
{
	hd_hf_set(r, key, "%.15g", x);
}

int hd_hf_set_once(struct hd_hf_reader *r, const char *key, const char *place, const char *text)
{
	const char *was = json_string_value(json_object_get(r->keys, key));
	const char *where = json_string_value(json_object_get(r->places, key));

	if (where && strcmp(was, text))
		return hd_err_set(r->err, HD_EINVAL, "%s: %s is %s, and %s is %s", r->path, where, was, place, text);
	hd_hf_set(r, key, "%s", text);
	json_object_set_new(r->places, key, json_string(place));
	return HD_OK;
}

int hd_hf_unknown(struct hd_hf_reader *r, const char *key, const json_t *value, const char *known)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));

	hd_err_set(r->err, HD_ENOTSUP, "%s: %s is %.200s, which is not known for the family %s; known: %s", r->path,
		   key, text ? text : "nothing", r->family->name, known);
	free(text);
	return HD_ENOTSUP;
}

const char *hd_hf_word(const char *values, const char *word, int back, char *out)
{
	while (values && *values) {
		size_t entry = strcspn(values, "|"), first = strcspn(values, "=|");
		const char *from = back ? values + first + 1 : values, *to = back ? values : values + first + 1;
		size_t n = back ? entry - first - 1 : first, other = back ? first : entry - first - 1;

		if (n == strlen(word) && !memcmp(from, word, n)) {
			snprintf(out, 40, "%.*s", (int)other, to);
			return out;
		}
		values += entry + (values[entry] == '|');
	}
	return NULL;
}

/* Lists their words in "theirs=ours|...", for a message. */
static void names_of(const char *values, char out[300])
{
	size_t n = 0;

	for (; *values; values += strcspn(values, "|") + (values[strcspn(values, "|")] == '|'))
		n += (size_t)snprintf(out + n, 300 - n, "%s%.*s", n ? ", " : "", (int)strcspn(values, "=|"), values);
}

const char *hd_hf_theirs(const struct hd_family *f, const char *ours)
{
	for (const struct hd_family_key *k = f->keys; k->theirs; k++)
		if (k->ours && !strcmp(k->ours, ours))
			return k->theirs;
	return NULL;
}

/* -- one key ------------------------------------------------------------------------------------------------------- */
static int is_value(const json_t *v, const char *one, size_t n)
{
	char text[60];

	snprintf(text, sizeof(text), "%.*s", (int)n, one);
	if (json_is_number(v))
		return strspn(text, "0123456789.-") == n && strtod(text, NULL) == json_number_value(v);
	if (json_is_string(v))
		return !strcmp(json_string_value(v), text);
	return !strcmp(text, json_is_true(v)                             ? "true"
			     : json_is_false(v)                          ? "false"
			     : json_is_null(v)                           ? "null"
			     : json_is_array(v) && !json_array_size(v)   ? "[]"
			     : json_is_object(v) && !json_object_size(v) ? "{}"
									 : "");
}

/* Refuses a value that is not one of k->values, if the key has these. */
static int expect(struct hd_hf_reader *r, const struct hd_family_key *k, const json_t *v)
{
	char known[300];

	if (!k->values)
		return HD_OK;
	for (const char *at = k->values; *at; at += strcspn(at, "|") + (at[strcspn(at, "|")] == '|'))
		if (is_value(v, at, strcspn(at, "|")))
			return HD_OK;
	names_of(k->values, known);
	return hd_hf_unknown(r, k->theirs, v, known);
}

static int is_yes_or_no(const struct hd_family_key *k)
{
	const struct hd_knob *knob = hd_knob_find(k->ours);

	return knob && knob->kind == HD_KNOB_YES;
}

static int unknown_value(struct hd_hf_reader *r, const struct hd_family_key *k, const json_t *v)
{
	char known[300];

	if (!k->values)
		return hd_hf_unknown(r, k->theirs, v, is_yes_or_no(k) ? "true, false" : "a number");
	names_of(k->values, known);
	return hd_hf_unknown(r, k->theirs, v, known);
}

/* Whether null is refused for the key. Elsewhere it is our 0, which stands for a default or for none. */
static int needs_value(const struct hd_family_key *k)
{
	return k->values || !strcmp(k->ours, "norm_eps") || !strcmp(k->ours, "tie_embeddings") ||
	       !strcmp(k->ours, "rope_theta_window");
}

static int set_from_value(struct hd_hf_reader *r, const struct hd_family_key *k, const json_t *v)
{
	const char *word = json_is_boolean(v) ? (json_is_true(v) ? "true" : "false") : json_string_value(v);
	char text[60], out[40];

	/* Classes use such a number unless it is null: they divide by a cap of 0, which here would be none. */
	if (k->flags & HD_FAMILY_KEY_NULL && json_is_number(v) && json_number_value(v) == 0)
		return hd_hf_unknown(r, k->theirs, v, "null, or a number other than 0");
	if (json_is_integer(v))
		snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(v));
	else if (json_is_real(v))
		snprintf(text, sizeof(text), "%.15g", json_real_value(v));
	else if (json_is_boolean(v) && is_yes_or_no(k))
		snprintf(text, sizeof(text), "%s", json_is_true(v) ? "yes" : "no");
	else if (json_is_null(v) && !needs_value(k))
		snprintf(text, sizeof(text), "0");
	else if (word && hd_hf_word(k->values, word, 0, out))
		snprintf(text, sizeof(text), "%s", out);
	else
		return unknown_value(r, k, v);
	return hd_hf_set_once(r, k->ours, k->theirs, text);
}

static int read_key(struct hd_hf_reader *r, const struct hd_family_key *k)
{
	const json_t *v = json_object_get(r->config, k->theirs);

	if (k->absent && !strcmp(k->absent, "-")) /* written, not read */
		return HD_OK;
	if (r->one_rope && k->ours && !strcmp(k->ours, "rope_theta_window")) /* read_windowed has compared it */
		return HD_OK;
	if (v)
		return k->ours ? set_from_value(r, k, v) : expect(r, k, v);
	if (!k->absent || !k->ours || json_object_get(r->keys, k->ours))
		return HD_OK;
	if (!strcmp(k->absent, "!"))
		return hd_err_set(r->err, HD_EINVAL, "%s: has no %s", r->path, k->theirs);
	hd_hf_set(r, k->ours, "%s", k->absent);
	return HD_OK;
}

/* -- all ----------------------------------------------------------------------------------------------------------- */
static int is_metadata(const char *key)
{
	for (size_t i = 0; i < HD_LEN(metadata); i++)
		if (!strcmp(metadata[i], key))
			return 1;
	return *key == '_';
}

/* The keys that hd_experts_config writes, for a family with experts whose class in transformers has none. */
static const struct hd_family_key of_experts[] = {
	{ "num_local_experts", "experts", NULL, NULL, 0 },
	{ "num_experts_per_tok", "experts_per_token", NULL, NULL, 0 },
	{ "moe_every", "moe_every", NULL, NULL, 0 },
	{ "router_aux_loss_coef", "aux_loss", NULL, NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

static const struct hd_family_key *find_key(const struct hd_family_key *keys, const char *theirs)
{
	for (const struct hd_family_key *k = keys; k->theirs; k++)
		if (!strcmp(k->theirs, theirs))
			return k;
	return NULL;
}

static int is_known(const struct hd_family *f, const char *key)
{
	return find_key(of_experts, key) || find_key(f->keys, key) || is_metadata(key) ||
	       (f->rope && hd_hf_is_rope(key)) || hd_hf_is_window(f, key);
}

static char *known_keys(const struct hd_family *f)
{
	char *known = hd_strdup("the keys ");

	for (const struct hd_family_key *k = f->keys, *before = NULL; k->theirs; before = k++)
		if (!before || strcmp(k->theirs, before->theirs)) /* a key of theirs may be several keys of ours */
			hd_append(&known, "%s%s", before ? ", " : "", k->theirs);
	if (f->rope)
		hd_hf_name_rope(&known);
	hd_hf_name_window(f, &known);
	return known;
}

static int check_key(struct hd_hf_reader *r, const char *key, const json_t *v)
{
	const struct hd_family_key *k = find_key(harmless, key);
	char *known;
	int rc;

	if (json_is_null(v) || is_known(r->family, key))
		return HD_OK;
	if (k)
		return expect(r, k, v);
	known = known_keys(r->family);
	rc = hd_hf_unknown(r, key, v, known);
	free(known);
	return rc;
}

static int check_known(struct hd_hf_reader *r)
{
	json_t *config = (json_t *)(uintptr_t)r->config, *v; /* json_object_foreach only reads, but accepts no const */
	const char *key;

	json_object_foreach(config, key, v)
		HD_TRY(check_key(r, key, v));
	return HD_OK;
}

static char *text_of(const struct hd_hf_reader *r)
{
	char *text = hd_format("[model]\nfamily = %s\n", r->family->name);
	const char *key;
	json_t *v;

	json_object_foreach(r->keys, key, v)
		hd_append(&text, "%s = %s\n", key, json_string_value(v));
	return text;
}

char *hd_hf_read(const json_t *config, const struct hd_family *f, const char *path, struct hd_err *err)
{
	struct hd_hf_reader r = {
		.config = config, .family = f, .path = path, .keys = json_object(), .places = json_object(), .err = err
	};
	int rc = check_known(&r);
	char *text;

	if (rc >= 0 && f->rope)
		rc = hd_hf_read_rope(&r);
	if (rc >= 0)
		rc = hd_hf_read_window(&r);
	if (f->always_normal)
		hd_hf_set(&r, "normalize_gates", "yes");
	for (const struct hd_family_key *k = f->keys; k->theirs && rc >= 0; k++)
		rc = read_key(&r, k);
	for (const struct hd_family_key *k = of_experts; k->theirs && rc >= 0; k++)
		rc = read_key(&r, k);
	text = rc >= 0 ? text_of(&r) : NULL;
	json_decref(r.keys);
	json_decref(r.places);
	return text;
}
