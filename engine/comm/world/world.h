/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/world/world.h - the ranks of a run, and how messages name them.
 */
#ifndef HD_ENGINE_COMM_WORLD_WORLD_H
#define HD_ENGINE_COMM_WORLD_WORLD_H
#include "engine/base/err.h"

struct hd_world { /* this process among all */
	int rank, size, local_rank, local_size, hosts;
};

struct hd_communicator; /* the ranks of one group: engine/comm/comm.h */

void hd_comm_abort(int status) __attribute__((noreturn)); /* end all ranks now */
/* How messages say where a rank is: "(x 1, y 0)", malloc'ed, or NULL.  describe NULL: not at all. */
void hd_comm_describe(char *(*describe)(const void *ctx, int rank), const void *ctx);
char *hd_rank_text(int rank); /* "rank 3 (x 1, y 0)", of several hosts "rank 3 (x 1, y 0) on NAME", malloc'ed */

#endif
