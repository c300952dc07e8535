/* SPDX-License-Identifier: Apache-2.0
 * Megatron's indexed data set: x.bin contains only ids, and x.idx the places of the sequences.
 *
 *	"MMIDIDX" and two zeros, u64 version 1, u8 type, u64 sequences, u64 boundaries,
 *	i32 length of each sequence, i64 its place in x.bin in bytes,
 *	i64 first sequence of each document, and an end (the boundaries)
 *
 * The stream contains the documents in order. Usually they are contiguous in x.bin and become one run, however many
 * they are.
 */
#include <config.h>
#include "engine/data/tokens.h"
#include <string.h>

#define HEAD 34

static uint64_t word_at(const unsigned char *p, int64_t i)
{
	uint64_t v;

	memcpy(&v, p + 8 * i, sizeof(v));
	return v;
}

struct index {
	struct hd_mapping bin, idx;
	int64_t sequences, boundaries;
	const unsigned char *lengths, *places, *documents;
	int type;
};

static int read_head(struct index *x, struct hd_err *err)
{
	static const int types[] = { -1, HD_IDS_U8, HD_IDS_I8, HD_IDS_I16, HD_IDS_I32, HD_IDS_I64, -1, -1, HD_IDS_U16 };
	const unsigned char *p = x->idx.at;
	const char *path = x->idx.path;
	uint64_t n, d;

	if (x->idx.bytes < HEAD || memcmp(p, "MMIDIDX\0", 9))
		return hd_err_set(err, HD_EINVAL, "%s: not a Megatron index (%zu bytes%s)", path, x->idx.bytes,
				  x->idx.bytes < HEAD ? ", but its header needs 34"
						      : " that do not begin with MMIDIDX");
	if (word_at(p + 9, 0) != 1)
		return hd_err_set(err, HD_EINVAL, "%s: version %llu of a Megatron index; only version 1 is known", path,
				  (unsigned long long)word_at(p + 9, 0));
	x->type = p[17] < HD_LEN(types) ? types[p[17]] : -1;
	if (x->type < 0)
		return hd_err_set(err, HD_EINVAL, "%s: type %d is not a type of ids (1 to 5 and 8 are)", path, p[17]);
	n = word_at(p + 18, 0);
	d = word_at(p + 18, 1);
	if (n > x->idx.bytes || d > x->idx.bytes || HEAD + 12 * n + 8 * d > x->idx.bytes)
		return hd_err_set(
			err, HD_EINVAL,
			"%s: has %zu bytes, but its header says %llu sequences and %llu boundaries, which need %llu",
			path, x->idx.bytes, (unsigned long long)n, (unsigned long long)d,
			(unsigned long long)(HEAD + 12 * n + 8 * d));
	x->sequences = (int64_t)n;
	x->boundaries = (int64_t)d;
	x->lengths = p + HEAD;
	x->places = x->lengths + 4 * n;
	x->documents = x->places + 8 * n;
	return 0;
}

static int append(struct hd_tokens *t, const struct index *x, int64_t from, int64_t to, struct hd_err *err)
{
	uint64_t place, width = (uint64_t)hd_ids_width(x->type);
	int64_t s;
	int32_t n;

	for (s = from; s < to; s++) {
		memcpy(&n, x->lengths + 4 * s, sizeof(n));
		place = word_at(x->places, s);
		if (n < 0 || place > x->bin.bytes || (uint64_t)n * width > x->bin.bytes - place)
			return hd_err_set(err, HD_EINVAL,
					  "%s: has %zu bytes, but %s puts sequence %lld, of %d tokens, at byte %llu",
					  x->bin.path, x->bin.bytes, x->idx.path, (long long)s, n,
					  (unsigned long long)place);
		hd_tokens_append(t, &x->bin, place, n, x->type);
	}
	return 0;
}

static int append_documents(struct hd_tokens *t, const struct index *x, struct hd_err *err)
{
	int64_t from, to;

	if (x->boundaries < 2) /* its writer never closed a document */
		return append(t, x, 0, x->sequences, err);
	for (int64_t d = 0; d + 1 < x->boundaries; d++) {
		from = (int64_t)word_at(x->documents, d);
		to = (int64_t)word_at(x->documents, d + 1);
		if (from < 0 || from > to || to > x->sequences)
			return hd_err_set(err, HD_EINVAL, "%s: document %lld is sequences %lld to %lld of %lld",
					  x->idx.path, (long long)d, (long long)from, (long long)to,
					  (long long)x->sequences);
		HD_TRY(append(t, x, from, to, err));
	}
	return HD_OK;
}

/* Notes ids that the index leaves out. Usually it is that of an earlier .bin, or its writer was stopped. */
static void note_unread(struct hd_tokens *t, const struct index *x, int64_t read)
{
	int64_t all = (int64_t)x->bin.bytes / hd_ids_width(x->type);

	if (read < all)
		hd_append(&t->notes, "%s: %lld of its %lld tokens are in no document of %s, so they stay unread\n",
			  x->bin.path, (long long)(all - read), (long long)all, x->idx.path);
}

int hd_megatron_open(struct hd_tokens *t, const char *bin, const char *idx, struct hd_err *err)
{
	struct index x = { .type = -1 };
	int64_t before = t->n;

	HD_TRY(hd_tokens_map(t, bin, &x.bin, err));
	HD_TRY(hd_tokens_map(t, idx, &x.idx, err));
	HD_TRY(read_head(&x, err));
	HD_TRY(append_documents(t, &x, err));
	note_unread(t, &x, t->n - before);
	return HD_OK;
}
