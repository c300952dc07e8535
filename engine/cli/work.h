/* SPDX-License-Identifier: Apache-2.0
 * engine/cli/work.h - the output of explain --work.
 */
#ifndef HD_ENGINE_CLI_WORK_H
#define HD_ENGINE_CLI_WORK_H
#include "engine/program/program.h"

const char *hd_unit_name(uint32_t phase); /* forward, backward, ... */
/* Prints the work of a step on this rank, by unit and kind of kernel: nodes, FLOPs of matrix products, bytes of
 * operands. */
void hd_work_print(struct hd_plan *p, const struct hd_program *g, int json);

#endif
