/* SPDX-License-Identifier: Apache-2.0
 * engine/file/disk_room.h - what a file system has left, so that a long run does not begin what it cannot write.
 */
#ifndef HD_ENGINE_FILE_DISK_ROOM_H
#define HD_ENGINE_FILE_DISK_ROOM_H

/* Bytes that this user may still write under path, which need not be there yet; INFINITY: the system does not say. */
double hd_disk_left(const char *path);

#endif
