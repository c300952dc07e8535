/* SPDX-License-Identifier: Apache-2.0
 * engine/text/tokenizer.h - a tokenizer as Hugging Face's tokenizer.json describes it: text to ids and back.
 *
 * Ids are those of Python's tokenizers with add_special_tokens=False; leading.h has the special tokens.  What the file names and this program does not know
 * is refused when it is loaded.
 *
 *   unicode/               text, its normal forms, expressions by PCRE2
 *   bpe/                   the model
 *   added.c                added tokens
 *   steps.c normalizer.c pretokenizer.c decoder.c     the other parts of the file
 */
#ifndef HD_ENGINE_TEXT_TOKENIZER_H
#define HD_ENGINE_TEXT_TOKENIZER_H
#include "engine/base/err.h"
#include "engine/text/bpe/bpe.h"

struct hd_tokenizer; /* any thread may use it */
struct hd_encoder;   /* of one thread */

/* For messages: how a directory with vocab.json and merges.txt alone comes to a tokenizer.json; or "". */
const char *hd_tokenizer_advice(const char *dir);
/* path: the file, or the directory that has it. */
char *hd_tokenizer_file(const char *path); /* the file; malloc'ed */
int hd_tokenizer_open(const char *path, struct hd_tokenizer **out, struct hd_err *err);
void hd_tokenizer_close(struct hd_tokenizer *t);
int64_t hd_tokenizer_vocab(const struct hd_tokenizer *t);                 /* the highest id, plus one */
int32_t hd_tokenizer_id(const struct hd_tokenizer *t, const char *token); /* -1: there is no such token */
uint64_t hd_tokenizer_hash(const struct hd_tokenizer *t);                 /* of the file */
const struct hd_ids *hd_tokenizer_leading(const struct hd_tokenizer *t);  /* special tokens before a text */
const char *hd_tokenizer_path(const struct hd_tokenizer *t);              /* of the file */

struct hd_encoder *hd_encoder_create(const struct hd_tokenizer *t);
void hd_encoder_destroy(struct hd_encoder *e);
/* Of a piece of a longer text: nothing is put before it unless it `begins` the text.  Whether the ids of all pieces are those
 * of the whole depends on where it is cut (corpus/cut.h). */
int hd_encode_piece(struct hd_encoder *e, const char *text, size_t n, int begins, struct hd_ids *out,
		    struct hd_err *err);
/* 1: nothing joins these two neighbours, in a tokenizer without an expression for words (text is one word, or cut at a given
 * text). What a normalizer makes of them is not asked. */
int hd_encoder_parts(const struct hd_encoder *e, uint32_t left, uint32_t right);
void hd_encoder_mark(struct hd_encoder *e, struct hd_ids *starts); /* as hd_bpe_state_mark */
/* Appends the ids of a text.  Bytes that are no UTF-8 count as U+FFFD. */
int hd_encode(struct hd_encoder *e, const char *text, size_t n, struct hd_ids *out, struct hd_err *err);
/* Appends the text of ids, special tokens too; ids that no token has are left out. */
int hd_decode(const struct hd_tokenizer *t, const int32_t *ids, size_t n, struct hd_buf *out, struct hd_err *err);

#endif
