/* SPDX-License-Identifier: Apache-2.0
 * engine/train/metrics.h - the metrics file: one object on each line.
 */
#ifndef HD_ENGINE_METRICS_H
#define HD_ENGINE_METRICS_H
#include "engine/base/err.h"
#include "engine/base/json.h"

struct hd_metrics;
/* append 0: a new run. Lines that are in the file are another run's. The first line written moves them to PATH.1, or the next
 * number that is free, and a message says so. */
int hd_metrics_open(const char *path, int append, struct hd_metrics **out, struct hd_err *err);
/* Steals v.  The line is in the file when this returns. */
int hd_metrics_write(struct hd_metrics *m, json_t *v, struct hd_err *err);
int hd_metrics_close(struct hd_metrics *m, struct hd_err *err); /* NULL is fine */

#endif
