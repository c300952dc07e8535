/* SPDX-License-Identifier: Apache-2.0
 * Checks that a model has the ids of a stream before hours of training, not after them. Only the largest id of a piece
 * is compared, so some hundred megabytes take less than a second.
 */
#include <config.h>
#include "engine/data/tokens.h"
#include <string.h>

enum { PIECES = 64, PIECE = 8192 };

/* Return the largest of n ids, compared as unsigned numbers, so that a negative id exceeds all others. memcpy is
 * needed because the ids in a file may be unaligned. */
#define LARGEST(name, type) \
	static uint64_t name(const unsigned char *p, int64_t n) \
	{ \
		type most = 0, id; \
\
		for (int64_t i = 0; i < n; i++) { \
			memcpy(&id, p + i * (int64_t)sizeof(id), sizeof(id)); \
			most = id > most ? id : most; \
		} \
		return most; \
	}

LARGEST(largest_8, uint8_t)
LARGEST(largest_16, uint16_t)
LARGEST(largest_32, uint32_t)
LARGEST(largest_64, uint64_t)

static uint64_t largest(const unsigned char *p, int64_t n, int width)
{
	switch (width) {
	case 1: return largest_8(p, n);
	case 2: return largest_16(p, n);
	case 4: return largest_32(p, n);
	default: return largest_64(p, n);
	}
}

/* Returns the smallest unsigned value that is not an id of the vocab. For a signed type, that is at most the smallest
 * value that stands for a negative id. */
static uint64_t limit_of(int type, int64_t vocab)
{
	int bits = 8 * hd_ids_width(type);
	int has_sign = type == HD_IDS_I8 || type == HD_IDS_I16 || type == HD_IDS_I32 || type == HD_IDS_I64;
	uint64_t below_0 = has_sign ? 1ull << (bits - 1) : UINT64_MAX;

	return (uint64_t)vocab < below_0 ? (uint64_t)vocab : below_0;
}

/* Whether every value of the type is in the vocab. */
static int all_fit(int type, int64_t vocab)
{
	return (type == HD_IDS_U8 && vocab >= 1 << 8) || (type == HD_IDS_U16 && vocab >= 1 << 16);
}

/* Reports the first id of [at, at + n) that is not in the vocab. */
static int report_first_bad_id(const struct hd_tokens *t, int64_t at, int64_t n, int64_t vocab, struct hd_err *err)
{
	int32_t ids[PIECE];

	for (int64_t i = 0; i < n; i += PIECE)
		HD_TRY(hd_tokens_read(t, at + i, n - i < PIECE ? n - i : PIECE, vocab, ids, err));
	return HD_OK;
}

int64_t hd_tokens_bytes(const struct hd_tokens *t)
{
	int64_t bytes = 0, end = t->n;

	for (size_t r = t->nruns; r-- > 0; end = t->runs[r].first)
		bytes += (end - t->runs[r].first) * hd_ids_width(t->runs[r].type);
	return bytes;
}

/* Checks the ids of run r that are among the first `piece` of every `step` ids of the stream. */
static int check_run(const struct hd_tokens *t, size_t r, int64_t step, int64_t piece, int64_t vocab,
		     struct hd_err *err)
{
	const struct hd_token_run *run = &t->runs[r];
	int64_t end = r + 1 < t->nruns ? run[1].first : t->n, n, into;
	int width = hd_ids_width(run->type);
	uint64_t limit = limit_of(run->type, vocab);

	for (int64_t at = run->first; at < end; at += n) {
		into = at % step;
		n = into < piece ? piece - into : step - into;
		n = n < end - at ? n : end - at;
		if (into < piece && largest(run->at + (at - run->first) * width, n, width) >= limit)
			HD_TRY(report_first_bad_id(t, at, n, vocab, err));
	}
	return HD_OK;
}

int hd_tokens_check_ids(const struct hd_tokens *t, int64_t vocab, double share, struct hd_err *err)
{
	int64_t step = t->n / PIECES > PIECE ? t->n / PIECES : PIECE;
	int64_t piece = share < 1 ? (int64_t)(share * (double)step) : step;

	piece = piece > PIECE ? piece : PIECE;
	for (size_t r = 0; r < t->nruns; r++)
		if (!all_fit(t->runs[r].type, vocab))
			HD_TRY(check_run(t, r, step, piece, vocab, err));
	return HD_OK;
}
