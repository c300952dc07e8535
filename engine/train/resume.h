/* SPDX-License-Identifier: Apache-2.0
 * engine/train/resume.h - a run that resumes, and what has changed since its checkpoint.
 */
#ifndef HD_ENGINE_TRAIN_RESUME_H
#define HD_ENGINE_TRAIN_RESUME_H
#include "engine/checkpoint/checkpoint.h"

/* On rank 0: prints a line for each key of the learning rate, the model and the data that differs from the
 * checkpoint's. Also reports data of the same name with different contents. at: where the run resumes. */
void hd_resume_notes(const struct hd_job *j, const char *path, const struct hd_progress *at);

#endif
