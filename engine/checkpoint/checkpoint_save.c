/* SPDX-License-Identifier: Apache-2.0
 * Saves a checkpoint. All ranks write at once into files that one of them has created, under a name that nothing takes
 * for a checkpoint. After each phase all ranks agree that it succeeded everywhere. Only then does the checkpoint get
 * its name. So a full disk, a rank that cannot write or a killed job leave earlier checkpoints intact.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/file/disk_room.h"
#include "engine/human/human.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- saving ---------------------------------------------------------------------------------- */
int hd_saving_plan(struct hd_saving *s, struct hd_err *err)
{
	HD_TRY(hd_weights_plan(s->g, &s->weights, err));
	s->states = hd_tensorfile_plan();
	HD_TRY(hd_states_plan(s->g, s->states, err));
	if (!s->j->checkpoint.gradients || !s->at.step || !s->j->program[HD_JOB_TRAIN])
		return HD_OK;
	s->gradients = hd_tensorfile_plan();
	return hd_gradients_plan(s->g, s->gradients, err);
}

typedef int (*make_fn)(struct hd_tensorfile *f, const char *path, struct hd_err *err);

static int make_file(struct hd_saving *s, struct hd_tensorfile *f, const char *name, make_fn make, struct hd_err *err)
{
	char *path = hd_format("%s/heddle/%s.safetensors", s->temporary, name);
	int rc = f ? make(f, path, err) : HD_OK;

	free(path);
	return rc;
}

/* Creates, on rank 0, the directory, the texts, and all files at their full length. */
static int create(struct hd_saving *s, struct hd_err *err)
{
	char *inner = hd_format("%s/heddle", s->temporary);
	struct hd_err ignored = { 0 };
	int rc;

	hd_steps_tidy(s->dir, &ignored);
	rc = hd_dir_make(inner, err);
	free(inner);
	HD_TRY(rc);
	HD_TRY(hd_texts_write(s->j, s->temporary, &s->at, s->data_hash, err));
	HD_TRY(hd_weights_create(&s->weights, s->temporary, err));
	HD_TRY(make_file(s, s->states, "optimizer", hd_tensorfile_create, err));
	return make_file(s, s->gradients, "gradients", hd_tensorfile_create, err);
}

static int open_files(struct hd_saving *s, struct hd_err *err)
{
	HD_TRY(hd_weights_open(&s->weights, s->temporary, err));
	HD_TRY(make_file(s, s->states, "optimizer", hd_tensorfile_open, err));
	return make_file(s, s->gradients, "gradients", hd_tensorfile_open, err);
}

size_t hd_saving_files(const struct hd_saving *s)
{
	return s->weights.n + 1 + (s->gradients != NULL);
}

struct hd_tensorfile *hd_saving_file(const struct hd_saving *s, size_t i)
{
	if (i < s->weights.n)
		return s->weights.file[i];
	return i == s->weights.n ? s->states : s->gradients;
}

char *hd_saving_name(const struct hd_saving *s, size_t i)
{
	if (i < s->weights.n)
		return hd_strdup(s->weights.name[i]);
	return hd_format("heddle/%s.safetensors", i == s->weights.n ? "optimizer" : "gradients");
}

/* Refuses to save values that are not finite. Loss and norm were finite before the update, so the optimizer produced
 * them, and nothing has read them yet. */
static int check_finite(const struct hd_saving *s, struct hd_err *err)
{
	const char *optimizer = hd_section_str(hd_conf_section(s->j->conf, NULL, "train"), "optimizer");
	char *spoilt = hd_program_spoilt_text(s->g);

	if (spoilt)
		hd_err_set(err, HD_EINVAL,
			   "step %lld is not saved: after its update (train.optimizer = %s), %s that a rank holds are "
			   "not finite",
			   (long long)s->at.step, optimizer, spoilt);
	free(spoilt);
	return err->code;
}

/* Returns whether this only lays out images: before the first step, to make room for what a save will copy. */
static int only_counts(const struct hd_saving *s)
{
	return s->images && !s->images[0].memory;
}

