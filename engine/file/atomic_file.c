/* SPDX-License-Identifier: Apache-2.0
 * Directories and files that are complete or absent (engine/file/atomic_file.h).
 *
 * A name appears by rename, after its contents are on disk; it disappears by rename, before its contents are removed. A
 * process or a machine that stops in between leaves a name that begins with a dot, which no reader takes for the
 * result.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* renameat2 */
#endif
#include "engine/file/atomic_file.h"
#include "engine/file/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *path, const char *doing, struct hd_err *err)
{
	return hd_err_set(err, HD_EIO, "%s: %s: %s", path, doing, strerror(errno));
}

static char *parent_of(const char *path)
{
	char *dir = hd_strdup(path), *slash;
	size_t n = strlen(dir);

	while (n > 1 && dir[n - 1] == '/')
		dir[--n] = 0;
	slash = strrchr(dir, '/');
	if (!slash)
		strcpy(dir, *dir ? "." : "");
	else
		slash[slash == dir] = 0; /* the parent of /x is / */
	return dir;
}

/* Returns PARENT/.WHAT-NAME, next to path, so that a rename stays within the file system. */
static char *temporary_path(const char *path, const char *what)
{
	char *parent = parent_of(path), *bare = hd_strdup(path), *name, *out;
	size_t n = strlen(bare);

	while (n > 1 && bare[n - 1] == '/')
		bare[--n] = 0;
	name = strrchr(bare, '/');
	out = hd_format("%s/.%s-%s", parent, what, name ? name + 1 : bare);
	free(parent);
	free(bare);
	return out;
}

/* Syncs one file, or a directory without its contents. Some file systems cannot sync directories, and need not. */
static int sync_one(const char *path, int flags, struct hd_err *err)
{
	int fd = open(path, flags | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return fail(path, "cannot be opened", err);
	if (fsync(fd) && !((flags & O_DIRECTORY) && (errno == EINVAL || errno == ENOTSUP)))
		rc = fail(path, "cannot be written to disk", err);
	close(fd);
	return rc;
}

static int sync_parent(const char *path, struct hd_err *err)
{
	char *parent = parent_of(path);
	int rc = sync_one(parent, O_RDONLY | O_DIRECTORY, err);

	free(parent);
	return rc;
}

int hd_dir_make(const char *path, struct hd_err *err)
{
	struct stat st;
	char *parent;
	int rc;

	if (!*path)
		return hd_err_set(err, HD_EINVAL, "a directory without a name");
	if (!stat(path, &st)) {
		if (S_ISDIR(st.st_mode))
			return 0;
		errno = ENOTDIR;
		return fail(path, "cannot be a directory", err);
	}
	parent = parent_of(path);
	rc = strcmp(parent, path) ? hd_dir_make(parent, err) : 0;
	free(parent);
	if (rc)
		return rc;
	if (mkdir(path, 0777))
		return errno == EEXIST ? 0
				       : fail(path, "cannot be created", err); /* another rank may have been faster */
	return sync_parent(path, err); /* else a power cut could remove it with all its contents */
}

int hd_dir_writable(const char *path, struct hd_err *err)
{
	char *probe;
	int fd, rc = 0;

	HD_TRY(hd_dir_make(path, err));
	probe = hd_format("%s/.probe-XXXXXX", path);
	fd = mkstemp(probe);
	if (fd < 0) {
		rc = fail(path, "cannot be written to", err);
	} else {
		if (write(fd, "x", 1) != 1)
			rc = fail(path, "cannot be written to", err);
		if (close(fd) && !rc)
			rc = fail(path, "cannot be written to", err);
		unlink(probe);
	}
	free(probe);
	return rc;
}

static int could_not(const char *path, int why, struct hd_err *err)
{
	return why ? hd_err_set(err, HD_EIO, "%s: %s", path, strerror(why)) : 0;
}

/* The directory of a file must exist; for a directory, missing parents are fine, since they would be created with
 * it. */
int hd_path_writable(const char *path, int dir, struct hd_err *err)
{
	struct stat st;
	char *parent;
	int rc, why;

	if (!stat(path, &st)) {
		if (S_ISDIR(st.st_mode) != !!dir)
			return could_not(path, dir ? ENOTDIR : EISDIR, err);
		return could_not(path, access(path, dir ? W_OK | X_OK : W_OK) ? errno : 0, err);
	}
	why = errno;
	parent = parent_of(path);
	if (why != ENOENT || !strcmp(parent, path) || (!dir && access(parent, F_OK)))
		rc = could_not(path, why, err);
	else
		rc = hd_path_writable(parent, 1, err);
	free(parent);
	return rc;
}

enum visit { SYNC, REMOVE };

static int visit(const char *path, enum visit what, struct hd_err *err);

static int visit_entries(const char *path, enum visit what, struct hd_err *err)
{
	DIR *dir = opendir(path);
	struct dirent *d;
	int rc = 0;

	if (!dir)
		return fail(path, "cannot be opened", err);
	while (!rc && (d = readdir(dir))) {
		char *inner;

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		inner = hd_format("%s/%s", path, d->d_name);
		rc = visit(inner, what, err);
		free(inner);
	}
	closedir(dir);
	return rc;
}

/* Does not follow symbolic links: their targets are not ours. */
static int visit(const char *path, enum visit what, struct hd_err *err)
{
	struct stat st;

	if (lstat(path, &st))
		return fail(path, "cannot be found", err);
	if (S_ISDIR(st.st_mode))
		HD_TRY(visit_entries(path, what, err));
	if (what == SYNC && S_ISDIR(st.st_mode))
		return sync_one(path, O_RDONLY | O_DIRECTORY, err);
	if (what == SYNC)
		return S_ISREG(st.st_mode) ? sync_one(path, O_RDONLY, err) : 0;
	if (S_ISDIR(st.st_mode) ? rmdir(path) : unlink(path))
		return fail(path, "cannot be removed", err);
	return 0;
}

int hd_dir_remove(const char *path, struct hd_err *err)
{
	struct stat st;
	char *dying;
	int rc = 0;

	if (lstat(path, &st) && errno == ENOENT)
		return 0;
	dying = temporary_path(path, "removed");
	if (!lstat(dying, &st)) /* an earlier removal that was interrupted */
		rc = visit(dying, REMOVE, err);
	if (!rc && rename(path, dying))
		rc = fail(path, "cannot be removed", err);
	if (!rc)
		rc = visit(dying, REMOVE, err);
	free(dying);
	return rc;
}

int hd_dir_commit(const char *from, const char *to, struct hd_err *err)
{
	int rc = visit(from, SYNC, err);

	if (rc)
		return rc;
	if (!rename(from, to))
		return sync_parent(to, err);
	if (errno != EEXIST && errno != ENOTEMPTY)
		return hd_err_set(err, HD_EIO, "%s: cannot be renamed to %s: %s", from, to, strerror(errno));
	/* An older one exists: swap the two in one step if the file system can. */
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE)) {
		HD_TRY(hd_dir_remove(to, err));
		return hd_dir_commit(from, to, err);
	}
	HD_TRY(sync_parent(to, err));
	return hd_dir_remove(from, err);
}

