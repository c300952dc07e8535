/* SPDX-License-Identifier: Apache-2.0
 * heddle train: trains a model.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/file/atomic_file.h"
#include "engine/process/dir_lock.h"
#include "engine/foresight/foresight.h"
#include "engine/generate/generate.h"
#include "engine/plugin/turn.h"
#include "engine/process/asked.h"
#include "engine/process/launch.h"
#include "engine/train/train.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENDING 5.0 /* seconds for which a new run waits until an earlier one in the same directory has ended */

struct save_dir {
	char *made; /* the directory, if this run created it, else NULL */
	struct hd_lock_held lock;
};

/* Releases the directory. A refused run leaves no empty directory. */
static void close_dir(struct save_dir *d)
{
	hd_dir_unlock(&d->lock);
	if (d->made)
		rmdir(d->made);
	free(d->made);
}

/* Takes the directory; called on rank 0. It is locked, since two runs in one directory would remove each other's
 * checkpoints. Remains of an interrupted save are deleted, since they may fill the disk. */
static int lock_dir(const char *dir, struct save_dir *d, struct hd_err *why)
{
	struct hd_err ignored = { 0 };

	HD_TRY(hd_dir_make(dir, why));
	HD_TRY(hd_dir_lock(&d->lock, dir, ENDING, why));
	hd_steps_tidy(dir, &ignored);
	return HD_OK;
}

/* Rank 0 writes the files of [log]; all ranks write to the directory of checkpoints. */
static int open_outputs(const struct hd_job *j, struct hd_conf *conf, struct save_dir *d, struct hd_err *err)
{
	struct hd_checkpoint_config k;
	struct hd_err why = { 0 };

	HD_TRY(hd_checkpoint_config_read(conf, &k, err));
	HD_TRY(hd_foresight_check(conf, err));
	if (j->world.rank == 0)
		HD_TRY(hd_outputs_check(conf, err));
	if (*k.dir && access(k.dir, F_OK))
		d->made = hd_strdup(k.dir);
	if (*k.dir && j->world.rank == 0 && lock_dir(k.dir, d, &why) < 0)
		return hd_section_fail(conf, k.section, "dir", err, why.code, "%s", why.text);
	return HD_OK;
}

/* Checks on every rank that the directory can be written; called when rank 0 has created it. */
static int check_dir(struct hd_conf *conf, struct hd_err *err)
{
	struct hd_checkpoint_config k;
	struct hd_err why = { 0 };

	HD_TRY(hd_checkpoint_config_read(conf, &k, err));
	if (*k.dir && hd_dir_writable(k.dir, &why) < 0)
		return hd_section_fail(conf, k.section, "dir", err, why.code, "%s", why.text);
	return HD_OK;
}

static int train(struct hd_job *j, struct hd_conf *conf, struct save_dir *d, struct hd_err *err)
{
	struct hd_train_config t;
	struct hd_log_config log;
	unsigned roles = 1u << HD_JOB_TRAIN;
	char *resume = NULL, *picks = NULL;

	HD_TRY(hd_start_data(j, conf, err));
	hd_end_request_watch(hd_turn_now);
	hd_end_request_ready(hd_comm_ending);
	open_outputs(j, conf, d, err);
	HD_TRY(hd_comm_agree(err));
	check_dir(conf, err);
	HD_TRY(hd_comm_agree(err));
	hd_checkpoint_choose(conf, &resume, err);
	HD_TRY(hd_comm_agree(err));
	if (resume)
		picks = hd_checkpoint_picks(resume, err);
	free(resume);
	HD_TRY(hd_comm_agree(err));
	if (hd_data_valid_samples(j->data, 0))
		roles |= 1u << HD_JOB_EVAL;
	HD_TRY(hd_log_config_read(conf, &log, err));
	HD_TRY(hd_train_config_read(conf, &t, err));
	if (log.sample)
		roles |= hd_sample_roles(j, conf, &log, t.seq, err);
	HD_TRY(hd_comm_agree(err));
	hd_job_open(j, conf, roles, picks, err);
	free(picks);
	HD_TRY(err->code);
	if (j->world.rank == 0) {
		hd_warn_without_effect(j->plan[HD_JOB_TRAIN]);
		hd_batch_hint_print(j->plan[HD_JOB_TRAIN]);
	}
	hd_comm_watchdog(j->train.watchdog);
	if (j->train.watchdog > 0)
		hd_end_request_watchdog(j->train.watchdog, hd_comm_stuck);
	return hd_train(j, err);
}

/* Refuses tasks of srun that MPI does not connect. Without --mpi=pmix each would be a separate run, and write to the
 * same files. */
static int tasks_connected(struct hd_job *j, struct hd_err *err)
{
	int tasks = hd_launch_unconnected();

	if (!tasks)
		return HD_OK;
	j->world.rank = !hd_launch_first(); /* only one task prints the error */
	return hd_err_set(
		err, HD_EINVAL,
		"srun has started %d tasks, but MPI connects none of them. Start them with srun --mpi=pmix, or separate "
		"runs with srun env -u SLURM_STEP_NUM_TASKS",
		tasks);
}

int hd_verb_train(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_conf *conf = NULL;
	struct save_dir d = { NULL, { NULL, -1 } };
	struct hd_err err = { 0 };
	int rc;

	hd_end_request_open();
	hd_cli_conf(c, &conf, &err);
	if (tasks_connected(&j, &err) >= 0 && hd_start(c, &j, conf, &err) >= 0)
		train(&j, conf, &d, &err);
	close_dir(&d);
	rc = hd_finish(c, &j, &err);
	j.conf = conf;
	hd_job_close(&j);
	return rc;
}
