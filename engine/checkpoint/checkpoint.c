/* SPDX-License-Identifier: Apache-2.0
 * A checkpoint is written by all ranks at once into files that one of them has made, under a name that nobody takes for
 * a checkpoint; after each phase all ranks agree that it went well everywhere.  Only then is it given its name.  So a
 * full disk, a rank that cannot write or a job that is killed leave what was there before.
 *
 * It is read by slices too: each rank takes from the files what it holds in its own layout.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/file/disk_room.h"
#include "engine/human/human.h"
#include <stdlib.h>
#include <string.h>

struct saving {
	struct hd_job *j;
	const struct hd_program *g;
	const struct hd_progress *at;
	const char *dir;
	char *aside;
	struct hd_weights weights;
	struct hd_tensorfile *states, *gradients; /* gradients: or NULL */
};

/* -- saving ---------------------------------------------------------------------------------- */
static int plan(struct saving *s, struct hd_err *err)
{
	HD_TRY(hd_weights_plan(s->g, &s->weights, err));
	s->states = hd_tensorfile_plan();
	HD_TRY(hd_states_plan(s->g, s->states, err));
	if (!s->j->checkpoint.gradients || !s->at->step || !s->j->program[HD_JOB_TRAIN])
		return HD_OK;
	s->gradients = hd_tensorfile_plan();
	return hd_gradients_plan(s->g, s->gradients, err);
}

typedef int (*make_fn)(struct hd_tensorfile *f, const char *path, struct hd_err *err);

static int make_file(struct saving *s, struct hd_tensorfile *f, const char *name, make_fn make, struct hd_err *err)
{
	char *path = hd_format("%s/heddle/%s.safetensors", s->aside, name);
	int rc = f ? make(f, path, err) : HD_OK;

	free(path);
	return rc;
}

/* Rank 0: the directory, the texts, and all files at their full length. */
static int create(struct saving *s, struct hd_err *err)
{
	char *inner = hd_format("%s/heddle", s->aside);
	int rc;

	hd_steps_tidy(s->dir);
	rc = hd_dir_make(inner, err);
	free(inner);
	HD_TRY(rc);
	HD_TRY(hd_texts_write(s->j, s->aside, s->at, err));
	HD_TRY(hd_weights_create(&s->weights, s->aside, err));
	HD_TRY(make_file(s, s->states, "optimizer", hd_tensorfile_create, err));
	return make_file(s, s->gradients, "gradients", hd_tensorfile_create, err);
}

static int open_files(struct saving *s, struct hd_err *err)
{
	HD_TRY(hd_weights_open(&s->weights, s->aside, err));
	HD_TRY(make_file(s, s->states, "optimizer", hd_tensorfile_open, err));
	return make_file(s, s->gradients, "gradients", hd_tensorfile_open, err);
}

static int write_slices(struct saving *s, struct hd_err *err)
{
	HD_TRY(hd_weights_write(s->g, &s->weights, err));
	HD_TRY(hd_states_write(s->g, s->states, err));
	return s->gradients ? hd_gradients_write(s->g, s->gradients, err) : HD_OK;
}

/* Rank 0: from here on it exists. */
static int publish(struct saving *s, struct hd_err *err)
{
	char *to = hd_step_path(s->dir, s->at->step), *latest = hd_format("%s/latest", s->dir);
	char *name = hd_format("%s\n", strrchr(to, '/') + 1);
	int rc = hd_dir_commit(s->aside, to, err);

	if (rc >= 0)
		rc = hd_file_write(latest, name, err);
	if (rc >= 0)
		hd_steps_prune(s->dir, s->at->step, s->j->checkpoint.keep);
	free(to);
	free(latest);
	free(name);
	return rc;
}

static int save(struct saving *s, struct hd_err *err)
{
	int first = s->j->world.rank == 0;

	plan(s, err);
	HD_TRY(hd_comm_agree(err));
	if (first)
		create(s, err);
	HD_TRY(hd_comm_agree(err));
	if (!first)
		open_files(s, err);
	HD_TRY(hd_comm_agree(err));
	write_slices(s, err);
	HD_TRY(hd_comm_agree(err));
	if (first)
		publish(s, err);
	return hd_comm_agree(err);
}

