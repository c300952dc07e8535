/* SPDX-License-Identifier: Apache-2.0
 * engine/command/unit_times.h - how long units took in a run: from its trace, for the drawing of an order.
 */
#ifndef HD_ENGINE_COMMAND_UNIT_TIMES_H
#define HD_ENGINE_COMMAND_UNIT_TIMES_H
#include "engine/passes/passes.h"
#include <jansson.h>

/* What log.trace has written; NULL: err says why it is none. */
json_t *hd_trace_json(const char *path, struct hd_err *err);
int hd_unit_times_read(const struct hd_plan *p, const char *path, struct hd_unit_times *t, struct hd_err *err);
void hd_unit_times_release(struct hd_unit_times *t);

#endif
