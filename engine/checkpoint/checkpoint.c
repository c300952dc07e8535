/* SPDX-License-Identifier: Apache-2.0
 * Loads checkpoints by slices: each rank reads from the files what it holds in its own layout.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/file/inside.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hd_checkpoint_weights(struct hd_job *j, const char *path, struct hd_err *err)
{
	char *dir = hd_checkpoint_find(path, err);

	if (hd_comm_agree(err) >= 0 && hd_sums_check(&j->world, dir, 0, err) >= 0)
		hd_weights_read(hd_job_first_program(j), dir, err);
	if (!err->code)
		hd_init_states(hd_job_first_program(j), j->train.seed);
	hd_program_forget_copies(hd_job_first_program(j));
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

/* Refuses a checkpoint without the files that only a run needs, such as one of another program. A run can still begin
 * with its weights. */
int hd_resumable_check(const char *dir, struct hd_err *err)
{
	static const char *const needed[] = { "heddle/state.json", "heddle/optimizer.safetensors" };

	for (size_t i = 0; i < HD_LEN(needed); i++) {
		char *path = hd_format("%s/%s", dir, needed[i]);
		int gone = access(path, F_OK) && errno == ENOENT;

		free(path);
		if (gone)
			return hd_err_set(
				err, HD_EIO,
				"%s: has no %s, so no run can resume from it; model.load = %s starts from its "
				"weights, at step 0",
				dir, needed[i], dir);
	}
	return hd_file_inside(dir, "heddle/optimizer.safetensors", err);
}

int hd_checkpoint_resumes(const struct hd_plan *p, const char *path, struct hd_err *err)
{
	char *dir = hd_checkpoint_find(path, err);

	if (dir && hd_resumable_check(dir, err) >= 0)
		hd_weights_check(p, dir, err);
	free(dir);
	return err->code;
}

static int load(struct hd_job *j, const char *dir, struct hd_progress *at, struct hd_err *err)
{
	char *picks = NULL, *states = hd_format("%s/heddle/optimizer.safetensors", dir);
	int64_t seed = 0;
	int rc = hd_resumable_check(dir, err);

	if (rc >= 0)
		rc = hd_state_read(dir, at, &seed, &picks, err);
	if (rc >= 0 && at->tokens < 0) /* then all sequences had this length */
		at->tokens = at->samples * j->train.seq;
	if (rc >= 0 && seed != j->train.seed)
		hd_log(HD_LOG_WARN,
		       "%s: was written with train.seed = %lld; from here on data and dropout follow seed %lld", dir,
		       (long long)seed, (long long)j->train.seed);
	if (rc >= 0)
		rc = hd_weights_read(hd_job_first_program(j), dir, err);
	if (rc >= 0)
		rc = hd_states_read(hd_job_first_program(j), states, err);
	free(picks);
	free(states);
	return rc;
}

int hd_checkpoint_load(struct hd_job *j, const char *path, struct hd_progress *at, struct hd_err *err)
{
	char *dir = hd_checkpoint_find(path, err);

	if (hd_comm_agree(err) >= 0 && hd_sums_check(&j->world, dir, 1, err) >= 0)
		load(j, dir, at, err);
	hd_program_forget_copies(hd_job_first_program(j));
	free(dir);
	return hd_comm_agree(err);
}
