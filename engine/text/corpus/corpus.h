/* SPDX-License-Identifier: Apache-2.0
 * engine/text/corpus/corpus.h - a corpus of text as files of ids: PREFIX.bin and PREFIX.idx, the indexed data set that engine/data reads.
 *
 *   files.c reader.c documents.c jsonl.c    where text comes from
 *   cut.c                           where a long text may be cut
 *   encode.c                        batches to ids, on all threads
 *   journal.c                       PREFIX.part.*: what is done, so that a run that was stopped goes on
 *   corpus.c                        the order of things; the index
 */
#ifndef HD_ENGINE_TEXT_CORPUS_H
#define HD_ENGINE_TEXT_CORPUS_H
#include "engine/text/corpus/documents.h"
#include "engine/text/tokenizer.h"

struct hd_corpus {
	const char *const *names; /* files, directories, patterns */
	size_t nnames;
	const struct hd_tokenizer *tokenizer; /* NULL: every byte is a token */
	const char *field;                    /* of JSONL */
	int format;                           /* enum hd_text_format */
	int32_t begin;                        /* put before each document; -1: nothing is */
	int32_t end;                          /* appended to each document; -1: nothing is */
	const char *out;                      /* PREFIX */
	int shows;                            /* progress on stderr */
};
struct hd_corpus_counts {
	int64_t documents, tokens;
};
/* notes: a line for each file of which bytes count as U+FFFD; malloc'ed, "" if there is none. */
int hd_corpus_tokenize(const struct hd_corpus *c, struct hd_corpus_counts *counts, char **notes, struct hd_err *err);

/* -- batches to ids -- */
/* Documents in a row. */
struct hd_encoded {
	struct hd_ids ids, lengths; /* lengths: tokens of each document */
	int goes_on;                /* a piece of one document, whose end is in another */
};
struct hd_encoders { /* one of each thread */
	struct hd_encoder **all;
	struct hd_buf *text;
	int n;
};
void hd_encoders_create(struct hd_encoders *e, const struct hd_tokenizer *t);
void hd_encoders_destroy(struct hd_encoders *e);
struct hd_round { /* a batch, cut into parts that threads take */
	struct hd_batch batch;
	struct hd_part {
		struct hd_span text;
		int64_t line;
		int begins;  /* a text, or lines */
		int64_t bad; /* bytes that count as U+FFFD */
		struct hd_encoded made;
		struct hd_err err;
	} * parts;
	size_t nparts, cap;
};
void hd_round_cut(struct hd_round *r, struct hd_cutter *c);
void hd_part_encode(const struct hd_corpus *c, const struct hd_round *r, struct hd_part *p, struct hd_encoder *e,
		    struct hd_buf *text);
void hd_round_release(struct hd_round *r);

/* -- what is done -- */
struct hd_journal {
	const char *prefix;
	uint64_t identity; /* of tokenizer, options and files */
	int width;         /* bytes of an id */
	int ids, lengths;  /* file descriptors */
	struct hd_corpus_place at;
	struct hd_corpus_counts counts, kept; /* kept: as the next run would find them */
	int64_t open;                         /* tokens so far of a document that goes on */
	int64_t bad, text;                    /* bytes of the file at hand that count as U+FFFD, and all so far */
	char *notes;                          /* of earlier files, a line each; NULL: none */
};
int hd_journal_open(struct hd_journal *j, struct hd_err *err); /* at and counts: where an earlier run stopped */
int hd_journal_add(struct hd_journal *j, struct hd_encoded *e, struct hd_err *err); /* and closes what goes on */
int hd_journal_save(struct hd_journal *j, const struct hd_corpus_place *at, struct hd_err *err);
int hd_journal_finish(struct hd_journal *j, struct hd_err *err); /* .bin and .idx get their names */
/* After a failure: parts without a document would only stand in the way of the next run. */
void hd_journal_drop_empty(struct hd_journal *j);
void hd_journal_close(struct hd_journal *j);

#endif
