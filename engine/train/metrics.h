/* SPDX-License-Identifier: Apache-2.0
 * engine/train/metrics.h - the metrics file: one object on each line.
 */
#ifndef HD_ENGINE_METRICS_H
#define HD_ENGINE_METRICS_H
#include "engine/base/err.h"
#include "engine/base/json.h"

struct hd_metrics;
/* step: the one that the run goes on from. The first line written moves lines of later steps to PATH.replaced, behind what is
 * there, and a message says how many.  0: a new run. Lines that are in the file are another run's. The first line written moves
 * them to PATH.1, or the next number that is free, and a message says so. */
int hd_metrics_open(const char *path, int64_t step, struct hd_metrics **out, struct hd_err *err);
/* 1: a line of that step has the key.  A file that is none, or cannot be read, has no lines. */
int hd_metrics_has(const char *path, int64_t step, const char *key);
/* Steals v.  The line is in the file when this returns. */
int hd_metrics_write(struct hd_metrics *m, json_t *v, struct hd_err *err);
int hd_metrics_close(struct hd_metrics *m, struct hd_err *err); /* NULL is fine */

#endif
