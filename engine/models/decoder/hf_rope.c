/* SPDX-License-Identifier: Apache-2.0
 * Rotary positions in config.json. transformers 4 and published files have `rope_theta' and `rope_scaling'.
 * transformers 5 has `rope_parameters', which may have a section for each type of layer.
 */
#include <config.h>
#include "engine/models/decoder/hf.h"
#include "engine/models/decoder/knobs.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const top[] = { "rope_theta", "rope_scaling", "rope_parameters" };

const char *hd_hf_is_rope(const char *key)
{
	for (size_t i = 0; i < HD_LEN(top); i++)
		if (!strcmp(top[i], key))
			return key;
	return NULL;
}

void hd_hf_name_rope(char **names)
{
	for (size_t i = 0; i < HD_LEN(top); i++)
		hd_append(names, ", %s", top[i]);
}

static const struct {
	const char *theirs, *ours;
} numbers[] = {
	{ "rope_theta", "rope_theta" },
	{ "partial_rotary_factor", "rotary_fraction" },
	{ "factor", "rope_factor" },
	{ "original_max_position_embeddings", "rope_original" },
	{ "low_freq_factor", "rope_low" },
	{ "high_freq_factor", "rope_high" },
	{ "beta_fast", "rope_beta_fast" },
	{ "beta_slow", "rope_beta_slow" },
	{ "attention_factor", "rope_attention" },
};
static const char *const others[] = { "rope_type",      "type",      "truncate",     "mscale",
				      "mscale_all_dim", "finetuned", "short_factor", "long_factor" };
static const char *const types[] = { "default", "linear", "dynamic", "llama3", "yarn", "longrope" };

static int is_there(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return v && !json_is_null(v);
}

/* Returns the key under which a section has its type. */
static const char *type_key(const json_t *o)
{
	return is_there(o, "rope_type") || !is_there(o, "type") ? "rope_type" : "type";
}

static const char *type_of(const json_t *o)
{
	const json_t *type = json_object_get(o, type_key(o));

	return json_is_string(type) ? json_string_value(type) : "default";
}

static int is_default(const json_t *o)
{
	return !strcmp(type_of(o), "default");
}

static int is_number_key(const char *key)
{
	for (size_t i = 0; i < HD_LEN(numbers); i++)
		if (!strcmp(numbers[i].theirs, key))
			return 1;
	return 0;
}

static int is_known(const char *key)
{
	for (size_t i = 0; i < HD_LEN(others); i++)
		if (!strcmp(others[i], key))
			return 1;
	return is_number_key(key);
}

/* Whether the family's layers with a window have their own theta, and so their own section. */
static int has_sections(const struct hd_hf_reader *r)
{
	return hd_hf_theirs(r->family, "rope_theta_window") != NULL;
}

/* Whether the family's class reads partial_rotary_factor. */
static int reads_partial_factor(const struct hd_hf_reader *r)
{
	return hd_hf_theirs(r->family, "rotary_fraction") || hd_family_default(r->family, "rotary_fraction");
}

/* -- checking a section -------------------------------------------------------------------------------------------- */
static int check_type(struct hd_hf_reader *r, const char *name, const json_t *o)
{
	const json_t *type = json_object_get(o, type_key(o)), *other = json_object_get(o, "type");
	size_t is = 0;

	while (is < HD_LEN(types) && strcmp(types[is], type_of(o)))
		is++;
	if (is == HD_LEN(types) || (type && !json_is_null(type) && !json_is_string(type)))
		return hd_hf_unknown(r, name, o, "rope_type default, linear, dynamic, llama3, yarn, longrope");
	if (is_there(o, "type") && !json_equal(type, other))
		return hd_hf_unknown(r, name, o, "one word as rope_type and type");
	if (r->family->longrope_only && is &&
	    strcmp(types[is], "longrope")) /* its class reads yarn as longrope, and accepts no other */
		return hd_hf_unknown(r, name, o, "rope_type default, longrope");
	return HD_OK;
}

