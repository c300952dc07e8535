/* SPDX-License-Identifier: Apache-2.0
 * engine/process/dir_lock.h - a directory that one job at a time writes to.
 */
#ifndef HD_ENGINE_PROCESS_DIR_LOCK_H
#define HD_ENGINE_PROCESS_DIR_LOCK_H
#include "engine/base/err.h"

struct hd_lock_held {
	char *path;
	int fd;
};

/* Takes DIR/.lock, which the system gives back when the process ends, however it ends.  Waits so many seconds for another job that
 * has it, and then fails with HD_EINVAL: the message names that job's host and process.  A file system without locks has none. */
int hd_dir_lock(struct hd_lock_held *l, const char *dir, double wait, struct hd_err *err);
void hd_dir_unlock(struct hd_lock_held *l); /* removes the file too; of one that is all 0, nothing */

#endif
