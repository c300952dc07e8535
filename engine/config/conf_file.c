/* SPDX-License-Identifier: Apache-2.0
 * The syntax of the INI file. inih splits lines into keys and values; this file adds line numbers, and refuses
 * duplicate sections and keys. No other file uses inih.
 *
 * inih is called through its stream interface, because only there we count the lines, whatever options it was built
 * with. Its lines are short (200 bytes in most builds) and it truncates longer ones silently. So the reader passes a
 * long line in pieces, which inih treats as continuation lines, as in Python's INI files. Leading blanks are removed
 * from every line, so that a user's indented keys are not mistaken for continuations.
 */
#include <config.h>
#include "engine/config/conf_impl.h"
#include "engine/base/parse.h"
#include <ctype.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	struct hd_conf *c;
	const char *text;    /* the unread rest of the file */
	char *buf, *rest;    /* a line, and the part of it not yet passed to inih */
	int line, continued; /* continued: inih gets a later piece of a long line */
	int *line_of;        /* for each line of inih's count, the line of the file */
	size_t calls, cap;
	struct hd_section *s;
	struct hd_entry *e;
	struct hd_err err;
};

static int HD_PRINTF(2, 3) at(struct reader *r, const char *fmt, ...)
{
	char what[400];
	va_list v;

	va_start(v, fmt);
	vsnprintf(what, sizeof(what), fmt, v);
	va_end(v);
	return hd_err_set(&r->err, HD_EINVAL, "%s:%d: %s", r->c->path, r->line, what);
}

static int begin_section(struct reader *r, char *line)
{
	char *close = strchr(line, ']'), *kind, *name, *label;
	struct hd_section *old;

	if (!close)
		return 0; /* inih reports it */
	if (*hd_parse_trim(close + 1))
		return at(r, "%.*s]: '%.60s' follows the section's name", (int)(close - line), line,
			  hd_parse_trim(close + 1));
	*close = 0;
	kind = hd_parse_trim(line + 1);
	name = kind + strcspn(kind, " \t");
	if (*name)
		*name++ = 0;
	name = hd_parse_trim(name);
	if (strlen(kind) + strlen(name) > 90)
		return at(r, "[%.40s...]: the name of a section has at most 90 letters, this one %zu", kind,
			  strlen(kind) + strlen(name));
	if (!*kind || name[strcspn(name, " \t")])
		return at(r, "[%.90s %.90s]: a section is [name] or [kind name]", kind, name);
	label = *name ? hd_format("%s %s", kind, name) : hd_strdup(kind);
	old = hd_conf_section_find(r->c, label);
	if (old)
		at(r, "[%s]: section given twice, first in line %d", label, old->line);
	else
		r->s = hd_conf_section_add(r->c, label, r->line, 1);
	free(label);
	return r->err.code;
}

/* Reads the next line that is neither blank nor a comment into r->buf and r->rest. Returns 0 at the end or on an
 * error. */
static int fetch(struct reader *r)
{
	char *semi, *raw;
	size_t n;

	do {
		if (!*r->text)
			return 0;
		n = strcspn(r->text, "\n");
		r->line++;
		free(r->buf);
		raw = r->buf = hd_alloc(n + 1);
		memcpy(raw, r->text, n);
		r->text += n + (r->text[n] == '\n');
		r->rest = hd_parse_trim(raw);
		for (n = 0; r->rest[n]; n++)
			if (iscntrl((unsigned char)r->rest[n]) && r->rest[n] != '\t')
				return at(r, "byte 0x%02x: this is not a text file", r->rest[n]), 0;
	} while (!*r->rest || *r->rest == ';' || *r->rest == '#');
	for (semi = strchr(r->rest, ';'); semi; semi = strchr(semi + 1, ';'))
		if (isspace((unsigned char)semi[-1])) {
			*semi = 0;
			break;
		}
	hd_parse_trim(r->rest);
	if (*r->rest == '[') {
		char *head = hd_strdup(r->rest);

		begin_section(r, head);
		free(head);
		r->rest[strlen(r->rest) > 100 ? 100 : strlen(r->rest)] = 0;
	}
	return !r->err.code;
}