static int check_kinds(struct hd_hf_reader *r, const char *name, json_t *o)
{
	const char *key;
	json_t *v;

	json_object_foreach(o, key, v) {
		if (json_is_null(v))
			continue;
		if (!is_known(key))
			return hd_hf_unknown(
				r, name, o,
				"keys rope_type, rope_theta, factor, partial_rotary_factor, "
				"original_max_position_embeddings, low_freq_factor, high_freq_factor, "
				"beta_fast, beta_slow, attention_factor, mscale, mscale_all_dim, truncate, "
				"short_factor, long_factor");
		if ((is_number_key(key) || !strncmp(key, "mscale", 6)) && !json_is_number(v))
			return hd_hf_unknown(r, name, o, "numbers for all but rope_type, truncate and the factors");
	}
	if (is_there(o, "truncate") && !json_is_boolean(json_object_get(o, "truncate")))
		return hd_hf_unknown(r, name, o, "truncate as true or false");
	return HD_OK;
}

/* Refuses a section that lacks a number its type needs, or has one that its type or the family's class cannot use. */
static int check_numbers(struct hd_hf_reader *r, const char *name, const json_t *o)
{
	const json_t *factor = json_object_get(o, "factor"), *part = json_object_get(o, "partial_rotary_factor");
	const json_t *attention = json_object_get(o, "attention_factor");
	const char *type = type_of(o);

	if (is_default(o) && json_is_number(factor) && json_number_value(factor) != 1)
		return hd_hf_unknown(r, name, o, "a factor with rope_type linear, dynamic, llama3, yarn, longrope");
	if (!is_default(o) && strcmp(type, "longrope") && !json_is_number(factor))
		return hd_hf_unknown(r, name, o, "a factor next to rope_type");
	if (!strcmp(type, "llama3") && (!is_there(o, "low_freq_factor") || !is_there(o, "high_freq_factor")))
		return hd_hf_unknown(r, name, o, "low_freq_factor and high_freq_factor next to rope_type llama3");
	if (json_is_number(attention) && json_number_value(attention) <= 0)
		return hd_hf_unknown(r, name, o, "an attention_factor of more than 0");
	if (json_is_number(part) && json_number_value(part) != 1 && !reads_partial_factor(r))
		return hd_hf_unknown(r, name, o, "a partial_rotary_factor of 1");
	return HD_OK;
}

/* In families with sections, rope_scaling is merged into a section that already has a rope_type. The older key `type'
 * is ignored there, so it is refused. */
static int check_type_key(struct hd_hf_reader *r, const json_t *scaling)
{
	if (!has_sections(r) || is_there(scaling, "rope_type") || is_default(scaling))
		return HD_OK;
	return hd_hf_unknown(r, "rope_scaling", scaling, "rope_type in place of type");
}

static int check_section(struct hd_hf_reader *r, const char *name, json_t *o)
{
	HD_TRY(check_type(r, name, o));
	HD_TRY(check_kinds(r, name, o));
	return check_numbers(r, name, o);
}

/* -- reading a section --------------------------------------------------------------------------------------------- */
static int set(struct hd_hf_reader *r, const char *ours, const char *name, const char *theirs, const char *text)
{
	char *place = hd_format("%s%s%s", name, *name ? "." : "", theirs);
	int rc = hd_hf_set_once(r, ours, place, text);

	free(place);
	return rc;
}

static int set_number(struct hd_hf_reader *r, const char *ours, const char *name, const char *theirs, double x)
{
	char text[40];

	snprintf(text, sizeof(text), "%.15g", x);
	return set(r, ours, name, theirs, text);
}

static double mscale(double factor, double by)
{
	return factor > 1 ? 0.1 * by * log(factor) + 1 : 1;
}

/* Computes YaRN's attention factor from mscale and mscale_all_dim, if these give it. */
static int read_mscale(struct hd_hf_reader *r, const char *name, const json_t *o)
{
	double one = json_number_value(json_object_get(o, "mscale"));
	double all = json_number_value(json_object_get(o, "mscale_all_dim"));
	double factor = json_number_value(json_object_get(o, "factor"));

	if (one == 0 || all == 0 || json_is_number(json_object_get(o, "attention_factor")))
		return HD_OK;
	return set_number(r, "rope_attention", name, "mscale / mscale_all_dim",
			  mscale(factor, one) / mscale(factor, all));
}

static int read_list(struct hd_hf_reader *r, const char *name, const json_t *o, const char *theirs, const char *ours)
{
	json_t *list = json_object_get(o, theirs), *v;
	char *text = NULL;
	size_t i;
	int rc = HD_OK;

	json_array_foreach(list, i, v) {
		hd_append(&text, "%s%.17g", i ? "," : "", json_number_value(v));
		rc = json_is_number(v) ? rc : HD_ENOTSUP;
	}
	rc = !json_is_array(list) || rc < 0 ? hd_hf_unknown(r, theirs, list, "a list of numbers")
					    : set(r, ours, name, theirs, text ? text : "");
	free(text);
	return rc;
}

