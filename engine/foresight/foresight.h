/* SPDX-License-Identifier: Apache-2.0
 * engine/foresight/foresight.h - what a machine's file says of a run, beside what the run did: by kind of work.
 */
#ifndef HD_ENGINE_FORESIGHT_H
#define HD_ENGINE_FORESIGHT_H
#include "engine/base/json.h"
#include "engine/run/job.h"

/* Of the traced steps of the training program: seconds of a step by kind of work, of a rank of the stage that computes most,
 * predicted on the machine of that file and measured; and which kind differs most.  All ranks; rank 0 prints it, and gets it as
 * an object for its metrics, else NULL. */
int hd_foresight(struct hd_job *j, const char *machine, json_t **out, struct hd_err *err);

/* What hd_foresight will read, before a run: log.machine names a machine's file, or nothing. */
int hd_foresight_check(struct hd_conf *c, struct hd_err *err);

#endif
