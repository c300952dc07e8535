/* SPDX-License-Identifier: Apache-2.0
 * engine/train/train_impl.h - the loop over the steps of a run, which train.c and saves.c share.
 */
#ifndef HD_ENGINE_TRAIN_IMPL_H
#define HD_ENGINE_TRAIN_IMPL_H
#include "engine/checkpoint/checkpoint.h"
#include "engine/file/log_file.h"
#include "engine/report/events.h"
#include "engine/train/metrics.h"
#include "engine/train/progress.h"
#include "engine/train/train.h"

struct train_loop {
	struct hd_job *j;
	struct hd_plan *p;
	struct hd_program *g;
	struct hd_progress at;
	int64_t first; /* the step that this run has begun behind */
	struct hd_metrics *metrics;
	struct hd_events *events;
	struct hd_log_state metrics_say, events_say;
	json_t *about; /* of the run: for its first line of metrics */
	struct hd_show show;
	double share;                /* of the matmul rate: the most that a step reached */
	int64_t steps, global_batch; /* global_batch: of the step at hand */
	int64_t saved;               /* the step that checkpoint.dir has, or that is on the way there; -1: none */
	int64_t newest;              /* the newest that it has; -1: none of this run */
	int ends;                    /* no other save follows that of this step */
	struct hd_saver *saver;
	int stuck; /* this rank alone failed within a step */
	int apart; /* gradients and their norm are members' own */
	struct hd_err *err;
};

void hd_train_emit(struct train_loop *l, json_t *o); /* a line of metrics, and an event; steals o */

/* -- metrics.c ------------------------------------------------------------------------------------- */
json_t *hd_train_about(const struct train_loop *l); /* what the report's page says of a run */

/* -- resume.c ------------------------------------------------------------------------------------- */
/* What to go on from, malloc'ed: on all ranks or on none, since reading it is collective. */
int hd_train_choose(struct train_loop *l, char **resume);
/* It need not be saved again: it is in checkpoint.dir. */
int hd_train_in_dir(const struct train_loop *l, const char *path);

/* -- messages.c ----------------------------------------------------------------------------------- */
/* All ranks, before the first step of a program: whether each send meets its receive; all have the same err. */
int hd_train_messages_meet(const struct hd_program *g, struct hd_err *err);

/* -- saves.c -------------------------------------------------------------------------------------- */
int hd_train_saves(const struct train_loop *l); /* checkpoint.dir is given */
int64_t hd_train_saves_to_come(const struct train_loop *l);
int hd_train_save_once(struct train_loop *l);
int hd_train_look_after_saves(struct train_loop *l); /* between steps */
int hd_train_wait_for_saves(struct train_loop *l);   /* until what is on the way is on the disk */

#endif
