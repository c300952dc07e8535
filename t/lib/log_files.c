/* SPDX-License-Identifier: Apache-2.0
 * Logs the calls that change files, in order, over all processes.  Built as a shared object by a test and preloaded;
 * each call on a path below $HD_LOG_FILES_UNDER appends one line to the file $HD_LOG_FILES:
 *
 *	open PATH (to write) | write PATH | sync PATH | rename FROM TO | remove PATH | mkdir PATH
 *
 * A change of a file is logged after it was made; calls that must follow it (sync, rename) are logged before they are
 * made. So if one line precedes another, its call was made first.  With $HD_LOG_FILES_FAIL = "sync NAME" or "rename
 * NAME", this call on a path that ends in NAME fails with EIO, as on a failing disk.
 */
#ifdef HD_LOG_FILES
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The C library's function of this name. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int below(const char *path)
{
	const char *under = getenv("HD_LOG_FILES_UNDER");

	return under && !strncmp(path, under, strlen(under));
}

/* Writes each line with one call, so that lines of several processes are not mixed. */
static void line(const char *what, const char *path, const char *to)
{
	const char *log = getenv("HD_LOG_FILES");
	char text[3 * PATH_MAX];
	long fd;
	int n;

	if (!log || !below(path))
		return;
	n = snprintf(text, sizeof(text), "%s %s%s%s\n", what, path, to ? " " : "", to ? to : "");
	fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0 || syscall(SYS_write, fd, text, n) != n)
		abort();
	syscall(SYS_close, fd);
}

static const char *path_of(int fd, char *out)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, out, PATH_MAX - 1);
	out[n > 0 ? n : 0] = 0;
	return out;
}

static int fails(const char *what, const char *path)
{
	const char *fail = getenv("HD_LOG_FILES_FAIL");
	size_t k = strlen(what), n = strlen(path);

	if (!fail || !below(path) || strncmp(fail, what, k) || fail[k] != ' ')
		return 0;
	fail += k + 1;
	if (n < strlen(fail) || strcmp(path + n - strlen(fail), fail))
		return 0;
	errno = EIO;
	return 1;
}

static int opened(int fd, int flags)
{
	char path[PATH_MAX];

	if (fd >= 0 && (flags & O_ACCMODE) != O_RDONLY)
		line("open", path_of(fd, path), NULL);
	return fd;
}

static mode_t mode_of(int flags, va_list v)
{
	return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(v, int) : 0;
}

#define OPEN(name) \
	int name(const char *path, int flags, ...) \
	{ \
		va_list v; \
		mode_t mode; \
\
		va_start(v, flags); \
		mode = mode_of(flags, v); \
		va_end(v); \
		return opened(REAL(name)(path, flags, mode), flags); \
	}
OPEN(open)
OPEN(open64)

/* A call that changes the file of fd, logged after it was made. */
#define CHANGES(type, name, args, given) \
	type name args \
	{ \
		char path[PATH_MAX]; \
		type done = REAL(name) given; \
\
		line("write", path_of(fd, path), NULL); \
		return done; \
	}
CHANGES(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))
CHANGES(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
CHANGES(ssize_t, pwrite64, (int fd, const void *p, size_t n, off64_t at), (fd, p, n, at))
CHANGES(int, ftruncate, (int fd, off_t n), (fd, n))
CHANGES(int, ftruncate64, (int fd, off64_t n), (fd, n))
CHANGES(int, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
CHANGES(int, fallocate64, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n))

#define SYNC(name) \
	int name(int fd) \
	{ \
		char path[PATH_MAX]; \
\
		line("sync", path_of(fd, path), NULL); \
		return fails("sync", path) ? -1 : REAL(name)(fd); \
	}
SYNC(fsync)
SYNC(fdatasync)

int rename(const char *from, const char *to)
{
	line("rename", from, to);
	return fails("rename", to) ? -1 : REAL(rename)(from, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
	line("rename", from, to);
	return fails("rename", to) ? -1 : REAL(renameat2)(a, from, b, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
	int rc = REAL(mkdir)(path, mode);

	if (!rc)
		line("mkdir", path, NULL);
	return rc;
}

#define REMOVES(name) \
	int name(const char *path) \
	{ \
		line("remove", path, NULL); \
		return REAL(name)(path); \
	}
REMOVES(unlink)
REMOVES(rmdir)
#endif
typedef int hd_log_files_is_a_shared_object; /* not in the library of the tests */
