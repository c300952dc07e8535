/* SPDX-License-Identifier: Apache-2.0
 * Tensors of the files that no parameter of the model is in. Constants and a tied head contain nothing new. A bias, a
 * norm or an adapter in a layer of the model makes it a different model, and is refused. Tensors elsewhere may be
 * another model in the same files, and cause a warning.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int ends_in(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n >= m && !strcmp(name + n - m, end);
}

/* Returns whether a tensor is a constant. Some versions of transformers store it, and all recompute it
 * from the configuration. */
static int is_constant(const char *name)
{
	return ends_in(name, ".attn.bias") || ends_in(name, ".masked_bias") || ends_in(name, ".inv_freq");
}

/* Reads rows begin .. begin + rows - 1 of a stored matrix, in fp32. Returns 0 on failure. */
static int rows_of(const struct hd_weights *w, const char *name, int64_t begin, int64_t rows, int64_t cols, float *to)
{
	struct hd_err none = { 0 };

	return hd_tensorfile_load(hd_weights_file(w, name), name, HD_DTYPE_F32, to, (int64_t[]){ begin, 0 },
				  (int64_t[]){ rows, cols }, (int64_t[]){ cols, 1 }, &none) >= 0;
}

#define ROWS 1024 /* rows that are compared at a time */

static int are_same(const struct hd_weights *w, const char *a, const char *b)
{
	int64_t n[HD_MAX_DIMS] = { 0 }, m[HD_MAX_DIMS] = { 0 };
	uint32_t dtype;
	int ndim[2] = { 0 }, same;
	float *x;

	if (!hd_tensorfile_find(hd_weights_file(w, a), a, &dtype, &ndim[0], n) ||
	    !hd_tensorfile_find(hd_weights_file(w, b), b, &dtype, &ndim[1], m) || ndim[0] != 2 || ndim[1] != 2 ||
	    n[0] != m[0] || n[1] != m[1])
		return 0;
	x = hd_alloc((size_t)(2 * ROWS * n[1]) * sizeof(*x));
	same = 1;
	for (int64_t at = 0; at < n[0] && same; at += ROWS) {
		int64_t rows = n[0] - at < ROWS ? n[0] - at : ROWS;

		same = rows_of(w, a, at, rows, n[1], x) && rows_of(w, b, at, rows, n[1], x + ROWS * n[1]) &&
		       !memcmp(x, x + ROWS * n[1], (size_t)(rows * n[1]) * sizeof(*x));
	}
	free(x);
	return same;
}

/* Returns whether a tensor is a head that the configuration ties to the embedding, and that equals the embedding. */
static int is_tied_head(const struct hd_plan *p, const struct hd_weights *w, const char *name)
{
	const char *other;
	json_t *at;

	if (!p->model.tie || !ends_in(name, "lm_head.weight"))
		return 0;
	json_object_foreach(w->where, other, at)
		if (ends_in(other, "embed_tokens.weight") || ends_in(other, "wte.weight"))
			return are_same(w, name, other);
	return 0;
}

/* Returns the length of the part of a name that tells where in the model it is: "model.layers.3.", "model.norm." */
static size_t part_length(const char *name)
{
	const char *last = strrchr(name, '.');

	for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
		const char *end = dot + 1;

		while (isdigit((unsigned char)*end))
			end++;
		if (end > dot + 1 && *end == '.')
			return (size_t)(end + 1 - name);
	}
	return last ? (size_t)(last + 1 - name) : 0;
}

/* Returns the parts that tensors of the model are in. A head is one, tied or not. */
static json_t *parts_of_model(const struct hd_weights *w, const json_t *left)
{
	json_t *parts = json_pack("{s:b}", "lm_head.", 1), *at;
	const char *name;

	json_object_foreach(w->where, name, at) {
		char *part = hd_format("%.*s", (int)part_length(name), name);

		if (!json_object_get(left, name))
			json_object_set_new(parts, part, json_true());
		free(part);
	}
	return parts;
}

static int is_inside(const json_t *parts, const char *name)
{
	static const char adapter[] = "base_model.model."; /* the prefix that PEFT adds to names of the model */
	char *part = hd_strdup(strncmp(name, adapter, strlen(adapter)) ? name : name + strlen(adapter)), *dot = part;
	int inside = 0;

	while (!inside && (dot = strchr(dot, '.'))) {
		char after = *++dot;

		*dot = 0;
		inside = json_object_get(parts, part) != NULL;
		*dot = after;
	}
	free(part);
	return inside;
}

struct unread_names {
	char *first; /* the first three */
	int64_t n;
};

static void add_name(struct unread_names *u, const char *name)
{
	if (u->n++ < 3)
		hd_append(&u->first, "%s%s", u->n > 1 ? ", " : "", name);
}

static int report_unread(const struct unread_names *inside, const struct unread_names *outside, const char *dir,
			 struct hd_err *err)
{
	if (inside->n)
		return hd_err_set(
			err, HD_ENOTSUP,
			"%s: %lld of its tensors belong to parts of this model that have no such parameter: %s%s", dir,
			(long long)inside->n, inside->first, inside->n > 3 ? ", ..." : "");
	if (outside->n)
		hd_log(HD_LOG_WARN, "%s: this model has no place for %lld of its tensors, which stay unread: %s%s", dir,
		       (long long)outside->n, outside->first, outside->n > 3 ? ", ..." : "");
	return HD_OK;
}

int hd_weights_unread(const struct hd_plan *p, const struct hd_weights *w, json_t *left, const char *dir,
		      struct hd_err *err)
{
	struct unread_names inside = { 0 }, outside = { 0 };
	json_t *parts = parts_of_model(w, left), *at;
	const char *name;
	int rc = HD_OK;

	json_object_foreach(left, name, at) {
		if (is_constant(name) || is_tied_head(p, w, name))
			continue;
		if (p->model.tie && !strcmp(name, "lm_head.weight"))
			rc = hd_err_set(
				err, HD_EINVAL,
				"%s: lm_head.weight differs from the embedding, but tie_word_embeddings says that "
				"they are the same",
				dir);
		add_name(is_inside(parts, name) ? &inside : &outside, name);
	}
	if (rc >= 0)
		rc = report_unread(&inside, &outside, dir, err);
	free(inside.first);
	free(outside.first);
	json_decref(parts);
	return rc;
}
