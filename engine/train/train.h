/* SPDX-License-Identifier: Apache-2.0
 * engine/train/train.h - runs all steps of a training run.
 */
#ifndef HD_ENGINE_TRAIN_H
#define HD_ENGINE_TRAIN_H
#include "engine/run/job.h"

int hd_train(struct hd_job *j, struct hd_err *err);

#endif
