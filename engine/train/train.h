/* SPDX-License-Identifier: Apache-2.0
 * engine/train/train.h - all steps of a run, and the loss on the validation data.
 */
#ifndef HD_ENGINE_TRAIN_H
#define HD_ENGINE_TRAIN_H
#include "engine/run/job.h"

int hd_train(struct hd_job *j, struct hd_err *err);
/* Mean loss over the first `batches` global batches of the validation data (0: all), the same in every layout. */
int hd_evaluate(struct hd_job *j, int64_t batches, double *loss, int64_t *tokens, struct hd_err *err);

#endif
