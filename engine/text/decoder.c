/* SPDX-License-Identifier: Apache-2.0
 * "decoder" of tokenizer.json: changes the texts of tokens, one by one or all together, before they are concatenated.
 */
#include <config.h>
#include "engine/text/decode.h"
#include <stdlib.h>

static int load_replace(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	HD_TRY(hd_step_pattern(s, o, err));
	return hd_step_content(s, o, "content", err);
}

static int load_strip(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	s->left = json_integer_value(json_object_get(o, "start"));
	s->right = json_integer_value(json_object_get(o, "stop"));
	return hd_step_mark(s, o, "content", err);
}

static int load_metaspace(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	const char *scheme = json_string_value(json_object_get(o, "prepend_scheme"));

	s->prepend = scheme ? strcmp(scheme, "never") : hd_step_flag(o, "add_prefix_space", 1);
	return hd_step_mark(s, o, "replacement", err);
}

int hd_decoder_load(struct hd_steps *s, json_t *root, struct hd_err *err)
{
	static const struct hd_component known[] = {
		{ "ByteLevel", HD_STEP_BYTES, NULL },
		{ "Replace", HD_STEP_REPLACE, load_replace },
		{ "ByteFallback", HD_STEP_BYTE_FALLBACK, NULL },
		{ "Fuse", HD_STEP_FUSE, NULL },
		{ "Strip", HD_STEP_STRIP, load_strip },
		{ "Metaspace", HD_STEP_METASPACE, load_metaspace },
	};
	static const struct hd_step_family part = { "decoder", "decoders", known, (int)HD_LEN(known) };

	return hd_steps_load(s, &part, json_object_get(root, "decoder"), err);
}

/* -- one token --------------------------------------------------------------------------------- */
void hd_texts_add(struct hd_texts *t, const char *s, size_t n)
{
	if (t->n == t->cap)
		t->end = hd_grow(t->end, t->n, &t->cap, sizeof(*t->end));
	hd_buf_add(&t->bytes, s, n);
	t->end[t->n++] = t->bytes.n;
}

static struct hd_span text_at(const struct hd_texts *t, size_t i)
{
	size_t from = i ? t->end[i - 1] : 0;

	return (struct hd_span){ t->bytes.at + from, t->end[i] - from };
}

void hd_texts_release(struct hd_texts *t)
{
	hd_buf_release(&t->bytes);
	free(t->end);
}

static void close_text(struct hd_texts *t)
{
	hd_texts_add(t, "", 0);
}

static void strip(const struct hd_text_step *s, struct hd_span x, struct hd_texts *out)
{
	for (int64_t i = 0; i < s->left && x.n >= s->ncontent && !memcmp(x.at, s->content, s->ncontent); i++) {
		x.at += s->ncontent;
		x.n -= s->ncontent;
	}
	for (int64_t i = 0; i < s->right && x.n >= s->ncontent; i++) {
		if (memcmp(x.at + x.n - s->ncontent, s->content, s->ncontent))
			break;
		x.n -= s->ncontent;
	}
	hd_texts_add(out, x.at, x.n);
}

static void metaspace(const struct hd_text_step *s, struct hd_span x, int first, struct hd_texts *out)
{
	for (size_t i = 0; i < x.n;) {
		if (x.n - i >= s->ncontent && !memcmp(x.at + i, s->content, s->ncontent)) {
			if (!first || !s->prepend)
				hd_buf_add(&out->bytes, " ", 1);
			i += s->ncontent;
		} else {
			hd_buf_add(&out->bytes, x.at + i++, 1);
		}
	}
	close_text(out);
}

/* Appends the bytes that a token in GPT-2's alphabet stands for. A token with any other character is appended
 * unchanged. */
