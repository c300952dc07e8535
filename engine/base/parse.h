/* SPDX-License-Identifier: Apache-2.0
 * engine/base/parse.h - parses numbers that people type in INI files and on the command line, and suggests names.
 *
 * Functions of the first group accept the whole word or nothing: they return 0, or HD_EINVAL without touching *out.
 */
#ifndef HD_ENGINE_BASE_PARSE_H
#define HD_ENGINE_BASE_PARSE_H
#include <stddef.h>
#include <stdint.h>

int hd_word_int(const char *s, int64_t *out);
int hd_parse_count(const char *s, int64_t *out); /* with K, M, G: powers of 1000 */
int hd_word_bytes(const char *s, int64_t *out);  /* K, M, G, T: powers of 1024 */
int hd_word_bool(const char *s, int64_t *out);   /* yes/no/on/off/true/false/1/0 */
int hd_word_num(const char *s, double *out);     /* finite and decimal; one that underflows to 0 is refused */

/* Returns the next number in a word, skipping other characters, and moves *at past it. Returns 0 at the end of the
 * word: a space, a newline or the end of the text. */
int64_t hd_next_number(const char **at);

char *hd_parse_trim(char *s); /* trims blanks at both ends, in place */
const char *hd_suggest_nearest(const char *word, const char *const *among, int n); /* NULL: none is close */
/* Returns the closest name if the words within names are compared, too. NULL: all are far. */
const char *hd_suggest_by_words(const char *word, const char *const *among, int n);
int hd_word_alike(const char *a, const char *b); /* ignores case, - for _, and enclosing [ ] */
/* Writes "did you mean x?" with the nearest name; if none is near, writes `what`, a colon and all names. */
void hd_suggest(char *out, size_t size, const char *word, const char *what, const char *const *names, int n);

#endif
