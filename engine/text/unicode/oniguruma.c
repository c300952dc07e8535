/* SPDX-License-Identifier: Apache-2.0
 * Translates regular expressions of Oniguruma (Ruby syntax) to PCRE2 with the same meaning.
 *
 * In Oniguruma, \s is Unicode's White_Space, \w includes marks and connectors, and [:alpha:] is Alphabetic.
 * Its \v is one character, \uHHHH is a code point, and script names refer to the Script property. Its ^ and $ match at
 * lines. These are written out in the terms of PCRE2. Constructs that PCRE2 would silently read differently are
 * refused:
 *   - sets within sets
 *   - {n,m}+, which repeats {n,m} in Oniguruma and is possessive in PCRE2
 *   - where case is ignored, characters that Oniguruma matches with several (ss with a sharp s)
 */
#include <config.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/unicode/oniguruma.h"
#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>

#define BLANK "\\x20\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{202f}\\x{205f}\\x{3000}"
#define WHITE "\\t-\\r\\x85\\x{2028}\\x{2029}" BLANK
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Outside sets, Oniguruma looks up \w, \W and \b below U+0100 in a table that includes these numerals. */
#define WORD_ALONE WORD "\\xb2\\xb3\\xb9\\xbc-\\xbe"
#define GRAPH "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"
#define IN "(?<=[" WORD_ALONE "])"
#define NOT_IN "(?<![" WORD_ALONE "])"
#define BEFORE "(?=[" WORD_ALONE "])"
#define NOT_BEFORE "(?![" WORD_ALONE "])"
#define DEEPEST 100 /* groups within groups */

struct translation {
	const char *at, *end, *whole;
	const char *group; /* just after the opening of the last group */
	struct hd_buf *out;
	int in_set;
	size_t depth;                 /* number of open groups */
	unsigned char folds[DEEPEST]; /* whether case is ignored in each of them */
	char letter;                  /* the letter immediately before, or 0 if it was not a letter */
	struct hd_err *err;
};

static void add(struct translation *t, const char *s)
{
	hd_buf_add(t->out, s, strlen(s));
}

static int refuse(struct translation *t, const char *what)
{
	return hd_err_set(t->err, HD_ENOTSUP, "the expression %.200s: %s is not supported", t->whole, what);
}

static int folds(const struct translation *t)
{
	return t->folds[t->depth];
}

/* -- escapes ----------------------------------------------------------------------------------- */
static void add_set(struct translation *t, const char *members, int negated)
{
	if (!t->in_set)
		add(t, negated ? "[^" : "[");
	add(t, members);
	if (!t->in_set)
		add(t, "]");
}

/* Whether a property is a script: its name is neither a category (one or two letters) nor one of these others. */
static int is_script(const char *name, size_t n)
{
	static const char *const others[] = { "Any", "Alphabetic", "Lowercase", "Uppercase", "White_Space", "Emoji" };

	for (size_t i = 0; i < HD_LEN(others); i++)
		if (strlen(others[i]) == n && !strncmp(name, others[i], n))
			return 0;
	return n > 2 && name[0] != '^' && !memchr(name, '=', n) && !memchr(name, ':', n);
}

/* Whether the property is of one case (Lu, Uppercase, ...). Releases of PCRE2 differ in what these match where case is
 * ignored. */
static int is_of_a_case(const char *name)
{
	return !strncmp(name, "Lu", 2) || !strncmp(name, "Ll", 2) || !strncmp(name, "Lt", 2) ||
	       !strncmp(name, "Upper", 5) || !strncmp(name, "Lower", 5);
}

/* Translates \p{...} or \P{...}; `at` is at the letter. */
static int property(struct translation *t)
{
	const char *close = t->at[1] == '{' ? memchr(t->at, '}', (size_t)(t->end - t->at)) : NULL;
	char letter = *t->at;

	if (!close)
		return refuse(t, "\\p without {name}");
	if (folds(t) && is_of_a_case(t->at + 2))
		return refuse(t, "\\p{...} of one case where case is ignored");
	add(t, letter == 'p' ? "\\p{" : "\\P{");
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
	if (is_script(t->at + 2, (size_t)(close - t->at - 2)))
		add(t, "sc:");
#endif
	hd_buf_add(t->out, t->at + 2, (size_t)(close - t->at - 1));
	t->at = close + 1;
	return HD_OK;
}

static int code_point(struct translation *t)
{
	char hex[16];

	if (t->end - t->at < 5)
		return refuse(t, "\\u without four digits");
	snprintf(hex, sizeof(hex), "\\x{%.4s}", t->at + 1);
	add(t, hex);
	t->at += 5;
	return HD_OK;
}

static int other_escape(struct translation *t)
{
	char one[] = "\\x";

	if (strchr("hHRXKGgkyYNOVE", *t->at))
		return refuse(t, "an escape that is not one of \\s \\S \\w \\W \\d \\D \\p \\P \\b \\B \\A \\z \\Z");
	one[1] = *t->at++;
	add(t, one);
	return HD_OK;
}

