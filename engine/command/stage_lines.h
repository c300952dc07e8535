/* SPDX-License-Identifier: Apache-2.0
 * engine/command/stage_lines.h - prints the memory and parameters of a layout's stages, for people and for scripts.
 */
#ifndef HD_ENGINE_COMMAND_STAGE_LINES_H
#define HD_ENGINE_COMMAND_STAGE_LINES_H
#include <jansson.h>
#include "engine/plan/plan.h"

struct hd_stage_line {                    /* one stage; arrays are indexed by its coordinate */
	int64_t rank;                     /* the rank that needs most memory */
	int64_t blocks, stage_parameters; /* blocks and parameters of the stage */
	int64_t parameters;               /* parameters of that rank */
	int64_t persistent, transient;    /* bytes: parameters and states; within a step */
	int64_t snapshot;                 /* copy of the state that is being saved (checkpoint.async) */
	int64_t scratch;                  /* scratch memory of CPU kernels */
	int64_t host;                     /* bytes in host memory, if the device has its own */
	int64_t communicators;            /* NCCL communicators, with buffers of HD_COMMUNICATOR_BYTES each */
};
/* Prints n stages, starting with the first. exact: a line for each, in MB. Otherwise one line covers neighbouring
 * stages with the same blocks, parameters and bytes of states; it gives the range of the memory within a step. */
void hd_stage_lines_print(const struct hd_plan *p, const struct hd_stage_line *s, int64_t n, int exact);
int64_t hd_stage_line_bytes(const struct hd_stage_line *s); /* total bytes of the rank's memory */
json_t *hd_stage_lines_json(const struct hd_plan *p, const struct hd_stage_line *s, int64_t n);

/* The number of NCCL communicators that a rank uses, if the layout uses NCCL. The size of a communicator's buffers is
 * taken from conf/machines; it has not been measured. */
#define HD_COMMUNICATOR_BYTES (INT64_C(200) << 20)
int hd_plan_has_nccl(const struct hd_plan *p);
struct hd_program;
int64_t hd_program_communicators(const struct hd_program *g);

#endif
