/* SPDX-License-Identifier: Apache-2.0
 * engine/train/resume.h - a run that goes on, and what has changed meanwhile.
 */
#ifndef HD_ENGINE_TRAIN_RESUME_H
#define HD_ENGINE_TRAIN_RESUME_H
#include "engine/run/job.h"

/* Rank 0: a line for each key of the learning rate and of the data that is not as it was in the checkpoint. And for data of the
 * same name with other contents. */
void hd_resume_notes(const struct hd_job *j, const char *path);

#endif
