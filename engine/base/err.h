/* SPDX-License-Identifier: Apache-2.0
 * engine/base/err.h - errors as values, and the log.
 *
 * Functions return 0 or a negative HD_E code (heddle/host.h) and write one sentence, without newline, into the caller's
 * struct hd_err, naming the object and both numbers.  The function that decides which error it is writes the text;
 * callers return the code unchanged.  The first text stays.
 */
#ifndef HD_ENGINE_ERR_H
#define HD_ENGINE_ERR_H
#include <heddle/host.h>
#include <stdarg.h>

struct hd_err {
	int code;
	int agreed; /* all ranks have this error: hd_comm_agree */
	/* The plugin that gave the engine what no layout makes right (a wrong handle, size or shape); "": none did. */
	char mistake[32];
	char text[1000]; /* what is longer ends in " ..." */
};

int hd_err_set(struct hd_err *e, int code, const char *fmt, ...) HD_PRINTF(3, 4); /* -> code */
int hd_err_pass(struct hd_err *e, const struct hd_err *from);                     /* all of it -> its code */

/* stderr, "heddle: " before it.  Only the rank that speaks (hd_log_init) prints below HD_LOG_ERROR. */
void hd_log_init(int speaks, int level);
void hd_log_to(void (*to)(int level, const char *line)); /* in place of stderr; NULL: stderr again */
void hd_log(int level, const char *fmt, ...) HD_PRINTF(2, 3);
void hd_log_lines(int level, const char *text); /* each line by itself; NULL: none */

void *hd_alloc(size_t bytes); /* zeroed; a failure ends the process with one message (planning only, never in a step) */
void *hd_grow(void *p, size_t count, size_t *cap, size_t item); /* room for count + 1 items, new ones zeroed */
/* As hd_alloc, for a table of which little is touched: its pages come when they are.  A program has tables by the ids of the whole
 * plan, and looks at those of its own stage: to clear all takes longer than to use them. */
void *hd_sparse_create(size_t bytes);
void hd_sparse_destroy(void *p);
void hd_large_pages(void *p, size_t bytes); /* of memory that is used whole: its pages may be large ones */
char *hd_strdup(const char *s);
const char *hd_plural(int64_t n, const char *ending); /* "" for 1, else `ending`: "%lld rank%s" */
void hd_sort(double *x, size_t n);                    /* the least first; none is NaN */
/* Sorts x.  Of an even number the mean of the two in the middle; n is at least 1. */
double hd_median(double *x, size_t n);
char *hd_one_line(char *text);                         /* what ends a line, and the like, becomes ?; -> text */
char *hd_format(const char *fmt, ...) HD_PRINTF(1, 2); /* malloc'ed */
char *hd_vformat(const char *fmt, va_list v);
void hd_append(char **text, const char *fmt, ...) HD_PRINTF(2, 3); /* grows *text, which is malloc'ed or NULL */
double hd_seconds(void);                                           /* monotonic */

#define HD_TRY(expr) \
	do { \
		int rc_ = (expr); \
		if (rc_ < 0) \
			return rc_; \
	} while (0)
#define HD_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
