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
	int64_t scratch;               /* of the cpu's kernels */
	int64_t host;                  /* in the host's memory, where the device has its own */
	int64_t communicators;         /* of NCCL, with buffers of HD_COMMUNICATOR_BYTES each */
};
/* n stages from the first.  exact: a line for each, in MB; else neighbours with as many blocks, parameters and bytes of states are one
 * line, with the least and the most of what lives within a step. */
void hd_stage_lines_print(const struct hd_plan *p, const struct hd_stage_line *s, int64_t n, int exact);
int64_t hd_stage_line_bytes(const struct hd_stage_line *s); /* of the rank's memory, all together */
json_t *hd_stage_lines_json(const struct hd_plan *p, const struct hd_stage_line *s, int64_t n);

/* The NCCL communicators that this rank uses, in a layout that would use NCCL.  The bytes of one communicator's buffers are those of
 * conf/machines; nobody has measured them. */
#define HD_COMMUNICATOR_BYTES (INT64_C(200) << 20)
int hd_plan_has_nccl(const struct hd_plan *p);
struct hd_program;
int64_t hd_program_communicators(const struct hd_program *g);

#endif
