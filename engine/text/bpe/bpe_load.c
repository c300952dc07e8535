/* SPDX-License-Identifier: Apache-2.0
 * Loads "model" of tokenizer.json.
 */
#include <config.h>
#include "engine/text/bpe/bpe.h"
#include <stdio.h>
#include <stdlib.h>

/* -- the vocabulary ---------------------------------------------------------------------------- */
static int load_vocab(struct hd_bpe *b, json_t *vocab, struct hd_err *err)
{
	/* Each id up to the highest takes memory. Wide gaps are accepted, but the limit keeps one bad id from taking
	 * all memory. */
	json_int_t last = (1 << 16) + 16 * (json_int_t)json_object_size(vocab);
	const char *text;
	json_t *id;

	last = last < 1 << 24 ? last : 1 << 24;
	if (!json_is_object(vocab) || !json_object_size(vocab))
		return hd_err_set(err, HD_EINVAL, "model.vocab is missing");
	json_object_foreach(vocab, text, id) /* the parser refuses keys with a NUL */
	{
		json_int_t k = json_is_integer(id) ? json_integer_value(id) : -1;

		if (k < 0 || k > last)
			return hd_err_set(err, HD_EINVAL,
					  "model.vocab: the id of %.60s is %lld, not from 0 to %lld, for %zu tokens",
					  text, (long long)k, (long long)last, json_object_size(vocab));
		hd_vocab_add(&b->vocab, text, strlen(text), (int32_t)k);
	}
	hd_vocab_index(&b->vocab);
	return HD_OK;
}

/* -- merges ------------------------------------------------------------------------------------ */
static size_t merge_slot(const struct hd_bpe *b, uint64_t pair)
{
	uint64_t h = pair * 0x9e3779b97f4a7c15ull;
	size_t at = (h ^ h >> 32) & (b->nslots - 1);

	while (b->merges[at].pair != pair && b->merges[at].pair != UINT64_MAX)
		at = (at + 1) & (b->nslots - 1);
	return at;
}

const struct hd_merge *hd_bpe_merge(const struct hd_bpe *b, int32_t left, int32_t right)
{
	const struct hd_merge *m = &b->merges[merge_slot(b, (uint64_t)(uint32_t)left << 32 | (uint32_t)right)];

	return m->pair == UINT64_MAX ? NULL : m;
}

/* Splits a merge, "a b" or ["a", "b"], into its two parts. Returns 0 if it has another form. */
static int merge_parts(json_t *m, struct hd_span part[2])
{
	const char *text = json_string_value(m), *blank;
	size_t n = json_string_length(m);

	if (json_is_array(m) && json_array_size(m) == 2) {
		for (size_t i = 0; i < 2; i++) {
			json_t *one = json_array_get(m, i);

			part[i] = (struct hd_span){ json_string_value(one), json_string_length(one) };
		}
		return part[0].at && part[1].at;
	}
	blank = text ? memchr(text, ' ', n) : NULL;
	if (!blank || memchr(blank + 1, ' ', n - (size_t)(blank + 1 - text)))
		return 0;
	part[0] = (struct hd_span){ text, (size_t)(blank - text) };
	part[1] = (struct hd_span){ blank + 1, n - part[0].n - 1 };
	return 1;
}

static int load_merge(struct hd_bpe *b, json_t *m, size_t rank, struct hd_buf *text, struct hd_err *err)
{
	size_t skip = b->prefix ? strlen(b->prefix) : 0;
	struct hd_span part[2];
	int32_t left, right, id;
	struct hd_merge *to;

	if (!merge_parts(m, part) || part[1].n < skip)
		return hd_err_set(err, HD_EINVAL, "model.merges: merge %zu is not a pair of tokens", rank);
	text->n = 0;
	hd_buf_add(text, part[0].at, part[0].n);
	hd_buf_add(text, part[1].at + skip, part[1].n - skip);
	left = hd_vocab_id(&b->vocab, part[0].at, part[0].n);
	right = hd_vocab_id(&b->vocab, part[1].at, part[1].n);
	id = hd_vocab_id(&b->vocab, text->at, text->n);
	if (left < 0 || right < 0 || id < 0)
		return hd_err_set(err, HD_EINVAL, "model.merges: merge %zu, %.*s and %.*s: %s not in model.vocab", rank,
				  (int)part[0].n, part[0].at, (int)part[1].n, part[1].at,
				  left < 0    ? "the first is"
				  : right < 0 ? "the second is"
					      : "their concatenation is");
	to = &b->merges[merge_slot(b, (uint64_t)(uint32_t)left << 32 | (uint32_t)right)];
	*to = (struct hd_merge){ (uint64_t)(uint32_t)left << 32 | (uint32_t)right, (uint32_t)rank, id };
	return HD_OK;
}

