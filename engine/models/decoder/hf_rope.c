/* SPDX-License-Identifier: Apache-2.0
 * Rotary positions in config.json: `rope_theta' and `rope_scaling' of transformers 4 and of published files, `rope_parameters'
 * of transformers 5, which may be one for each type of layer.
 */
#include <config.h>
#include "engine/models/decoder/hf.h"
#include "engine/models/decoder/knobs.h"
#include <math.h>
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

static const char *type_of(const json_t *o)
{
	const json_t *type = json_object_get(o, "rope_type");

	type = json_is_string(type) ? type : json_object_get(o, "type");
	return json_is_string(type) ? json_string_value(type) : "default";
}

static int is_known(const char *key)
{
	for (size_t i = 0; i < HD_LEN(numbers); i++)
		if (!strcmp(numbers[i].theirs, key))
			return 1;
	for (size_t i = 0; i < HD_LEN(others); i++)
		if (!strcmp(others[i], key))
			return 1;
	return 0;
}

static double mscale(double factor, double by)
{
	return factor > 1 ? 0.1 * by * log(factor) + 1 : 1;
}

/* YaRN's stretch, where two numbers say it. */
static void read_mscale(struct hd_hf_reader *r, const json_t *o)
{
	double one = json_number_value(json_object_get(o, "mscale"));
	double all = json_number_value(json_object_get(o, "mscale_all_dim"));
	double factor = json_number_value(json_object_get(o, "factor"));

	if (one != 0 && all != 0 && !json_is_number(json_object_get(o, "attention_factor")))
		hd_hf_say_number(r, "rope_attention", mscale(factor, one) / mscale(factor, all));
}

static int read_list(struct hd_hf_reader *r, const json_t *o, const char *theirs, const char *ours)
{
	json_t *list = json_object_get(o, theirs), *v;
	char *text = NULL;
	size_t i;

	json_array_foreach(list, i, v)
		hd_append(&text, "%s%.17g", i ? "," : "", json_number_value(v));
	hd_hf_say(r, ours, "%s", text ? text : "");
	free(text);
	return json_is_array(list) ? HD_OK : hd_hf_unknown(r, theirs, list, "a list of numbers");
}

/* A factor for each pair; what queries and keys are multiplied by follows from the positions before and after. */
static int read_longrope(struct hd_hf_reader *r, const json_t *o)
{
	const json_t *original = json_object_get(r->config, "original_max_position_embeddings");
	double now = json_number_value(json_object_get(r->config, hd_hf_theirs(r->family, "max_seq")));

	original = original ? original : json_object_get(o, "original_max_position_embeddings");
	if (json_number_value(original) > 0)
		hd_hf_say_number(r, "rope_factor", now / json_number_value(original));
	HD_TRY(read_list(r, o, "short_factor", "rope_short"));
	return read_list(r, o, "long_factor", "rope_long");
}

static int read_numbers(struct hd_hf_reader *r, const char *name, const json_t *o)
{
	for (size_t i = 0; i < HD_LEN(numbers); i++) {
		const json_t *v = json_object_get(o, numbers[i].theirs);

		if (v && !json_is_null(v) && !json_is_number(v))
			return hd_hf_unknown(r, name, o, "numbers for all but rope_type, truncate and the factors");
		if (v && !json_is_null(v))
			hd_hf_say_number(r, numbers[i].ours, json_number_value(v));
	}
	return HD_OK;
}

static int read_section(struct hd_hf_reader *r, const char *name, json_t *o)
{
	const char *type = type_of(o), *key;
	json_t *v, *truncate = json_object_get(o, "truncate");
	size_t is = 0;

	while (is < HD_LEN(types) && strcmp(types[is], type))
		is++;
	if (is == HD_LEN(types))
		return hd_hf_unknown(r, name, o, "rope_type default, linear, dynamic, llama3, yarn, longrope");
	json_object_foreach(o, key, v)
		if (!is_known(key) && !json_is_null(v))
			return hd_hf_unknown(
				r, name, o,
				"keys rope_type, rope_theta, factor, partial_rotary_factor, "
				"original_max_position_embeddings, low_freq_factor, high_freq_factor, "
				"beta_fast, beta_slow, attention_factor, mscale, mscale_all_dim, truncate, "
				"short_factor, long_factor");
	HD_TRY(read_numbers(r, name, o));
	if (!is && json_is_number(json_object_get(o, "factor")) && json_number_value(json_object_get(o, "factor")) != 1)
		return hd_hf_unknown(r, name, o, "a factor with rope_type linear, dynamic, llama3, yarn, longrope");
	if (!is)
		return HD_OK;
	if (strcmp(type, "longrope") && !json_is_number(json_object_get(o, "factor")))
		return hd_hf_unknown(r, name, o, "a factor beside rope_type");
	hd_hf_say(r, "rope_scaling", "%s", types[is]);
	if (json_is_boolean(truncate))
		hd_hf_say(r, "rope_truncate", "%s", json_is_true(truncate) ? "yes" : "no");
	if (!strcmp(type, "yarn"))
		read_mscale(r, o);
	return strcmp(type, "longrope") ? HD_OK : read_longrope(r, o);
}

