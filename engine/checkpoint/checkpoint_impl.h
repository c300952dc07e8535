/* SPDX-License-Identifier: Apache-2.0
 * engine/checkpoint/checkpoint_impl.h - what the files of the checkpoint share.
 *
 *   checkpoint.c          load: the order of its phases
 *   checkpoint_save.c     save: the order of its phases, and what happens when one of them fails
 *   saver.c               the saves of a run, during its steps if that is asked for
 *   checkpoint_slices.c   a rank's slice of a tensor -> a place in a file
 *   checkpoint_weights.c  the model's files: one, or several with an index
 *   checkpoint_unread.c   tensors of these files that the model has no parameter for
 *   checkpoint_states.c   states and gradients, under logical names; pieces of sums, one for each member
 *   checkpoint_sums.c     sums of the files' bytes, which detect a damaged file
 *   checkpoint_dirs.c     which directory: the newest, those to remove, the one being written
 *   run_outputs.c         what a run writes, which must not be what it reads
 *   checkpoint_conf.c     the texts in it: state, INI, config.json
 *   checkpoint_kept.c     what comes from others: the tokenizer, ids of special tokens
 *   model_load.c          model.load: sizes of the model from a directory to begin from
 */
#ifndef HD_ENGINE_CHECKPOINT_IMPL_H
#define HD_ENGINE_CHECKPOINT_IMPL_H
#include "engine/checkpoint/checkpoint.h"
#include "engine/file/atomic_file.h"
#include "engine/tensorfile/image.h"
#include "engine/tensorfile/tensorfile.h"

/* -- slices ---------------------------------------------------------------------------------- */
struct hd_extent { /* the part of a tensor on this rank, without padding */
	int ndim;
	int64_t whole[HD_MAX_DIMS], off[HD_MAX_DIMS], n[HD_MAX_DIMS];
	int64_t local[HD_MAX_DIMS], stride[HD_MAX_DIMS]; /* in memory: elements, padding included */
};
struct hd_movement {
	struct hd_tensorfile *file;
	const char *name; /* in the file */
	uint32_t dtype;   /* in memory */
	int writing;
};
void hd_extent_of(const struct hd_program *g, const struct tensor *t, struct hd_extent *x);
int hd_extent_move(const struct hd_movement *m, const struct hd_extent *x, void *data, struct hd_err *err);
int hd_region_move(const struct hd_movement *m, const struct hd_hf_region *r, const struct hd_extent *x, void *data,
		   struct hd_err *err);
char *hd_shape_text(int ndim, const int64_t *shape); /* returns "[2, 3]", malloc'ed */

/* -- the model's files ----------------------------------------------------------------------- */
extern int64_t hd_checkpoint_file_bytes; /* most bytes of a file of weights: 5 GB; tests make it smaller */

struct hd_weights { /* the files of a model: planned by all ranks alike, or as found */
	struct hd_tensorfile **file;
	char **name; /* of each file, in its directory */
	size_t n, cap_file, cap_name;
	json_t *where; /* tensor -> index of its file */
	int64_t total; /* bytes of the tensors */
};
int hd_weights_plan(const struct hd_program *g, struct hd_weights *w, struct hd_err *err);
/* On one rank: creates the files and the index. */
int hd_weights_create(struct hd_weights *w, const char *dir, struct hd_err *err);
int hd_weights_open(struct hd_weights *w, const char *dir, struct hd_err *err);
int hd_weights_write(const struct hd_program *g, struct hd_weights *w, struct hd_err *err);
int hd_weights_read(const struct hd_program *g, const char *dir, struct hd_err *err);
int hd_weights_check(const struct hd_plan *p, const char *dir, struct hd_err *err); /* checks names and shapes */
int64_t hd_weights_count(const char *dir); /* returns the tensors in its files, or -1 if they cannot be read */
json_t *hd_weights_names(const char *dir); /* returns the names of its files that can be read */
void hd_weights_close(struct hd_weights *w);
struct hd_tensorfile *hd_weights_file(const struct hd_weights *w, const char *tensor); /* NULL: no file has it */
/* Handles the tensors that no parameter is in, the keys of `left`: by an error, a warning, or nothing. */
int hd_weights_unread(const struct hd_plan *p, const struct hd_weights *w, json_t *left, const char *dir,
		      struct hd_err *err);

