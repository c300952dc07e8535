/* SPDX-License-Identifier: Apache-2.0
 * engine/data/tokens.h - files of tokens, memory-mapped, as one stream of ids.
 *
 * Text (a byte is an id, or a tokenizer makes them), llm.c's .bin, Megatron's .bin with its .idx, ids without a head.  After opening, reading
 * changes nothing: any thread may read.
 */
#ifndef HD_ENGINE_TOKENS_H
#define HD_ENGINE_TOKENS_H
#include "engine/base/err.h"

enum { HD_IDS_U8, HD_IDS_I8, HD_IDS_U16, HD_IDS_I16, HD_IDS_U32, HD_IDS_I32, HD_IDS_I64 };

struct hd_mapping {
	char *path;
	const unsigned char *at;
	size_t bytes, head; /* head: before the first id */
};
struct hd_token_run { /* tokens that follow one another in one file */
	const unsigned char *at;
	const char *path;
	int64_t first;   /* position in the stream */
	int64_t in_file; /* position in the file, for errors */
	int type;
};
struct hd_tokens {
	struct hd_mapping *maps;
	struct hd_token_run *runs;
	size_t nmaps, maps_cap, nruns, runs_cap;
	int64_t n;     /* of the stream */
	int64_t vocab; /* 256 for bytes, the tokenizer's for text, what an llm.c file implies, else 0 */
	int text;      /* not ids that another program has made */
	char *notes;   /* of text: a line for each file of which bytes count as U+FFFD; NULL: none */
};

enum hd_data_format {
	HD_DATA_AUTO,
	HD_DATA_TEXT,
	HD_DATA_JSONL,
	HD_DATA_UINT16,
	HD_DATA_UINT32,
	HD_DATA_INDEXED,
	HD_DATA_LLMC
};
struct hd_tokenizer;
struct hd_tokens_how {                        /* NULL for it: all zero */
	int format;                           /* enum hd_data_format; auto: by the names */
	const char *field;                    /* of JSONL; NULL: text */
	const struct hd_tokenizer *tokenizer; /* of text; NULL: its bytes are ids */
	int any_bytes;                        /* also of files that are certainly no text */
};

/* files: comma separated, in the order of the stream: names of files, of directories, patterns.  The errors name the file. */
int hd_tokens_open(const char *files, const struct hd_tokens_how *how, struct hd_tokens **out, struct hd_err *err);
void hd_tokens_close(struct hd_tokens *t);
int hd_tokens_are_text(const char *files,
		       const struct hd_tokens_how *how); /* which are there, as far as their names tell */
/* The format to open one file with, beside others that have the `usual` one: what the name says counts. Megatron's index and
 * endings of JSONL say all; .bin says ids, and .txt says text or JSONL. */
int hd_tokens_format(const char *path, int usual);
int hd_tokens_are_in(const char *files, const char *path); /* path is one of them, or the index of one */
int hd_tokens_have_jsonl(const char *files);               /* one of them at least is JSONL by its name */
/* [first, first + count) of the stream.  An id outside [0, vocab) is an error; vocab 0: any fits. */
int hd_tokens_read(const struct hd_tokens *t, int64_t first, int64_t count, int64_t vocab, int32_t *ids,
		   struct hd_err *err);
/* -- ids_in_vocab.c: such an error, before hours of training and not after them -- */
int64_t hd_tokens_bytes(const struct hd_tokens *t); /* of its ids */
/* Reads this share of the stream, in pieces all over it; 1: all. */
int hd_tokens_look(const struct hd_tokens *t, int64_t vocab, double share, struct hd_err *err);

/* -- kept_ids.c: those of texts, in the cache -- */
#define HD_KEPT_DAYS 30
void hd_kept_ids_used(const char *idx); /* now */
/* Removes from dir the ids that no run has opened in the last HD_KEPT_DAYS days. */
void hd_kept_ids_prune(const char *dir);

/* For the formats: */
struct hd_files;
int hd_text_open(struct hd_tokens *t, const struct hd_files *files, const struct hd_tokens_how *how,
		 struct hd_err *err);
int hd_tokens_map(struct hd_tokens *t, const char *path, struct hd_mapping *out, struct hd_err *err);
void hd_tokens_append(struct hd_tokens *t, const struct hd_mapping *m, size_t at, int64_t count, int type);
int hd_ids_width(int type); /* bytes */
int hd_megatron_open(struct hd_tokens *t, const char *bin, const char *idx, struct hd_err *err);

#endif
