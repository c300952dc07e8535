/* SPDX-License-Identifier: Apache-2.0
 * engine/process/dir_lock.h - a lock on a directory, so that only one job at a time writes to it.
 */
#ifndef HD_ENGINE_PROCESS_DIR_LOCK_H
#define HD_ENGINE_PROCESS_DIR_LOCK_H
#include "engine/base/err.h"

struct hd_lock_held {
	char *path;
	int fd;
};

/* Takes the lock DIR/.lock, which the system releases when the process ends, however it ends. If another job holds it,
 * waits up to `wait` seconds and then fails with HD_EINVAL and a message that names that job's host and process.
 * Succeeds without a lock where files cannot be locked. */
int hd_dir_lock(struct hd_lock_held *l, const char *dir, double wait, struct hd_err *err);
void hd_dir_unlock(struct hd_lock_held *l); /* also removes the file; a struct of zeros holds no lock */

#endif
