/* SPDX-License-Identifier: Apache-2.0
 * engine/process/beside.h - jobs that know nothing of each other, in child processes beside each other.
 */
#ifndef HD_ENGINE_PROCESS_BESIDE_H
#define HD_ENGINE_PROCESS_BESIDE_H
#include <stddef.h>
#include <stdint.h>

/* Zeroed memory that children share with their parent; a failure ends the process with one message. */
void *hd_shared_create(size_t bytes);
void hd_shared_destroy(void *p, size_t bytes);
/* Calls job(ctx, i) for all i < n, each once, in as many child processes as there are processors; what children print is
 * lost, and what they leave is what they wrote into memory of hd_shared_create.  A job that ends its child, or takes longer
 * than so many seconds of a processor, is lost: lost[i] (may be NULL) is 1, else 0. */
void hd_beside(int64_t n, void (*job)(void *ctx, int64_t i), void *ctx, int seconds, char *lost);

#endif