/* Reads the factors of longrope, one for each rotated pair of dims. The scale of queries and keys follows from
 * `factor', or else from the numbers of positions after and before the extension. */
static int read_longrope(struct hd_hf_reader *r, const char *name, const json_t *o)
{
	const char *beside = hd_hf_theirs(r->family, "rope_original"), *max = hd_hf_theirs(r->family, "max_seq");
	double now = json_number_value(json_object_get(r->config, max)), before;

	if (beside && !is_there(r->config, beside))
		return hd_err_set(r->err, HD_EINVAL, "%s: has rope_type longrope, but no %s", r->path, beside);
	before = json_number_value(json_object_get(beside ? r->config : o, "original_max_position_embeddings"));
	if (!is_there(o, "factor") && before > 0)
		HD_TRY(set_number(r, "rope_factor", "", "max_position_embeddings / original_max_position_embeddings",
				  now / before));
	HD_TRY(read_list(r, name, o, "short_factor", "rope_short"));
	return read_list(r, name, o, "long_factor", "rope_long");
}

static int read_numbers(struct hd_hf_reader *r, const char *name, const json_t *o)
{
	for (size_t i = 0; i < HD_LEN(numbers); i++) {
		const json_t *v = json_object_get(o, numbers[i].theirs);

		if (json_is_number(v))
			HD_TRY(set_number(r, numbers[i].ours, name, numbers[i].theirs, json_number_value(v)));
	}
	return HD_OK;
}

static int read_section(struct hd_hf_reader *r, const char *name, json_t *o)
{
	const char *type = type_of(o);
	json_t *truncate = json_object_get(o, "truncate");

	HD_TRY(check_section(r, name, o));
	HD_TRY(set(r, "rope_scaling", name, type_key(o), type_of(o)));
	HD_TRY(read_numbers(r, name, o));
	if (is_default(o))
		return HD_OK;
	if (json_is_boolean(truncate))
		HD_TRY(set(r, "rope_truncate", name, "truncate", json_is_true(truncate) ? "yes" : "no"));
	if (!strcmp(type, "yarn"))
		return read_mscale(r, name, o);
	return strcmp(type, "longrope") ? HD_OK : read_longrope(r, name, o);
}

/* -- several sections ---------------------------------------------------------------------------------------------- */
/* Reads the section of layers with a window. It either has its own theta and no scaling, or equals that of the other
 * layers. The latter is rope_theta_window = 0 here. */
static int read_windowed(struct hd_hf_reader *r, json_t *own, const json_t *others_have)
{
	static const char *const name = "rope_parameters.sliding_attention";
	const json_t *theta = json_object_get(own, "rope_theta"),
		     *local = json_object_get(r->config, "rope_local_base_freq");
	int same = json_is_number(theta) && json_equal(own, others_have);

	HD_TRY(check_section(r, name, own));
	if (is_default(own) && !json_is_number(theta))
		return HD_OK;
	if (is_default(own) && !same)
		return set_number(r, "rope_theta_window", name, "rope_theta", json_number_value(theta));
	if (!same)
		return hd_hf_unknown(r, name, own, "rope_type default");
	if (local && (!json_is_number(local) || json_number_value(local) != json_number_value(theta)))
		return hd_hf_unknown(r, "rope_local_base_freq", local, "rope_parameters.sliding_attention.rope_theta");
	hd_hf_set(r, "rope_theta_window", "0");
	r->one_rope = 1;
	return HD_OK;
}

static int expect_object(struct hd_hf_reader *r, const char *name, const json_t *o)
{
	if (!o || json_is_null(o) || json_is_object(o))
		return HD_OK;
	return hd_hf_unknown(r, name, o, "an object with rope_type, or null");
}

