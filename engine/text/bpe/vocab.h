/* SPDX-License-Identifier: Apache-2.0
 * engine/text/bpe/vocab.h - the tokens of a model: text to id and id to text.
 */
#ifndef HD_ENGINE_TEXT_VOCAB_H
#define HD_ENGINE_TEXT_VOCAB_H
#include "engine/text/unicode/utf8.h"

struct hd_vocab {
	struct hd_buf text; /* of all tokens, one behind the other */
	struct hd_vocab_entry {
		size_t at;  /* in text */
		uint32_t n; /* its bytes */
		int32_t id; /* -1: there is no such token */
	} * all;            /* by id */
	size_t nall, cap;
	int32_t *slots; /* ids by hash; -1: free */
	size_t nslots;
	size_t longest;
};

void hd_vocab_add(struct hd_vocab *v, const char *s, size_t n, int32_t id);
void hd_vocab_index(struct hd_vocab *v);                                /* after the last add */
int32_t hd_vocab_id(const struct hd_vocab *v, const char *s, size_t n); /* -1: none */
struct hd_span hd_vocab_text(const struct hd_vocab *v, int64_t id);     /* at NULL: none */
void hd_vocab_release(struct hd_vocab *v);

uint64_t hd_text_hash(const char *s, size_t n);

#endif
