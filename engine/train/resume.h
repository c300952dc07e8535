/* SPDX-License-Identifier: Apache-2.0
 * engine/train/resume.h - a run that goes on, and what has changed meanwhile.
 */
#ifndef HD_ENGINE_TRAIN_RESUME_H
#define HD_ENGINE_TRAIN_RESUME_H
#include "engine/checkpoint/checkpoint.h"

/* Rank 0: a line for each key of the learning rate, the model and the data that the checkpoint has otherwise. And for data of the
 * same name with other contents.  at: where the run goes on. */
void hd_resume_notes(const struct hd_job *j, const char *path, const struct hd_progress *at);

#endif
