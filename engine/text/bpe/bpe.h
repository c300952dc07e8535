/* SPDX-License-Identifier: Apache-2.0
 * engine/text/bpe/bpe.h - byte-pair encoding: adjacent pieces of a word are merged, in the order in which the merges
 * were learnt.
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

struct hd_bpe { /* not changed after loading; may be shared by threads */
	struct hd_vocab vocab;
	struct hd_merge {
		uint64_t pair; /* left id in the upper half, right id in the lower; all ones: a free slot */
		uint32_t rank;
		int32_t id; /* the merged token */
	} * merges;         /* a hash table by pair */
	size_t nslots;
	uint64_t *joined; /* hash table of code point pairs that are adjacent in a token; NULL: words are not cut */
	size_t njoined;
	int32_t byte_id[256];           /* tokens <0x00> to <0xFF>; raw: those of the characters that stand for bytes */
	int32_t ascii_id[128];          /* tokens of one ASCII character */
	int32_t unknown;                /* unk_token, or -1 */
	int raw;                        /* words are given as bytes, and tokens are written in GPT-2's alphabet */
	int bytes, fuse, ignore_merges; /* keys byte_fallback, fuse_unk, ignore_merges */
	char *prefix, *suffix;          /* continuing_subword_prefix, end_of_word_suffix, or NULL */
	struct hd_vocab words;          /* if raw and ignore_merges: the tokens as bytes */
};
/* raw asks for words as bytes. b->raw stays 0 if the vocabulary lacks a byte or the model has a prefix or suffix. */
int hd_bpe_load(struct hd_bpe *b, json_t *model, int raw, struct hd_err *err);
void hd_bpe_release(struct hd_bpe *b);
const struct hd_merge *hd_bpe_merge(const struct hd_bpe *b, int32_t left, int32_t right); /* NULL: none */
void hd_bpe_cuts(struct hd_bpe *b); /* fills joined, if the model allows words to be cut */
int hd_bpe_joined(const struct hd_bpe *b, uint32_t left, uint32_t right);

struct hd_bpe_state; /* one thread's buffers and its cache of words */
struct hd_bpe_state *hd_bpe_state_create(const struct hd_bpe *b);
void hd_bpe_state_destroy(struct hd_bpe_state *s);
/* Makes hd_bpe_encode append to starts the index in `out` of each id that begins a separately encoded part. Such a
 * part is a word, or a piece that hd_bpe_cuts allows to be cut off. NULL ends this. */
void hd_bpe_state_mark(struct hd_bpe_state *s, struct hd_ids *starts);
/* Appends the ids of a word of the pre-tokenizer. */
void hd_bpe_encode(struct hd_bpe_state *s, const char *word, size_t n, struct hd_ids *out);

#endif
