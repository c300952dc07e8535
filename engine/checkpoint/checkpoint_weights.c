/* SPDX-License-Identifier: Apache-2.0
 * The model's files, named as in transformers: model.safetensors, or model-00001-of-0000N.safetensors with an index of
 * the tensors in them. Several parameters may be regions of one stored tensor.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/tensorfile/tensorslice.h"
#include "engine/file/inside.h"
#include "engine/base/half.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

int64_t hd_checkpoint_file_bytes = 5000000000;

/* For a parameter that has a master, the master is stored, under the parameter's name. Both are read. */
static int is_weight(const struct tensor *t)
{
	return !t->v.node && t->v.what == HD_TENSOR_PARAM;
}
static int is_read(const struct tensor *t)
{
	return is_weight(t) || (!t->v.node && t->v.what == HD_TENSOR_MASTER);
}
static const struct tensor *stored(const struct tensor *t)
{
	return t->master ? t->master : t;
}
static const char *name_of(const struct tensor *t)
{
	return t->v.what == HD_TENSOR_MASTER ? t->v.of->name : t->v.name;
}

/* Returns how many tensors the parameter is stored in: one, or one for each entry of its first dim. */
static int64_t parts_of(const struct tensor *t, const struct hd_hf_region *r)
{
	return r->each ? t->dims[0]->n : 1;
}

static int region_of(const struct hd_plan *p, const struct tensor *t, struct hd_hf_region *r, struct hd_err *err)
{
	if (p->model.family->hf(&p->model, name_of(t), r) < 0)
		return hd_err_set(err, HD_EBUG, "%s: a checkpoint of the family %s does not store it", name_of(t),
				  p->model.family->name);
	return HD_OK;
}

/* Returns the region of part i, with its own name. */
static struct hd_hf_region part_of(const struct hd_hf_region *all, int64_t i)
{
	struct hd_hf_region r = *all;
	const char *star = all->each ? strchr(all->name, '*') : NULL;

	if (star)
		snprintf(r.name, sizeof(r.name), "%.*s%lld%s", (int)(star - all->name), all->name, (long long)i,
			 star + 1);
	return r;
}

/* Finds what this rank has of part i. Returns 0 if it has nothing. Else *x is its extent, without the first dim if that
 * numbers the parts, and *begin is where it begins in memory (elements). */
static int extent_of_part(const struct hd_program *g, const struct tensor *t, const struct hd_hf_region *r, int64_t i,
			  struct hd_extent *x, int64_t *begin)
{
	hd_extent_of(g, t, x);
	*begin = 0;
	if (!r->each)
		return 1;
	if (i < x->off[0] || i >= x->off[0] + x->n[0])
		return 0;
	*begin = (i - x->off[0]) * x->stride[0];
	x->ndim--;
	memmove(x->whole, x->whole + 1, (size_t)x->ndim * sizeof(*x->whole));
	memmove(x->off, x->off + 1, (size_t)x->ndim * sizeof(*x->off));
	memmove(x->n, x->n + 1, (size_t)x->ndim * sizeof(*x->n));
	memmove(x->local, x->local + 1, (size_t)x->ndim * sizeof(*x->local));
	memmove(x->stride, x->stride + 1, (size_t)x->ndim * sizeof(*x->stride));
	return 1;
}

static void add_file(struct hd_weights *w, struct hd_tensorfile *f, char *name)
{
	w->file = hd_grow(w->file, w->n, &w->cap_file, sizeof(*w->file));
	w->name = hd_grow(w->name, w->n, &w->cap_name, sizeof(*w->name));
	w->file[w->n] = f;
	w->name[w->n++] = name;
}

void hd_weights_close(struct hd_weights *w)
{
	for (size_t i = 0; i < w->n; i++) {
		hd_tensorfile_close(w->file[i]);
		free(w->name[i]);
	}
	free(w->file);
	free(w->name);
	json_decref(w->where);
	memset(w, 0, sizeof(*w));
}

struct hd_tensorfile *hd_weights_file(const struct hd_weights *w, const char *tensor)
{
	json_t *i = json_object_get(w->where, tensor);

	return i ? w->file[json_integer_value(i)] : NULL;
}

/* -- writing --------------------------------------------------------------------------------- */
static int plan_one(struct hd_weights *w, const struct hd_hf_region *r, uint32_t dtype, int64_t *room,
		    struct hd_err *err)
{
	int64_t bytes = HD_BITS(dtype) / 8;

