/* SPDX-License-Identifier: Apache-2.0
 * engine/train/copies.h - train.hash_every: copies of a slice on several ranks must be the same, bit for bit.
 */
#ifndef HD_ENGINE_TRAIN_COPIES_H
#define HD_ENGINE_TRAIN_COPIES_H
#include "engine/run/job.h"

/* Compares hashes of the slices of parameters, masters and states. All ranks call it, between steps, and at the start
 * for what was read from files. It finds a memory, a link or a processor that has changed a bit, and a strategy whose
 * members compute different bits. The error names the rank and the tensor; of three copies or more, it names the one
 * that differs. why: the cause that the message gives. */
int hd_copies_check(const struct hd_job *j, int64_t step, const char *why, struct hd_err *err);

#endif
