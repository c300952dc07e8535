/* SPDX-License-Identifier: Apache-2.0
 * engine/text/corpus/documents.h - the documents of a corpus, in batches.
 */
#ifndef HD_ENGINE_TEXT_CORPUS_DOCUMENTS_H
#define HD_ENGINE_TEXT_CORPUS_DOCUMENTS_H
#include "engine/text/corpus/cut.h"
#include "engine/text/corpus/files.h"
#include "engine/text/unicode/utf8.h"

/* Where the next document begins. */
struct hd_corpus_place {
	int64_t file, byte, line; /* byte: of the unpacked file; line: from 0 */
};
struct hd_documents {
	const struct hd_files *files;
	int format; /* enum hd_text_format */
	struct hd_corpus_place at;
	struct hd_reader *reader; /* of files->all[at.file]; NULL: not yet open */
	struct hd_buf rest;       /* what was read and belongs to the next batch */
	struct hd_cutter cutter;  /* of texts that are longer than a batch */
	int64_t done;             /* bytes of the files before this one */
};
struct hd_batch {
	struct hd_buf text; /* whole lines of one file, or of a file of text as much as can be cut off */
	int begun;          /* the text was, in an earlier batch */
	int goes_on;        /* the text does, in the next batch */
	const char *path;
	int64_t line; /* of the first */
	int format;
};

/* Text of about `bytes`, of one file: whole documents, or a piece of one.  An empty batch: there are no more. */
int hd_documents_next(struct hd_documents *d, size_t bytes, struct hd_batch *out, struct hd_err *err);
int64_t hd_documents_read(const struct hd_documents *d); /* bytes of the files, as the disk has them */
void hd_documents_close(struct hd_documents *d);

/* jsonl.c: the text of a line of JSONL: its `field`, appended to out.  bad: bytes of the line that count as U+FFFD. */
int hd_document_text(const struct hd_batch *b, int64_t line, struct hd_span json, const char *field, struct hd_buf *out,
		     int64_t *bad, struct hd_err *err);

#endif
