/* SPDX-License-Identifier: Apache-2.0
 * engine/run/autotune.h - decides what depends on timing: which implementation computes a product, and the machine's
 * product rate. Rank 0 decides once, for all ranks. The choices are kept in a cache file, recorded in checkpoints and
 * used again on resume.
 */
#ifndef HD_ENGINE_AUTOTUNE_H
#define HD_ENGINE_AUTOTUNE_H
#include "engine/run/job.h"

int hd_autotune(struct hd_job *j, const char *known, struct hd_err *err);
/* Corrects the cached rate after a run. share: the largest fraction of j->rate that a step of this
 * rank reached. If it exceeds 1, the rate was measured while the machine was busy, so the cache
 * gets what the step reached. All ranks call it. */
void hd_autotune_exceeded(const struct hd_job *j, double share);
/* Sets j->compute_dtype for train.precision = auto on a cpu, before anything is planned: to the precision with the
 * faster large products. With train.deterministic, the processor's instructions decide instead. */
void hd_autotune_precision(struct hd_job *j, const char *known);
/* Returns in a few words why that precision was chosen. NULL: the user named it. */
const char *hd_autotune_why(const struct hd_job *j);

#endif
