/* SPDX-License-Identifier: Apache-2.0
 * engine/run/autotune.h - what timing decides (which implementation of a product, the machine's product rate). Rank 0
 * decides once, for all ranks. It is kept in a cache file, recorded in checkpoints and used again on resume.
 */
#ifndef HD_ENGINE_PICKS_H
#define HD_ENGINE_PICKS_H
#include "engine/run/job.h"

int hd_autotune(struct hd_job *j, const char *known, struct hd_err *err);
/* share: the most of j->rate that a step of this rank reached. Above 1 the rate was measured in a busy moment: the cache
 * gets what the step reached. All ranks call it. */
void hd_autotune_exceeded(const struct hd_job *j, double share);
/* train.precision = auto on a cpu: the faster by the rate of large products, before anything is planned.  Sets j->compute_dtype. */
void hd_autotune_precision(struct hd_job *j, const char *known);
/* Why that was chosen, in a few words; NULL: the user named a precision. */
const char *hd_autotune_why(const struct hd_job *j);

#endif
