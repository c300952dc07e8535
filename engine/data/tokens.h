/* SPDX-License-Identifier: Apache-2.0
 * engine/data/tokens.h - files of tokens, memory-mapped, as one stream of ids.
 *
 * Text (a byte is an id), llm.c's .bin, Megatron's .bin with its .idx.  After opening, reading
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
	int64_t vocab; /* 256 for text, what an llm.c file implies, else 0 */
	int text;      /* bytes, not ids of a tokenizer */
};

/* files: comma separated, in the order of the stream.  The errors name the file. */
int hd_tokens_open(const char *files, struct hd_tokens **out, struct hd_err *err);
void hd_tokens_close(struct hd_tokens *t);
/* [first, first + count) of the stream.  An id outside [0, vocab) is an error; vocab 0: any fits. */
int hd_tokens_read(const struct hd_tokens *t, int64_t first, int64_t count, int64_t vocab, int32_t *ids,
		   struct hd_err *err);

/* For the formats: */
int hd_tokens_map(struct hd_tokens *t, const char *path, struct hd_mapping *out, struct hd_err *err);
void hd_tokens_append(struct hd_tokens *t, const struct hd_mapping *m, size_t at, int64_t count, int type);
int hd_ids_width(int type); /* bytes */
int hd_megatron_open(struct hd_tokens *t, const char *bin, const char *idx, struct hd_err *err);

#endif
