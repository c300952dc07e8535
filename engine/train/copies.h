/* SPDX-License-Identifier: Apache-2.0
 * engine/train/copies.h - train.hash_every: what several ranks hold the same of must be the same, bit for bit.
 */
#ifndef HD_ENGINE_TRAIN_COPIES_H
#define HD_ENGINE_TRAIN_COPIES_H
#include "engine/run/job.h"

/* All ranks, between steps: compares hashes of the slices of parameters, masters and states.  A memory, a link or a processor
 * that has changed a bit is named by rank and tensor, and so is a strategy whose members compute different bits; of three copies or more it is the one that is alone.  why: what the message
 * says of the cause.  Also at the start, of what was read from files. */
int hd_copies_check(const struct hd_job *j, int64_t step, const char *why, struct hd_err *err);

#endif
