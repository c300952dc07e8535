/* SPDX-License-Identifier: Apache-2.0
 * engine/checkpoint/checkpoint.h - checkpoints, which have no layout: a directory that transformers loads, with the
 * optimizer's state in addition.
 *
 *   DIR/step-00000500/config.json, model.safetensors        as transformers has them for the family
 *                     tokenizer.json and others              copied from the tokenizer and the loaded model
 *                     heddle/optimizer.safetensors          states, under the parameters' own names
 *                     heddle/state.json                     step, samples, seed, choices made by timing
 *                     heddle/conf.ini                       the run's INI, overrides applied
 *                     heddle/gradients.safetensors          with checkpoint.gradients = yes
 *   DIR/latest                                              the name of the newest, as text
 *
 * All ranks write a checkpoint in parallel under a temporary name (each slice by its one owner), sync it and rename it.
 * So it is complete or absent.
 */
#ifndef HD_ENGINE_CHECKPOINT_H
#define HD_ENGINE_CHECKPOINT_H
#include "engine/run/job.h"
#include "engine/text/tokenizer.h"

/* The updates made, the samples that they used, and the tokens of these: a run may continue with sequences of a
 * different length. */
struct hd_progress {
	int64_t step, samples, tokens;
};

/* Removes what interrupted saves have left in the directory. One rank calls it, while the directory belongs to this
 * run. stays: the error for the first entry that cannot be removed. */
void hd_steps_tidy(const char *dir, struct hd_err *stays);
/* All of these are collective. On failure all ranks have the same err, and what was saved before is intact. */
/* Checks, before the first step, that the disk has room for the checkpoints that will exist at once, with `saves` saves
 * from now on. Also checks that nothing else has their names. from: the first step that is saved. */
int hd_checkpoint_room(struct hd_job *j, int64_t from, int64_t saves, struct hd_err *err);
int hd_checkpoint_save(struct hd_job *j, const struct hd_progress *at, struct hd_err *err);
/* The saves of a run, one after the other. All ranks call these functions, between steps. With checkpoint.async
 * hd_saver_save returns when it has a copy of what is saved. No other save may be in progress when it is called. The
 * plan and programs of the job must not change until hd_saver_poll or hd_saver_wait has seen the end of the save. These
 * two return errors of the write, as hd_saver_save does without checkpoint.async. */
struct hd_saver;
struct hd_saved {
	int64_t step;
	double bytes; /* of the checkpoint, over all ranks */
	/* seconds: from the beginning of the copy until the checkpoint had its name (without async: of the whole save).
	 * copy: the part of these for the copy. waited: before that, for an earlier save. */
	double seconds, copy, waited;
};
int hd_saver_open(struct hd_job *j, struct hd_saver **out, struct hd_err *err);
int hd_saver_save(struct hd_saver *s, const struct hd_progress *at, struct hd_err *err);
int hd_saver_saves(const struct hd_saver *s, int64_t *step); /* returns 1 if that step is being written */
int hd_saver_poll(struct hd_saver *s, struct hd_err *err);   /* s may be NULL here and below */
int hd_saver_wait(struct hd_saver *s, struct hd_err *err);
int hd_saver_done(struct hd_saver *s, struct hd_saved *out); /* returns 1 once for each complete save */
void hd_saver_close(struct hd_saver *s);
/* Returns path, if it is a checkpoint, or the newest one in it; malloc'ed. NULL, with err: neither. */
char *hd_checkpoint_find(const char *path, struct hd_err *err);
int hd_checkpoint_load(struct hd_job *j, const char *path, struct hd_progress *at, struct hd_err *err);
/* Returns whether the path of a step's directory is that of a step in dir. */
int hd_step_is_in(const char *step, const char *dir);
/* Finds what [checkpoint] resume means, before anything is read. Sets *path to a step directory, malloc'ed, or
 * to NULL to begin a new run. A dir that has steps of another run is refused: with resume = no, or with a
 * checkpoint that is not in dir. */
int hd_checkpoint_choose(struct hd_conf *c, char **path, struct hd_err *err);
/* run_outputs.c: Checks that the files and the directories that [log] and [checkpoint] name could be written, without
 * creating them. Refuses a file that the run also reads, or writes for another key. */
int hd_outputs_check(struct hd_conf *c, struct hd_err *err);
/* Returns what a run uses path for, malloc'ed: "is read as data.train", "is a file of model.load". NULL: it uses
 * no such file. */
char *hd_conf_file_use(struct hd_conf *c, const char *path);
/* Returns the precision as state.json has it. The INI has none if it was the device's default. */
const char *hd_precision_text(const struct hd_plan *p);
/* Returns the choices of timing that a checkpoint records, malloc'ed, or NULL. */
char *hd_checkpoint_picks(const char *path, struct hd_err *err);
/* Reads the INI of a checkpoint directory, to rebuild its model (eval, generate). */
int hd_checkpoint_conf(const char *path, const char *const *sets, int nsets, struct hd_conf **out, struct hd_err *err);
/* Adds the sizes of the model in model.load to [model]. The conf has been read, but not checked yet. */
int hd_model_load_conf(struct hd_conf *c, struct hd_err *err);
/* Sets data.tokenizer = dir. option: that of the command line which gave it, for errors; NULL: none. */
void hd_conf_tokenizer(struct hd_conf *c, const char *dir, const char *option);
/* Returns the directory of the checkpoint's tokenizer.json, malloc'ed; NULL: it has none. */
char *hd_checkpoint_own_tokenizer(const char *path);
/* Adds the ids that end a text of this model: eos_token_id of generation_config.json, else of config.json, else the
 * tokenizer's (t may be NULL). Adds none if none of these gives an id, or if generation_config.json says null. */
void hd_checkpoint_ends(const char *path, const struct hd_tokenizer *t, struct hd_ids *out);
/* Warns of settings in generation_config.json that change even the likeliest tokens, and that generate does not know. */
void hd_checkpoint_warn_generation(const char *path);
/* Loads the weights only (model.load, eval, generate). */
int hd_checkpoint_weights(struct hd_job *j, const char *path, struct hd_err *err);
/* Checks that the weights are there, with the model's shapes. Refuses what a load would refuse, without a job. */
int hd_checkpoint_fits(const struct hd_plan *p, const char *path, struct hd_err *err);
/* Checks the same, and that everything exists that a run continues from. */
int hd_checkpoint_resumes(const struct hd_plan *p, const char *path, struct hd_err *err);
/* Checks that each parameter has a place of its own in a checkpoint. A plugin's family may give one name to
 * two of them. */
int hd_checkpoint_names_check(const struct hd_plan *p, struct hd_err *err);

#endif