	for (int d = 0; d < r->ndim; d++)
		bytes *= r->shape[d];
	if (!w->n || (*room < hd_checkpoint_file_bytes && bytes > *room)) {
		add_file(w, hd_tensorfile_plan(), NULL);
		hd_tensorfile_meta(w->file[w->n - 1], "format", "pt");
		*room = hd_checkpoint_file_bytes;
	}
	*room -= bytes;
	w->total += bytes;
	json_object_set_new(w->where, r->name, json_integer((json_int_t)w->n - 1));
	if (hd_tensorfile_add(w->file[w->n - 1], r->name, dtype, r->ndim, r->shape) < 0)
		return hd_err_set(err, HD_EBUG, "%s: cannot be stored", r->name);
	return HD_OK;
}

/* Counts the parameter in its stored tensor. left: for each tensor, how many elements no parameter has yet, and a
 * parameter that is stored there. If a family's hf left holes in a tensor, or gave it to two parameters, it would be a
 * different model when read. */
static int count_one(const struct hd_plan *p, json_t *left, const struct tensor *t, const struct hd_hf_region *r,
		     struct hd_err *err)
{
	json_t *known = json_object_get(left, r->name);
	int64_t all = r->shape[0] * (r->ndim == 2 ? r->shape[1] : 1), mine = hd_global_count(t) / parts_of(t, r);
	int64_t n = known ? json_integer_value(json_array_get(known, 0)) : all;

	if (n < mine && known)
		return hd_err_set(
			err, HD_EINVAL,
			"%s and %s are both %s in a checkpoint of the family %s. It has %lld elements, of which %lld "
			"remain for the second, which needs %lld",
			json_string_value(json_array_get(known, 1)), t->v.name, r->name, p->model.family->name,
			(long long)all, (long long)n, (long long)mine);
	if (n < mine)
		return hd_err_set(err, HD_EBUG, "%s: has %lld elements, but %s has room for %lld", t->v.name,
				  (long long)mine, r->name, (long long)n);
	json_object_set_new(left, r->name, json_pack("[I, s]", (json_int_t)(n - mine), t->v.name));
	return HD_OK;
}

static int check_no_holes(json_t *left, struct hd_err *err)
{
	const char *name;
	json_t *n;

	json_object_foreach(left, name, n) {
		json_int_t holes = json_integer_value(json_array_get(n, 0));

		if (holes)
			return hd_err_set(err, HD_EBUG, "%s: %lld of its elements belong to no parameter", name,
					  (long long)holes);
	}
	return HD_OK;
}

int hd_checkpoint_names_check(const struct hd_plan *p, struct hd_err *err)
{
	json_t *left = json_object();
	int rc = HD_OK;

	for (size_t i = 0; i < p->ntensors && rc >= 0; i++) {
		const struct tensor *t = p->tensors[i];
		struct hd_hf_region r;

		if (is_weight(t) && (rc = region_of(p, t, &r, err)) >= 0)
			rc = count_one(p, left, t, &r, err);
	}
	if (rc >= 0)
		rc = check_no_holes(left, err);
	json_decref(left);
	return rc;
}

int hd_weights_plan(const struct hd_program *g, struct hd_weights *w, struct hd_err *err)
{
	int64_t room = 0;

	HD_TRY(hd_checkpoint_names_check(g->plan, err));
	w->where = json_object();
	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *t = g->plan->tensors[i];
		struct hd_hf_region r;

		if (!is_weight(t))
			continue;
		HD_TRY(region_of(g->plan, t, &r, err));
		for (int64_t k = 0; k < parts_of(t, &r); k++) {
			struct hd_hf_region part = part_of(&r, k);

			if (!json_object_get(w->where, part.name))
				HD_TRY(plan_one(w, &part, stored(t)->v.dtype, &room, err));
		}
	}
	for (size_t i = 0; i < w->n; i++)
		w->name[i] = w->n == 1 ? hd_strdup(SINGLE) : hd_format("model-%05zu-of-%05zu.safetensors", i + 1, w->n);
	return HD_OK;
}

static int write_index(const struct hd_weights *w, const char *dir, struct hd_err *err)
{
	json_t *map = json_object(), *number, *all;
	char *path = hd_format("%s/%s", dir, INDEX), *text;
	const char *name;
	int rc;

	json_object_foreach(w->where, name, number)
		json_object_set_new(map, name, json_string(w->name[json_integer_value(number)]));
	all = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)w->total, "weight_map", map);
	text = json_dumps(all, JSON_INDENT(2));
	rc = hd_file_write(path, text, err);
	free(text);
	free(path);
	json_decref(all);
	return rc;
}

