/* SPDX-License-Identifier: Apache-2.0
 * Checks links in a directory. A model packed by a stranger may contain any link, such as tokenizer_config.json to
 * ~/.ssh/id_rsa. That key would be copied into the next checkpoint, and shared with it.
 */
#include <config.h>
#include "engine/file/inside.h"
#include "engine/file/atomic_file.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int is_below(const char *path, const char *dir)
{
	size_t n = dir ? strlen(dir) : 0;

	return n && !strncmp(path, dir, n) && (path[n] == '/' || dir[n - 1] == '/');
}

/* Returns CACHE/models--x/blobs for CACHE/models--x/snapshots/REVISION, else NULL; the caller frees it. */
static char *blobs_of(const char *home)
{
	const char *revision = strrchr(home, '/');
	size_t n = revision ? (size_t)(revision - home) : 0;
	static const char above[] = "/snapshots";
	size_t m = sizeof(above) - 1;

	return n > m && !memcmp(home + n - m, above, m) ? hd_format("%.*s/blobs", (int)(n - m), home) : NULL;
}

static int check(const char *path, const char *dir, struct hd_err *err)
{
	char *real = realpath(path, NULL), *home = realpath(dir, NULL), *blobs = home ? blobs_of(home) : NULL;
	struct stat st;

	if (!real || !home || stat(real, &st))
		; /* does not exist */
	else if (!is_below(real, home) && !is_below(real, blobs))
		hd_err_set(err, HD_EIO, "%s: leads to %s, which is outside %s; put the file itself there", path, real,
			   dir);
	else if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		hd_err_set(err, HD_EIO, "%s: is not a regular file", path);
	free(real);
	free(home);
	free(blobs);
	return err->code;
}

int hd_file_inside(const char *dir, const char *name, struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, name);
	int rc = check(path, dir, err);

	free(path);
	return rc;
}

char *hd_file_read_inside(const char *dir, const char *name, struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, name),
	     *text = check(path, dir, err) < 0 ? NULL : hd_file_read(path, NULL, err);

	free(path);
	return text;
}
