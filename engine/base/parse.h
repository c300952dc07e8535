/* SPDX-License-Identifier: Apache-2.0
 * engine/base/parse.h - text that people type, as numbers; shared by the INI file and the command
 * line.
 *
 * Each of the first takes the whole word or nothing: 0, or HD_EINVAL without touching *out.
 */
#ifndef HD_ENGINE_WORDS_H
#define HD_ENGINE_WORDS_H
#include <stddef.h>
#include <stdint.h>

int hd_word_int(const char *s, int64_t *out);
int hd_parse_count(const char *s, int64_t *out); /* with K, M, G: thousands */
int hd_word_bytes(const char *s, int64_t *out);  /* K, M, G, T: powers of 1024 */
int hd_word_bool(const char *s, int64_t *out);   /* yes/no/on/off/true/false/1/0 */
int hd_word_num(const char *s, double *out);     /* finite, decimal; not one that is too small for a double */

int64_t hd_next_number(const char **at); /* of those in a word, whatever is between them; 0 at its end */

char *hd_parse_trim(char *s); /* in place, without blanks at both ends */
const char *hd_suggest_nearest(const char *word, const char *const *among, int n); /* NULL: none is near */
const char *hd_suggest_least_far(const char *word, const char *const *among,
				 int n);         /* by words in them; NULL: all are far */
int hd_word_alike(const char *a, const char *b); /* in any case; - is _, and [ ] around is nothing */
/* "did you mean x?" with the nearest of names, else what, a colon and all of them. */
void hd_suggest(char *out, size_t size, const char *word, const char *what, const char *const *names, int n);

#endif
