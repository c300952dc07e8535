/* SPDX-License-Identifier: Apache-2.0
 * engine/text/unicode/regex.h - the regular expressions of tokenizer.json, which are Oniguruma's (Ruby syntax), by PCRE2.
 *
 * Where the two differ in what an expression means it is written anew, or refused.
 */
#ifndef HD_ENGINE_TEXT_REGEX_H
#define HD_ENGINE_TEXT_REGEX_H
#include "engine/base/err.h"
#include "engine/text/unicode/utf8.h"

struct hd_regex;   /* any thread may use it */
struct hd_matcher; /* of one thread, for any regex */

int hd_regex_compile(const char *pattern, size_t n, struct hd_regex **out, struct hd_err *err);
void hd_regex_free(struct hd_regex *r);
struct hd_matcher *hd_matcher_create(void);
void hd_matcher_destroy(struct hd_matcher *m);
/* The first match in s[0, n), valid UTF-8, from `from` on: 1 and [*start, *end), 0: none, or an error. */
int hd_regex_find(const struct hd_regex *r, struct hd_matcher *m, const char *s, size_t n, size_t from, size_t *start,
		  size_t *end, struct hd_err *err);

/* "pattern": {"String": ...} or {"Regex": ...} */
struct hd_pattern {
	struct hd_regex *regex; /* NULL: the text */
	char *text;
	size_t n;
};
int hd_pattern_find(const struct hd_pattern *p, struct hd_matcher *m, const char *s, size_t n, size_t from,
		    size_t *start, size_t *end, struct hd_err *err);
void hd_pattern_release(struct hd_pattern *p);
/* Appends s with every match replaced by `with`. */
int hd_pattern_replace(const struct hd_pattern *p, struct hd_matcher *m, struct hd_span s, struct hd_span with,
		       struct hd_buf *out, struct hd_err *err);

#endif