static int load_merges(struct hd_bpe *b, json_t *merges, struct hd_err *err)
{
	struct hd_buf text = { 0 };
	json_t *m;
	size_t i;
	int rc = HD_OK;

	if (!json_is_array(merges))
		return hd_err_set(err, HD_EINVAL, "model.merges is missing");
	for (b->nslots = 16; b->nslots < 2 * json_array_size(merges) + 2; b->nslots *= 2)
		;
	b->merges = hd_alloc(b->nslots * sizeof(*b->merges));
	for (i = 0; i < b->nslots; i++)
		b->merges[i].pair = UINT64_MAX;
	json_array_foreach(merges, i, m) {
		rc = load_merge(b, m, i, &text, err);
		if (rc < 0)
			break;
	}
	hd_buf_release(&text);
	return rc;
}

/* -- tokens of single characters --------------------------------------------------------------- */
static void find_characters(struct hd_bpe *b)
{
	char name[16];

	for (int c = 0; c < 256; c++) {
		snprintf(name, sizeof(name), "<0x%02X>", c);
		b->byte_id[c] = hd_vocab_id(&b->vocab, name, 6);
	}
	for (int c = 0; c < 128; c++) {
		name[0] = (char)c;
		b->ascii_id[c] = hd_vocab_id(&b->vocab, name, 1);
	}
}

/* Sets raw if the vocabulary has a token for every byte. */
static void find_bytes(struct hd_bpe *b)
{
	int32_t id[256];
	char name[4];

	for (int c = 0; c < 256; c++) {
		id[c] = hd_vocab_id(&b->vocab, name, (size_t)hd_utf8_put(name, hd_byte_char((unsigned char)c)));
		if (id[c] < 0)
			return;
	}
	memcpy(b->byte_id, id, sizeof(id));
	b->raw = 1;
}

/* Fills words with the tokens, written as the bytes that they stand for. */
static void find_words(struct hd_bpe *b)
{
	for (size_t id = 0; id < b->vocab.nall; id++) {
		struct hd_span text = hd_vocab_text(&b->vocab, (int64_t)id);
		char *word = hd_alloc(text.n + 1);
		size_t i = 0, n = 0;
		int byte = 0;
		uint32_t c;

		while (i < text.n && byte >= 0) {
			i += (size_t)hd_utf8_get(text.at + i, &c);
			byte = hd_char_byte(c);
			word[n++] = (char)byte;
		}
		if (text.at && byte >= 0)
			hd_vocab_add(&b->words, word, n, (int32_t)id);
		free(word);
	}
	hd_vocab_index(&b->words);
}

/* -- all --------------------------------------------------------------------------------------- */
static char *text_of(json_t *model, const char *key)
{
	const char *text = json_string_value(json_object_get(model, key));

	return text && *text ? hd_strdup(text) : NULL;
}

static int load_flags(struct hd_bpe *b, json_t *model, struct hd_err *err)
{
	json_t *unknown = json_object_get(model, "unk_token");

	b->bytes = json_is_true(json_object_get(model, "byte_fallback"));
	b->fuse = json_is_true(json_object_get(model, "fuse_unk"));
	b->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
	b->prefix = text_of(model, "continuing_subword_prefix");
	b->suffix = text_of(model, "end_of_word_suffix");
	if (json_number_value(json_object_get(model, "dropout")) > 0)
		return hd_err_set(err, HD_ENOTSUP, "model.dropout is %g: ids would be random; remove it",
				  json_number_value(json_object_get(model, "dropout")));
	b->unknown = -1;
	if (!json_is_string(unknown))
		return HD_OK;
	b->unknown = hd_vocab_id(&b->vocab, json_string_value(unknown), json_string_length(unknown));
	if (b->unknown < 0)
		return hd_err_set(err, HD_EINVAL, "model.unk_token: %.60s is not in model.vocab",
				  json_string_value(unknown));
	return HD_OK;
}

int hd_bpe_load(struct hd_bpe *b, json_t *model, int raw, struct hd_err *err)
{
	HD_TRY(load_vocab(b, json_object_get(model, "vocab"), err));
	HD_TRY(load_flags(b, model, err));
	HD_TRY(load_merges(b, json_object_get(model, "merges"), err));
	find_characters(b);
	if (raw && !b->prefix && !b->suffix)
		find_bytes(b);
	if (b->raw && b->ignore_merges)
		find_words(b);
	if (!b->raw)
		hd_bpe_cuts(b);
	return HD_OK;
}

void hd_bpe_release(struct hd_bpe *b)
{
	hd_vocab_release(&b->vocab);
	hd_vocab_release(&b->words);
	free(b->merges);
	free(b->joined);
	free(b->prefix);
	free(b->suffix);
}
