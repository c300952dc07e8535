/* SPDX-License-Identifier: Apache-2.0
 * "normalizer" of tokenizer.json: rewrites text before it is split into words.
 */
#include <config.h>
#include "engine/text/steps.h"
#include "engine/text/unicode/unicode.h"

static int load_prepend(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	return hd_step_content(s, o, "prepend", err);
}

static int load_replace(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	HD_TRY(hd_step_pattern(s, o, err));
	return hd_step_content(s, o, "content", err);
}

static int load_strip(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	(void)err;
	s->left = hd_step_flag(o, "strip_left", 1);
	s->right = hd_step_flag(o, "strip_right", 1);
	return HD_OK;
}

int hd_normalizer_load(struct hd_steps *s, json_t *root, struct hd_err *err)
{
	static const struct hd_component known[] = {
		{ "NFC", HD_STEP_NFC, NULL },
		{ "NFD", HD_STEP_NFD, NULL },
		{ "Prepend", HD_STEP_PREPEND, load_prepend },
		{ "Replace", HD_STEP_REPLACE, load_replace },
		{ "Strip", HD_STEP_STRIP, load_strip },
		{ "ByteLevel", HD_STEP_BYTES, NULL },
	};
	static const struct hd_step_family part = { "normalizer", "normalizers", known, (int)HD_LEN(known) };

	return hd_steps_load(s, &part, json_object_get(root, "normalizer"), err);
}

static struct hd_span strip(const struct hd_text_step *s, struct hd_span t)
{
	uint32_t c;
	size_t last;

	while (s->left && t.n) {
		int k = hd_utf8_get(t.at, &c);

		if (!hd_utf8_white(c))
			break;
		t.at += k;
		t.n -= (size_t)k;
	}
	while (s->right && t.n) {
		for (last = t.n - 1; ((unsigned char)t.at[last] & 0xc0) == 0x80; last--)
			;
		hd_utf8_get(t.at + last, &c);
		if (!hd_utf8_white(c))
			break;
		t.n = last;
	}
	return t;
}

int hd_normalize(const struct hd_text_step *s, struct hd_matcher *m, struct hd_span text, struct hd_buf *out,
		 struct hd_err *err)
{
	struct hd_span with = { s->content, s->ncontent };

	switch (s->kind) {
	case HD_STEP_NFC:
	case HD_STEP_NFD: hd_unicode_normalize(text.at, text.n, s->kind == HD_STEP_NFC, out); break;
	case HD_STEP_PREPEND:
		if (text.n)
			hd_buf_add(out, with.at, with.n);
		hd_buf_add(out, text.at, text.n);
		break;
	case HD_STEP_REPLACE: return hd_pattern_replace(&s->pattern, m, text, with, out, err);
	case HD_STEP_STRIP:
		text = strip(s, text);
		hd_buf_add(out, text.at, text.n);
		break;
	default:
		for (size_t i = 0; i < text.n; i++)
			hd_buf_add_char(out, hd_byte_char((unsigned char)text.at[i]));
	}
	return HD_OK;
}
