/* SPDX-License-Identifier: Apache-2.0
 * engine/train/json.h - JSON numbers, and the metrics file: one object on each line.
 */
#ifndef HD_ENGINE_JSON_H
#define HD_ENGINE_JSON_H
#include <jansson.h>
#include "engine/base/err.h"

json_t *hd_json_number(double v); /* null where v is not finite: JSON has no NaN */
char *hd_json_line(json_t *v); /* malloc'ed, in order of insertion, 15 digits; steals v */

struct hd_metrics;
/* append 0: an old file is emptied. */
int hd_metrics_open(const char *path, int append, struct hd_metrics **out, struct hd_err *err);
/* Steals v.  The line is in the file when this returns. */
int hd_metrics_write(struct hd_metrics *m, json_t *v, struct hd_err *err);
int hd_metrics_close(struct hd_metrics *m, struct hd_err *err); /* NULL is fine */

#endif