static int write_slices(struct hd_saving *s, struct hd_err *err)
{
	if (!only_counts(s))
		HD_TRY(check_finite(s, err));
	HD_TRY(hd_weights_write(s->g, &s->weights, err));
	HD_TRY(hd_states_write(s->g, s->states, err));
	return s->gradients ? hd_gradients_write(s->g, s->gradients, err) : HD_OK;
}

int hd_saving_gather(struct hd_saving *s, struct hd_err *err)
{
	for (size_t i = 0; i < hd_saving_files(s); i++)
		hd_tensorfile_image(hd_saving_file(s, i), &s->images[i]);
	HD_TRY(write_slices(s, err));
	for (size_t i = 0; i < hd_saving_files(s); i++)
		hd_tensorfile_image(hd_saving_file(s, i), NULL);
	return HD_OK;
}

static int write_files(struct hd_saving *s, struct hd_err *err)
{
	if (!s->images)
		return write_slices(s, err);
	for (size_t i = 0; i < hd_saving_files(s); i++)
		HD_TRY(hd_tensorfile_write_image(hd_saving_file(s, i), &s->images[i], err));
	return HD_OK;
}

static int is_latest(const char *dir, const char *step)
{
	struct hd_err ignored = { 0 };
	char *path = hd_format("%s/latest", dir), *text = hd_file_read(path, NULL, &ignored),
	     *want = hd_format("%s\n", step);
	int same = text && !strcmp(text, want);

	free(path), free(text), free(want);
	return same;
}

/* Names a step in `latest`, unless it is named there already, as when a run saves its step again. A write that failed
 * only at its sync has named the step, too; then the step stays. */
static int write_latest(const char *dir, const char *step, struct hd_err *err)
{
	char *path = hd_format("%s/latest", dir), *text = hd_format("%s\n", step);
	int rc = is_latest(dir, step) ? HD_OK : hd_file_write(path, text, err);

	free(path), free(text);
	return rc;
}

/* Removes a step that `latest` does not name: no run would continue from it, and `keep` would not count it. So it
 * is not saved. */
static void remove_unnamed(const char *step, struct hd_err *err)
{
	struct hd_err stays = { 0 }, why = *err;

	if (hd_dir_remove(step, &stays) >= 0)
		return;
	*err = (struct hd_err){ 0 };
	hd_err_set(err, why.code, "%s; and %s", why.text, stays.text);
}

/* Gives the checkpoint its name, and then names it in `latest`; on rank 0. If the job is killed between the two, the
 * checkpoint is complete, and the run continues from the step before. */
static int publish(struct hd_saving *s, struct hd_err *err)
{
	char *to = hd_step_path(s->dir, s->at.step);
	int rc = hd_dir_commit(s->temporary, to, err);

	if (rc >= 0) {
		rc = write_latest(s->dir, strrchr(to, '/') + 1, err);
		if (rc < 0 && !is_latest(s->dir, strrchr(to, '/') + 1))
			remove_unnamed(to, err);
	}
	if (rc >= 0)
		hd_steps_prune(s->dir, s->at.step, s->j->checkpoint.keep);
	free(to);
	return rc;
}

static int write_all(struct hd_saving *s, struct hd_err *err)
{
	int first = s->j->world.rank == 0;

	if (first)
		create(s, err);
	HD_TRY(s->agree(err));
	if (!first)
		open_files(s, err);
	HD_TRY(s->agree(err));
	write_files(s, err);
	HD_TRY(s->agree(err));
	hd_sums_take(s);
	if (first && hd_sums_write(s, err) >= 0)
		publish(s, err);
	return s->agree(err);
}

/* Removes the incomplete checkpoint. If the disk is too small for it, adds to the error how much it needs and how
 * much is left. */
static void give_up(struct hd_saving *s, struct hd_err *err)
{
	struct hd_err ignored = { 0 }, why = *err;
	double bytes = hd_saving_bytes(s), left;

	hd_dir_remove(s->temporary, &ignored);
	left = hd_disk_left(s->dir);
	if (left >= bytes)
		return;
	*err = (struct hd_err){ 0 };
	hd_err_set(err, why.code, "%s; the checkpoint needs %s of disk space, but %s is free there", why.text,
		   hd_human_bytes(bytes).text, hd_human_bytes(left).text);
}

