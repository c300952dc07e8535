/* SPDX-License-Identifier: Apache-2.0
 * engine/program/match.h - checks that the communication of all ranks matches. Every send has its receive, of the same
 * tensor and in the same order. All members of a communicator run its collectives in the same order. No rank waits
 * forever.
 *
 *   hd_match_create, hd_match_add for a program of each class, hd_match_all
 */
#ifndef HD_ENGINE_PROGRAM_MATCH_H
#define HD_ENGINE_PROGRAM_MATCH_H
#include "engine/passes/passes.h"
#include "engine/program/program.h"

struct hd_match_run;
struct hd_match_run *hd_match_create(const struct hd_plan *p, const struct hd_classes *c); /* keeps both pointers */
/* Records what the ranks of this class start and wait for. The program is not needed afterwards. */
void hd_match_add(struct hd_match_run *m, int64_t class_number, const struct hd_program *g);
/* Checks the programs of all classes against each other. HD_EINVAL: the message names both ranks, what each has
 * reached, and the tensor. */
int hd_match_all(struct hd_match_run *m, struct hd_err *err);
void hd_match_destroy(struct hd_match_run *m); /* NULL is allowed */

#endif
