/* SPDX-License-Identifier: Apache-2.0
 * engine/train/train_impl.h - the loop over the steps of a run, which the files of this folder share.
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
	int64_t first; /* the last step before this run */
	struct hd_metrics *metrics;
	struct hd_events *events;
	struct hd_log_state metrics_say, events_say;
	json_t *about; /* description of the run, for its first line of metrics */
	struct hd_show show;
	double share;                /* the largest fraction of the matmul rate that a step reached */
	int64_t steps, global_batch; /* global_batch: of the current step */
	int64_t saved;               /* the step that checkpoint.dir has or is about to have; -1: none */
	int64_t newest;              /* the newest step that it has; -1: none of this run */
	int traced;                  /* the trace is complete and written */
	struct hd_err trace_error;   /* why it could not be written */
	int last_save;               /* no other save follows the one of this step */
	struct hd_saver *saver;
	int failed_alone; /* this rank alone failed within a step */
	int own_norms;    /* each member has gradients and a norm of its own */
	struct hd_err *err;
};

void hd_train_emit(struct train_loop *l, json_t *o); /* writes a line of metrics and an event; takes over o */

/* -- metrics.c ------------------------------------------------------------------------------------- */
json_t *hd_train_about(const struct train_loop *l); /* the description of a run for the report's page */

/* -- resume.c ------------------------------------------------------------------------------------- */
/* Chooses the checkpoint to resume from, malloc'ed. All ranks find one or
 * none, because all must take part in reading it. */
int hd_train_choose(struct train_loop *l, char **resume);
/* Returns whether the checkpoint is in checkpoint.dir, and so need not be saved again. */
int hd_train_in_dir(const struct train_loop *l, const char *path);

/* -- trace.c: log.trace and log.machine ------------------------------------------------------------ */
/* On rank 0, checks that log.trace can be written. On all ranks: if the run has none of the traced steps, sets
 * log->trace and log->machine to "", and the file stays as it is. */
int hd_trace_check(struct hd_log_config *log, int rank, int64_t first, int64_t last, struct hd_err *err);
void hd_trace_begin(struct train_loop *l); /* traces the next step, if it shall be */
/* After the last traced step: rank 0 writes the trace, and shows what log.machine predicts. The run may go on for days.
 * All ranks call it. */
void hd_trace_end(struct train_loop *l);
/* The same before the program changes: a trace has the steps of one program. */
void hd_trace_cut(struct train_loop *l);

/* -- messages.c ----------------------------------------------------------------------------------- */
/* Checks that each send meets its receive. All ranks call it before the
 * first step of a program, and have the same err. */
int hd_train_messages_meet(const struct hd_program *g, struct hd_err *err);

/* -- saves.c -------------------------------------------------------------------------------------- */
int hd_train_saves(const struct train_loop *l); /* whether checkpoint.dir is given */
int64_t hd_train_saves_to_come(const struct train_loop *l);
int hd_train_save_once(struct train_loop *l);
int hd_train_look_after_saves(struct train_loop *l); /* between steps */
int hd_train_wait_for_saves(struct train_loop *l);   /* until the current save is on the disk */

#endif
