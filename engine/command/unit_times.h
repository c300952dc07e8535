/* SPDX-License-Identifier: Apache-2.0
 * engine/command/unit_times.h - reads the times of units from the trace of a run, to draw another schedule with them.
 */
#ifndef HD_ENGINE_COMMAND_UNIT_TIMES_H
#define HD_ENGINE_COMMAND_UNIT_TIMES_H
#include "engine/passes/passes.h"
#include <jansson.h>

/* Reads a file that log.trace has written. Returns NULL, with err set, if it is not one. */
json_t *hd_trace_json(const char *path, struct hd_err *err);
int hd_unit_times_read(const struct hd_plan *p, const char *path, struct hd_unit_times *t, struct hd_err *err);
void hd_unit_times_release(struct hd_unit_times *t);

#endif
