/* SPDX-License-Identifier: Apache-2.0
 * engine/text/bpe/vocab.h - the tokens of a model: text to id and id to text.
 */
#ifndef HD_ENGINE_TEXT_VOCAB_H
#define HD_ENGINE_TEXT_VOCAB_H
#include "engine/text/unicode/utf8.h"

struct hd_vocab {
	struct hd_buf text; /* the texts of all tokens, concatenated */
	struct hd_vocab_entry {
		size_t at;  /* where it begins in text */
		uint32_t n; /* bytes */
		int32_t id; /* -1: there is no such token */
	} * all;            /* indexed by id */
	size_t nall, cap;
	int32_t *slots; /* hash table of ids; -1: free */
	size_t nslots;
	size_t longest; /* bytes of the longest token */
};

void hd_vocab_add(struct hd_vocab *v, const char *s, size_t n, int32_t id);
void hd_vocab_index(struct hd_vocab *v);                                /* call it after the last add */
int32_t hd_vocab_id(const struct hd_vocab *v, const char *s, size_t n); /* -1: no such token */
struct hd_span hd_vocab_text(const struct hd_vocab *v, int64_t id);     /* at is NULL: no such token */
void hd_vocab_release(struct hd_vocab *v);

uint64_t hd_text_hash(const char *s, size_t n);

#endif
