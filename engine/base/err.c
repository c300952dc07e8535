/* SPDX-License-Identifier: Apache-2.0
 * Errors as values, the log, and a few allocation helpers for planning code.
 */
#include "config.h"
#include "engine/base/err.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int speaks = 1, loudest = HD_LOG_INFO;

int hd_err_set(struct hd_err *e, int code, const char *fmt, ...)
{
	static const char cut[] = " ...";
	va_list v;
	int n;

	if (!e || e->code)
		return code;
	e->code = code;
	va_start(v, fmt);
	n = vsnprintf(e->text, sizeof(e->text), fmt, v);
	va_end(v);
	if (n >= (int)sizeof(e->text)) /* a number cut in the middle would read as a different number */
		memcpy(e->text + sizeof(e->text) - sizeof(cut), cut, sizeof(cut));
	return code;
}

int hd_err_pass(struct hd_err *e, const struct hd_err *from)
{
	if (e && !e->code)
		*e = *from;
	return from->code;
}

const char *hd_plural(int64_t n, const char *ending)
{
	return n == 1 ? "" : ending;
}

char *hd_one_line(char *text)
{
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = '?';
	return text;
}

void hd_log_init(int this_rank_speaks, int level)
{
	speaks = this_rank_speaks;
	loudest = level;
}

static void (*log_to)(int level, const char *line);
void hd_log_to(void (*to)(int level, const char *line))
{
	log_to = to;
}

static int is_heard(int level)
{
	return level <= loudest && (level <= HD_LOG_ERROR || speaks);
}

/* Takes the line. */
static void print_line(int level, char *line)
{
	if (log_to)
		log_to(level, line);
	else
		fprintf(stderr, "heddle: %s\n", line); /* a single write, so that lines of several ranks do not mix */
	free(line);
}

void hd_log(int level, const char *fmt, ...)
{
	va_list v;

	if (!is_heard(level))
		return;
	va_start(v, fmt);
	print_line(level, hd_vformat(fmt, v));
	va_end(v);
}

void hd_log_once(int level, const char *fmt, ...)
{
	static char **printed;
	static size_t n, cap;
	va_list v;
	char *line;
	size_t i = 0;

	if (!is_heard(level))
		return;
	va_start(v, fmt);
	line = hd_vformat(fmt, v);
	va_end(v);
	if (level > HD_LOG_ERROR && !log_to) {
		while (i < n && strcmp(printed[i], line) != 0)
			i++;
		if (i < n) {
			free(line);
			return;
		}
		printed = hd_grow(printed, n, &cap, sizeof(*printed));
		printed[n++] = hd_strdup(line);
	}
	print_line(level, line);
}

void hd_log_lines(int level, const char *text)
{
	for (size_t n; text && *text; text += n + (text[n] == '\n')) {
		n = strcspn(text, "\n");
		hd_log(level, "%.*s", (int)n, text);
	}
}

void *hd_alloc(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p) {
		fprintf(stderr, "heddle: out of memory (%zu bytes)\n", bytes);
		exit(1);
	}
	return p;
}

/* Each block starts with its size. */
#define SPARSE_HEAD 64            /* keeps the caller's memory aligned */
#define SPARSE_LEAST (256 * 1024) /* below this, clearing is faster than mapping pages */

static void *pages_new(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p != MAP_FAILED)
		return p;
	fprintf(stderr, "heddle: out of memory (%zu bytes)\n", bytes);
	exit(1);
}

void *hd_sparse_create(size_t bytes)
{
	size_t all = bytes + SPARSE_HEAD, *p = all < SPARSE_LEAST ? hd_alloc(all) : pages_new(all);

	*p = all;
	return (char *)p + SPARSE_HEAD;
}

void hd_sparse_destroy(void *p)
{
	size_t *at;

	if (!p)
		return;
	at = (size_t *)(void *)((char *)p - SPARSE_HEAD);
	if (*at < SPARSE_LEAST)
		free(at);
	else
		munmap(at, *at);
}

void hd_large_pages(void *p, size_t bytes)
{
#if defined(MADV_HUGEPAGE)
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)p + page - 1) / page * page;
	uintptr_t to = ((uintptr_t)p + bytes) / page * page;

	if (to > from)
		madvise((char *)p + (from - (uintptr_t)p), to - from, MADV_HUGEPAGE);
#else
	(void)p, (void)bytes;
#endif
}

void *hd_grow(void *p, size_t count, size_t *cap, size_t item)
{
	size_t to = *cap ? *cap * 2 : 16;

	if (count < *cap)
		return p;
	p = realloc(p, to * item);
	if (!p) {
		fprintf(stderr, "heddle: out of memory (%zu bytes)\n", to * item);
		exit(1);
	}
	memset((char *)p + *cap * item, 0, (to - *cap) * item);
	*cap = to;
	return p;
}

char *hd_strdup(const char *s)
{
	size_t n = strlen(s) + 1;

	return memcpy(hd_alloc(n), s, n);
}

char *hd_vformat(const char *fmt, va_list v)
{
	va_list again;
	int n;
	char *s;

	va_copy(again, v);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	s = hd_alloc((size_t)n + 1);
	vsnprintf(s, (size_t)n + 1, fmt, v);
	return s;
}

char *hd_format(const char *fmt, ...)
{
	va_list v;
	char *s;

	va_start(v, fmt);
	s = hd_vformat(fmt, v);
	va_end(v);
	return s;
}

void hd_append(char **text, const char *fmt, ...)
{
	size_t have = *text ? strlen(*text) : 0, n;
	va_list v;
	char *more, *all;

	va_start(v, fmt);
	more = hd_vformat(fmt, v);
	va_end(v);
	n = strlen(more) + 1;
	all = hd_alloc(have + n);
	if (have)
		memcpy(all, *text, have);
	memcpy(all + have, more, n);
	free(*text);
	free(more);
	*text = all;
}

double hd_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void hd_sort(double *x, size_t n)
{
	qsort(x, n, sizeof(*x), by_value);
}

double hd_median(double *x, size_t n)
{
	hd_sort(x, n);
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}
