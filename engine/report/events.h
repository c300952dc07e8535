/* SPDX-License-Identifier: Apache-2.0
 * engine/report/events.h - writes the numbers of a run into files that TensorBoard reads (log.tensorboard).
 */
#ifndef HD_ENGINE_REPORT_EVENTS_H
#define HD_ENGINE_REPORT_EVENTS_H
#include <stddef.h>
#include <stdint.h>
#include "engine/base/err.h"
#include "engine/base/json.h"

struct hd_events;
/* Creates a new file in dir. Also creates dir and its parents. */
int hd_events_open(const char *dir, struct hd_events **out, struct hd_err *err);
/* Writes each number of the object as a scalar with that name. Numbers of an array become NAME/0, NAME/1, and so on.
 * Only "step" and "time" are not scalars: they say when. The record is in the file when this returns. */
int hd_events_write(struct hd_events *e, const json_t *numbers, struct hd_err *err);
int hd_events_close(struct hd_events *e, struct hd_err *err); /* NULL is allowed */

uint32_t hd_crc32c(const void *bytes, size_t n); /* Castagnoli's polynomial */

#endif