/* Reads rope_parameters with a section for each type of layer. */
static int read_sections(struct hd_hf_reader *r, json_t *params)
{
	json_t *full = json_object_get(params, "full_attention"), *own = json_object_get(params, "sliding_attention"),
	       *v;
	const char *key;

	json_object_foreach(params, key, v)
		if (!json_is_null(v) && strcmp(key, "full_attention") && strcmp(key, "sliding_attention"))
			return hd_hf_unknown(r, "rope_parameters", params, "full_attention and sliding_attention");
	if (!has_sections(r))
		return hd_hf_unknown(r, "rope_parameters", params, "one object for all layers");
	HD_TRY(expect_object(r, "rope_parameters.full_attention", full));
	HD_TRY(expect_object(r, "rope_parameters.sliding_attention", own));
	if (json_is_object(own))
		HD_TRY(read_windowed(r, own, full));
	return json_is_object(full) ? read_section(r, "rope_parameters.full_attention", full) : HD_OK;
}

static int has_types(const json_t *params)
{
	return json_object_get(params, "full_attention") || json_object_get(params, "sliding_attention");
}

/* Checks a rope_parameters for all layers that transformers ignores: next to rope_scaling, or in families with
 * sections. Its values must then repeat those of other keys. */
static int expect_repeated(struct hd_hf_reader *r, json_t *params, const json_t *scaling)
{
	const char *key;
	json_t *v;

	if ((!json_object_size(scaling) && !has_sections(r)) || has_types(params))
		return HD_OK;
	json_object_foreach(params, key, v) {
		int is_type = !strcmp(key, "rope_type") || !strcmp(key, "type");

		if (json_is_null(v) || is_there(r->config, key) || is_there(scaling, key) ||
		    (is_type && is_default(params)))
			continue;
		if (!json_object_size(scaling))
			return hd_hf_unknown(r, "rope_parameters", params, "full_attention and sliding_attention");
		if (!is_type && strcmp(key, "factor")) /* compared with what rope_scaling implies */
			return hd_err_set(
				r->err, HD_EINVAL,
				"%s: rope_parameters has %s, but rope_scaling, which transformers reads instead, has "
				"none",
				r->path, key);
	}
	return HD_OK;
}

static int read_params(struct hd_hf_reader *r, json_t *params)
{
	if (!json_object_size(params))
		return HD_OK;
	if (has_types(params))
		return read_sections(r, params);
	return read_section(r, "rope_parameters", params);
}

/* Sets the keys that config.json omits to the values that the family's class assumes. */
static void set_defaults(struct hd_hf_reader *r)
{
	const char *theta = r->family->theta_absent,
		   *type = json_string_value(json_object_get(r->keys, "rope_scaling"));

	theta = theta ? theta : hd_family_default(r->family, "rope_theta");
	if (!json_object_get(r->keys, "rope_theta"))
		hd_hf_set(r, "rope_theta", "%s", theta ? theta : "10000");
	if (!type || !strcmp(type, "default")) {
		json_object_del(r->keys, "rope_scaling");
		return;
	}
	/* dynamic scales relative to the positions in config.json, whatever length is trained later */
	if (!strcmp(type, "dynamic") || !json_object_get(r->keys, "rope_original"))
		hd_hf_set_number(r, "rope_original",
				 json_number_value(json_object_get(r->config, hd_hf_theirs(r->family, "max_seq"))));
}

int hd_hf_read_rope(struct hd_hf_reader *r)
{
	json_t *params = json_object_get(r->config, "rope_parameters"),
	       *scaling = json_object_get(r->config, "rope_scaling"), *theta = json_object_get(r->config, "rope_theta");

	if (theta && !json_is_null(theta) && !json_is_number(theta))
		return hd_hf_unknown(r, "rope_theta", theta, "a number");
	HD_TRY(expect_object(r, "rope_scaling", scaling));
	HD_TRY(expect_object(r, "rope_parameters", params));
	if (json_is_number(theta))
		HD_TRY(set_number(r, "rope_theta", "", "rope_theta", json_number_value(theta)));
	HD_TRY(read_params(r, params));
	HD_TRY(check_type_key(r, scaling));
	if (json_object_size(scaling))
		HD_TRY(read_section(r, "rope_scaling", scaling));
	HD_TRY(expect_repeated(r, params, scaling));
	set_defaults(r);
	return HD_OK;
}

/* -- writing ------------------------------------------------------------------------------------------------------- */
static json_t *list_of(const char *text)
{
	json_t *list = json_array();
	char *end;

	while (*text) { /* hd_rope_list has checked the text; blanks may precede a comma */
		json_array_append_new(list, json_real(strtod(text, &end)));
		end += strspn(end, " \t");
		text = end + (*end == ',');
	}
	return list;
}

