/* SPDX-License-Identifier: Apache-2.0
 * engine/checkpoint/checkpoint.h - a checkpoint has no layout: one directory that transformers loads, beside the optimizer's state.
 *
 *   DIR/step-00000500/config.json, model.safetensors        as transformers has them for the family
 *                     tokenizer.json and others              of the tokenizer and the loaded model, as they were
 *                     heddle/optimizer.safetensors          states, under the parameters' own names
 *                     heddle/state.json                     step, samples, seed, choices made by timing
 *                     heddle/conf.ini                       the run's INI, overrides applied
 *                     heddle/gradients.safetensors          with checkpoint.gradients = yes
 *   DIR/latest                                              the newest, as text
 *
 * Written aside by all ranks in parallel (each slice by its one owner), synced, renamed: complete or absent.
 */
#ifndef HD_ENGINE_CHECKPOINT_H
#define HD_ENGINE_CHECKPOINT_H
#include "engine/run/job.h"
#include "engine/text/tokenizer.h"

struct hd_progress {
	int64_t step, samples, tokens;
}; /* updates made; samples that they used, and the tokens of these: a run may go on with sequences of another length */

/* One rank, while the directory is this run's: removes what saves that were cut short have left in it.  stays: the first of it that
 * cannot be removed. */
void hd_steps_tidy(const char *dir, struct hd_err *stays);
/* All collective; on failure all ranks have the same err, and what was saved before is whole. */
/* Before the first step: whether the disk has room for the checkpoints that will be there at once, of `saves` saves from now on. */
int hd_checkpoint_room(struct hd_job *j, int64_t saves, struct hd_err *err);
int hd_checkpoint_save(struct hd_job *j, const struct hd_progress *at, struct hd_err *err);
/* The saves of a run, one after the other; all ranks, between steps.  With checkpoint.async hd_saver_save returns when there is a
 * copy of what is saved; none may be on the way then.  The plan and programs of the job stay as they are until hd_saver_poll
 * or hd_saver_wait has seen its end.  These give an error of the write as hd_saver_save does without it. */
struct hd_saver;
struct hd_saved {
	int64_t step;
	double bytes; /* of the checkpoint: all ranks' */
	/* From the copy's begin until it had its name (without async: all of the save); of that the copy; before that, for another. */
	double seconds, copy, waited;
};
int hd_saver_open(struct hd_job *j, struct hd_saver **out, struct hd_err *err);
int hd_saver_save(struct hd_saver *s, const struct hd_progress *at, struct hd_err *err);
int hd_saver_saves(const struct hd_saver *s, int64_t *step); /* 1: that step is being written */
int hd_saver_poll(struct hd_saver *s, struct hd_err *err);   /* s may be NULL here and below */
int hd_saver_wait(struct hd_saver *s, struct hd_err *err);
int hd_saver_done(struct hd_saver *s, struct hd_saved *out); /* 1, once for each that is complete */
void hd_saver_close(struct hd_saver *s);
char *hd_checkpoint_find(const char *path, struct hd_err *err); /* a step, or the newest below path; NULL: neither */
int hd_checkpoint_load(struct hd_job *j, const char *path, struct hd_progress *at, struct hd_err *err);
/* What [checkpoint] resume means before anything is read: the path of a step directory, or NULL: start anew.  A dir that
 * already holds a later step than the run would start with is refused (resume = no).  malloc'ed. */
int hd_checkpoint_choose(struct hd_conf *c, char **path, struct hd_err *err);
/* run_outputs.c: whether the files and the directory that [log] and [checkpoint] name could be written; makes none of them.  A file that
 * the run also reads, or writes for another key, is refused. */
int hd_outputs_check(struct hd_conf *c, struct hd_err *err);
/* What a run has path for: "is read as data.train", "is a file of model.load"; malloc'ed, NULL: it reads no such file. */
char *hd_conf_file_use(struct hd_conf *c, const char *path);
char *hd_checkpoint_picks(const char *path, struct hd_err *err); /* the choices recorded in it; malloc'ed, or NULL */
/* The INI of a checkpoint directory, to rebuild its model (eval, generate). */
int hd_checkpoint_conf(const char *path, const char *const *sets, int nsets, struct hd_conf **out, struct hd_err *err);
/* Of a conf that is read and not yet checked: model.load's sizes become keys of [model]. */
int hd_model_load_conf(struct hd_conf *c, struct hd_err *err);
void hd_conf_tokenizer(struct hd_conf *c, const char *dir); /* data.tokenizer = dir */
char *hd_checkpoint_own_tokenizer(
	const char *path); /* the directory of its tokenizer.json; malloc'ed, NULL: it has none */
/* Adds the ids that end a text of this model: eos_token_id of generation_config.json, else of config.json, else the tokenizer's
 * (NULL: there is none).  None where nothing says them. */
void hd_checkpoint_ends(const char *path, const struct hd_tokenizer *t, struct hd_ids *out);
/* The weights alone (model.load, eval, generate). */
int hd_checkpoint_weights(struct hd_job *j, const char *path, struct hd_err *err);
/* Whether they are there, with the model's shapes: what a load would refuse, without a job. */
int hd_checkpoint_fits(const struct hd_plan *p, const char *path, struct hd_err *err);
/* And whether there is all that a run goes on from. */
int hd_checkpoint_resumes(const struct hd_plan *p, const char *path, struct hd_err *err);
/* Whether each parameter has a place of its own in a checkpoint.  A plugin's family may give one name to two. */
int hd_checkpoint_names_check(const struct hd_plan *p, struct hd_err *err);

#endif
