/* SPDX-License-Identifier: Apache-2.0
 * engine/train/metrics.h - the metrics file: one JSON object per line.
 */
#ifndef HD_ENGINE_METRICS_H
#define HD_ENGINE_METRICS_H
#include "engine/base/err.h"
#include "engine/base/json.h"

struct hd_metrics;
/* Opens the file and locks it. While another process writes it, waits a few seconds, then fails. step: the one that the
 * run resumes from. Then the first line written moves the lines of later steps to the end of PATH.replaced, and a
 * message gives their number. 0: a new run. Then lines in the file are from a different run. The first line written
 * moves them to PATH.1, or the next free number, and a message says so. */
int hd_metrics_open(const char *path, int64_t step, struct hd_metrics **out, struct hd_err *err);
/* Returns 1 if a line of that step has the key. A file that does not exist or cannot be read has no lines. */
int hd_metrics_has(const char *path, int64_t step, const char *key);
/* Takes over the reference v. The line is in the file when this returns. */
int hd_metrics_write(struct hd_metrics *m, json_t *v, struct hd_err *err);
int hd_metrics_close(struct hd_metrics *m, struct hd_err *err); /* NULL is allowed */

#endif
