/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions by PCRE2, compiled to machine code where that is possible.
 *
 * Oniguruma's \s is Unicode's White_Space, its \w has marks and connectors, its \v is one character, its \uHHHH a code
 * point, its scripts are those of the Script property; ^ and $ stand at lines.  These are written out.  What PCRE2 would
 * take for something else without a word (sets within sets, {n,m}+ which repeats there and is possessive here) is refused.
 */
#include <config.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/unicode/regex.h"
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

struct hd_regex {
	pcre2_code *code;
	int jit;
};
struct hd_matcher {
	pcre2_match_data *data;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
};

/* -- from one syntax to the other -------------------------------------------------------------- */
#define WHITE "\\t-\\r\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

struct translation {
	const char *at, *end, *whole;
	struct hd_buf out;
	int in_set;
	struct hd_err *err;
};

static void add(struct translation *t, const char *s)
{
	hd_buf_add(&t->out, s, strlen(s));
}

static int refuse(struct translation *t, const char *what)
{
	return hd_err_set(t->err, HD_ENOTSUP, "the expression %.200s: %s is not supported", t->whole, what);
}

static void add_set(struct translation *t, const char *members, int negated)
{
	if (!t->in_set)
		add(t, negated ? "[^" : "[");
	add(t, members);
	if (!t->in_set)
		add(t, "]");
}

/* Names that are neither a category (one or two letters) nor one of these are scripts. */
static int is_script(const char *name, size_t n)
{
	static const char *const others[] = { "Any", "Alphabetic", "Lowercase", "Uppercase", "White_Space", "Emoji" };

	for (size_t i = 0; i < HD_LEN(others); i++)
		if (strlen(others[i]) == n && !strncmp(name, others[i], n))
			return 0;
	return n > 2 && name[0] != '^' && !memchr(name, '=', n) && !memchr(name, ':', n);
}

/* \p{...}, \P{...}: at stands on the letter. */
static int property(struct translation *t)
{
	const char *close = t->at[1] == '{' ? memchr(t->at, '}', (size_t)(t->end - t->at)) : NULL;
	char letter = *t->at;

	if (!close)
		return refuse(t, "\\p without {name}");
	add(t, letter == 'p' ? "\\p{" : "\\P{");
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
	if (is_script(t->at + 2, (size_t)(close - t->at - 2)))
		add(t, "sc:");
#endif
	hd_buf_add(&t->out, t->at + 2, (size_t)(close - t->at - 1));
	t->at = close + 1;
	return HD_OK;
}

static int escape(struct translation *t)
{
	char one[] = "\\x", hex[16];

	if (++t->at == t->end)
		return refuse(t, "a \\ at the end");
	switch (*t->at) {
	case 's': add_set(t, WHITE, 0); break;
	case 'w': add_set(t, WORD, 0); break;
	case 'S':
	case 'W':
		if (t->in_set)
			return refuse(t, "\\S or \\W within [...]");
		add_set(t, *t->at == 'S' ? WHITE : WORD, 1);
		break;
	case 'p':
	case 'P': return property(t);
	case 'v': add(t, "\\x0b"); break;
	case 'u':
		if (t->end - t->at < 5)
			return refuse(t, "\\u without four digits");
		snprintf(hex, sizeof(hex), "\\x{%.4s}", t->at + 1);
		add(t, hex);
		t->at += 4;
		break;
	default:
		if (strchr("hHRXKGgkyYNOVE", *t->at))
			return refuse(
				t, "an escape that is not one of \\s \\S \\w \\W \\d \\D \\p \\P \\b \\B \\A \\z \\Z");
		one[1] = *t->at;
		add(t, one);
	}
	t->at++;
	return HD_OK;
}

/* [...], from its bracket to behind the other. */
static int set(struct translation *t)
{
	int first = 1;

	hd_buf_add(&t->out, t->at++, 1);
	t->in_set = 1;
	if (t->at < t->end && *t->at == '^')
		hd_buf_add(&t->out, t->at++, 1);
	while (t->at < t->end && (first || *t->at != ']')) {
		first = 0;
		if (*t->at == '[' && t->end - t->at > 1 && t->at[1] != ':')
			return refuse(t, "a set within [...]");
		if (*t->at == '&' && t->end - t->at > 1 && t->at[1] == '&')
			return refuse(t, "&& within [...]");
		if (*t->at == '\\')
			HD_TRY(escape(t));
		else
			hd_buf_add(&t->out, t->at++, 1);
	}
	t->in_set = 0;
	if (t->at == t->end)
		return refuse(t, "[ without ]");
	hd_buf_add(&t->out, t->at++, 1);
	return HD_OK;
}

static int regex_group(struct translation *t)
{
	const char *p = t->at + 2;

	if (t->end - t->at > 2 && t->at[1] == '?') {
		while (p < t->end && strchr("ix-", *p))
			p++;
		if (p == t->end || !strchr(p == t->at + 2 ? ":=!>"
							    "<"
							  : ":)",
					   *p))
			return refuse(t, "this kind of group");
	} else if (t->end - t->at > 1 && t->at[1] == '*') {
		return refuse(t, "(*");
	}
	hd_buf_add(&t->out, t->at++, 1);
	return HD_OK;
}

