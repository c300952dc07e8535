/* SPDX-License-Identifier: Apache-2.0
 * engine/process/beside.h - runs independent jobs in parallel child processes.
 */
#ifndef HD_ENGINE_PROCESS_BESIDE_H
#define HD_ENGINE_PROCESS_BESIDE_H
#include <stddef.h>
#include <stdint.h>

/* Returns zeroed memory that children share with their parent; a failure ends the process with a message. */
void *hd_shared_create(size_t bytes);
void hd_shared_destroy(void *p, size_t bytes);
/* Calls job(ctx, i) once for each i < n, in one child process per processor (at most 64). The output of children is
 * discarded; their results are what they write to memory of hd_shared_create. A job is lost if it ends its child or
 * takes more than `seconds` of processor time. lost[i] becomes 1 for a lost job, else 0; lost may be NULL. */
void hd_side_jobs_run(int64_t n, void (*job)(void *ctx, int64_t i), void *ctx, int seconds, char *lost);

#endif
