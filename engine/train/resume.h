/* SPDX-License-Identifier: Apache-2.0
 * engine/train/resume.h - what differs between a run and the checkpoint or the model that it begins from.
 */
#ifndef HD_ENGINE_TRAIN_RESUME_H
#define HD_ENGINE_TRAIN_RESUME_H
#include "engine/checkpoint/checkpoint.h"

/* On rank 0: prints a line for each key of the learning rate, the model and the data that differs from the
 * checkpoint's. Also reports data of the same name with different contents. at: where the run resumes. */
void hd_resume_notes(const struct hd_job *j, const char *path, const struct hd_progress *at);
/* On rank 0: prints a line for each key with which a run computes another model than the one in model.load. */
void hd_load_notes(const struct hd_job *j, const char *dir);

#endif
