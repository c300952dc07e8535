/* SPDX-License-Identifier: Apache-2.0
 * A lock on a directory.
 */
#include <config.h>
#include "engine/process/dir_lock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Returns whether the lock file has been removed. Its previous holder may have done so since it was opened here; a
 * lock on a file without a name protects nothing. */
static int is_removed(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && !st.st_nlink;
}

/* Tries to take the lock. Returns 1 if it is taken, 0 if another process holds it, -1 if files
 * cannot be locked here. */
static int try_lock(struct hd_lock_held *l)
{
	l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (l->fd < 0)
		return -1;
	if (!flock(l->fd, LOCK_EX | LOCK_NB) && !is_removed(l->fd))
		return 1;
	if (errno != EWOULDBLOCK && !is_removed(l->fd))
		return -1;
	close(l->fd);
	l->fd = -1;
	return 0;
}

static void write_holder(const struct hd_lock_held *l)
{
	char host[64] = "", text[128];
	int n;

	gethostname(host, sizeof(host) - 1);
	n = snprintf(text, sizeof(text), "process %ld on %s", (long)getpid(), host);
	if (ftruncate(l->fd, 0) || write(l->fd, text, (size_t)n) != n)
		return; /* messages of other runs then cannot name the holder */
}

static int refuse(const struct hd_lock_held *l, const char *dir, struct hd_err *err)
{
	char who[128] = "";
	FILE *f = fopen(l->path, "re");

	if (f && !fgets(who, sizeof(who), f))
		who[0] = 0;
	if (f)
		fclose(f);
	return hd_err_set(err, HD_EINVAL, "%s: another run writes there%s%s%s", dir, who[0] ? " (" : "", who,
			  who[0] ? ")" : "");
}

int hd_dir_lock(struct hd_lock_held *l, const char *dir, double wait, struct hd_err *err)
{
	const struct timespec moment = { .tv_nsec = 100000000 };
	double end = hd_seconds() + wait;
	int taken;

	l->path = hd_format("%s/.lock", dir);
	while (!(taken = try_lock(l)) && hd_seconds() < end)
		nanosleep(&moment, NULL);
	if (taken > 0)
		write_holder(l);
	return taken ? HD_OK : refuse(l, dir, err);
}

void hd_dir_unlock(struct hd_lock_held *l)
{
	if (l->path && l->fd >= 0) {
		unlink(l->path);
		close(l->fd);
	}
	free(l->path);
	*l = (struct hd_lock_held){ NULL, -1 };
}
