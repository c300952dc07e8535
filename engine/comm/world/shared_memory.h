/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/world/shared_memory.h - memory that all ranks of a host have mapped.
 */
#ifndef HD_ENGINE_COMM_WORLD_SHARED_MEMORY_H
#define HD_ENGINE_COMM_WORLD_SHARED_MEMORY_H
#include "engine/comm/world/state.h"

/* Returns zeroed shared memory, or NULL on all ranks of the host if it is not available. Collective over the host. */
void *hd_shared_map(size_t bytes);
void hd_control_open(void);
/* Maps the arena of hd_here, or private memory (and sets `private`) if the ranks cannot share it.
 * Collective over the host. */
void *hd_arena_map(size_t bytes, struct hd_err *err);
int64_t hd_arena_taken(void);
int hd_memfd(size_t bytes, void **map);             /* returns the fd, or -1 */
void *hd_memfd_peer(int pid, int fd, size_t bytes); /* returns NULL if it cannot be mapped */

#endif
