/* SPDX-License-Identifier: Apache-2.0
 * engine/program/match.h - whether the programs of all ranks meet.  Every send has its receive, of the same tensor and in the
 * same order.  All members of a communicator come to its collectives in one order.  Nobody waits for ever.
 *
 *   hd_match_create, hd_match_add for a program of each class, hd_match_run
 */
#ifndef HD_ENGINE_PROGRAM_MATCH_H
#define HD_ENGINE_PROGRAM_MATCH_H
#include "engine/passes/passes.h"
#include "engine/program/program.h"

struct hd_match_run;
struct hd_match_run *hd_match_create(const struct hd_plan *p,
				     const struct hd_classes *c); /* both are kept by pointer */
/* What the ranks of this class start and wait for.  The program is not needed afterwards. */
void hd_match_add(struct hd_match_run *m, int64_t class_number, const struct hd_program *g);
/* The programs of all classes against each other.  HD_EINVAL: both ranks, what each is at, and the tensor. */
int hd_match_all(struct hd_match_run *m, struct hd_err *err);
void hd_match_destroy(struct hd_match_run *m); /* or NULL */

#endif
