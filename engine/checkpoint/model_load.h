/* SPDX-License-Identifier: Apache-2.0
 * engine/checkpoint/model_load.h - the sizes of a model from a directory that transformers reads.
 */
#ifndef HD_ENGINE_MODEL_LOAD_H
#define HD_ENGINE_MODEL_LOAD_H
#include "engine/config/conf.h"

/* Of a conf that is read and not yet checked: model.load's sizes become keys of [model]. */
int hd_model_load_conf(struct hd_conf *c, struct hd_err *err);

#endif
