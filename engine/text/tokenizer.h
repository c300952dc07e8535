/* SPDX-License-Identifier: Apache-2.0
 * engine/text/tokenizer.h - a tokenizer as Hugging Face's tokenizer.json describes it: text to ids and back.
 *
 * Ids are those of Python's tokenizers with add_special_tokens=False; leading.h handles the special tokens. A file
 * that asks for anything unknown here is refused when it is loaded.
 *
 *   unicode/               UTF-8, normal forms, regular expressions (PCRE2)
 *   bpe/                   the model
 *   added.c                added tokens
 *   steps.c normalizer.c pretokenizer.c decoder.c     the other parts of the file
 */
#ifndef HD_ENGINE_TEXT_TOKENIZER_H
#define HD_ENGINE_TEXT_TOKENIZER_H
#include "engine/base/err.h"
#include "engine/text/bpe/bpe.h"

struct hd_tokenizer; /* may be shared by threads */
struct hd_encoder;   /* used by one thread only */

/* Returns advice for an error message: how to create a tokenizer.json in a directory that has only other files of a
 * tokenizer. Returns "" where there are none. */
const char *hd_tokenizer_advice(const char *dir);
/* Returns the path of the file; the caller frees it. Here and below, path is tokenizer.json or its directory. */
char *hd_tokenizer_file(const char *path);
int hd_tokenizer_open(const char *path, struct hd_tokenizer **out, struct hd_err *err);
void hd_tokenizer_close(struct hd_tokenizer *t);
int64_t hd_tokenizer_vocab(const struct hd_tokenizer *t);                 /* the highest id, plus one */
int32_t hd_tokenizer_id(const struct hd_tokenizer *t, const char *token); /* -1: there is no such token */
uint64_t hd_tokenizer_hash(const struct hd_tokenizer *t);                 /* a hash of the file's bytes */
const struct hd_ids *hd_tokenizer_leading(const struct hd_tokenizer *t);  /* the special tokens before a text */
const char *hd_tokenizer_path(const struct hd_tokenizer *t);              /* the path of tokenizer.json */

struct hd_encoder *hd_encoder_create(const struct hd_tokenizer *t);
void hd_encoder_destroy(struct hd_encoder *e);
/* Appends the ids of a piece of a longer text. Nothing is put before a piece unless it begins the text (begins is 1).
 * Whether the pieces together have the ids of the complete text depends on where it is cut (corpus/cut.h). */
int hd_encode_piece(struct hd_encoder *e, const char *text, size_t n, int begins, struct hd_ids *out,
		    struct hd_err *err);
/* Returns 1 if the model never joins these two adjacent code points. That is known only if words are split without a
 * regular expression: the text is one word, or is split at a fixed string. The normalizer is not considered. */
int hd_encoder_parts(const struct hd_encoder *e, uint32_t left, uint32_t right);
size_t hd_encoder_longest_added(const struct hd_encoder *e); /* bytes of the longest added token; 0: there is none */
void hd_encoder_mark(struct hd_encoder *e, struct hd_ids *starts); /* see hd_bpe_state_mark */
/* Appends the ids of a text. Bytes that are not valid UTF-8 count as U+FFFD. */
int hd_encode(struct hd_encoder *e, const char *text, size_t n, struct hd_ids *out, struct hd_err *err);
/* Appends the text of ids, including special tokens; ids without a token are skipped. */
int hd_decode(const struct hd_tokenizer *t, const int32_t *ids, size_t n, struct hd_buf *out, struct hd_err *err);

#endif
