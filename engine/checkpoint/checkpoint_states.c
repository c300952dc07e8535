/* SPDX-License-Identifier: Apache-2.0
 * States and gradients under logical names and in logical shapes.
 *
 * A state that is replicated or sharded is stored once. A state that is a partial sum along some axes, or each member's
 * own, differs between members. It is stored for each member, as NAME@coordinates, and read by the same number of
 * members that wrote it. With a different number it is handled as its plugin chose. Either the first member gets the
 * sum and the others zero, or all begin at zero, or it is refused. The file's metadata has that choice too: a run
 * without the plugin would add up what is no sum.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_state(const struct tensor *t)
{
	return !t->v.node && t->v.what == HD_TENSOR_STATE;
}

static int is_piece(const struct tensor *t, int axis)
{
	return t->at.on[axis].kind == HD_PLACE_PARTIAL || t->own >> axis & 1;
}

/* Returns the number of different copies along the axes of the sum. 1: it is stored under its name alone. */
static int64_t copies(const struct hd_plan *p, const struct tensor *t)
{
	int64_t n = 1;

	for (int a = 0; a < p->naxes; a++)
		n *= is_piece(t, a) ? p->axes[a]->v.n : 1;
	return n;
}

static int64_t copy_of_rank(const struct hd_plan *p, const struct tensor *t, int64_t rank)
{
	int64_t m = 0;

	for (int a = 0; a < p->naxes; a++)
		if (is_piece(t, a))
			m = m * p->axes[a]->v.n + hd_plan_coord(p, rank, p->axes[a]);
	return m;
}

/* Returns NAME, or NAME@1,0 for copy m; malloc'ed. */
static char *copy_name(const struct hd_plan *p, const struct tensor *t, int64_t m)
{
	char at[HD_MAX_AXES * 24] = "";

	if (copies(p, t) == 1)
		return hd_strdup(t->v.name);
	for (int a = p->naxes - 1; a >= 0; a--) {
		char rest[sizeof(at)];

		if (!is_piece(t, a))
			continue;
		memcpy(rest, at, sizeof(rest));
		snprintf(at, sizeof(at), "%lld%s%.*s", (long long)(m % p->axes[a]->v.n), rest[0] ? "," : "",
			 (int)sizeof(at) - 32, rest);
		m /= p->axes[a]->v.n;
	}
	return hd_format("%s@%s", t->v.name, at);
}

static void full_shape(const struct tensor *t, int64_t *shape)
{
	for (uint32_t d = 0; d < t->v.ndim; d++)
		shape[d] = t->dims[d]->n;
}

static int plan_tensor(struct hd_tensorfile *f, const char *name, const struct tensor *t, struct hd_err *err)
{
	int64_t shape[HD_MAX_DIMS];

	full_shape(t, shape);
	if (hd_tensorfile_add(f, name, t->v.dtype, (int)t->v.ndim, shape) < 0)
		return hd_err_set(err, HD_ENOTSUP, "%s (%s): cannot be saved in a checkpoint", name, t->spec);
	return HD_OK;
}

static int move_tensor(const struct hd_program *g, const struct tensor *t, const char *name, struct hd_tensorfile *f,
		       void *data, int writing, struct hd_err *err)
{
	struct hd_extent x;

	hd_extent_of(g, t, &x);
	return hd_extent_move(&(struct hd_movement){ f, name, t->v.dtype, writing }, &x, data, err);
}

static int write_tensor(const struct hd_program *g, const struct tensor *t, const char *name, struct hd_tensorfile *f,
			struct hd_err *err)
{
	void *data = hd_program_map(g, t, HD_STEP, HD_MAP_READ);
	int rc = move_tensor(g, t, name, f, data, 1, err);

	hd_program_unmap(g, t, HD_STEP, data, HD_MAP_READ);
	return rc;
}

/* The choices as the file's metadata names them. Earlier checkpoints have none there. */
static const char *const choices[] = { "", [HD_RESHARD_ZERO] = "zero", [HD_RESHARD_REFUSE] = "refuse" };

/* Returns the stricter of the choices of the plugin that wrote the state and of the one that reads it. */
static uint32_t choice(const struct hd_tensorfile *f, const struct tensor *t)
{
	const char *theirs = hd_tensorfile_meta_of(f, t->v.name);
	uint32_t c = HD_RESHARD_REFUSE;

	while (c > t->on_reshard && strcmp(theirs, choices[c]) != 0)
		c--;
	return c;
}

/* -- writing --------------------------------------------------------------------------------- */
int hd_states_plan(const struct hd_program *g, struct hd_tensorfile *f, struct hd_err *err)
{
	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *t = g->plan->tensors[i];

		for (int64_t m = 0; is_state(t) && m < copies(g->plan, t); m++) {
			char *name = copy_name(g->plan, t, m);
			int rc = plan_tensor(f, name, t, err);

			free(name);
			HD_TRY(rc);
		}
		if (is_state(t) && copies(g->plan, t) > 1 && t->on_reshard != HD_RESHARD_SUM)
			hd_tensorfile_meta(f, t->v.name, choices[t->on_reshard]);
	}
	return HD_OK;
}

