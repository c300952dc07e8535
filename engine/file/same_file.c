/* SPDX-License-Identifier: Apache-2.0
 * Whether two names are one file (same_file.h).
 */
#include <config.h>
#include "engine/file/same_file.h"
#include "engine/base/err.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