static int translate(struct translation *t)
{
	while (t->at < t->end) {
		int rc = HD_OK;

		if (*t->at == '\\')
			rc = escape(t);
		else if (*t->at == '[')
			rc = set(t);
		else if (*t->at == '(')
			rc = regex_group(t);
		else if (*t->at == '}' && t->end - t->at > 1 && t->at[1] == '+')
			rc = refuse(t, "{...}+");
		else if (*t->at == '{' && t->end - t->at > 1 && t->at[1] == ',')
			rc = refuse(t, "{,n}");
		else
			hd_buf_add(&t->out, t->at++, 1);
		HD_TRY(rc);
	}
	return HD_OK;
}

/* -- compiling --------------------------------------------------------------------------------- */
static pcre2_code *compile(const struct hd_buf *text, const char *whole, struct hd_err *err)
{
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	unsigned char why[200];
	pcre2_code *code;
	size_t at;
	int wrong;

	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	code = pcre2_compile((PCRE2_SPTR)text->at, text->n, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &wrong, &at,
			     context);
	pcre2_compile_context_free(context);
	if (!code) {
		pcre2_get_error_message(wrong, why, sizeof(why));
		hd_err_set(err, HD_EINVAL, "the expression %.200s: %s", whole, (char *)why);
	}
	return code;
}

int hd_regex_compile(const char *pattern, size_t n, struct hd_regex **out, struct hd_err *err)
{
	struct translation t = { .at = pattern, .end = pattern + n, .whole = pattern, .err = err };
	pcre2_code *code = NULL;

	add(&t, "");
	if (translate(&t) >= 0)
		code = compile(&t.out, pattern, err);
	hd_buf_release(&t.out);
	if (!code)
		return err->code;
	*out = hd_alloc(sizeof(**out));
	(*out)->code = code;
	(*out)->jit = !pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
	return HD_OK;
}

void hd_regex_free(struct hd_regex *r)
{
	if (!r)
		return;
	pcre2_code_free(r->code);
	free(r);
}

/* -- matching ---------------------------------------------------------------------------------- */
/* A run of blanks of some MB is one match, which may need as much of a stack. */
#define STACK_FIRST (64 << 10)
#define STACK_MOST (256 << 20)

struct hd_matcher *hd_matcher_create(void)
{
	struct hd_matcher *m = hd_alloc(sizeof(*m));

	m->data = pcre2_match_data_create(1, NULL);
	m->context = pcre2_match_context_create(NULL);
	pcre2_set_match_limit(m->context, UINT32_MAX);
	pcre2_set_depth_limit(m->context, UINT32_MAX);
	m->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
	if (m->stack)
		pcre2_jit_stack_assign(m->context, NULL, m->stack);
	return m;
}

void hd_matcher_destroy(struct hd_matcher *m)
{
	if (!m)
		return;
	pcre2_match_data_free(m->data);
	pcre2_match_context_free(m->context);
	pcre2_jit_stack_free(m->stack);
	free(m);
}

int hd_regex_find(const struct hd_regex *r, struct hd_matcher *m, const char *s, size_t n, size_t from, size_t *start,
		  size_t *end, struct hd_err *err)
{
	PCRE2_SPTR text = (PCRE2_SPTR)s;
	unsigned char why[200];
	size_t *found;
	int rc;

	rc = r->jit ? pcre2_jit_match(r->code, text, n, from, 0, m->data, m->context)
		    : pcre2_match(r->code, text, n, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0) {
		pcre2_get_error_message(rc, why, sizeof(why));
		return hd_err_set(err, HD_EIO, "the tokenizer's expression on %zu bytes of text: %s", n - from,
				  (char *)why);
	}
	found = pcre2_get_ovector_pointer(m->data);
	*start = found[0];
	*end = found[1];
	return 1;
}

/* -- patterns ---------------------------------------------------------------------------------- */
int hd_pattern_find(const struct hd_pattern *p, struct hd_matcher *m, const char *s, size_t n, size_t from,
		    size_t *start, size_t *end, struct hd_err *err)
{
	const char *at;

	if (p->regex)
		return hd_regex_find(p->regex, m, s, n, from, start, end, err);
	at = p->n ? memmem(s + from, n - from, p->text, p->n) : NULL;
	if (!at)
		return 0;
	*start = (size_t)(at - s);
	*end = *start + p->n;
	return 1;
}

void hd_pattern_release(struct hd_pattern *p)
{
	hd_regex_free(p->regex);
	free(p->text);
}

int hd_pattern_replace(const struct hd_pattern *p, struct hd_matcher *m, struct hd_span s, struct hd_span with,
		       struct hd_buf *out, struct hd_err *err)
{
	size_t from = 0, done = 0, last = SIZE_MAX, start, end;
	int rc = 0;

	while (from <= s.n && (rc = hd_pattern_find(p, m, s.at, s.n, from, &start, &end, err)) > 0) {
		if (end > start || end != last) { /* nothing behind a match is no match of its own */
			hd_buf_add(out, s.at + done, start - done);
			hd_buf_add(out, with.at, with.n);
			done = end;
		}
		last = end;
		if (end == start && end == s.n)
			break;
		from = end > start ? end : end + (size_t)hd_utf8_length((unsigned char)s.at[end]);
	}
	hd_buf_add(out, s.at + done, s.n - done);
	return rc < 0 ? rc : HD_OK;
}
