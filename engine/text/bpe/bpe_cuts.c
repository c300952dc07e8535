/* SPDX-License-Identifier: Apache-2.0
 * Finds where a long word may be cut.
 *
 * Tokenizers converted from SentencePiece models have no pre-tokenizer: the complete text is one word. But two
 * characters that are adjacent in no token are never merged, whatever surrounds them. So the text is cut between them,
 * which gives short parts that recur. This holds if every character is encoded by tokens of the vocabulary: unknown
 * characters become byte tokens, which no merge joins.
 */
#include <config.h>
#include "engine/text/bpe/bpe.h"
#include <stdlib.h>

#define FREE UINT64_MAX

static size_t slot_of(const struct hd_bpe *b, uint64_t pair)
{
	uint64_t h = pair * 0x9e3779b97f4a7c15ull;
	size_t at = (h ^ h >> 32) & (b->njoined - 1);

	while (b->joined[at] != pair && b->joined[at] != FREE)
		at = (at + 1) & (b->njoined - 1);
	return at;
}

int hd_bpe_joined(const struct hd_bpe *b, uint32_t left, uint32_t right)
{
	return b->joined[slot_of(b, (uint64_t)left << 32 | right)] != FREE;
}

/* Adds the pairs of adjacent code points in the text of a merged token. */
static void add_pairs(struct hd_bpe *b, struct hd_span text)
{
	uint32_t left = 0, right;

	for (size_t i = 0; i < text.n; left = right) {
		size_t first = !i;

		i += (size_t)hd_utf8_get(text.at + i, &right);
		if (!first)
			b->joined[slot_of(b, (uint64_t)left << 32 | right)] = (uint64_t)left << 32 | right;
	}
}

static int is_byte(const struct hd_bpe *b, int32_t id)
{
	for (int c = 0; c < 256; c++)
		if (b->byte_id[c] == id)
			return 1;
	return 0;
}

/* Whether words may be cut: the model has a token for every byte, which no merge joins, and no prefix or suffix. */
static int allowed(const struct hd_bpe *b)
{
	if (b->prefix || b->suffix || !b->bytes)
		return 0;
	for (int c = 0; c < 256; c++)
		if (b->byte_id[c] < 0)
			return 0;
	for (size_t i = 0; i < b->nslots; i++) {
		const struct hd_merge *m = &b->merges[i];

		if (m->pair != FREE && (is_byte(b, (int32_t)(m->pair >> 32)) || is_byte(b, (int32_t)m->pair)))
			return 0;
	}
	return 1;
}

void hd_bpe_cuts(struct hd_bpe *b)
{
	size_t pairs = 0;

	if (!allowed(b))
		return;
	for (size_t i = 0; i < b->nslots; i++)
		if (b->merges[i].pair != FREE)
			pairs += hd_vocab_text(&b->vocab, b->merges[i].id).n;
	for (b->njoined = 16; b->njoined < 2 * pairs; b->njoined *= 2)
		;
	b->joined = hd_alloc(b->njoined * sizeof(*b->joined));
	memset(b->joined, 0xff, b->njoined * sizeof(*b->joined));
	for (size_t i = 0; i < b->nslots; i++)
		if (b->merges[i].pair != FREE)
			add_pairs(b, hd_vocab_text(&b->vocab, b->merges[i].id));
}