/* -- states and gradients -------------------------------------------------------------------- */
int hd_states_plan(const struct hd_program *g, struct hd_tensorfile *f, struct hd_err *err);
int hd_states_write(const struct hd_program *g, struct hd_tensorfile *f, struct hd_err *err);
int hd_states_read(const struct hd_program *g, const char *path, struct hd_err *err);
int hd_gradients_plan(const struct hd_program *g, struct hd_tensorfile *f, struct hd_err *err);
int hd_gradients_write(const struct hd_program *g, struct hd_tensorfile *f, struct hd_err *err);

/* -- directories; paths are malloc'ed -- */
int64_t hd_step_of_name(const char *name); /* returns the step of "step-" and at least 8 digits, or -1 */
char *hd_step_path(const char *dir, int64_t step);
char *hd_step_temporary(const char *dir, int64_t step); /* where it is written until it is complete */
int64_t hd_steps_count(const char *dir);
/* Checks that nothing but directories has the name of this or a later step: no save could replace it. */
int hd_steps_free(const char *dir, int64_t from, struct hd_err *err);
/* Removes checkpoints of this step and older ones, except for the newest `keep` of these. */
void hd_steps_prune(const char *dir, int64_t step, int64_t keep);

/* -- texts ----------------------------------------------------------------------------------- */
/* data_hash: hd_data_fingerprint; 0: there are no data. */
int hd_texts_write(const struct hd_job *j, const char *dir, const struct hd_progress *at, uint64_t data_hash,
		   struct hd_err *err);
int hd_kept_write(const struct hd_job *j, const char *dir, struct hd_err *err);
void hd_kept_special(const struct hd_job *j, json_t *config);
int hd_has_tokenizer(const char *dir);
/* Returns whether path is the tokenizer's file, or one of those next to it that belong to it. */
int hd_tokenizer_has(const char *tokenizer, const char *path);
/* Warns if transformers would also apply dropout to the probabilities of attention, which this model does not. */
void hd_config_warn_of_dropout(const char *dir, const struct hd_model *m);
/* Checks that the sizes in config.json are the model's: heads, for example, are in no tensor's shape. */
int hd_config_check(const char *dir, const struct hd_model *m, struct hd_err *err);
/* Checks that it has what only a run needs: its state and the optimizer's. */
int hd_resumable_check(const char *dir, struct hd_err *err);
/* Reads heddle/state.json. at->tokens is -1 if the file does not have it. */
int hd_state_read(const char *dir, struct hd_progress *at, int64_t *seed, char **picks, struct hd_err *err);

/* -- one save -------------------------------------------------------------------------------- */
struct hd_saving {
	struct hd_job *j;
	const struct hd_program *g;
	struct hd_progress at;
	uint64_t data_hash;
	/* By file: what this rank writes, if it is gathered in memory first; NULL: it is written at once. */
	struct hd_image *images;
	int (*agree)(struct hd_err *err); /* hd_comm_agree, or its counterpart for another thread */
	double (*sum)(double x);          /* hd_comm_sum, likewise */
	json_t *sums;                     /* name of a file -> the sum of its bytes; NULL: not known yet */
	const char *dir;
	char *temporary;
	struct hd_weights weights;
	struct hd_tensorfile *states, *gradients; /* gradients: or NULL */
};
void hd_saving_begin(struct hd_saving *s, struct hd_job *j, const struct hd_progress *at);
int hd_saving_plan(struct hd_saving *s, struct hd_err *err);  /* plans names and sizes; without messages */
int hd_saving_write(struct hd_saving *s, struct hd_err *err); /* all ranks call it, in the order of agree's messages */
size_t hd_saving_files(const struct hd_saving *s);
struct hd_tensorfile *hd_saving_file(const struct hd_saving *s, size_t i);
char *hd_saving_name(const struct hd_saving *s, size_t i);     /* its name in the checkpoint's directory; malloc'ed */
int hd_saving_gather(struct hd_saving *s, struct hd_err *err); /* writes into the images (hd_tensorfile_image) */
double hd_saving_bytes(const struct hd_saving *s);             /* of the checkpoint, over all ranks */
void hd_saving_end(struct hd_saving *s);

/* -- sums of bytes --------------------------------------------------------------------------- */
void hd_sums_take(struct hd_saving *s); /* all ranks call it, after each has written */
int hd_sums_write(const struct hd_saving *s, struct hd_err *err);
/* Checks the sums of the files; all ranks call it. resumes: also checks the tensors and the state in heddle/, and refuses
 * such a file, or weights, that have changed. Otherwise, and for texts, a warning names the file. If no sums were saved,
 * nothing is checked. */
int hd_sums_check(const struct hd_world *w, const char *dir, int resumes, struct hd_err *err);

#endif
