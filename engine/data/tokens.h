/* SPDX-License-Identifier: Apache-2.0
 * engine/data/tokens.h - files of tokens, memory-mapped, as one stream of ids.
 *
 * The formats are text (bytes as ids, or tokenized), llm.c's .bin, Megatron's .bin with its .idx, and ids without a
 * header. Reading changes nothing, so that threads may share an open stream.
 */
#ifndef HD_ENGINE_TOKENS_H
#define HD_ENGINE_TOKENS_H
#include "engine/base/err.h"

enum { HD_IDS_U8, HD_IDS_I8, HD_IDS_U16, HD_IDS_I16, HD_IDS_U32, HD_IDS_I32, HD_IDS_I64 };

struct hd_mapping {
	char *path;
	const unsigned char *at;
	size_t bytes, head; /* head: bytes before the first id */
};
struct hd_token_run { /* consecutive tokens of one file */
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
	int64_t n;     /* tokens of the stream */
	int64_t vocab; /* 256 for bytes, the tokenizer's for text, that implied by an llm.c file, else 0 */
	int text;      /* 0: ids of a different program */
	char *notes;   /* a line for each file with bytes that count as U+FFFD, or with ids left out; NULL: none */
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
struct hd_tokens_how {                        /* a NULL pointer to it means all zero */
	int format;                           /* enum hd_data_format; auto: by the names */
	const char *field;                    /* the field of JSONL; NULL: "text" */
	const struct hd_tokenizer *tokenizer; /* for text; NULL: its bytes are ids */
	int any_bytes;                        /* accept the bytes of files that are clearly not text */
};

/* Opens files, a comma-separated list of files, directories and patterns, as one stream in this order. Errors name the
 * file. */
int hd_tokens_open(const char *files, const struct hd_tokens_how *how, struct hd_tokens **out, struct hd_err *err);
void hd_tokens_close(struct hd_tokens *t);
int hd_tokens_are_text(const char *files,
		       const struct hd_tokens_how *how); /* 1: the first exists, and is text judging by its name */
/* Returns the format with which to open a file in addition to others of the `usual` one; auto if the name decides. The
 * name of an index of Megatron or of JSONL always decides. The ending .bin decides if the usual format is not one of
 * ids, and .txt if it is. */
int hd_tokens_format(const char *path, int usual);
int hd_tokens_are_in(const char *files, const char *path); /* whether path is one of them, or the index of one */
int hd_tokens_have_jsonl(const char *files);               /* whether one of them is JSONL by its name */
/* Reads ids [first, first + count) of the stream. An id outside [0, vocab) is an error; with vocab 0, only one that
 * does not fit int32_t. */
int hd_tokens_read(const struct hd_tokens *t, int64_t first, int64_t count, int64_t vocab, int32_t *ids,
		   struct hd_err *err);
/* -- ids_in_vocab.c: finds such an error before hours of training, not after them -- */
int64_t hd_tokens_bytes(const struct hd_tokens *t); /* bytes of all ids */
/* Checks this share of the ids, in pieces spread over the stream; 1 is all of them. */
int hd_tokens_check_ids(const struct hd_tokens *t, int64_t vocab, double share, struct hd_err *err);

/* -- kept_ids.c: the ids of texts in the cache -- */
#define HD_KEPT_DAYS 30
void hd_kept_ids_used(const char *idx); /* marks them as used now */
/* Removes from dir the ids that no run has opened in the last HD_KEPT_DAYS days. */
void hd_kept_ids_prune(const char *dir);

/* -- for the formats -- */
struct hd_files;
int hd_text_open(struct hd_tokens *t, const struct hd_files *files, const struct hd_tokens_how *how,
		 struct hd_err *err);
int hd_tokens_map(struct hd_tokens *t, const char *path, struct hd_mapping *out, struct hd_err *err);
void hd_tokens_append(struct hd_tokens *t, const struct hd_mapping *m, size_t at, int64_t count, int type);
int hd_ids_width(int type); /* bytes */
int hd_megatron_open(struct hd_tokens *t, const char *bin, const char *idx, struct hd_err *err);

#endif