/* Phi-3's class accepts these three keys and no others. */
static json_t *longrope(const struct hd_model *m, json_t *o)
{
	json_object_set_new(o, "short_factor", list_of(m->rope_short));
	json_object_set_new(o, "long_factor", list_of(m->rope_long));
	if (m->rope_attention > 0)
		json_object_set_new(o, "attention_factor", json_real(m->rope_attention));
	return o;
}

int64_t hd_hf_original(const struct hd_model *m)
{
	return m->rope_original > 0 ? (int64_t)m->rope_original : m->max_seq;
}

/* Whether the family's class can express the scaling of all layers but those with a theta of their own. */
static int scaling_is_expressible(const struct hd_model *m)
{
	const struct hd_family *f = m->family;

	switch (m->rope_scaling) {
	case HD_ROPE_SCALING_NONE: return 1;
	case HD_ROPE_SCALING_DYNAMIC: /* its class reads max_position_embeddings alone */
		return !f->longrope_only && hd_hf_original(m) == m->max_seq;
	case HD_ROPE_SCALING_LONGROPE: /* its class derives the scale, and the number of pairs, from other keys */
		return hd_hf_theirs(f, "rope_original") && m->rope_factor == (double)m->max_seq / m->rope_original &&
		       (!f->longrope_only || m->embed / m->heads == m->head_dim);
	default: return !f->longrope_only;
	}
}

int hd_hf_rope_is_expressible(const struct hd_model *m)
{
	int own = hd_hf_theirs(m->family, "rope_theta_window") != NULL;

	if (!scaling_is_expressible(m) || (m->rope_theta_window > 0 && !own))
		return 0;
	return m->rope_theta_window > 0 || !own || !m->rope_scaling; /* its class does not scale layers with a window */
}

static json_t *scaling(const struct hd_model *m)
{
	json_t *o = json_pack("{s:s}", "rope_type", types[m->rope_scaling]);
	int64_t is = m->rope_scaling;

	if (is == HD_ROPE_SCALING_LONGROPE)
		return longrope(m, o);
	if (is)
		json_object_set_new(o, "factor", json_real(m->rope_factor));
	if (is > HD_ROPE_SCALING_DYNAMIC)
		json_object_set_new(o, "original_max_position_embeddings", json_integer(hd_hf_original(m)));
	if (is == HD_ROPE_SCALING_LLAMA3) {
		json_object_set_new(o, "low_freq_factor", json_real(m->rope_low));
		json_object_set_new(o, "high_freq_factor", json_real(m->rope_high));
	}
	if (is != HD_ROPE_SCALING_YARN)
		return o;
	json_object_set_new(o, "beta_fast", json_real(m->rope_beta_fast));
	json_object_set_new(o, "beta_slow", json_real(m->rope_beta_slow));
	json_object_set_new(o, "truncate", json_boolean(m->rope_truncate));
	if (m->rope_attention > 0)
		json_object_set_new(o, "attention_factor", json_real(m->rope_attention));
	return o;
}

void hd_hf_write_rope(const struct hd_model *m, json_t *o)
{
	json_t *full = scaling(m);

	json_object_set_new(o, "rope_theta", json_real(m->rope_theta));
	json_object_set_new(o, "rope_scaling", m->rope_scaling ? json_deep_copy(full) : json_null());
	if (m->rope_scaling == HD_ROPE_SCALING_LONGROPE) { /* type is the original name of rope_type */
		json_object_set_new(json_object_get(o, "rope_scaling"), "type", json_string("longrope"));
		json_object_del(json_object_get(o, "rope_scaling"), "rope_type");
		json_object_set_new(full, "original_max_position_embeddings", json_integer(hd_hf_original(m)));
		json_object_set_new(full, "factor", json_real(m->rope_factor));
	}
	json_object_set_new(full, "rope_theta", json_real(m->rope_theta));
	if (m->rotary_fraction != 1 || hd_family_default(m->family, "rotary_fraction"))
		json_object_set_new(full, "partial_rotary_factor", json_real(m->rotary_fraction));
	if (hd_hf_theirs(m->family, "rope_theta_window"))
		full = json_pack("{s:o, s:{s:s, s:f}}", "full_attention", full, "sliding_attention", "rope_type",
				 "default", "rope_theta",
				 m->rope_theta_window > 0 ? m->rope_theta_window : m->rope_theta);
	json_object_set_new(o, "rope_parameters", full);
}