static void bytes_of(struct hd_span x, struct hd_buf *out)
{
	size_t before = out->n;
	uint32_t c;

	for (size_t i = 0; i < x.n;) {
		int byte;
		char one;

		i += (size_t)hd_utf8_get(x.at + i, &c);
		byte = hd_char_byte(c);
		if (byte < 0) {
			out->n = before;
			hd_buf_add(out, x.at, x.n);
			return;
		}
		one = (char)byte;
		hd_buf_add(out, &one, 1);
	}
}

/* -- all together ------------------------------------------------------------------------------ */
static void bytes(const struct hd_texts *in, struct hd_texts *out)
{
	struct hd_buf all = { 0 };

	for (size_t i = 0; i < in->n; i++)
		bytes_of(text_at(in, i), &all);
	hd_utf8_repair(all.at, all.n, &out->bytes);
	close_text(out);
	hd_buf_release(&all);
}

static int digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
				      : -1;
}

/* Returns the byte that a token such as <0x41> stands for, or -1 for other tokens. */
static int byte_token(struct hd_span x)
{
	if (x.n != 6 || memcmp(x.at, "<0x", 3) || x.at[5] != '>' || digit(x.at[3]) < 0 || digit(x.at[4]) < 0)
		return -1;
	return 16 * digit(x.at[3]) + digit(x.at[4]);
}

/* Adds consecutive bytes as one text if they are valid UTF-8, else U+FFFD for each byte. */
static void end_row(struct hd_buf *row, struct hd_texts *out)
{
	if (row->n && hd_utf8_valid(row->at, row->n) == row->n)
		hd_texts_add(out, row->at, row->n);
	else
		for (size_t i = 0; i < row->n; i++)
			hd_texts_add(out, "\xef\xbf\xbd", 3);
	row->n = 0;
}

static void byte_fallback(const struct hd_texts *in, struct hd_texts *out)
{
	struct hd_buf row = { 0 };

	for (size_t i = 0; i < in->n; i++) {
		struct hd_span x = text_at(in, i);
		int byte = byte_token(x);
		char one = (char)byte;

		if (byte >= 0) {
			hd_buf_add(&row, &one, 1);
			continue;
		}
		end_row(&row, out);
		hd_texts_add(out, x.at, x.n);
	}
	end_row(&row, out);
	hd_buf_release(&row);
}

static int replace(const struct hd_text_step *s, struct hd_matcher *m, struct hd_span x, struct hd_texts *out,
		   struct hd_err *err)
{
	struct hd_span with = { s->content, s->ncontent };

	HD_TRY(hd_pattern_replace(&s->pattern, m, x, with, &out->bytes, err));
	close_text(out);
	return HD_OK;
}

static int step(const struct hd_text_step *s, struct hd_matcher *m, const struct hd_texts *in, struct hd_texts *out,
		struct hd_err *err)
{
	if (s->kind == HD_STEP_BYTES)
		bytes(in, out);
	else if (s->kind == HD_STEP_BYTE_FALLBACK)
		byte_fallback(in, out);
	else if (s->kind == HD_STEP_FUSE)
		hd_texts_add(out, in->bytes.at, in->bytes.n);
	else
		for (size_t i = 0; i < in->n; i++) {
			if (s->kind == HD_STEP_STRIP)
				strip(s, text_at(in, i), out);
			else if (s->kind == HD_STEP_METASPACE)
				metaspace(s, text_at(in, i), !i, out);
			else
				HD_TRY(replace(s, m, text_at(in, i), out, err));
		}
	return HD_OK;
}

int hd_texts_decode(const struct hd_steps *steps, struct hd_matcher *m, struct hd_texts *t, struct hd_err *err)
{
	int rc = HD_OK;

	for (size_t i = 0; i < steps->n && rc >= 0; i++) {
		struct hd_texts next = { 0 };

		hd_buf_room(&next.bytes, t->bytes.n + 1);
		rc = step(&steps->all[i], m, t, &next, err);
		hd_texts_release(t);
		*t = next;
	}
	return rc;
}
