/* SPDX-License-Identifier: Apache-2.0
 * engine/report/events.h - the numbers of a run in the files that TensorBoard reads (log.tensorboard).
 */
#ifndef HD_ENGINE_REPORT_EVENTS_H
#define HD_ENGINE_REPORT_EVENTS_H
#include <stddef.h>
#include <stdint.h>
#include "engine/base/err.h"
#include "engine/base/json.h"

struct hd_events;
/* Makes a file of its own in dir, and dir too, with its parents. */
int hd_events_open(const char *dir, struct hd_events **out, struct hd_err *err);
/* Each number of the object as a scalar of that name, of an array as NAME/0, NAME/1, ...; all but "step" and "time", which say when.
 * The record is in the file when this returns. */
int hd_events_write(struct hd_events *e, const json_t *numbers, struct hd_err *err);
int hd_events_close(struct hd_events *e, struct hd_err *err); /* NULL is fine */

uint32_t hd_crc32c(const void *bytes, size_t n); /* Castagnoli's polynomial */

#endif
