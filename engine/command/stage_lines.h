/* SPDX-License-Identifier: Apache-2.0
 * engine/command/stage_lines.h - the stages of a layout, as people and as scripts read them.
 */
#ifndef HD_ENGINE_COMMAND_STAGE_LINES_H
#define HD_ENGINE_COMMAND_STAGE_LINES_H
#include <jansson.h>
#include "engine/plan/plan.h"

struct hd_stage_line {                 /* of a stage, by coordinate */
	int64_t rank;                  /* the one that needs most */
	int64_t blocks, whole;         /* of the stage; whole: parameters */
	int64_t parameters;            /* of that rank */
	int64_t persistent, transient; /* bytes: parameters and states; within a step */
	int64_t snapshot;              /* a copy of what is being saved (checkpoint.async) */
};
/* n stages from the first.  exact: a line for each, in MB; else neighbours with as many blocks, parameters and bytes of states are one
 * line, with the least and the most of what lives within a step. */
void hd_stage_lines_print(const struct hd_plan *p, const struct hd_stage_line *s, int64_t n, int exact);
json_t *hd_stage_lines_json(const struct hd_plan *p, const struct hd_stage_line *s, int64_t n);

#endif
