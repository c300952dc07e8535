/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/world/shared_memory.h - memory that all ranks of a host have mapped.
 */
#ifndef HD_ENGINE_COMM_WORLD_SHARED_MEMORY_H
#define HD_ENGINE_COMM_WORLD_SHARED_MEMORY_H
#include "engine/comm/world/state.h"

/* Collective over the host, zeroed; NULL on all its ranks: not available. */
void *hd_shared_map(size_t bytes);
void hd_control_open(void);
/* Collective over the host; sets the arena of hd_here, or `private` if ranks cannot share it. */
void *hd_arena_map(size_t bytes, struct hd_err *err);
int64_t hd_arena_taken(void);
int hd_memfd(size_t bytes, void **map);             /* -> fd, or -1 */
void *hd_memfd_peer(int pid, int fd, size_t bytes); /* NULL: cannot be mapped */

#endif
