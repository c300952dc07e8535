/* SPDX-License-Identifier: Apache-2.0
 * engine/foresight/foresight.h - compares what a machine file predicts for a run with what the run did, by kind of
 * work.
 */
#ifndef HD_ENGINE_FORESIGHT_H
#define HD_ENGINE_FORESIGHT_H
#include "engine/base/json.h"
#include "engine/run/job.h"

/* Compares the fastest traced step of the training program with its prediction on that machine. It compares seconds by
 * kind of work, for a rank of the stage that computes most. All ranks call it. Rank 0 prints the comparison with the
 * kind that differs most, and gets it as an object for its metrics. The others get NULL. */
int hd_foresight(struct hd_job *j, const char *machine, json_t **out, struct hd_err *err);

/* Checks, before a run, what hd_foresight will read: log.machine names a machine file, or nothing. */
int hd_foresight_check(struct hd_conf *c, struct hd_err *err);

#endif