static int each_file(struct hd_weights *w, const char *dir,
		     int (*make)(struct hd_tensorfile *f, const char *path, struct hd_err *err), struct hd_err *err)
{
	int rc = HD_OK;

	for (size_t i = 0; i < w->n && rc >= 0; i++) {
		char *path = hd_format("%s/%s", dir, w->name[i]);

		rc = make(w->file[i], path, err);
		free(path);
	}
	return rc;
}

int hd_weights_create(struct hd_weights *w, const char *dir, struct hd_err *err)
{
	HD_TRY(each_file(w, dir, hd_tensorfile_create, err));
	return w->n > 1 ? write_index(w, dir, err) : HD_OK;
}

int hd_weights_open(struct hd_weights *w, const char *dir, struct hd_err *err)
{
	return each_file(w, dir, hd_tensorfile_open, err);
}

int hd_weights_write(const struct hd_program *g, struct hd_weights *w, struct hd_err *err)
{
	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *t = hd_written(g, g->plan->tensors[i]);
		struct hd_hf_region r;
		struct hd_extent x;
		int64_t begin;
		char *data;
		int rc = HD_OK;

		if (!is_weight(g->plan->tensors[i]) || !t)
			continue;
		HD_TRY(region_of(g->plan, t, &r, err));
		data = hd_program_map(g, t, HD_STEP, HD_MAP_READ);
		for (int64_t k = 0; k < parts_of(t, &r) && rc >= 0; k++) {
			struct hd_hf_region part = part_of(&r, k);

			if (extent_of_part(g, t, &r, k, &x, &begin))
				rc = hd_region_move(&(struct hd_movement){ hd_weights_file(w, part.name), part.name,
									   t->v.dtype, 1 },
						    &part, &x, data + begin * HD_BITS(t->v.dtype) / 8, err);
		}
		hd_program_unmap(g, t, HD_STEP, data, HD_MAP_READ);
		HD_TRY(rc);
	}
	for (size_t i = 0; i < w->n; i++)
		HD_TRY(hd_tensorfile_sync(w->file[i], err));
	return HD_OK;
}

/* -- reading --------------------------------------------------------------------------------- */
static int read_file(struct hd_weights *w, const char *dir, const char *name, struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, name);
	struct hd_tensorfile *f = NULL;
	int rc = hd_file_inside(dir, name, err);

	if (rc >= 0)
		rc = hd_tensorfile_read(path, &f, err);

	free(path);
	if (rc < 0)
		return rc;
	add_file(w, f, hd_strdup(name));
	for (int i = 0; i < hd_tensorfile_count(f); i++)
		json_object_set_new(w->where, hd_tensorfile_name(f, i), json_integer((json_int_t)w->n - 1));
	return HD_OK;
}

static int is_known(const struct hd_weights *w, const char *name)
{
	for (size_t i = 0; i < w->n; i++)
		if (!strcmp(w->name[i], name))
			return 1;
	return 0;
}

/* Sets the file of a tensor. It may be in several files: the one that the index names counts. */
static int place_tensor(struct hd_weights *w, const char *index, const char *tensor, const char *name,
			struct hd_err *err)
{
	size_t i = 0;

	while (strcmp(w->name[i], name)) /* each file was read */
		i++;
	if (!hd_tensorfile_find(w->file[i], tensor, NULL, &(int){ 0 }, (int64_t[HD_MAX_DIMS]){ 0 }))
		return hd_err_set(err, HD_EIO, "%s: %s should be in %s, but that file has no such tensor", index,
				  tensor, name);
	json_object_set_new(w->where, tensor, json_integer((json_int_t)i));
	return HD_OK;
}