int hd_saving_write(struct hd_saving *s, struct hd_err *err)
{
	int rc;

	s->temporary = hd_step_temporary(s->dir, s->at.step);
	rc = write_all(s, err);
	if (rc < 0 && s->j->world.rank == 0)
		give_up(s, err);
	return rc;
}

void hd_saving_begin(struct hd_saving *s, struct hd_job *j, const struct hd_progress *at)
{
	*s = (struct hd_saving){ .j = j,
				 .g = hd_job_first_program(j),
				 .at = *at,
				 .dir = j->checkpoint.dir,
				 .agree = hd_comm_agree,
				 .sum = hd_comm_sum };
}

void hd_saving_end(struct hd_saving *s)
{
	hd_weights_close(&s->weights);
	hd_tensorfile_close(s->states);
	hd_tensorfile_close(s->gradients);
	json_decref(s->sums);
	free(s->temporary);
	memset(s, 0, sizeof(*s));
}

/* -- room ------------------------------------------------------------------------------------ */
double hd_saving_bytes(const struct hd_saving *s)
{
	double bytes = 0;

	for (size_t i = 0; i < hd_saving_files(s); i++)
		bytes += (double)hd_tensorfile_bytes(hd_saving_file(s, i));
	return bytes;
}

/* Checks that there is room. An older checkpoint is removed when the next is complete, so `keep` and one more exist at
 * once. First removes what an interrupted save has left, which takes up room: the directory belongs to this run. */
static int check_room(struct hd_saving *s, int64_t saves, struct hd_err *err)
{
	const struct hd_checkpoint_config *k = &s->j->checkpoint;
	struct hd_err stays = { 0 };
	int64_t have = hd_steps_count(s->dir), most = have + saves < k->keep + 1 ? have + saves : k->keep + 1;
	int64_t more = most - have > 1 ? most - have : 1;
	double each = hd_saving_bytes(s), left;

	hd_steps_tidy(s->dir, &stays);
	left = hd_disk_left(s->dir);
	if (each * (double)more <= left)
		return HD_OK;
	return hd_section_fail(
		s->j->conf, k->section, "dir", err, HD_EIO,
		"%s: %lld checkpoint%s of %s (checkpoint.keep = %lld, and the one that is being written) need%s %s "
		"of disk space, but %s is free there. A smaller keep or another dir helps%s%s",
		s->dir, (long long)more, more > 1 ? "s" : "", hd_human_bytes(each).text, (long long)k->keep,
		more > 1 ? "" : "s", hd_human_bytes(each * (double)more).text, hd_human_bytes(left).text,
		stays.code ? "; an interrupted save has left files that cannot be removed: " : "", stays.text);
}

int hd_checkpoint_room(struct hd_job *j, int64_t from, int64_t saves, struct hd_err *err)
{
	struct hd_saving s;
	struct hd_err why = { 0 };

	if (!*j->checkpoint.dir || saves <= 0)
		return HD_OK;
	hd_saving_begin(&s, j, &(struct hd_progress){ .step = 1 });
	hd_saving_plan(&s, err);
	if (!err->code && j->world.rank == 0 && hd_steps_free(s.dir, from, &why) < 0)
		hd_section_fail(j->conf, j->checkpoint.section, "dir", err, why.code, "%s", why.text);
	if (!err->code && j->world.rank == 0)
		check_room(&s, saves, err);
	hd_saving_end(&s);
	return hd_comm_agree(err);
}

/* -- a complete save ------------------------------------------------------------------------- */
int hd_checkpoint_save(struct hd_job *j, const struct hd_progress *at, struct hd_err *err)
{
	struct hd_saving s;
	int rc;

	hd_saving_begin(&s, j, at);
	if (j->data)
		s.data_hash = hd_data_fingerprint(j->data);
	hd_saving_plan(&s, err);
	rc = hd_comm_agree(err);
	if (rc >= 0)
		rc = hd_saving_write(&s, err);
	hd_program_forget_copies(s.g);
	hd_saving_end(&s);
	return rc;
}
