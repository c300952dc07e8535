/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/world/world.h - the ranks of a run, and how messages name them.
 */
#ifndef HD_ENGINE_COMM_WORLD_WORLD_H
#define HD_ENGINE_COMM_WORLD_WORLD_H
#include "engine/base/err.h"

struct hd_world { /* this process's rank, and the numbers of ranks and hosts */
	int rank, size, local_rank, local_size, hosts;
};

struct hd_communicator; /* the ranks of one group: engine/comm/comm.h */

void hd_comm_abort(int status) __attribute__((noreturn)); /* ends all ranks at once */
/* Sets a function that tells messages where a rank is. It returns "(x 1, y 0)", malloc'ed, or NULL.
 * describe NULL: messages do not tell. */
void hd_comm_describe(char *(*describe)(const void *ctx, int rank), const void *ctx);
/* Returns "rank 3 (x 1, y 0)", or with several hosts "rank 3 (x 1, y 0) on NAME"; the caller frees it. */
char *hd_rank_text(int rank);

#endif
