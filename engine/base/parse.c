/* SPDX-License-Identifier: Apache-2.0
 * Parses numbers as people type them, and finds the name closest to a misspelt one.
 *
 * The distance of two names is the Damerau-Levenshtein distance (Damerau 1964): an insertion, a deletion, a replacement
 * or a swap of neighbours costs one. Case is ignored, and - equals _. A third of the letters may be wrong. Otherwise a
 * word matches the only name that begins with it, if the word has at least three letters.
 */
#include <config.h>
#include "engine/base/parse.h"
#include "engine/base/err.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORD 64 /* longer words are compared by their first letters */

int hd_word_int(const char *s, int64_t *out)
{
	char *end;
	long long v;

	if (!isdigit((unsigned char)s[*s == '-' || *s == '+']))
		return HD_EINVAL;
	errno = 0;
	v = strtoll(s, &end, 10);
	if (errno || *end)
		return HD_EINVAL;
	*out = v;
	return 0;
}

int64_t hd_next_number(const char **at)
{
	char *end;
	int64_t v;

	*at += strcspn(*at, "0123456789 \n");
	if (!isdigit((unsigned char)**at))
		return 0;
	v = strtoll(*at, &end, 10);
	*at = end;
	return v;
}

/* Parses a count of tokens or steps, in thousands, millions or billions with K, M or G. */
int hd_parse_count(const char *s, int64_t *out)
{
	static const char units[] = "KMG";
	int64_t v, scale = 1;
	char *end;
	const char *u;

	if (!isdigit((unsigned char)s[*s == '-' || *s == '+']))
		return HD_EINVAL;
	errno = 0;
	v = strtoll(s, &end, 10);
	u = *end ? strchr(units, *end) : NULL;
	if (errno || (*end && (!u || end[1])))
		return HD_EINVAL;
	for (; u && u >= units; u--)
		scale *= 1000;
	if (v > INT64_MAX / scale || v < INT64_MIN / scale)
		return HD_EINVAL;
	*out = v * scale;
	return 0;
}

int hd_word_bytes(const char *s, int64_t *out)
{
	static const char units[] = "KMGT";
	char *end;
	const char *u;
	int shift;
	long long v;

	if (!isdigit((unsigned char)*s))
		return HD_EINVAL;
	errno = 0;
	v = strtoll(s, &end, 10);
	u = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (errno || (*end && (!u || end[1])))
		return HD_EINVAL;
	shift = u ? 10 * (int)(u - units + 1) : 0;
	if (v > INT64_MAX >> shift)
		return HD_EINVAL;
	*out = v << shift;
	return 0;
}

int hd_word_bool(const char *s, int64_t *out)
{
	static const char *const words[] = { "no", "yes", "off", "on", "false", "true", "0", "1" };
	size_t i;

	for (i = 0; i < HD_LEN(words); i++)
		if (!strcmp(s, words[i])) {
			*out = (int64_t)(i & 1);
			return 0;
		}
	return HD_EINVAL;
}

int hd_word_num(const char *s, double *out)
{
	char *end;
	double v;

	if (!*s || s[strspn(s, "0123456789+-.eE")]) /* strtod also accepts nan, inf and hexadecimal */
		return HD_EINVAL;
	errno = 0;
	v = strtod(s, &end);
	if (*end || end == s || v > 1.7976931348623157e308 || v < -1.7976931348623157e308)
		return HD_EINVAL;
	if (errno == ERANGE && v == 0) /* 1e-400 */
		return HD_EINVAL;
	*out = v;
	return 0;
}

static int fold(char c)
{
	return c == '-' ? '_' : tolower((unsigned char)c);
}

static int smaller(int a, int b)
{
	return a < b ? a : b;
}

static int distance(const char *a, int na, const char *b, int nb)
{
	int d[3][MAX_WORD + 1], i, j; /* the rows i - 2, i - 1 and i of the table, cyclically */

	for (j = 0; j <= nb; j++)
		d[0][j] = j;
	for (i = 1; i <= na; i++) {
		int *row = d[i % 3], *up = d[(i + 2) % 3], *upup = d[(i + 1) % 3];

		row[0] = i;
		for (j = 1; j <= nb; j++) {
			int same = fold(a[i - 1]) == fold(b[j - 1]);

			row[j] = smaller(smaller(up[j], row[j - 1]) + 1, up[j - 1] + !same);
			if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]))
				row[j] = smaller(row[j], upup[j - 2] + 1);
		}
	}
	return d[na % 3][nb];
}