/* -- room ------------------------------------------------------------------------------------ */
static double bytes_of(struct saving *s)
{
	double bytes = (double)hd_tensorfile_bytes(s->states);

	for (size_t i = 0; i < s->weights.n; i++)
		bytes += (double)hd_tensorfile_bytes(s->weights.file[i]);
	return bytes + (s->gradients ? (double)hd_tensorfile_bytes(s->gradients) : 0);
}

/* An older one is removed when the next is complete: `keep` and one more are there at once. */
static int check_room(struct saving *s, int64_t saves, struct hd_err *err)
{
	const struct hd_checkpoint_config *k = &s->j->checkpoint;
	int64_t have = hd_steps_count(s->dir), most = have + saves < k->keep + 1 ? have + saves : k->keep + 1;
	int64_t more = most - have > 1 ? most - have : 1;
	double each = bytes_of(s), left = hd_disk_left(s->dir);

	if (each * (double)more <= left)
		return HD_OK;
	return hd_section_fail(
		s->j->conf, k->section, "dir", err, HD_EIO,
		"%s: %lld checkpoint%s of %s (checkpoint.keep = %lld, and the one that is being written) need%s %s of disk, and "
		"%s is left there; what helps: a smaller keep, another dir",
		s->dir, (long long)more, more > 1 ? "s" : "", hd_human_bytes(each).text, (long long)k->keep,
		more > 1 ? "" : "s", hd_human_bytes(each * (double)more).text, hd_human_bytes(left).text);
}

int hd_checkpoint_room(struct hd_job *j, int64_t saves, struct hd_err *err)
{
	const struct hd_progress at = { .step = 1 };
	struct saving s = { .j = j, .g = hd_job_owner(j), .at = &at, .dir = j->checkpoint.dir };

	if (!*s.dir || saves <= 0)
		return HD_OK;
	plan(&s, err);
	if (!err->code && j->world.rank == 0)
		check_room(&s, saves, err);
	hd_weights_close(&s.weights);
	hd_tensorfile_close(s.states);
	hd_tensorfile_close(s.gradients);
	return hd_comm_agree(err);
}

/* -- saving, all of it ----------------------------------------------------------------------- */
int hd_checkpoint_save(struct hd_job *j, const struct hd_progress *at, struct hd_err *err)
{
	struct saving s = { .j = j, .g = hd_job_owner(j), .at = at, .dir = j->checkpoint.dir };
	struct hd_err ignored = { 0 };
	int rc;

	s.aside = hd_step_aside(s.dir, at->step);
	rc = save(&s, err);
	hd_weights_close(&s.weights);
	hd_tensorfile_close(s.states);
	hd_tensorfile_close(s.gradients);
	if (rc < 0 && j->world.rank == 0)
		hd_dir_remove(s.aside, &ignored);
	free(s.aside);
	return rc;
}

/* -- loading --------------------------------------------------------------------------------- */
int hd_checkpoint_weights(struct hd_job *j, const char *path, struct hd_err *err)
{
	char *dir = hd_checkpoint_find(path, err);

	if (dir)
		hd_weights_read(hd_job_owner(j), dir, err);
	if (!err->code)
		hd_init_states(hd_job_owner(j), j->train.seed);
	free(dir);
	return hd_comm_agree(err);
}

int hd_checkpoint_fits(const struct hd_plan *p, const char *path, struct hd_err *err)
{
	char *dir = hd_checkpoint_find(path, err);

	if (dir)
		hd_weights_check(p, dir, err);
	free(dir);
	return err->code;
}

static int load(struct hd_job *j, const char *dir, struct hd_progress *at, struct hd_err *err)
{
	char *picks = NULL, *states = hd_format("%s/heddle/optimizer.safetensors", dir);
	int64_t seed = 0;
	int rc = hd_state_read(dir, at, &seed, &picks, err);

	if (rc >= 0 && seed != j->train.seed)
		hd_log(HD_LOG_WARN, "%s: has train.seed = %lld; from here on data and dropout are those of seed %lld",
		       dir, (long long)seed, (long long)j->train.seed);
	if (rc >= 0)
		rc = hd_weights_read(hd_job_owner(j), dir, err);
	if (rc >= 0)
		rc = hd_states_read(hd_job_owner(j), states, err);
	free(picks);
	free(states);
	return rc;
}

int hd_checkpoint_load(struct hd_job *j, const char *path, struct hd_progress *at, struct hd_err *err)
{
	char *dir = hd_checkpoint_find(path, err);

	if (dir)
		load(j, dir, at, err);
	free(dir);
	return hd_comm_agree(err);
}
