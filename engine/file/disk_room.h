/* SPDX-License-Identifier: Apache-2.0
 * engine/file/disk_room.h - the free space of a file system, so that a long run does not start output that will not
 * fit.
 */
#ifndef HD_ENGINE_FILE_DISK_ROOM_H
#define HD_ENGINE_FILE_DISK_ROOM_H

/* Returns the bytes that this user may still write under path, which need not exist yet. INFINITY: the system cannot
 * tell. */
double hd_disk_left(const char *path);

#endif