static int write_all(int fd, const char *bytes, size_t n)
{
	while (n) {
		ssize_t k = write(fd, bytes, n);

		if (k < 0 && errno != EINTR)
			return -1;
		bytes += k > 0 ? k : 0;
		n -= k > 0 ? (size_t)k : 0;
	}
	/* A pipe cannot be synced, which is no error. */
	return fsync(fd) && errno != EINVAL && errno != EROFS && errno != ENOTSUP ? -1 : 0;
}

static int write_to(const char *path, int flags, const char *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0666), failed = fd < 0 || write_all(fd, bytes, n) < 0;
	int why = errno;

	if (fd >= 0 && close(fd) && !failed)
		return -1; /* errno is close's */
	errno = why;
	return failed ? -1 : 0;
}

/* Returns the absolute path of a file with all links resolved; the caller frees it. If path is a link to a file that
 * does not exist yet, creates that file. A path that cannot be resolved, such as a new file's, is copied unchanged. */
static char *resolve_links(const char *path)
{
	struct stat st;
	int fd = !lstat(path, &st) && S_ISLNK(st.st_mode) && stat(path, &st)
			 ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666)
			 : -1;
	char *real = realpath(path, NULL);

	if (fd >= 0)
		close(fd);
	return real ? real : hd_strdup(path);
}

static int write_and_rename(const char *path, const char *bytes, size_t n, struct hd_err *err)
{
	char *tmp = temporary_path(path, "written");
	int rc = HD_OK;

	if (write_to(tmp, O_CREAT | O_TRUNC, bytes, n) || rename(tmp, path))
		rc = fail(path, "cannot be written", err);

	if (rc)
		unlink(tmp);
	free(tmp);
	return rc ? rc : sync_parent(path, err);
}

int hd_file_write_bytes(const char *path, const char *bytes, size_t n, struct hd_err *err)
{
	char *real = resolve_links(path);
	struct stat st;
	int rc;

	if (!stat(real, &st) && !S_ISREG(st.st_mode)) /* a terminal, a pipe, /dev/null: a rename would replace it */
		rc = write_to(real, 0, bytes, n) ? fail(path, "cannot be written", err) : HD_OK;
	else
		rc = write_and_rename(real, bytes, n, err);
	free(real);
	return rc;
}

int hd_file_write(const char *path, const char *text, struct hd_err *err)
{
	return hd_file_write_bytes(path, text, strlen(text), err);
}

char *hd_file_read(const char *path, size_t *bytes, struct hd_err *err)
{
	char *text = hd_file_slurp(path, bytes);

	if (!text)
		fail(path, "cannot be read", err);
	return text;
}
