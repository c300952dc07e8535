/* SPDX-License-Identifier: Apache-2.0
 * engine/base/err.h - errors as values, and the log.
 *
 * Functions return 0 or a negative HD_E code (heddle/host.h). On failure they write one sentence, without a newline,
 * into the caller's struct hd_err; it names the object and both numbers. The function that detects the error writes the
 * text; its callers return the code unchanged. The first text is kept.
 */
#ifndef HD_ENGINE_ERR_H
#define HD_ENGINE_ERR_H
#include <heddle/host.h>
#include <stdarg.h>

struct hd_err {
	int code;
	int agreed; /* set by hd_comm_agree: all ranks have this error */
	/* The plugin that gave the engine a value that no layout could make right (a wrong handle, size or shape),
	 * or "". */
	char mistake[32];
	char text[1000]; /* a longer text is cut and ends in " ..." */
};

int hd_err_set(struct hd_err *e, int code, const char *fmt, ...) HD_PRINTF(3, 4); /* returns code */
/* Copies *from unless *e already has an error. Returns from->code. */
int hd_err_pass(struct hd_err *e, const struct hd_err *from);

/* The log is written to stderr, each line after "heddle: ". Errors (HD_LOG_ERROR) are printed by every rank, all
 * else only by the rank that `speaks`. */
void hd_log_init(int speaks, int level);
/* Sends lines to this function instead of stderr; NULL: stderr again. */
void hd_log_to(void (*to)(int level, const char *line));
void hd_log(int level, const char *fmt, ...) HD_PRINTF(2, 3);
/* Logs a line unless an equal one was printed before. The plans of a run's batches and of its evaluation have the same
 * warnings. Errors, and lines for the function of hd_log_to, are passed on each time. */
void hd_log_once(int level, const char *fmt, ...) HD_PRINTF(2, 3);
void hd_log_lines(int level, const char *text); /* logs each line separately; text may be NULL */

void *hd_alloc(size_t bytes); /* zeroed; a failure ends the process with one message (planning only, never in a step) */
void *hd_grow(void *p, size_t count, size_t *cap, size_t item); /* room for count + 1 items, new ones zeroed */
/* Like hd_alloc, for a large table that is used sparsely: its pages are allocated when they are first touched. A
 * program has tables indexed by the ids of the whole plan, but reads only the entries of its own stage. Clearing all
 * of such a table would take longer than using it. */
void *hd_sparse_create(size_t bytes);
void hd_sparse_destroy(void *p);
/* Lets the system back the memory with huge pages; for memory that is used entirely. */
void hd_large_pages(void *p, size_t bytes);
char *hd_strdup(const char *s);
const char *hd_plural(int64_t n, const char *ending); /* "" for 1, else `ending`: "%lld rank%s" */
void hd_sort(double *x, size_t n);                    /* ascending; no element may be NaN */
/* Sorts x and returns its median: for an even n, the mean of the two middle values. n is at least 1. */
double hd_median(double *x, size_t n);
char *hd_one_line(char *text); /* replaces line ends and other control characters by ?; returns text */
char *hd_format(const char *fmt, ...) HD_PRINTF(1, 2); /* the caller frees it */
char *hd_vformat(const char *fmt, va_list v);
void hd_append(char **text, const char *fmt, ...) HD_PRINTF(2, 3); /* extends *text, which is malloc'ed or NULL */
double hd_seconds(void);                                           /* monotonic */

#define HD_TRY(expr) \
	do { \
		int rc_ = (expr); \
		if (rc_ < 0) \
			return rc_; \
	} while (0)
#define HD_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
