/* SPDX-License-Identifier: Apache-2.0
 * engine/text/corpus/corpus.h - turns a corpus of text into ids: PREFIX.bin and PREFIX.idx, the indexed data set that
 * engine/data reads.
 *
 *   files.c reader.c documents.c jsonl.c    read the text
 *   cut.c                           finds where a long text may be cut
 *   encode.c                        encodes batches on all threads
 *   journal.c                       PREFIX.part.*: progress, with which a stopped run continues; the index
 *   corpus.c                        the main loop
 */
#ifndef HD_ENGINE_TEXT_CORPUS_H
#define HD_ENGINE_TEXT_CORPUS_H
#include "engine/text/corpus/documents.h"
#include "engine/text/tokenizer.h"

struct hd_corpus {
	const char *const *names; /* files, directories, patterns */
	size_t nnames;
	const struct hd_tokenizer *tokenizer; /* NULL: every byte is a token */
	const char *field;                    /* the field of a JSONL line that contains the text */
	int format;                           /* enum hd_text_format */
	int32_t begin;                        /* id to put before each document, or -1 */
	int32_t end;                          /* id to append to each document, or -1 */
	const char *out;                      /* PREFIX */
	int shows;                            /* whether to show progress on stderr */
};
struct hd_corpus_counts {
	int64_t documents, tokens;
};
/* Writes the corpus. *notes gets a line for each file with bytes that count as U+FFFD, or ""; the caller frees it. */
int hd_corpus_tokenize(const struct hd_corpus *c, struct hd_corpus_counts *counts, char **notes, struct hd_err *err);

/* -- batches to ids -- */
/* Consecutive documents. */
struct hd_encoded {
	struct hd_ids ids, lengths; /* lengths: the number of tokens of each document */
	int continues;              /* it is a piece of one document that ends in a later one */
};
struct hd_encoders { /* one encoder and one text buffer per thread */
	struct hd_encoder **all;
	struct hd_buf *text;
	int n;
};
void hd_encoders_create(struct hd_encoders *e, const struct hd_tokenizer *t);
void hd_encoders_destroy(struct hd_encoders *e);
struct hd_round { /* a batch, cut into parts that threads encode */
	struct hd_batch batch;
	struct hd_part {
		struct hd_span text;
		int64_t line; /* of JSONL: the number of its first line in the file, from 0 */
		int begins;   /* whether it begins a text; 1 for lines of JSONL */
		int64_t bad;  /* number of bytes that count as U+FFFD */
		struct hd_encoded made;
		struct hd_err err;
	} * parts;
	size_t nparts, cap;
};
void hd_round_cut(struct hd_round *r, struct hd_cutter *c);
void hd_part_encode(const struct hd_corpus *c, const struct hd_round *r, struct hd_part *p, struct hd_encoder *e,
		    struct hd_buf *text);
void hd_round_release(struct hd_round *r);

/* -- progress on disk -- */
struct hd_journal {
	const char *prefix;
	uint64_t identity; /* hash of tokenizer, options and files */
	int width;         /* bytes of an id */
	int ids, lengths;  /* file descriptors */
	struct hd_corpus_place at;
	struct hd_corpus_counts counts, kept; /* kept: those saved, which the next run would find */
	int64_t open;                         /* tokens so far of an unfinished document, since its last sequence */
	int32_t most;                         /* tokens of a sequence in the index; 0: as many as it can count */
	int64_t bad, text;                    /* bytes of the current file so far: those that count as U+FFFD; all */
	char *notes;                          /* a line for each earlier file with such bytes; NULL: none */
};
int hd_journal_open(struct hd_journal *j, struct hd_err *err); /* sets at and counts to where an earlier run stopped */
/* Appends ids and lengths of e, whose first document may be the rest of an unfinished one. */
int hd_journal_add(struct hd_journal *j, struct hd_encoded *e, struct hd_err *err);
int hd_journal_save(struct hd_journal *j, const struct hd_corpus_place *at, struct hd_err *err);
int hd_journal_finish(struct hd_journal *j, struct hd_err *err); /* gives .bin and .idx their names */
/* Removes the .part files after a failure if they are empty: they would only get in the way of the next run. */
void hd_journal_drop_empty(struct hd_journal *j);
void hd_journal_close(struct hd_journal *j);

#endif