static int escape(struct translation *t)
{
	if (++t->at == t->end)
		return refuse(t, "a \\ at the end");
	if (folds(t) && strchr("xu01234567", *t->at))
		return refuse(t, "a character by its number where case is ignored");
	if (t->in_set && folds(t) && strchr("wWpPSD", *t->at))
		return refuse(t, "\\w, \\W, \\p, \\P, \\S or \\D within [...] where case is ignored");
	switch (*t->at) {
	case 'p':
	case 'P': return property(t);
	case 'u': return code_point(t);
	case 's': add_set(t, WHITE, 0); break;
	case 'w': add_set(t, t->in_set ? WORD : WORD_ALONE, 0); break;
	case 'v': add(t, "\\x0b"); break;
	case 'S':
	case 'W':
		if (t->in_set)
			return refuse(t, "\\S or \\W within [...]");
		add_set(t, *t->at == 'S' ? WHITE : WORD_ALONE, 1);
		break;
	case 'b': add(t, t->in_set ? "\\b" : "(?:" IN NOT_BEFORE "|" NOT_IN BEFORE ")"); break;
	case 'B':
		if (t->in_set) /* in Oniguruma, the letter B */
			return refuse(t, "\\B within [...]");
		add(t, "(?:" IN BEFORE "|" NOT_IN NOT_BEFORE ")");
		break;
	default: return other_escape(t);
	}
	t->at++;
	return HD_OK;
}

/* -- sets -------------------------------------------------------------------------------------- */
static const struct {
	const char *name, *members;
} classes[] = {
	{ "[:alpha:]", "\\p{Alphabetic}" },
	{ "[:^alpha:]", "\\P{Alphabetic}" },
	{ "[:alnum:]", "\\p{Alphabetic}\\p{Nd}" },
	{ "[:digit:]", "\\p{Nd}" },
	{ "[:^digit:]", "\\P{Nd}" },
	{ "[:upper:]", "\\p{Uppercase}" },
	{ "[:^upper:]", "\\P{Uppercase}" },
	{ "[:lower:]", "\\p{Lowercase}" },
	{ "[:^lower:]", "\\P{Lowercase}" },
	{ "[:punct:]", "\\p{P}\\p{S}" },
	{ "[:space:]", WHITE },
	{ "[:blank:]", "\\t" BLANK },
	{ "[:cntrl:]", "\\p{Cc}" },
	{ "[:graph:]", GRAPH },
	{ "[:print:]", GRAPH BLANK },
	{ "[:word:]", WORD },
	{ "[:xdigit:]", "0-9A-Fa-f" },
	{ "[:ascii:]", "\\x00-\\x7f" },
};

static int class_in_set(struct translation *t)
{
	if (folds(t))
		return refuse(t, "[:name:] where case is ignored");
	for (size_t i = 0; i < HD_LEN(classes); i++) {
		size_t n = strlen(classes[i].name);

		if ((size_t)(t->end - t->at) < n || memcmp(t->at, classes[i].name, n))
			continue;
		add(t, classes[i].members);
		t->at += n;
		return HD_OK;
	}
	return refuse(t, "this [:name:]");
}

/* Whether c is a dash, quotation mark or other general punctuation. */
static int has_no_case(uint32_t c)
{
	return c >= 0x2010 && c <= 0x205e;
}

/* Whether the character of n bytes at `at` ends a range, whose inner characters may have case even if its ends do
 * not. */
static int is_of_a_range(const struct translation *t, int n)
{
	return t->at[-1] == '-' || (t->end - t->at > n && t->at[n] == '-');
}

static int set_character(struct translation *t)
{
	uint32_t c;
	int n = hd_utf8_get(t->at, &c);

	if (folds(t) && c >= 0x80 && (!has_no_case(c) || is_of_a_range(t, n)))
		return refuse(t, "a character beyond ASCII within [...] where case is ignored");
	hd_buf_add(t->out, t->at, (size_t)n);
	t->at += n;
	return HD_OK;
}

static int set_member(struct translation *t)
{
	int next = t->end - t->at > 1 ? t->at[1] : 0;

	if (*t->at == '[')
		return next == ':' ? class_in_set(t) : refuse(t, "a set within [...]");
	if (*t->at == '&' && next == '&')
		return refuse(t, "&& within [...]");
	if (*t->at == '\\')
		return escape(t);
	return set_character(t);
}

/* Translates a set [...], including its brackets. */
static int set(struct translation *t)
{
	int first = 1;

	hd_buf_add(t->out, t->at++, 1);
	t->in_set = 1;
	if (t->at < t->end && *t->at == '^')
		hd_buf_add(t->out, t->at++, 1);
	for (; t->at < t->end && (first || *t->at != ']'); first = 0)
		HD_TRY(set_member(t));
	t->in_set = 0;
	if (t->at == t->end)
		return refuse(t, "[ without ]");
	hd_buf_add(t->out, t->at++, 1);
	return HD_OK;
}

