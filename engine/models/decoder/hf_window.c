/* SPDX-License-Identifier: Apache-2.0
 * Sliding windows in config.json: how long, and which layers have one.  Families say the latter in four ways (enum

 * HD_FAMILY_WINDOW_...); here it is a pattern of letters.
 */
#include <config.h>
#include "engine/models/decoder/hf.h"
#include <stdlib.h>
#include <string.h>

static const struct {
	uint32_t least;
	const char *key;
} known[] = {
	{ HD_FAMILY_WINDOW_ALL, "sliding_window" },
	{ HD_FAMILY_WINDOW_USE, "layer_types" },
	{ HD_FAMILY_WINDOW_USED_BY_ALL, "use_sliding_window" },
	{ HD_FAMILY_WINDOW_USED_BY_ALL, "max_window_layers" },
	{ HD_FAMILY_WINDOW_TYPES, "sliding_window_pattern" },
};

const char *hd_hf_is_window(const struct hd_family *f, const char *key)
{
	for (size_t i = 0; i < HD_LEN(known); i++)
		if (!strcmp(known[i].key, key) && known[i].least <= f->window)
			return key;
	return NULL;
}

void hd_hf_name_window(const struct hd_family *f, char **names)
{
	for (size_t i = 0; i < HD_LEN(known); i++)
		if (known[i].least <= f->window)
			hd_append(names, ", %s", known[i].key);
}

/* Letters of layers, as the types say. */
static int types_of(struct hd_hf_reader *r, const json_t *types, char *letters, size_t layers)
{
	for (size_t l = 0; l < layers; l++) {
		const char *type = json_string_value(json_array_get(types, l));

		if (!type || (strcmp(type, "sliding_attention") && strcmp(type, "full_attention")))
			return hd_hf_unknown(r, "layer_types", types,
					     "sliding_attention and full_attention, one for each layer");
		letters[l] = *type == 's' ? 'w' : 'f';
	}
	return HD_OK;
}

static int64_t number(const json_t *o, const char *key, int64_t otherwise)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

static int letters_of(struct hd_hf_reader *r, char *letters, int64_t layers)
{
	const json_t *o = r->config, *types = json_object_get(o, "layer_types");
	int64_t pattern = number(o, "_sliding_window_pattern", r->family->window_pattern);
	int64_t from = r->family->window == HD_FAMILY_WINDOW_USE ? number(o, "max_window_layers", 28) : 0;

	pattern = number(o, "sliding_window_pattern", pattern);
	if (json_is_array(types))
		return types_of(r, types, letters, (size_t)layers);
	for (int64_t l = 0; l < layers; l++)
		letters[l] = pattern ? ((l + 1) % pattern ? 'w' : 'f') : l >= from ? 'w' : 'f';
	return HD_OK;
}

/* The shortest piece that makes the letters when it is repeated. */
static void shorten(char *letters)
{
	size_t n = strlen(letters), at = 1;

	for (size_t i = 1; i < n; i++)
		if (letters[i] != letters[i % at])
			at = i + 1;
	letters[at] = 0;
}

int hd_hf_read_window(struct hd_hf_reader *r)
{
	int64_t layers = number(r->config, hd_hf_theirs(r->family, "layers"), 0), window = r->family->window_absent;
	const json_t *use = json_object_get(r->config, "use_sliding_window");
	char *letters;
	int rc;

	if (r->family->window == HD_FAMILY_WINDOW_NONE)
		return HD_OK;
	if (json_object_get(r->config, "sliding_window"))
		window = number(r->config, "sliding_window", 0);
	if ((r->family->window == HD_FAMILY_WINDOW_USE || r->family->window == HD_FAMILY_WINDOW_USED_BY_ALL) &&
	    !json_is_true(use))
		window = 0;
	if (!window || layers < 1 || layers > 100000) {
		hd_hf_say(r, "window", "0");
		return HD_OK;
	}
	letters = hd_alloc((size_t)layers + 1);
	rc = letters_of(r, letters, layers);
	shorten(letters);
	hd_hf_say(r, "window", "%lld", strchr(letters, 'w') ? (long long)window : 0LL);
	hd_hf_say(r, "window_layers", "%s", letters);
	free(letters);
	return rc;
}

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
	if (m->family->window != HD_FAMILY_WINDOW_NONE)
		json_object_set_new(o, "sliding_window", m->window ? json_integer(m->window) : json_null());
	if (m->family->window == HD_FAMILY_WINDOW_USED_BY_ALL)
		json_object_set_new(o, "use_sliding_window", json_boolean(m->window > 0));
	if (m->family->window == HD_FAMILY_WINDOW_USE) {
		json_object_set_new(o, "use_sliding_window", json_boolean(m->window));
		json_object_set_new(o, "max_window_layers", json_integer(having ? 0 : m->layers));
	}
	if (m->family->window >= HD_FAMILY_WINDOW_USE)
		json_object_set(o, "layer_types", types);
	json_decref(types);
	return m->family->window >= HD_FAMILY_WINDOW_USE || !having ||
	       (m->family->window != HD_FAMILY_WINDOW_NONE && having == m->layers);
}
