/* SPDX-License-Identifier: Apache-2.0
 * Records what a power cut would lose.  Built as a shared object by t6028 and preloaded.  For all paths below
 * $HD_CUT_BELOW it appends one line per event to the file $HD_CUT_LOG, in the order over all processes:
 *
 *	W path		the file has data that is not on disk
 *	C path		a file or directory was made, whose name is not on disk
 *	R from to old	a rename that is not on disk; old: a link to the file that was replaced, or -
 *	S path		fsync: puts the data of a file on disk, or the names in a directory
 *
 * t/lib/kills.pl undoes the events that no S covers.
 */
#ifdef HD_POWER_CUT
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 1024

static char dirty[FILES]; /* by descriptor: its W was recorded */

static const char *below(void)
{
	static const char *dir;

	return dir ? dir : (dir = getenv("HD_CUT_BELOW") ? getenv("HD_CUT_BELOW") : "/nowhere");
}

/* Stores the absolute path in out.  Returns 0 if it is not below the recorded folder. */
static int ours(const char *path, char *out)
{
	char cwd[PATH_MAX];

	if (path[0] == '/' || !getcwd(cwd, sizeof(cwd)))
		snprintf(out, PATH_MAX, "%s", path);
	else
		snprintf(out, PATH_MAX, "%s/%s", cwd, path);
	return !strncmp(out, below(), strlen(below()));
}

static int path_of(int fd, char *out)
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, out, PATH_MAX - 1);
	out[n > 0 ? n : 0] = 0;
	return n > 0 && !strncmp(out, below(), strlen(below()));
}

static void record(const char *what, const char *a, const char *b, const char *c)
{
	static int log = -1;
	static int (*real_open)(const char *, int, ...);
	static ssize_t (*real_write)(int, const void *, size_t);
	char line[3 * PATH_MAX + 8];
	int n = snprintf(line, sizeof(line), "%s %s%s%s%s%s\n", what, a, *b ? " " : "", b, *c ? " " : "", c);

	if (log < 0) {
		real_open = dlsym(RTLD_NEXT, "open");
		real_write = dlsym(RTLD_NEXT, "write");
		log = real_open(getenv("HD_CUT_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	}
	if (real_write(log, line, (size_t)n) != n)
		abort();
}

static void opened(int fd, const char *path, int flags, int was)
{
	char full[PATH_MAX];

	if (fd < 0 || !ours(path, full) || !(flags & (O_WRONLY | O_RDWR)))
		return;
	if (fd < FILES)
		dirty[fd] = 0;
	if (!was)
		record("C", full, "", "");
	if (!was || flags & O_TRUNC)
		record("W", full, "", "");
}

static int open_as(const char *name, const char *path, int flags, mode_t mode)
{
	int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
	int was = access(path, F_OK) == 0, fd = real(path, flags, mode);

	opened(fd, path, flags, was);
	return fd;
}

#define OPEN(name) \
	int name(const char *path, int flags, ...) \
	{ \
		va_list v; \
		mode_t mode; \
\
		va_start(v, flags); \
		mode = flags & O_CREAT ? va_arg(v, mode_t) : 0; \
		va_end(v); \
		return open_as(#name, path, flags, mode); \
	}
OPEN(open)
OPEN(open64)

static void written(int fd)
{
	char path[PATH_MAX];

	if (fd > 2 && fd < FILES && !dirty[fd] && path_of(fd, path)) {
		dirty[fd] = 1;
		record("W", path, "", "");
	}
}

ssize_t write(int fd, const void *p, size_t n)
{
	written(fd);
	return ((ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, p, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
	written(fd);
	return ((ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite"))(fd, p, n, at);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at)
{
	written(fd);
	return ((ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, p, n, at);
}

int fsync(int fd)
{
	char path[PATH_MAX];
	int rc = ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);

	if (!rc && path_of(fd, path)) {
		record("S", path, "", "");
		if (fd < FILES)
			dirty[fd] = 0;
	}
	return rc;
}

int mkdir(const char *path, mode_t mode)
{
	char full[PATH_MAX];
	int rc = ((int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir"))(path, mode);

	if (!rc && ours(path, full))
		record("C", full, "", "");
	return rc;
}

int rename(const char *from, const char *to)
{
	static int number;
	char a[PATH_MAX], b[PATH_MAX], old[PATH_MAX] = "-";
	int is = ours(from, a) && ours(to, b), rc;
	struct stat st;

	if (is && !lstat(b, &st) && S_ISREG(st.st_mode)) {
		snprintf(old, sizeof(old), "%.3000s.%d.%d", getenv("HD_CUT_LOG"), (int)getpid(), number++);
		if (link(b, old))
			abort();
	}
	rc = ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
	if (!rc && is)
		record("R", a, b, old);
	return rc;
}
#endif