static int read_index(struct hd_weights *w, const char *dir, const char *path, struct hd_err *err)
{
	json_error_t at;
	json_t *all = hd_file_inside(dir, INDEX, err) < 0 ? NULL : json_load_file(path, 0, &at),
	       *map = json_object_get(all, "weight_map"), *file;
	const char *tensor;
	int rc = HD_OK;

	if (err->code)
		rc = err->code;
	else if (!json_is_object(map))
		rc = hd_err_set(err, HD_EIO, "%s: has no weight_map%s%s", path, all ? "" : ": ", all ? "" : at.text);
	json_object_foreach(map, tensor, file) {
		const char *name = json_string_value(file);

		if (rc < 0)
			break;
		if (!name || strchr(name, '/'))
			rc = hd_err_set(err, HD_EIO, "%s: %s: is not in any file of this directory", path, tensor);
		else if (!is_known(w, name))
			rc = read_file(w, dir, name, err);
	}
	json_object_foreach(map, tensor, file) {
		if (rc >= 0)
			rc = place_tensor(w, path, tensor, json_string_value(file), err);
	}
	json_decref(all);
	return rc;
}

/* Refuses weights in Python's pickle format. A pickle is a program, so it is not read. */
static int other_format(const char *dir, struct hd_err *err)
{
	static const char *const names[] = { "pytorch_model.bin", "pytorch_model.bin.index.json" };

	for (size_t i = 0; i < HD_LEN(names); i++) {
		char *path = hd_format("%s/%s", dir, names[i]);
		int there = !access(path, F_OK);

		free(path);
		if (there)
			return hd_err_set(err, HD_ENOTSUP,
					  "%s: has its weights in %s and no " SINGLE
					  "; in Python, transformers writes it with "
					  "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW, "
					  "safe_serialization=True)",
					  dir, names[i]);
	}
	return HD_OK;
}

static int find_files(struct hd_weights *w, const char *dir, struct hd_err *err)
{
	char *index = hd_format("%s/%s", dir, INDEX), *single = hd_format("%s/%s", dir, SINGLE);
	int split = access(single, F_OK) && !access(index, F_OK), rc;

	w->where = json_object();
	rc = !split && access(single, F_OK) ? other_format(dir, err) : HD_OK;
	if (rc >= 0)
		rc = split ? read_index(w, dir, index, err) : read_file(w, dir, SINGLE, err);
	free(index);
	free(single);
	return rc;
}

int64_t hd_weights_count(const char *dir)
{
	struct hd_weights w = { 0 };
	struct hd_err ignored = { 0 };
	int64_t n = find_files(&w, dir, &ignored) < 0 ? -1 : (int64_t)json_object_size(w.where);

	hd_weights_close(&w);
	return n;
}

json_t *hd_weights_names(const char *dir)
{
	struct hd_weights w = { 0 };
	struct hd_err ignored = { 0 };
	json_t *names = json_array();

	find_files(&w, dir, &ignored);
	for (size_t i = 0; i < w.n; i++)
		json_array_append_new(names, json_string(w.name[i]));
	hd_weights_close(&w);
	return names;
}

/* Returns the name of a tensor in the files. A base model that was saved without its head has names without
 * the first word. */
static const char *name_in(const struct hd_weights *w, const char *name)
{
	const char *dot = strchr(name, '.');

	if (!json_object_get(w->where, name) && dot && json_object_get(w->where, dot + 1))
		return dot + 1;
	return name;
}

/* Returns what to do if a table of positions has another length, malloc'ed; "" for all other tensors. */
static char *advice(const struct tensor *t, const int64_t *theirs, const struct hd_hf_region *r, int ndim)
{
	if (ndim != r->ndim || r->each || theirs[0] == r->shape[0] || strncmp(t->v.spec, "position,", 9) != 0)
		return hd_strdup("");
	return hd_format(
		". These are positions: give model.max_seq = %lld, whose default is train.seq, and a train.seq "
		"of at most %lld",
		(long long)theirs[0], (long long)theirs[0]);
}

static int check_shape(const char *dir, const struct tensor *t, const char *name, const struct hd_tensorfile *f,
		       const struct hd_hf_region *r, struct hd_err *err)
{
	int64_t shape[HD_MAX_DIMS];
	char *theirs, *ours, *how;
	int ndim;

	if (!f || !hd_tensorfile_find(f, name, NULL, &ndim, shape))
		return hd_err_set(err, HD_EINVAL, "%s: has no tensor %s, which should contain the model's %s", dir,
				  name, name_of(t));
	if (ndim == r->ndim && !memcmp(shape, r->shape, (size_t)ndim * sizeof(*shape)))
		return HD_OK;
	theirs = hd_shape_text(ndim, shape);
	ours = hd_shape_text(r->ndim, r->shape);
	how = advice(t, shape, r, ndim);
	hd_err_set(err, HD_EINVAL, "%s: %s is %s there, but %s in this model%s", dir, name, theirs, ours, how);
	free(theirs), free(ours), free(how);
	return HD_EINVAL;
}

