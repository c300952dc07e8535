/* SPDX-License-Identifier: Apache-2.0
 * engine/text/corpus/documents.h - reads the documents of a corpus in batches.
 */
#ifndef HD_ENGINE_TEXT_CORPUS_DOCUMENTS_H
#define HD_ENGINE_TEXT_CORPUS_DOCUMENTS_H
#include "engine/text/corpus/cut.h"
#include "engine/text/corpus/files.h"
#include "engine/text/unicode/utf8.h"

/* Where the next document begins. */
struct hd_corpus_place {
	int64_t file, byte, line; /* file: index in hd_files; byte: in the uncompressed file; line: from 0 */
};
struct hd_documents {
	const struct hd_files *files;
	int format; /* enum hd_text_format */
	struct hd_corpus_place at;
	struct hd_reader *reader; /* of files->all[at.file]; NULL: not yet open */
	struct hd_buf rest;       /* text that was read but belongs to the next batch */
	struct hd_cutter cutter;  /* for texts that are longer than a batch */
	int64_t done;             /* total size of the files before this one */
};
struct hd_batch {
	struct hd_buf text; /* complete lines of one JSONL file, or a file of text up to its end or a cut */
	int begun;          /* the text began in an earlier batch */
	int continues;      /* the text continues in the next batch */
	const char *path;
	int64_t line; /* number of the first line */
	int format;
};

/* Reads about `bytes` of text of one file: complete documents, or a piece of one. An empty batch means the end. */
int hd_documents_next(struct hd_documents *d, size_t bytes, struct hd_batch *out, struct hd_err *err);
int64_t hd_documents_read(const struct hd_documents *d); /* how many bytes of the files, as stored, were read */
void hd_documents_close(struct hd_documents *d);

/* In jsonl.c: appends the text of a JSONL line, its `field`, to out. *bad is the number of bytes of the line that
 * count as U+FFFD. */
int hd_document_text(const struct hd_batch *b, int64_t line, struct hd_span json, const char *field, struct hd_buf *out,
		     int64_t *bad, struct hd_err *err);

#endif
