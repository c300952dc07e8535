/* SPDX-License-Identifier: Apache-2.0
 * engine/passes/loss/loss.h - the passes over logits and their loss (doc/architecture.md).
 */
#ifndef HD_ENGINE_LOSS_H
#define HD_ENGINE_LOSS_H
#include "engine/graph/graph.h"

int hd_pass_loss_gradient(struct hd_plan *p); /* moves nodes that need only the loss from backward to forward */
int hd_pass_loss_once(struct hd_plan *p);     /* statistics and gradient of logits, in one pass over them */
int hd_pass_loss_parts(struct hd_plan *p);    /* logits, losses and gradients, part by part (train.loss_parts) */

#endif