/* Returns the only name that begins with the word, or NULL. The word needs at least three letters. */
static const char *beginning(const char *word, const char *const *among, int n)
{
	const char *only = NULL;

	for (int i = 0, k; i < n; i++) {
		for (k = 0; word[k] && fold(word[k]) == fold(among[i][k]); k++)
			;
		if (word[k] || k < 3)
			continue;
		if (only)
			return NULL;
		only = among[i];
	}
	return only;
}

const char *hd_suggest_nearest(const char *word, const char *const *among, int n)
{
	const char *best = NULL;
	int i, best_d = 0, nw = (int)strnlen(word, MAX_WORD);

	for (i = 0; i < n; i++) {
		int na = (int)strnlen(among[i], MAX_WORD), longer = nw > na ? nw : na;
		int allowed = longer < 6 ? 1 : longer / 3, d;

		if (abs(nw - na) > allowed)
			continue; /* the distance is at least the difference in length */
		d = distance(word, nw, among[i], na);
		if (d > allowed || d >= longer || (best && d >= best_d))
			continue;
		best = among[i];
		best_d = d;
	}
	return best ? best : beginning(word, among, n);
}

int hd_word_alike(const char *a, const char *b)
{
	a += *a == '[';
	b += *b == '[';
	while (*a && fold(*a) == fold(*b))
		a++, b++;
	return !a[*a == ']'] && !b[*b == ']'];
}

static double share_of(const char *a, int na, const char *b, int nb)
{
	int longer = na > nb ? na : nb;

	return longer ? (double)distance(a, na, b, nb) / longer : 1;
}

#define LEAST_WORD 3 /* in letters; shorter words are not compared */

/* Replaces *word, of *n letters, by the next word of the name. Returns 0 if no word follows. */
static int next_word(const char **word, int *n)
{
	const char *at = *word + *n;

	while (*at && !isalnum((unsigned char)*at))
		at++;
	*word = at;
	for (*n = 0; isalnum((unsigned char)at[*n]) && *n < MAX_WORD; ++*n)
		;
	return *n > 0;
}

/* Returns the distance of the closest pair of words, as a share of the letters, which is 0 if the names share a
 * word. A hundredth of the distance of the whole names is added, which decides among several such names. */
static double how_far(const char *a, const char *b)
{
	double whole = share_of(a, (int)strnlen(a, MAX_WORD), b, (int)strnlen(b, MAX_WORD)), least = whole;
	const char *x = a, *y;
	int nx = 0, ny;

	while (next_word(&x, &nx))
		for (y = b, ny = 0; next_word(&y, &ny);) {
			double d = nx < LEAST_WORD || ny < LEAST_WORD ? 1 : share_of(x, nx, y, ny);

			least = d < least ? d : least;
		}
	return least + whole / 100;
}

#define FAR 0.5 /* when half of the letters differ, names have nothing in common */

const char *hd_suggest_by_words(const char *word, const char *const *among, int n)
{
	const char *best = NULL;
	double least = FAR;

	for (int i = 0; i < n; i++) {
		double d = how_far(word, among[i]);

		if (d < least)
			best = among[i], least = d;
	}
	return best;
}

char *hd_parse_trim(char *s)
{
	size_t n;

	while (isspace((unsigned char)*s))
		s++;
	for (n = strlen(s); n && isspace((unsigned char)s[n - 1]); n--)
		;
	s[n] = 0;
	return s;
}

/* Writes "a, b, c". */
static void list(char *out, size_t size, const char *const *names, int n)
{
	size_t used = 0;
	int i;

	*out = 0;
	for (i = 0; i < n && used < size; i++)
		used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", names[i]);
}

void hd_suggest(char *out, size_t size, const char *word, const char *what, const char *const *names, int n)
{
	const char *near = hd_suggest_nearest(word, names, n);
	char all[400];

	list(all, sizeof(all), names, n);
	if (near)
		snprintf(out, size, "did you mean %s?", near);
	else
		snprintf(out, size, "%s: %s", what, all);
}
