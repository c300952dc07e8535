/* SPDX-License-Identifier: Apache-2.0
 * engine/text/bpe/bpe.h - byte-pair encoding: the pieces of a word are joined, the pair that was learnt first before others.
 */
#ifndef HD_ENGINE_TEXT_BPE_H
#define HD_ENGINE_TEXT_BPE_H
#include <jansson.h>
#include "engine/base/err.h"
#include "engine/text/bpe/vocab.h"

struct hd_ids {
	int32_t *at;
	size_t n, cap;
};
void hd_ids_add(struct hd_ids *o, int32_t id);
void hd_ids_append(struct hd_ids *o, const struct hd_ids *more);
void hd_ids_release(struct hd_ids *o);

struct hd_bpe { /* as loaded; any thread may read it */
	struct hd_vocab vocab;
	struct hd_merge {
		uint64_t pair; /* left id, right id; all ones: a free slot */
		uint32_t rank;
		int32_t id; /* of both joined */
	} * merges;
	size_t nslots;
	uint64_t *joined; /* pairs of code points that stand together in a token, hashed; NULL: words are not cut */
	size_t njoined;
	int32_t byte_id[256];   /* tokens <0x00> to <0xFF>; raw: of the characters that stand for bytes */
	int32_t ascii_id[128];  /* tokens of one character */
	int32_t unknown;        /* unk_token, or -1 */
	int raw;                /* text is bytes, and tokens are written in GPT-2's alphabet */
	int bytes, fuse, whole; /* byte_fallback, fuse_unk, ignore_merges */
	char *prefix, *suffix;  /* continuing_subword_prefix, end_of_word_suffix, or NULL */
	struct hd_vocab words;  /* raw and whole: the tokens as bytes */
};
/* raw: asked for; refused silently (bpe->raw stays 0) where the vocabulary lacks a byte. */
int hd_bpe_load(struct hd_bpe *b, json_t *model, int raw, struct hd_err *err);
void hd_bpe_release(struct hd_bpe *b);
const struct hd_merge *hd_bpe_merge(const struct hd_bpe *b, int32_t left, int32_t right); /* NULL: none */
void hd_bpe_cuts(struct hd_bpe *b); /* fills joined, where the model allows to cut */
int hd_bpe_joined(const struct hd_bpe *b, uint32_t left, uint32_t right);

struct hd_bpe_state; /* of one thread: what it remembers of words */
struct hd_bpe_state *hd_bpe_state_create(const struct hd_bpe *b);
void hd_bpe_state_destroy(struct hd_bpe_state *s);
/* starts, until it is NULL again, gets the place in `out` of every id that begins a part of
 * its own. That is a word, or what hd_bpe_cuts allows to cut off. */
void hd_bpe_state_mark(struct hd_bpe_state *s, struct hd_ids *starts);
/* The ids of a word, which the pre-tokenizer has made. */
void hd_bpe_encode(struct hd_bpe_state *s, const char *word, size_t n, struct hd_ids *out);

#endif
