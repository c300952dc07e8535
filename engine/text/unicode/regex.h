/* SPDX-License-Identifier: Apache-2.0
 * engine/text/unicode/regex.h - runs the regular expressions of tokenizer.json, which are Oniguruma's (Ruby syntax),
 * with PCRE2.
 *
 * Where an expression means something different to the two, it is rewritten or refused.
 */
#ifndef HD_ENGINE_TEXT_REGEX_H
#define HD_ENGINE_TEXT_REGEX_H
#include "engine/base/err.h"
#include "engine/text/unicode/utf8.h"

struct hd_regex;   /* may be shared by threads */
struct hd_matcher; /* one thread's buffers, for any regex */

int hd_regex_compile(const char *pattern, size_t n, struct hd_regex **out, struct hd_err *err);
void hd_regex_free(struct hd_regex *r);
struct hd_matcher *hd_matcher_create(void);
void hd_matcher_destroy(struct hd_matcher *m);
/* Finds the first match at or after `from` in s[0, n), which is valid UTF-8. Returns 1 and sets [*start, *end), 0
 * without a match, or an error. */
int hd_regex_find(const struct hd_regex *r, struct hd_matcher *m, const char *s, size_t n, size_t from, size_t *start,
		  size_t *end, struct hd_err *err);

/* "pattern": {"String": ...} or {"Regex": ...} */
struct hd_pattern {
	struct hd_regex *regex; /* NULL: search for text */
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
