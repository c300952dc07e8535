/* SPDX-License-Identifier: Apache-2.0
 * engine/train/metrics.h - the metrics file: one object on each line.
 */
#ifndef HD_ENGINE_METRICS_H
#define HD_ENGINE_METRICS_H
#include "engine/base/err.h"
#include "engine/base/json.h"

struct hd_metrics;
/* append 0: a new run. The file's lines are of another one, and stay as PATH.1, or the next number that is free. *old is
 * that name, malloc'ed, or NULL. */
int hd_metrics_open(const char *path, int append, char **old, struct hd_metrics **out, struct hd_err *err);
/* Steals v.  The line is in the file when this returns. */
int hd_metrics_write(struct hd_metrics *m, json_t *v, struct hd_err *err);
int hd_metrics_close(struct hd_metrics *m, struct hd_err *err); /* NULL is fine */

#endif
