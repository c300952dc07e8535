/* SPDX-License-Identifier: Apache-2.0
 * A hash table with open addressing, which keeps at least half of the slots free.
 */
#include <config.h>
#include "engine/text/bpe/vocab.h"
#include "engine/base/err.h"
#include <stdlib.h>

uint64_t hd_text_hash(const char *s, size_t n)
{
	uint64_t h = n * 0x9e3779b97f4a7c15ull, word;

	for (; n >= 8; n -= 8, s += 8) {
		memcpy(&word, s, 8);
		h = (h ^ word) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	word = 0;
	memcpy(&word, s, n);
	h = (h ^ word) * 0xff51afd7ed558ccdull;
	return h ^ h >> 32;
}

void hd_vocab_add(struct hd_vocab *v, const char *s, size_t n, int32_t id)
{
	while (v->nall <= (size_t)id) {
		v->all = hd_grow(v->all, v->nall, &v->cap, sizeof(*v->all));
		v->all[v->nall++].id = -1;
	}
	v->all[id] = (struct hd_vocab_entry){ v->text.n, (uint32_t)n, id };
	hd_buf_add(&v->text, s, n);
	v->longest = n > v->longest ? n : v->longest;
}

static size_t slot_of(const struct hd_vocab *v, const char *s, size_t n)
{
	size_t at = hd_text_hash(s, n) & (v->nslots - 1);

	while (v->slots[at] >= 0) {
		struct hd_span have = hd_vocab_text(v, v->slots[at]);

		if (have.n == n && !memcmp(have.at, s, n))
			break;
		at = (at + 1) & (v->nslots - 1);
	}
	return at;
}

void hd_vocab_index(struct hd_vocab *v)
{
	for (v->nslots = 16; v->nslots < 2 * v->nall; v->nslots *= 2)
		;
	free(v->slots);
	v->slots = hd_alloc(v->nslots * sizeof(*v->slots));
	memset(v->slots, -1, v->nslots * sizeof(*v->slots));
	for (size_t i = 0; i < v->nall; i++)
		if (v->all[i].id >= 0)
			v->slots[slot_of(v, v->text.at + v->all[i].at, v->all[i].n)] = v->all[i].id;
}

int32_t hd_vocab_id(const struct hd_vocab *v, const char *s, size_t n)
{
	return n > v->longest ? -1 : v->slots[slot_of(v, s, n)];
}

struct hd_span hd_vocab_text(const struct hd_vocab *v, int64_t id)
{
	if (id < 0 || (size_t)id >= v->nall || v->all[id].id < 0)
		return (struct hd_span){ NULL, 0 };
	return (struct hd_span){ v->text.at + v->all[id].at, v->all[id].n };
}

void hd_vocab_release(struct hd_vocab *v)
{
	hd_buf_release(&v->text);
	free(v->all);
	free(v->slots);
}