int hd_states_write(const struct hd_program *g, struct hd_tensorfile *f, struct hd_err *err)
{
	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *t = g->plan->tensors[i];
		char *name;
		int rc;

		if (!is_state(t) || !hd_written(g, t))
			continue;
		name = copy_name(g->plan, t, copy_of_rank(g->plan, t, g->rank));
		rc = write_tensor(g, t, name, f, err);
		free(name);
		HD_TRY(rc);
	}
	return hd_tensorfile_sync(f, err);
}

int hd_gradients_plan(const struct hd_program *g, struct hd_tensorfile *f, struct hd_err *err)
{
	for (size_t i = 0; i < g->plan->ntensors; i++)
		if (hd_is_gradient(g->plan->tensors[i]))
			HD_TRY(plan_tensor(f, g->plan->tensors[i]->v.of->name, g->plan->tensors[i], err));
	return HD_OK;
}

int hd_gradients_write(const struct hd_program *g, struct hd_tensorfile *f, struct hd_err *err)
{
	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *t = g->plan->tensors[i];

		if (hd_is_gradient(t) && hd_written(g, t))
			HD_TRY(write_tensor(g, t, t->v.of->name, f, err));
	}
	return hd_tensorfile_sync(f, err);
}

/* -- reading --------------------------------------------------------------------------------- */
struct reading {
	const struct hd_program *g;
	struct hd_tensorfile *f;
	const char *path;
	const struct tensor *t;
	char *data;
	/* nreset: states of members' own that begin anew; members: how many members saved the first of these */
	int64_t nreset, members;
	const struct tensor *first;
};

static int check_shape(const struct reading *r, const char *name, struct hd_err *err)
{
	int64_t theirs[HD_MAX_DIMS], ours[HD_MAX_DIMS];
	int ndim = -1, n = (int)r->t->v.ndim;
	char *a, *b;

	hd_tensorfile_find(r->f, name, NULL, &ndim, theirs);
	full_shape(r->t, ours);
	if (ndim == n && !memcmp(theirs, ours, (size_t)n * sizeof(*ours)))
		return HD_OK;
	a = hd_shape_text(ndim, theirs);
	b = hd_shape_text(n, ours);
	hd_err_set(err, HD_EINVAL, "%s: %s is %s there, but %s in this model", r->path, name, a, b);
	free(a);
	free(b);
	return HD_EINVAL;
}

static int read_as(const struct reading *r, const char *name, void *data, struct hd_err *err)
{
	HD_TRY(check_shape(r, name, err));
	return move_tensor(r->g, r->t, name, r->f, data, 0, err);
}

static int is_copy(const char *name, const char *of)
{
	size_t n = strlen(of);

	return !strncmp(name, of, n) && (!name[n] || name[n] == '@');
}

/* Returns how many copies the file has. *same: whether they are those of this layout. */
static int64_t copies_in_file(const struct reading *r, int *same)
{
	int64_t n = 0, ours = copies(r->g->plan, r->t);

	for (int i = 0; i < hd_tensorfile_count(r->f); i++)
		n += is_copy(hd_tensorfile_name(r->f, i), r->t->v.name);
	*same = n == ours;
	for (int64_t m = 0; m < ours && *same; m++) {
		char *name = copy_name(r->g->plan, r->t, m);

		*same = hd_tensorfile_find(r->f, name, NULL, NULL, NULL);
		free(name);
	}
	return n;
}

static int add_to(const struct tensor *t, void *sum, const void *x)
{
	int64_t n = hd_local_count(t);

	for (int64_t i = 0; i < n && t->v.dtype == HD_DTYPE_F32; i++)
		((float *)sum)[i] += ((const float *)x)[i];
	for (int64_t i = 0; i < n && t->v.dtype == HD_DTYPE_F64; i++)
		((double *)sum)[i] += ((const double *)x)[i];
	return t->v.dtype == HD_DTYPE_F32 || t->v.dtype == HD_DTYPE_F64;
}

static int fold(const struct reading *r, struct hd_err *err)
{
	char *x = hd_alloc((size_t)hd_local_bytes(r->t));
	int rc = HD_OK;

	for (int i = 0; i < hd_tensorfile_count(r->f) && rc >= 0; i++) {
		const char *name = hd_tensorfile_name(r->f, i);

		if (!is_copy(name, r->t->v.name))
			continue;
		rc = read_as(r, name, x, err);
		if (rc >= 0 && !add_to(r->t, r->data, x))
			rc = hd_err_set(err, HD_ENOTSUP, "%s: %s: its dtype cannot be summed", r->path, name);
	}
	free(x);
	return rc;
}

