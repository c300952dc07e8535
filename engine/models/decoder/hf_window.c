/* SPDX-License-Identifier: Apache-2.0
 * Sliding windows in config.json: their length, and which layers have one. Families express the latter in several ways
 * (HD_FAMILY_WINDOW_...); here it is a pattern of letters.
 */
#include <config.h>
#include "engine/models/decoder/hf.h"
#include <stdlib.h>
#include <string.h>

static const struct {
	uint32_t least, most;
	const char *key;
} known[] = {
	{ HD_FAMILY_WINDOW_ALL, HD_FAMILY_WINDOW_TYPES, "sliding_window" },
	{ HD_FAMILY_WINDOW_USE, HD_FAMILY_WINDOW_TYPES, "layer_types" },
	{ HD_FAMILY_WINDOW_USED_BY_ALL, HD_FAMILY_WINDOW_USE, "use_sliding_window" },
	{ HD_FAMILY_WINDOW_USED_BY_ALL, HD_FAMILY_WINDOW_USE, "max_window_layers" },
	{ HD_FAMILY_WINDOW_TYPES, HD_FAMILY_WINDOW_TYPES, "sliding_window_pattern" },
	{ HD_FAMILY_WINDOW_TYPES, HD_FAMILY_WINDOW_TYPES, "sliding_window_size" },
};

static int knows(const struct hd_family *f, size_t i)
{
	return known[i].least <= f->window && f->window <= known[i].most;
}

const char *hd_hf_is_window(const struct hd_family *f, const char *key)
{
	for (size_t i = 0; i < HD_LEN(known); i++)
		if (!strcmp(known[i].key, key) && knows(f, i))
			return key;
	return NULL;
}

void hd_hf_name_window(const struct hd_family *f, char **names)
{
	for (size_t i = 0; i < HD_LEN(known); i++)
		if (knows(f, i))
			hd_append(names, ", %s", known[i].key);
}

/* -- one key ------------------------------------------------------------------------------------------------------- */
/* Reads an integer of at least `least` (0 or 1); *out is unchanged if the key is null or absent. */
static int read_integer(struct hd_hf_reader *r, const char *key, int64_t least, int64_t *out)
{
	const json_t *v = json_object_get(r->config, key);

	if (!v || json_is_null(v))
		return HD_OK;
	if (!json_is_integer(v) || json_integer_value(v) < least)
		return hd_hf_unknown(r, key, v,
				     least ? "a whole number from 1, or null" : "a whole number from 0, or null");
	*out = json_integer_value(v);
	return HD_OK;
}

/* Checks a key that the family's class does not read: it may only repeat the value that holds without it. Frees
 * wanted, which tells that value in the message. */
static int expect_same(struct hd_hf_reader *r, const char *key, int64_t is, char *wanted)
{
	int64_t value = is;
	int rc = read_integer(r, key, 1, &value);

	if (rc >= 0 && value != is)
		rc = hd_hf_unknown(r, key, json_object_get(r->config, key), wanted);
	free(wanted);
	return rc;
}

static int expect_size(struct hd_hf_reader *r, int64_t window)
{
	return expect_same(r, "sliding_window_size", window,
			   window ? hd_format("%lld, as sliding_window", (long long)window) : hd_strdup("null"));
}

/* Sets *window to the length of windows, or 0 without windows. */
static int length_of(struct hd_hf_reader *r, int64_t *window)
{
	const json_t *use = json_object_get(r->config, "use_sliding_window");

	*window = json_object_get(r->config, "sliding_window") ? 0 : r->family->window_absent;
	HD_TRY(read_integer(r, "sliding_window", 1, window));
	if (hd_hf_is_window(r->family, "sliding_window_size"))
		HD_TRY(expect_size(r, *window));
	if (!hd_hf_is_window(r->family, "use_sliding_window"))
		return HD_OK;
	if (use && !json_is_null(use) && !json_is_boolean(use))
		return hd_hf_unknown(r, "use_sliding_window", use, "true, false, null");
	if (!json_is_true(use))
		*window = 0;
	return HD_OK;
}

/* Translates layer_types into letters, one per layer. */
static int types_of(struct hd_hf_reader *r, const json_t *types, char *letters, size_t layers)
{
	static const char *const expected = "sliding_attention and full_attention, one for each layer, in an array";

	if (!json_is_array(types) || json_array_size(types) != layers)
		return hd_hf_unknown(r, "layer_types", types, expected);
	for (size_t l = 0; l < layers; l++) {
		const char *type = json_string_value(json_array_get(types, l));

		if (!type || (strcmp(type, "sliding_attention") && strcmp(type, "full_attention")))
			return hd_hf_unknown(r, "layer_types", types, expected);
		letters[l] = *type == 's' ? 'w' : 'f';
	}
	return HD_OK;
}