/* -- groups ------------------------------------------------------------------------------------ */
/* Whether case is ignored with the flags of a group such as (?i-x: ...); without i, as outside it. */
static int folds_in(const struct translation *t, const char *flags, const char *end)
{
	int now = folds(t), on = 1;

	for (; flags < end; flags++)
		if (*flags == '-')
			on = 0;
		else if (*flags == 'i')
			now = on;
	return now;
}

/* Copies (?i). In Oniguruma a(?i)b|c means a(?i:b|c), while in PCRE2 the alternatives of the group stay ab and c. The
 * two agree only at the beginning of a group. */
static int option(struct translation *t, const char *close)
{
	if (t->at != t->group)
		return refuse(t, "(?i) that is not the first in its group");
	t->folds[t->depth] = (unsigned char)folds_in(t, t->at + 2, close);
	hd_buf_add(t->out, t->at, (size_t)(close + 1 - t->at));
	t->at = close + 1;
	return HD_OK;
}

static int regex_group(struct translation *t)
{
	const char *p = t->at + 1, *flags;
	int now = folds(t);

	if (p < t->end && *p == '*')
		return refuse(t, "(*");
	if (p < t->end && *p == '?') {
		flags = ++p;
		while (p < t->end && strchr("ix-", *p))
			p++;
		if (p == t->end || !strchr(p == flags ? ":=!><" : ":)", *p))
			return refuse(t, "this kind of group");
		if (*p == ')')
			return option(t, p);
		now = folds_in(t, flags, p++);
	}
	if (t->depth + 1 == DEEPEST)
		return refuse(t, "groups nested a hundred deep");
	t->folds[++t->depth] = (unsigned char)now;
	hd_buf_add(t->out, t->at, (size_t)(p - t->at));
	t->at = t->group = p;
	return HD_OK;
}

static int end_of_group(struct translation *t)
{
	t->depth -= t->depth > 0;
	hd_buf_add(t->out, t->at++, 1);
	return HD_OK;
}

/* -- characters -------------------------------------------------------------------------------- */
/* Whether every case form of c is known to be one character. Other blocks are not known. The exceptions have a form of
 * several characters (ss, ff, i with a dot), or are part of one. */
static int is_one_in_every_case(uint32_t c)
{
	if (c < 0x250)
		return c != 0xdf && c != 0x130 && c != 0x149 && c != 0x17f && c != 0x1f0;
	return has_no_case(c) || (c >= 0x400 && c < 0x530) || (c >= 0x3000 && c < 0xac00);
}

/* Whether two letters also exist as one character: a ligature, or a sharp s. */
static int is_pair(char first, char second)
{
	static const char pairs[][3] = { "ss", "st", "ff", "fi", "fl" };

	for (size_t i = 0; i < HD_LEN(pairs); i++)
		if (pairs[i][0] == tolower(first) && pairs[i][1] == tolower(second))
			return 1;
	return 0;
}

static int character(struct translation *t)
{
	uint32_t c;
	int n = hd_utf8_get(t->at, &c);
	char letter = c < 0x80 && isalpha((int)c) ? *t->at : 0;

	if (folds(t) && !is_one_in_every_case(c))
		return refuse(t, "a character that may be several where case is ignored");
	if (folds(t) && letter && is_pair(t->letter, letter))
		return refuse(t, "ss, st, ff, fi or fl where case is ignored");
	hd_buf_add(t->out, t->at, (size_t)n);
	t->at += n;
	t->letter = letter;
	return HD_OK;
}

/* Copies {n,m} unchanged. */
static int repeat(struct translation *t)
{
	const char *close = memchr(t->at, '}', (size_t)(t->end - t->at));

	if (t->end - t->at > 1 && t->at[1] == ',')
		return refuse(t, "{,n}");
	if (!close || strspn(t->at + 1, "0123456789,") != (size_t)(close - t->at - 1))
		return character(t);
	if (close + 1 < t->end && close[1] == '+')
		return refuse(t, "{...}+");
	hd_buf_add(t->out, t->at, (size_t)(close + 1 - t->at));
	t->at = close + 1;
	return HD_OK;
}

int hd_oniguruma_write(const char *pattern, size_t n, struct hd_buf *out, struct hd_err *err)
{
	struct translation t = {
		.at = pattern, .end = pattern + n, .whole = pattern, .group = pattern, .out = out, .err = err
	};
	int rc = HD_OK;

	while (t.at < t.end && rc >= 0) {
		if (!strchr("(){", *t.at) && !isalpha((unsigned char)*t.at))
			t.letter = 0;
		switch (*t.at) {
		case '\\': rc = escape(&t); break;
		case '[': rc = set(&t); break;
		case '(': rc = regex_group(&t); break;
		case ')': rc = end_of_group(&t); break;
		case '{': rc = repeat(&t); break;
		default: rc = character(&t);
		}
	}
	return rc;
}
