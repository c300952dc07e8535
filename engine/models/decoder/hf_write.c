/* SPDX-License-Identifier: Apache-2.0
 * Writes config.json of a model: its family's keys, if these can express everything about the model. Otherwise no
 * class of transformers matches it. model_type is then heddle, which transformers refuses, and config.json contains
 * the keys of [model].
 */
#include <config.h>
#include "engine/models/decoder/experts.h"
#include "engine/models/decoder/hf.h"
#include "engine/models/decoder/knobs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *number(double x, int null)
{
	if (x == 0 && null)
		return json_null();
	return json_real(x);
}

/* Returns x as an integer, or NULL if it has a fraction, which classes of transformers refuse for such a key. */
static json_t *integer_or_null(double x)
{
	return x < 1e15 && x == (double)(json_int_t)x ? json_integer((json_int_t)x) : NULL;
}

/* Returns the value of a key of theirs, or NULL if it cannot express ours. */
static json_t *value_of(const struct hd_model *m, const struct hd_family_key *k)
{
	const struct hd_knob *knob = hd_knob_find(k->ours);
	const void *at = knob ? (const char *)m + knob->at : NULL;
	char text[80], word[40];

	if (!knob)
		return NULL;
	if (!strcmp(k->ours, "query_scale")) /* their default may differ, so ours is written out */
		return integer_or_null(m->query_scale > 0 ? m->query_scale : (double)m->head_dim);
	if (!strcmp(k->ours, "expert_mlp"))
		return json_integer((json_int_t)(m->expert_mlp ? m->expert_mlp : m->mlp));
	if (!strcmp(k->ours, "rope_original"))
		return json_integer(hd_hf_original(m));
	if (!strcmp(k->ours, "rope_theta_window") && m->rope_theta_window <= 0) /* like the other layers */
		return json_real(m->rope_theta);
	if (knob->kind == HD_KNOB_INT)
		return *(const int64_t *)at || !(k->flags & HD_FAMILY_KEY_NULL) ? json_integer(*(const int64_t *)at)
										: json_null();
	if (knob->kind == HD_KNOB_YES)
		return json_boolean(*(const int64_t *)at);
	if (knob->kind == HD_KNOB_NUM)
		return number(*(const double *)at, (k->flags & HD_FAMILY_KEY_NULL));
	hd_knob_text(m, knob, text);
	if (!hd_hf_word(k->values, text, 1, word))
		return NULL;
	return !strcmp(word, "true") || !strcmp(word, "false") ? json_boolean(*word == 't') : json_string(word);
}

/* Writes a key. Returns 0 if it cannot express our value, or if two keys of ours that share one of theirs differ. */
static int write_key(const struct hd_model *m, const struct hd_family_key *k, json_t *o)
{
	json_t *v = value_of(m, k), *was = json_object_get(o, k->theirs);

	if (!v || (was && !json_equal(v, was))) {
		json_decref(v);
		return 0;
	}
	json_object_set_new(o, k->theirs, v);
	return 1;
}

/* Returns the first of the values that a key may have. */
static json_t *fixed(const char *values)
{
	char first[40];

	snprintf(first, sizeof(first), "%.*s", (int)strcspn(values, "|"), values);
	if (!strcmp(first, "true") || !strcmp(first, "false"))
		return json_boolean(*first == 't');
	if (!strcmp(first, "null"))
		return json_null();
	if (!strcmp(first, "[]"))
		return json_array();
	return *first >= '0' && *first <= '9' ? json_real(strtod(first, NULL)) : json_string(first);
}

static int is_written_elsewhere(const char *ours)
{
	return !strncmp(ours, "rope_", 5) || !strncmp(ours, "window", 6); /* hf_rope.c, hf_window.c */
}

/* Whether the family's class accepts the number and width of the model's heads. */
static int heads_are_expressible(const struct hd_model *m)
{
	return m->family->heads == HD_FAMILY_HEADS_ANY ||
	       (m->family->heads == HD_FAMILY_HEADS_DIVIDE ? m->embed % m->heads == 0
							   : m->embed == m->heads * m->head_dim);
}

static int experts_are_expressible(const struct hd_model *m)
{
	const struct hd_family *f = m->family;

	if (!m->experts)
		return 1;
	if (!f->experts || m->router != f->router || (f->always_normal && !m->normalize_gates) ||
	    (f->always_shared && !m->shared_experts))
		return 0;
	return hd_hf_theirs(f, "moe_every") || m->moe_every == f->moe_every; /* else its class fixes them */
}

/* Whether the family's class matches the model in everything that has no key in config.json. */
static int is_expressible(const struct hd_model *m)
{
	for (const struct hd_knob *k = hd_knob_next(NULL); k; k = hd_knob_next(k))
		if (k->decoder && m->family->decoder && !is_written_elsewhere(k->key) &&
		    !hd_hf_theirs(m->family, k->key) && !hd_knob_is_default(m, k))
			return 0;
	return heads_are_expressible(m) && experts_are_expressible(m) && hd_hf_rope_is_expressible(m);
}

static void write_ours(const struct hd_model *m, json_t *o)
{
	json_t *keys = json_pack("{s:s}", "family", m->family->name);
	char text[80];

	for (const struct hd_knob *k = hd_knob_next(NULL); k; k = hd_knob_next(k)) {
		if (!strncmp(k->key, "router_", 7) && m->router != HD_ROUTER_SIGMOID) /* others refuse these keys */
			continue;
		if ((k->decoder && !m->family->decoder) || (!strcmp(k->key, "rope_theta") && !m->family->rope))
			continue;
		hd_knob_text(m, k, text);
		json_object_set_new(keys, k->key,
				    json_string(k->kind == HD_KNOB_TEXT
							? *(const char *const *)((const char *)m + k->at)
							: text));
	}
	json_object_set_new(o, "model_type", json_string("heddle"));
	json_object_set_new(o, "heddle", keys);
	json_object_del(o, "architectures");
}

static json_t *config_of(const struct hd_model *m)
{
	const struct hd_family *f = m->family;
	/* The ids of special tokens are null, not absent: the class may have defaults. A small vocabulary may not
	 * contain them, or they are ordinary tokens here. */
	json_t *o = json_pack("{s:[s], s:s, s:s, s:n, s:n, s:n}", "architectures", f->class, "model_type",
			      f->model_type, "torch_dtype", "float32", "bos_token_id", "eos_token_id", "pad_token_id");
	int all = is_expressible(m);

	for (const struct hd_family_key *k = f->keys; k->theirs; k++)
		if (k->ours)
			all &= write_key(m, k, o);
		else if (k->values)
			json_object_set_new(o, k->theirs, fixed(k->values));
	if (f->rope)
		hd_hf_write_rope(m, o);
	if (f->decoder)
		all &= hd_hf_write_window(m, o);
	if (!all)
		write_ours(m, o);
	return hd_experts_config(m, o);
}

json_t *hd_hf_config(const struct hd_model *m)
{
	struct hd_model dense = *m;

	if (!m->experts && m->family->dense)
		dense.family = m->family->dense;
	return config_of(&dense);
}