static int expect_pattern(struct hd_hf_reader *r, const char *key, int64_t pattern)
{
	return expect_same(r, key, pattern, hd_format("%lld where there is no layer_types", (long long)pattern));
}

/* Sets *pattern to n, where every n-th layer has no window. Classes of transformers write _sliding_window_pattern but
 * do not read it. */
static int pattern_of(struct hd_hf_reader *r, int64_t *pattern)
{
	*pattern = r->family->window_pattern;
	if (!r->family->window_fixed)
		HD_TRY(read_integer(r, "sliding_window_pattern", 1, pattern));
	HD_TRY(expect_pattern(r, "sliding_window_pattern", *pattern));
	return expect_pattern(r, "_sliding_window_pattern", *pattern);
}

static int letters_of(struct hd_hf_reader *r, char *letters, int64_t layers, int64_t window)
{
	const json_t *types = json_object_get(r->config, "layer_types");
	int64_t pattern = 0, from = 28; /* the default of max_window_layers */

	HD_TRY(read_integer(r, "max_window_layers", 0, &from));
	if (types && !json_is_null(types))
		return types_of(r, types, letters, (size_t)layers);
	if (!window)
		from = layers;
	else if (r->family->window != HD_FAMILY_WINDOW_USE)
		from = 0;
	if (window && r->family->window == HD_FAMILY_WINDOW_TYPES)
		HD_TRY(pattern_of(r, &pattern));
	for (int64_t l = 0; l < layers; l++)
		letters[l] = pattern ? ((l + 1) % pattern ? 'w' : 'f') : l >= from ? 'w' : 'f';
	return HD_OK;
}

/* Shortens letters to the shortest beginning that gives all of them when it is repeated. */
static void shorten(char *letters)
{
	size_t n = strlen(letters), at = 1;

	for (size_t i = 1; i < n; i++)
		if (letters[i] != letters[i % at])
			at = i + 1;
	letters[at] = 0;
}

/* -- all ----------------------------------------------------------------------------------------------------------- */
static int set_window(struct hd_hf_reader *r, char *letters, int64_t window)
{
	if (!strchr(letters, 'w')) {
		hd_hf_set(r, "window", "0");
		return HD_OK;
	}
	if (!window)
		return hd_hf_unknown(r, "layer_types", json_object_get(r->config, "layer_types"),
				     "full_attention alone, where no window is used");
	shorten(letters);
	hd_hf_set(r, "window", "%lld", (long long)window);
	hd_hf_set(r, "window_layers", "%s", letters);
	return HD_OK;
}

int hd_hf_read_window(struct hd_hf_reader *r)
{
	double layers = json_number_value(json_object_get(r->config, hd_hf_theirs(r->family, "layers")));
	int64_t window;
	char *letters;
	int rc;

	if (r->family->window == HD_FAMILY_WINDOW_NONE)
		return HD_OK;
	HD_TRY(length_of(r, &window));
	if (layers < 1 || layers > 100000) { /* refused later, with the other sizes */
		hd_hf_set(r, "window", "0");
		return HD_OK;
	}
	letters = hd_alloc((size_t)layers + 1);
	rc = letters_of(r, letters, (int64_t)layers, window);
	if (rc >= 0)
		rc = set_window(r, letters, window);
	free(letters);
	return rc;
}

/* -- writing ------------------------------------------------------------------------------------------------------- */
static int has_window(const struct hd_model *m, int64_t l)
{
	return m->window && m->window_layers[(size_t)l % strlen(m->window_layers)] == 'w';
}

int hd_hf_write_window(const struct hd_model *m, json_t *o)
{
	json_t *types = json_array();
	int64_t having = 0;

	for (int64_t l = 0; l < m->layers; l++) {
		having += has_window(m, l);
		json_array_append_new(types, json_string(has_window(m, l) ? "sliding_attention" : "full_attention"));
	}
	if (m->family->window == HD_FAMILY_WINDOW_TYPES) /* such a class needs a number even if no layer has a window */
		json_object_set_new(o, "sliding_window", json_integer(m->window ? m->window : m->max_seq));
	else if (m->family->window != HD_FAMILY_WINDOW_NONE)
		json_object_set_new(o, "sliding_window", having ? json_integer(m->window) : json_null());
	if (hd_hf_is_window(m->family, "use_sliding_window"))
		json_object_set_new(o, "use_sliding_window", json_boolean(having > 0));
	if (m->family->window == HD_FAMILY_WINDOW_USE)
		json_object_set_new(o, "max_window_layers", json_integer(having ? 0 : m->layers));
	if (m->family->window >= HD_FAMILY_WINDOW_USE)
		json_object_set(o, "layer_types", types);
	json_decref(types);
	return m->family->window >= HD_FAMILY_WINDOW_USE || !having ||
	       (m->family->window != HD_FAMILY_WINDOW_NONE && having == m->layers);
}
