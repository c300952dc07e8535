/* SPDX-License-Identifier: Apache-2.0
 * Cuts a batch into parts and encodes their documents.
 */
#include <config.h>
#include "engine/text/corpus/corpus.h"
#include <omp.h>
#include <stdlib.h>

#define PART (64 << 10) /* bytes that a thread takes at once, up to the end of a line or a cut */

void hd_encoders_create(struct hd_encoders *e, const struct hd_tokenizer *t)
{
	e->n = omp_get_max_threads();
	e->all = hd_alloc((size_t)e->n * sizeof(*e->all));
	e->text = hd_alloc((size_t)e->n * sizeof(*e->text));
	for (int i = 0; t && i < e->n; i++)
		e->all[i] = hd_encoder_create(t);
}

void hd_encoders_destroy(struct hd_encoders *e)
{
	for (int i = 0; i < e->n; i++) {
		hd_encoder_destroy(e->all[i]);
		hd_buf_release(&e->text[i]);
	}
	free(e->all);
	free(e->text);
}

static struct hd_part *add_part(struct hd_round *r, struct hd_span text)
{
	struct hd_part *p;

	r->parts = hd_grow(r->parts, r->nparts, &r->cap, sizeof(*r->parts));
	p = &r->parts[r->nparts++];
	p->text = text;
	p->line = 0;
	p->begins = 1;
	p->bad = 0;
	p->made.ids.n = p->made.lengths.n = 0;
	p->made.continues = 0;
	p->err.code = 0;
	return p;
}

/* Returns the last cut up to PART bytes after `from`; without one there, further PART bytes are tried. Returns the end
 * if there is no cut. */
static size_t part_end(struct hd_cutter *c, const struct hd_buf *b, size_t from)
{
	for (size_t n = from + PART; n < b->n; n += PART) {
		size_t at = hd_cut_last(c, b->at, from, n);

		if (at > from)
			return at;
	}
	return b->n;
}

static void cut_text(struct hd_round *r, struct hd_cutter *c)
{
	const struct hd_buf *b = &r->batch.text;

	for (size_t from = 0, to; from < b->n; from = to) {
		struct hd_part *p;

		to = part_end(c, b, from);
		p = add_part(r, (struct hd_span){ b->at + from, to - from });
		p->begins = !from && !r->batch.begun;
		p->made.continues = to < b->n || r->batch.continues;
	}
}

void hd_round_cut(struct hd_round *r, struct hd_cutter *c)
{
	const struct hd_buf *b = &r->batch.text;
	int64_t line = r->batch.line;
	size_t from = 0, to = 0;

	r->nparts = 0;
	if (r->batch.format == HD_FORMAT_TEXT) {
		cut_text(r, c);
		return;
	}
	while (from < b->n) {
		int64_t lines = 0;

		for (to = from; to < b->n && to - from < PART; lines++) {
			const char *end = memchr(b->at + to, '\n', b->n - to);

			to = end ? (size_t)(end + 1 - b->at) : b->n;
		}
		add_part(r, (struct hd_span){ b->at + from, to - from })->line = line;
		from = to;
		line += lines;
	}
}

static int encode_text(const struct hd_corpus *c, const char *path, struct hd_span text, struct hd_part *p,
		       struct hd_encoder *e)
{
	struct hd_ids *ids = &p->made.ids;
	size_t before = ids->n;

	if (c->begin >= 0 && p->begins)
		hd_ids_add(ids, c->begin);
	for (size_t i = 0; !e && i < text.n; i++)
		hd_ids_add(ids, (unsigned char)text.at[i]);
	if (e)
		p->bad += (int64_t)hd_utf8_bad(text.at, text.n);
	if (e)
		HD_TRY(hd_encode_piece(e, text.at, text.n, p->begins, ids, &p->err));
	if (p->made.continues)
		return HD_OK;
	if (c->end >= 0)
		hd_ids_add(ids, c->end);
	if (ids->n - before > INT32_MAX)
		return hd_err_set(&p->err, HD_ENOTSUP,
				  "%s: a document has %zu tokens that cannot be cut, more than the index can count",
				  path, ids->n - before);
	if (ids->n > before)
		hd_ids_add(&p->made.lengths, (int32_t)(ids->n - before));
	return HD_OK;
}

/* Skips a byte order mark, which JSON does not allow, but with which some editors begin a file. */
static struct hd_span without_mark(struct hd_span first)
{
	int marked = first.n >= 3 && !memcmp(first.at, "\xef\xbb\xbf", 3);

	return marked ? (struct hd_span){ first.at + 3, first.n - 3 } : first;
}

static int is_blank(struct hd_span line)
{
	for (size_t i = 0; i < line.n; i++)
		if (!strchr(" \t\r\n", line.at[i]))
			return 0;
	return 1;
}

void hd_part_encode(const struct hd_corpus *c, const struct hd_round *r, struct hd_part *p, struct hd_encoder *e,
		    struct hd_buf *text)
{
	int64_t line = p->line;

	if (r->batch.format == HD_FORMAT_TEXT) {
		encode_text(c, r->batch.path, p->text, p, e);
		return;
	}
	for (size_t from = 0, to; from < p->text.n; from = to, line++) {
		const char *end = memchr(p->text.at + from, '\n', p->text.n - from);
		struct hd_span json;
		int64_t bad = 0;

		to = end ? (size_t)(end + 1 - p->text.at) : p->text.n;
		json = (struct hd_span){ p->text.at + from, to - from };
		json = line ? json : without_mark(json);
		text->n = 0;
		hd_buf_add(text, "", 0);
		if (is_blank(json))
			continue;
		if (hd_document_text(&r->batch, line, json, c->field, text, &bad, &p->err) < 0 ||
		    encode_text(c, r->batch.path, (struct hd_span){ text->at, text->n }, p, e) < 0)
			return;
		p->bad += bad;
	}
}

void hd_round_release(struct hd_round *r)
{
	for (size_t i = 0; i < r->cap; i++) {
		hd_ids_release(&r->parts[i].made.ids);
		hd_ids_release(&r->parts[i].made.lengths);
	}
	free(r->parts);
	hd_buf_release(&r->batch.text);
}
