/* SPDX-License-Identifier: Apache-2.0
 * A file of text is one document, read in several batches if it is long and can be cut (cut.h). In JSONL each line
 * that is not blank is a document.
 */
#include <config.h>
#include "engine/text/corpus/documents.h"
#include <stdlib.h>

#define LONGEST_LINE (1 << 30) /* bytes; a small compressed file could unpack to a line that fills the memory */

static int open_file(struct hd_documents *d, struct hd_err *err)
{
	HD_TRY(hd_reader_open(d->files->all[d->at.file].path, &d->reader, err));
	return hd_reader_skip(d->reader, d->at.byte, err);
}

static void next_file(struct hd_documents *d)
{
	hd_reader_close(d->reader);
	d->reader = NULL;
	d->rest.n = 0;
	d->done += d->files->all[d->at.file].bytes;
	d->at = (struct hd_corpus_place){ d->at.file + 1, 0, 0 };
}

/* Reads a file of text up to its end or a cut. What was read after the cut is kept for the next batch; a text that
 * cannot be cut is read completely. */
static int read_text(struct hd_documents *d, size_t bytes, struct hd_batch *out, struct hd_err *err)
{
	struct hd_buf *b = &out->text;
	size_t cut = 0;
	int64_t k;

	out->begun = d->at.byte > 0;
	hd_buf_add(b, d->rest.at, d->rest.n);
	d->rest.n = 0;
	do {
		hd_buf_room(b, bytes);
		k = hd_reader_get(d->reader, b->at + b->n, bytes, err);
		HD_TRY((int)(k < 0 ? k : 0));
		b->n += (size_t)k;
		out->continues = (size_t)k == bytes;
		cut = out->continues ? hd_cut_last(&d->cutter, b->at, 0, b->n) : b->n;
		bytes = b->n > bytes ? b->n : bytes; /* so that a text without a cut is copied only a few times */
	} while (out->continues && !cut);
	HD_TRY(hd_check_text(out->path, b->at, b->n, d->at.byte,
			     "tokenize takes text and JSONL, plain or compressed with gzip or zstd", err));
	if (!out->continues) {
		next_file(d);
		return HD_OK;
	}
	hd_buf_add(&d->rest, b->at + cut, b->n - cut);
	b->n = cut;
	d->at.byte += (int64_t)cut;
	return HD_OK;
}

static int64_t count_lines(struct hd_span s)
{
	int64_t n = 0;

	for (const char *p = s.at; p < s.at + s.n && (p = memchr(p, '\n', (size_t)(s.at + s.n - p))); p++)
		n++;
	return n;
}

/* Reads complete lines. What was read after the last newline is kept for the next batch. */
static int read_lines(struct hd_documents *d, size_t bytes, struct hd_batch *out, struct hd_err *err)
{
	struct hd_buf *b = &out->text;
	const char *last = NULL;
	int64_t k;

	hd_buf_add(b, d->rest.at, d->rest.n);
	do {
		hd_buf_room(b, bytes);
		k = hd_reader_get(d->reader, b->at + b->n, bytes, err);
		HD_TRY((int)(k < 0 ? k : 0));
		last = k ? memrchr(b->at + b->n, '\n', (size_t)k) : NULL;
		b->n += (size_t)k;
		if (!last && b->n > LONGEST_LINE)
			return hd_err_set(err, HD_EINVAL, "%s:%lld: a line of more than %d bytes", out->path,
					  (long long)d->at.line + 1, LONGEST_LINE);
	} while ((size_t)k == bytes && !last);
	if ((size_t)k < bytes) { /* the end of the file */
		next_file(d);
		return HD_OK;
	}
	d->rest.n = 0;
	hd_buf_add(&d->rest, last + 1, (size_t)(b->at + b->n - last - 1));
	b->n = (size_t)(last + 1 - b->at);
	d->at.byte += (int64_t)b->n;
	d->at.line += count_lines((struct hd_span){ b->at, b->n });
	return HD_OK;
}

int hd_documents_next(struct hd_documents *d, size_t bytes, struct hd_batch *out, struct hd_err *err)
{
	out->text.n = 0;
	out->continues = out->begun = 0;
	while (!out->text.n && d->at.file < (int64_t)d->files->n) {
		out->path = d->files->all[d->at.file].path;
		out->line = d->at.line;
		out->format = d->format == HD_FORMAT_AUTO ? hd_format_of(out->path) : d->format;
		if (!d->reader)
			HD_TRY(open_file(d, err));
		HD_TRY(out->format == HD_FORMAT_TEXT ? read_text(d, bytes, out, err) : read_lines(d, bytes, out, err));
	}
	return HD_OK;
}

int64_t hd_documents_read(const struct hd_documents *d)
{
	return d->done + (d->reader ? hd_reader_place(d->reader) : 0);
}

void hd_documents_close(struct hd_documents *d)
{
	hd_reader_close(d->reader);
	hd_buf_release(&d->rest);
	hd_cutter_release(&d->cutter);
	d->reader = NULL;
}