/* Reads a parameter into data, which has this dtype. */
static int read_into(char *data, uint32_t dtype, const struct hd_program *g, const struct hd_weights *w,
		     const struct tensor *t, const char *dir, struct hd_err *err)
{
	struct hd_hf_region r;
	struct hd_extent x;
	int64_t begin;

	HD_TRY(region_of(g->plan, t, &r, err));
	memset(data, 0, (size_t)hd_local_count(t) * HD_BITS(dtype) / 8);
	for (int64_t k = 0; k < parts_of(t, &r); k++) {
		struct hd_hf_region part = part_of(&r, k);
		const char *name = name_in(w, part.name);

		HD_TRY(check_shape(dir, t, name, hd_weights_file(w, name), &part, err));
		if (extent_of_part(g, t, &r, k, &x, &begin))
			HD_TRY(hd_region_move(&(struct hd_movement){ hd_weights_file(w, name), name, dtype, 0 }, &part,
					      &x, data + begin * HD_BITS(dtype) / 8, err));
	}
	return HD_OK;
}

static int read_one(const struct hd_program *g, const struct hd_weights *w, const struct tensor *t, const char *dir,
		    struct hd_err *err)
{
	char *data = hd_program_map(g, t, HD_STEP, HD_MAP_WRITE), *full = data;
	int64_t n = hd_local_count(t);
	int low = t->v.dtype == HD_DTYPE_BF16, rc;

	if (low) /* read as fp32, and rounded once, whatever the file has */
		full = hd_alloc((size_t)n * sizeof(float));
	rc = read_into(full, low ? HD_DTYPE_F32 : t->v.dtype, g, w, t, dir, err);
	if (low) {
		hd_bf16_from_floats(data, (const float *)full, n);
		free(full);
	}
	hd_program_unmap(g, t, HD_STEP, data, HD_MAP_WRITE);
	return rc;
}

/* Checks that each tensor that a parameter is stored in has the right shape, and removes it from `left`. */
static int check_param(const struct hd_plan *p, const struct hd_weights *w, const struct tensor *t, const char *dir,
		       json_t *left, struct hd_err *err)
{
	struct hd_hf_region r;

	HD_TRY(region_of(p, t, &r, err));
	for (int64_t k = 0; k < parts_of(t, &r); k++) {
		struct hd_hf_region part = part_of(&r, k);
		const char *name = name_in(w, part.name);

		HD_TRY(check_shape(dir, t, name, hd_weights_file(w, name), &part, err));
		json_object_del(left, name);
	}
	return HD_OK;
}

/* Checks that all parameters of the model are there, and reports tensors that it has no place for. */
static int check_all(const struct hd_plan *p, const struct hd_weights *w, const char *dir, struct hd_err *err)
{
	json_t *left = json_copy(w->where);
	int rc = HD_OK;

	for (size_t i = 0; i < p->ntensors && rc >= 0; i++)
		if (is_weight(p->tensors[i]))
			rc = check_param(p, w, p->tensors[i], dir, left, err);
	if (rc >= 0)
		rc = hd_weights_unread(p, w, left, dir, err);
	if (rc >= 0)
		hd_config_warn_of_dropout(dir, &p->model);
	json_decref(left);
	return rc;
}

int hd_weights_check(const struct hd_plan *p, const char *dir, struct hd_err *err)
{
	struct hd_weights w = { 0 };
	int rc = hd_config_check(dir, &p->model, err);

	if (rc >= 0)
		rc = find_files(&w, dir, err);
	if (rc >= 0)
		rc = check_all(p, &w, dir, err);
	hd_weights_close(&w);
	return rc;
}

int hd_weights_read(const struct hd_program *g, const char *dir, struct hd_err *err)
{
	struct hd_weights w = { 0 };
	int rc = hd_config_check(dir, &g->plan->model, err);

	if (rc >= 0)
		rc = find_files(&w, dir, err);
	for (size_t i = 0; i < g->plan->ntensors && rc >= 0; i++)
		if (is_read(g->plan->tensors[i]) && hd_tensor_here(g, g->plan->tensors[i]))
			rc = read_one(g, &w, g->plan->tensors[i], dir, err);
	if (rc >= 0 && g->rank == 0)
		rc = check_all(g->plan, &w, dir, err);
	hd_weights_close(&w);
	return rc;
}
