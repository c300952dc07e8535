/* SPDX-License-Identifier: Apache-2.0
 * Whether two names are one file, and whether another process writes it (same_file.h).
 */
#include <config.h>
#include "engine/file/same_file.h"
#include "engine/base/err.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_LINKS 40 /* the longest chain of links that Linux follows */

/* Returns the real path of an existing directory, followed by a name in it; the caller frees it. */
static char *real_in(const char *dir, const char *name)
{
	char *real = realpath(dir, NULL), *out = NULL;

	if (real)
		out = hd_format("%s/%s", strcmp(real, "/") ? real : "", name);
	free(real);
	return out;
}

/* Resolves links in the directory of a path, but not in its last component. */
static char *real_parent(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = hd_format("%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	char *out = real_in(dir, slash ? slash + 1 : path);

	free(dir);
	return out;
}

/* Returns the path that a link leads to, or NULL if it is not a link. */
static char *target_of(const char *link)
{
	char to[PATH_MAX];
	ssize_t n = readlink(link, to, sizeof(to));
	const char *slash = strrchr(link, '/');

	if (n <= 0 || n == (ssize_t)sizeof(to))
		return NULL;
	if (*to == '/' || !slash)
		return hd_format("%.*s", (int)n, to);
	return hd_format("%.*s%.*s", (int)(slash - link) + 1, link, (int)n, to);
}

char *hd_file_real(const char *path)
{
	char *real = realpath(path, NULL), *at, *to;

	if (real || errno != ENOENT)
		return real;
	at = real_parent(path);
	for (int i = 0; at && i < MOST_LINKS && (to = target_of(at)); i++) { /* the target does not exist yet */
		free(at);
		at = real_parent(to);
		free(to);
	}
	return at;
}

int hd_file_same(const char *a, const char *b)
{
	struct stat of_a, of_b;
	int no_a = stat(a, &of_a), no_b = stat(b, &of_b), same;
	char *real_a, *real_b;

	if (!no_a && !no_b)
		return S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
	if (!no_a || !no_b)
		return 0;
	real_a = hd_file_real(a);
	real_b = hd_file_real(b);
	same = real_a && real_b && !strcmp(real_a, real_b);
	free(real_a);
	free(real_b);
	return same;
}

/* -- locks ------------------------------------------------------------------------------------- */
/* Times that a file is opened again because its name led to another one. Some file systems report a new inode at each
 * call, so there must be a limit. */
#define TRIES 10

int hd_file_has_name(const char *path, int fd)
{
	struct stat named, open;

	return !stat(path, &named) && !fstat(fd, &open) && named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

static int is_regular(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode);
}

int hd_file_open_locked(const char *path, int flags, double wait)
{
	const struct timespec moment = { .tv_nsec = 100000000 };
	double end = hd_seconds() + wait;

	for (int tries = 1;;) {
		int fd = open(path, flags | O_CLOEXEC, 0666);

		if (fd < 0 || !is_regular(fd))
			return fd;
		if (!flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK) {
			/* The previous holder may have renamed or removed the file since it was opened here. */
			if (hd_file_has_name(path, fd) || tries++ == TRIES)
				return fd;
			close(fd);
			continue;
		}
		close(fd);
		errno = EWOULDBLOCK;
		if (hd_seconds() >= end)
			return -1;
		nanosleep(&moment, NULL);
	}
}
