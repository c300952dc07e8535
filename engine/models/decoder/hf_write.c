/* SPDX-License-Identifier: Apache-2.0
 * config.json of a model: its family's keys, if they can say all that the model is.  If not, there is no class of transformers
 * for it: model_type is heddle, which transformers refuses, and the keys of [model] stand there as they are.
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

/* The value of a key of theirs, or NULL: they have no word for ours. */
static json_t *value_of(const struct hd_model *m, const struct hd_family_key *k)
{
	const struct hd_knob *knob = hd_knob_find(k->ours);
	const void *at = knob ? (const char *)m + knob->at : NULL;
	char text[80], word[40];

	if (!knob)
		return NULL;
	if (!strcmp(k->ours, "query_scale")) /* a whole number there, and what it is by itself must be said */
		return json_integer((json_int_t)(m->query_scale > 0 ? m->query_scale : (double)m->head_dim));
	if (!strcmp(k->ours, "expert_mlp"))
		return json_integer((json_int_t)(m->expert_mlp ? m->expert_mlp : m->mlp));
	if (!strcmp(k->ours, "rope_original"))
		return json_integer((json_int_t)(m->rope_original > 0 ? m->rope_original : (double)m->max_seq));
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

/* 0: two keys of ours that are one there differ, or there is no word. */
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

/* The first of the values that a key may have. */
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

static int is_written_apart(const char *ours)
{
	return !strncmp(ours, "rope_", 5) || !strncmp(ours, "window", 6); /* hf_rope.c, hf_window.c */
}

/* Whether the family is all that the model is, but for what its keys say. */
static int is_said(const struct hd_model *m)
{
	for (const struct hd_knob *k = hd_knob_next(NULL); k; k = hd_knob_next(k))
		if (k->decoder && m->family->decoder && !is_written_apart(k->key) && !hd_hf_theirs(m->family, k->key) &&
		    !hd_knob_is_default(m, k))
			return 0;
	if (m->experts && m->family->always_normal && !m->normalize_gates)
		return 0;
	if (m->experts && (!m->family->experts || m->router != m->family->router))
		return 0;
	if (m->rope_scaling ==
		    HD_ROPE_SCALING_LONGROPE && /* its class computes the factor of queries and keys of the two */
	    (!hd_hf_theirs(m->family, "rope_original") || m->rope_factor != (double)m->max_seq / m->rope_original))
		return 0;
	if (m->experts && !m->shared_experts && m->family->always_shared)
		return 0;
	if (m->experts && m->family->experts && !hd_hf_theirs(m->family, "moe_every") &&
	    m->moe_every != m->family->moe_every) /* its class has experts in every layer */
		return 0;
	return m->rope_theta_window <= 0 || hd_hf_theirs(m->family, "rope_theta_window");
}

static void write_ours(const struct hd_model *m, json_t *o)
{
	json_t *keys = json_pack("{s:s}", "family", m->family->name);
	char text[80];

	for (const struct hd_knob *k = hd_knob_next(NULL); k; k = hd_knob_next(k)) {
		if (!strncmp(k->key, "router_", 7) && m->router != HD_ROUTER_SIGMOID) /* refused with the others */
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
	json_t *o = json_pack("{s:[s], s:s, s:s, s:i, s:i}", "architectures", f->class, "model_type", f->model_type,
			      "torch_dtype", "float32", "bos_token_id", 0, "eos_token_id", 0);
	int all = is_said(m);

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
