/* SPDX-License-Identifier: Apache-2.0
 * Counts allocations by caller.  Built as a shared object by t6100 and preloaded; at the end of the process it writes
 * one line
 *
 *	COUNT function caller caller's-caller
 *
 * per place of the program itself that called malloc, calloc, realloc, aligned_alloc, posix_memalign or mmap (as
 * MODULE+OFFSET, for addr2line) to the file $HD_COUNT_ALLOC.PID.  Plugins allocate through the program; allocations of
 * libraries are not counted.
 */
#ifdef HD_COUNT_ALLOC
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLACES 8192

struct place {
	const char *what;
	void *chain[3];
	long count;
};
static struct place places[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside;

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static const char *from, *to; /* the program's code */

/* Compares addresses, since dladdr would take the loader's lock, which other threads hold while they allocate. */
static int is_ours(void *address)
{
	return (const char *)address >= from && (const char *)address < to;
}

static __attribute__((constructor)) void begin(void)
{
	char line[1000], exe[500] = "", mode[8], path[500];
	void *a, *b, *warm[2];
	FILE *f;

	inside = 1;
	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0 && (f = fopen("/proc/self/maps", "r"))) {
		while (fgets(line, sizeof(line), f))
			if (sscanf(line, "%p-%p %7s %*s %*s %*s %499s", &a, &b, mode, path) == 4 && mode[2] == 'x' &&
			    !strcmp(path, exe))
				from = a, to = b;
		fclose(f);
	}
	backtrace(warm, 2);
	inside = 0;
}

static void note(const char *what, void *caller)
{
	void *f[8] = { 0 };
	int n, at = 0;

	if (inside || !is_ours(caller))
		return;
	inside = 1;
	n = backtrace(f, 8);
	while (at < n && f[at] != caller)
		at++;
	at = at + 3 <= 8 ? at : 5;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < PLACES; i++) {
		struct place *p = &places[i];

		if (!p->count) {
			p->what = what;
			memcpy(p->chain, f + at, sizeof(p->chain));
		}
		if (p->what == what && !memcmp(p->chain, f + at, sizeof(p->chain))) {
			p->count++;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	inside = 0;
}

void *malloc(size_t n)
{
	note("malloc", __builtin_return_address(0));
	return __libc_malloc(n);
}
void *calloc(size_t n, size_t m)
{
	note("calloc", __builtin_return_address(0));
	return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n)
{
	note("realloc", __builtin_return_address(0));
	return __libc_realloc(p, n);
}
void *aligned_alloc(size_t a, size_t n)
{
	note("aligned_alloc", __builtin_return_address(0));
	return __libc_memalign(a, n);
}

int posix_memalign(void **p, size_t a, size_t n)
{
	note("posix_memalign", __builtin_return_address(0));
	*p = __libc_memalign(a, n);
	return *p ? 0 : 12;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	static void *(*real)(void *, size_t, int, int, int, off_t);

	if (!real) {
		inside++;
		real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
		inside--;
	}
	note("mmap", __builtin_return_address(0));
	return real(at, n, prot, flags, fd, offset);
}

static void name(FILE *f, void *address)
{
	Dl_info d;

	if (address && dladdr(address, &d) && d.dli_fname)
		fprintf(f, " %s+0x%zx", d.dli_fname, (size_t)address - (size_t)d.dli_fbase - 1);
	else
		fprintf(f, " ?");
}

static __attribute__((destructor)) void end(void)
{
	const char *to = getenv("HD_COUNT_ALLOC");
	char path[4096];
	FILE *f;

	inside = 1;
	snprintf(path, sizeof(path), "%s.%d", to ? to : "/dev/null", (int)getpid());
	f = fopen(path, "w");
	for (size_t i = 0; f && i < PLACES && places[i].count; i++) {
		fprintf(f, "%ld %s", places[i].count, places[i].what);
		for (int k = 0; k < 3; k++)
			name(f, places[i].chain[k]);
		fprintf(f, "\n");
	}
	if (f)
		fclose(f);
}
#endif
typedef int hd_count_alloc_is_a_shared_object; /* not in the library of the tests */
