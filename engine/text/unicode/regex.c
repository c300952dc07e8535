/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions with PCRE2, compiled to machine code where that is possible.
 */
#include <config.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/unicode/regex.h"
#include "engine/text/unicode/oniguruma.h"
#include <pcre2.h>
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
	struct hd_buf text = { 0 };
	pcre2_code *code = NULL;

	hd_buf_add(&text, "", 0); /* so that text.at is not NULL for an empty pattern */
	if (hd_oniguruma_write(pattern, n, &text, err) >= 0)
		code = compile(&text, pattern, err);
	hd_buf_release(&text);
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
/* A run of blanks of several MB is one match, which may need a stack of that size. */
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
		if (end > start || end != last) { /* an empty match directly after a match does not count */
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