/* Returns the length of the piece of s that fits into room: all of s, or a prefix. The cut is at a place where neither
 * side loses blanks by trimming, nor is taken for a comment. */
static size_t piece(const char *s, size_t room)
{
	size_t n = strlen(s);

	if (n <= room)
		return n;
	for (n = room; n; n--)
		if (!isspace((unsigned char)s[n - 1]) && !isspace((unsigned char)s[n]) && !strchr(";#", s[n]))
			break;
	return n;
}

static char *next_piece(char *out, int room, void *user)
{
	struct reader *r = user;
	size_t n;

	if (r->err.code)
		return NULL;
	r->continued = r->rest && *r->rest;
	if (!r->continued && !fetch(r))
		return NULL;
	n = piece(r->rest, (size_t)room - 3);
	if (!n) {
		at(r, "more than %d blanks in a row", room - 3);
		return NULL;
	}
	snprintf(out, (size_t)room, "%s%.*s\n", r->continued ? " " : "", (int)n, r->rest);
	r->rest += n;
	r->line_of = hd_grow(r->line_of, r->calls, &r->cap, sizeof(int));
	r->line_of[r->calls++] = r->line;
	return out;
}

static int found(struct reader *r, const char *key, const char *value)
{
	struct hd_entry *e;
	char *joined;

	if (r->continued) {
		if (!r->e)
			return 0;
		joined = hd_format("%s%s", r->e->value, value);
		free(r->e->value);
		r->e->value = joined;
		return 1;
	}
	r->e = NULL;
	if (!*key)
		return at(r, "no key before the ="), 0;
	if (strlen(key) > HD_LONGEST_KEY)
		return at(r, "%.60s...: a key of more than %d characters", key, HD_LONGEST_KEY), 0;
	if (!r->s)
		return at(r, "%.60s: a key before the first [section]", key), 0;
	e = hd_conf_entry_find(r->s, key);
	if (e)
		return at(r, "[%s] %.60s: given twice, first in line %d", r->s->label, key, e->line), 0;
	r->e = hd_conf_entry_add(r->s, key, value, r->line);
	return 1;
}

#if INI_HANDLER_LINENO
static int on_key(void *user, const char *section, const char *key, const char *value, int line)
{
	(void)section;
	(void)line;
	return found(user, key, value);
}
#else
static int on_key(void *user, const char *section, const char *key, const char *value)
{
	(void)section;
	return found(user, key, value);
}
#endif

/* Fails with the text of a line that inih could not split. */
static int unreadable(struct hd_conf *c, const char *text, int line, struct hd_err *err)
{
	const char *p = text;
	int i;

	for (i = 1; i < line; i++)
		p += strcspn(p, "\n") + 1;
	p += strspn(p, " \t");
	return hd_err_set(err, HD_EINVAL, "%s:%d: '%.*s' is %s", c->path, line,
			  (int)(strcspn(p, "\r\n") < 60 ? strcspn(p, "\r\n") : 60), p,
			  *p == '[' ? "a section without its ]" : "neither [section] nor key = value");
}

int hd_conf_file(struct hd_conf *c, const char *text, struct hd_err *err)
{
	struct reader r = { .c = c };
	int bad, line;

	if (!strncmp(text, "\xef\xbb\xbf", 3)) /* a byte order mark, written by editors on Windows */
		text += 3;
	r.text = text;
	bad = ini_parse_stream(next_piece, &r, on_key, &r);
	line = bad > 0 && (size_t)bad <= r.calls ? r.line_of[bad - 1] : 0;
	free(r.line_of);
	free(r.buf);
	if (line && (!r.err.code || line < r.line)) /* our own errors stop the reader at their line */
		return unreadable(c, text, line, err);
	if (r.err.code)
		return hd_err_set(err, r.err.code, "%s", r.err.text);
	return bad ? hd_err_set(err, HD_EIO, "%s: cannot be parsed (inih says %d)", c->path, bad) : 0;
}