/* Layers with a window: as the others, or with a theta of their own and no scaling. */
static int read_windowed(struct hd_hf_reader *r, json_t *own, const json_t *others_have)
{
	if (!json_is_object(own) || json_equal(own, others_have))
		return HD_OK;
	if (strcmp(type_of(own), "default"))
		return hd_hf_unknown(r, "rope_parameters.sliding_attention", own, "rope_type default");
	hd_hf_say_number(r, "rope_theta_window", json_number_value(json_object_get(own, "rope_theta")));
	return HD_OK;
}

/* What is there but is not what it should be would be passed over; two thetas could not both be meant. */
static int expect_types(struct hd_hf_reader *r, const json_t *theta, const json_t *scaling, const json_t *params)
{
	const json_t *other = json_object_get(params, "rope_theta");

	if (theta && !json_is_null(theta) && !json_is_number(theta))
		return hd_hf_unknown(r, "rope_theta", theta, "a number");
	if (scaling && !json_is_null(scaling) && !json_is_object(scaling))
		return hd_hf_unknown(r, "rope_scaling", scaling, "an object with rope_type, or null");
	if (params && !json_is_null(params) && !json_is_object(params))
		return hd_hf_unknown(r, "rope_parameters", params, "an object with rope_type, or null");
	if (json_is_number(theta) && json_is_number(other) && json_number_value(theta) != json_number_value(other))
		return hd_err_set(r->err, HD_EINVAL, "%s: rope_theta is %.15g, and rope_parameters.rope_theta is %.15g",
				  r->path, json_number_value(theta), json_number_value(other));
	return HD_OK;
}

int hd_hf_read_rope(struct hd_hf_reader *r)
{
	json_t *params = json_object_get(r->config, "rope_parameters"),
	       *scaling = json_object_get(r->config, "rope_scaling");
	json_t *theta = json_object_get(r->config, "rope_theta"), *full = json_object_get(params, "full_attention");
	const char *absent = r->family->theta_absent, *original;

	absent = absent ? absent : hd_family_default(r->family, "rope_theta");
	hd_hf_say(r, "rope_theta", "%s", absent ? absent : "10000");
	HD_TRY(expect_types(r, theta, scaling, params));
	if (json_is_number(theta))
		hd_hf_say_number(r, "rope_theta", json_number_value(theta));
	if (json_is_object(full)) {
		HD_TRY(read_windowed(r, json_object_get(params, "sliding_attention"), full));
		HD_TRY(read_section(r, "rope_parameters.full_attention", full));
	} else if (json_is_object(params)) {
		HD_TRY(read_section(r, "rope_parameters", params));
	}
	if (json_is_object(scaling))
		HD_TRY(read_section(r, "rope_scaling", scaling));
	/* dynamic counts from the positions that config.json says, whatever length is trained then */
	original = json_string_value(json_object_get(r->keys, "rope_scaling"));
	if (original && (!strcmp(original, "dynamic") || !json_object_get(r->keys, "rope_original")))
		hd_hf_say_number(r, "rope_original",
				 json_number_value(json_object_get(r->config, hd_hf_theirs(r->family, "max_seq"))));
	return HD_OK;
}

/* -- writing -------------------------------------------------------------------------------------------------------------- */
static json_t *list_of(const char *text)
{
	json_t *list = json_array();
	char *end;

	while (*text) { /* as hd_rope_list has checked it: a blank may stand before a comma */
		json_array_append_new(list, json_real(strtod(text, &end)));
		end += strspn(end, " \t");
		text = end + (*end == ',');
	}
	return list;
}

/* Phi-3's class takes these three keys and no other. */
static json_t *longrope(const struct hd_model *m, json_t *o)
{
	json_object_set_new(o, "short_factor", list_of(m->rope_short));
	json_object_set_new(o, "long_factor", list_of(m->rope_long));
	if (m->rope_attention > 0)
		json_object_set_new(o, "attention_factor", json_real(m->rope_attention));
	return o;
}

static json_t *scaling(const struct hd_model *m)
{
	json_t *o = json_pack("{s:s}", "rope_type", types[m->rope_scaling]);
	int64_t is = m->rope_scaling;
	json_int_t original = (json_int_t)(m->rope_original > 0 ? m->rope_original : (double)m->max_seq);

	if (is == HD_ROPE_SCALING_LONGROPE)
		return longrope(m, o);
	if (is)
		json_object_set_new(o, "factor", json_real(m->rope_factor));
	if (is > HD_ROPE_SCALING_LINEAR)
		json_object_set_new(o, "original_max_position_embeddings", json_integer(original));
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
	if (m->rope_scaling == HD_ROPE_SCALING_LONGROPE) { /* as it was named first */
		json_object_set_new(json_object_get(o, "rope_scaling"), "type", json_string("longrope"));
		json_object_del(json_object_get(o, "rope_scaling"), "rope_type");
		json_object_set_new(full, "original_max_position_embeddings",
				    json_integer((json_int_t)m->rope_original));
		json_object_set_new(full, "factor", json_real(m->rope_factor));
	}
	json_object_set_new(full, "rope_theta", json_real(m->rope_theta));
	if (m->rotary_fraction != 1 || hd_family_default(m->family, "rotary_fraction"))
		json_object_set_new(full, "partial_rotary_factor", json_real(m->rotary_fraction));
	if (m->rope_theta_window > 0)
		full = json_pack("{s:o, s:{s:s, s:f}}", "full_attention", full, "sliding_attention", "rope_type",
				 "default", "rope_theta", m->rope_theta_window);
	json_object_set_new(o, "rope_parameters", full);
}