static int in_other_layout(struct reading *r, int64_t there, int *anew, struct hd_err *err)
{
	uint32_t how = choice(r->f, r->t);

	if (how == HD_RESHARD_REFUSE)
		return hd_err_set(err, HD_EINVAL,
				  "%s: %s was saved by %lld members, this run has %lld, and its plugin refuses that",
				  r->path, r->t->v.name, (long long)there, (long long)copies(r->g->plan, r->t));
	*anew = how == HD_RESHARD_ZERO;
	if (*anew && !r->nreset++)
		r->first = r->t, r->members = there;
	if (*anew || copy_of_rank(r->g->plan, r->t, r->g->rank))
		return HD_OK;
	return fold(r, err);
}

/* Handles a state that the file does not have. One of the optimizer, whose name begins with its parameter's, is
 * refused. One of a plugin, named after the plugin, begins anew. */
static int missing(const struct reading *r, struct hd_err *err)
{
	const char *param = r->t->v.of ? r->t->v.of->name : "";

	if (*param && !strncmp(r->t->v.name, param, strlen(param)))
		return hd_err_set(
			err, HD_EINVAL,
			"%s: has no tensor %s: was it written with a different train.optimizer? To start without its "
			"states, at step 0, use model.load instead of checkpoint.resume, and a different "
			"checkpoint.dir",
			r->path, r->t->v.name);
	hd_log(HD_LOG_INFO, "%s: has no tensor %s, which therefore starts %s", r->path, r->t->v.name,
	       r->t->init == HD_INIT_ZERO ? "at zero" : "anew");
	return HD_OK;
}

/* Reads a state. *absent: it begins as in a new run. */
static int read_state(struct reading *r, int *absent, struct hd_err *err)
{
	int same;
	int64_t there = copies_in_file(r, &same);
	char *name;
	int rc;

	memset(r->data, 0, (size_t)hd_local_bytes(r->t));
	*absent = !there;
	if (!there)
		return missing(r, err);
	if (!same)
		return in_other_layout(r, there, absent, err);
	name = copy_name(r->g->plan, r->t, copy_of_rank(r->g->plan, r->t, r->g->rank));
	rc = read_as(r, name, r->data, err);
	free(name);
	return rc;
}

static void report_reset(const struct reading *r)
{
	int64_t ours = r->nreset ? copies(r->g->plan, r->first) : 0;
	char *has = ours == 1 ? hd_strdup("keeps one for all") : hd_format("has %lld", (long long)ours);

	if (r->nreset)
		hd_log(HD_LOG_INFO,
		       "%s: %lld state%s that each member keeps for itself start%s over: %s was saved by %lld "
		       "members, this run %s",
		       r->path, (long long)r->nreset, hd_plural(r->nreset, "s"), r->nreset == 1 ? "s" : "",
		       r->first->v.name, (long long)r->members, has);
	free(has);
}

/* Returns the names of the states in the file, as keys. */
static json_t *names_in(const struct hd_tensorfile *f)
{
	json_t *names = json_object();

	for (int i = 0; i < hd_tensorfile_count(f); i++) {
		const char *name = hd_tensorfile_name(f, i), *at = strrchr(name, '@');
		char *of = hd_format("%.*s", at ? (int)(at - name) : (int)strlen(name), name);

		json_object_set_new(names, of, json_true());
		free(of);
	}
	return names;
}

/* Reports states that no tensor of this run has: it goes on without them, and its next checkpoint lacks them. */
static void report_unread(const struct hd_program *g, const struct reading *r)
{
	json_t *left = names_in(r->f), *one;
	char *first = NULL;
	const char *name;
	size_t n, named = 0;

	for (size_t i = 0; i < g->plan->ntensors; i++)
		if (is_state(g->plan->tensors[i]))
			json_object_del(left, g->plan->tensors[i]->v.name);
	n = json_object_size(left);
	json_object_foreach(left, name, one)
		if (named++ < 3)
			hd_append(&first, "%s%s", named > 1 ? ", " : "", name);
	if (n)
		hd_log(HD_LOG_WARN, "%s: this run has no place for %zu of its states, which stay unread: %s%s", r->path,
		       n, first, n > 3 ? ", ..." : "");
	free(first);
	json_decref(left);
}

int hd_states_read(const struct hd_program *g, const char *path, struct hd_err *err)
{
	struct reading r = { .g = g, .path = path };
	int absent = 0, rc = hd_tensorfile_read(path, &r.f, err);

	for (size_t i = 0; i < g->plan->ntensors && rc >= 0; i++) {
		r.t = g->plan->tensors[i];
		if (!is_state(r.t) || !hd_tensor_here(g, r.t))
			continue;
		r.data = hd_program_map(g, r.t, HD_STEP, HD_MAP_WRITE);
		rc = read_state(&r, &absent, err);
		hd_program_unmap(g, r.t, HD_STEP, r.data, HD_MAP_WRITE);
		if (rc >= 0 && absent)
			hd_init_state(g, r.t, g->plan->config.seed);
	}
	if (rc >= 0 && g->rank == 0)
		report_unread(g, &r);
	hd_tensorfile_close(r.f);
	if (rc >= 0)
		report_reset(&r);
	return rc;
}
