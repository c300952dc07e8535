/* SPDX-License-Identifier: Apache-2.0
 * Merges the adjacent pair with the lowest rank, the leftmost of equal ones, until no pair has a rank.
 *
 * A short word is searched again for every merge; a long one keeps its pairs in a heap. Words recur, so each thread
 * caches the ids of words of up to 22 bytes.
 */
#include <config.h>
#include "engine/text/bpe/bpe.h"
#include <stdlib.h>

#define SHORT 96 /* pieces of a word that is searched without a heap */
#define NONE UINT32_MAX

void hd_ids_add(struct hd_ids *o, int32_t id)
{
	if (o->n == o->cap)
		o->at = hd_grow(o->at, o->n, &o->cap, sizeof(*o->at));
	o->at[o->n++] = id;
}

void hd_ids_append(struct hd_ids *o, const struct hd_ids *more)
{
	for (size_t i = 0; i < more->n; i++)
		hd_ids_add(o, more->at[i]);
}

void hd_ids_release(struct hd_ids *o)
{
	free(o->at);
	memset(o, 0, sizeof(*o));
}

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
#define SLOTS (1u << 4) /* so few that words share a slot even in the short texts of t/fuzz */
#else
#define SLOTS (1u << 16)
#endif
#define KEY 22
#define VALUE 10
/* A cached word; 64 bytes, one cache line. */
struct cached_word {
	unsigned char n, nids; /* n is 0: free */
	char key[KEY];
	int32_t ids[VALUE];
};

struct bpe_piece {             /* a piece of a long word, in a linked list */
	int32_t id;            /* -1: merged into the piece before it */
	int64_t before, after; /* -1: none */
};
struct candidate { /* a possible merge, in the heap */
	uint32_t rank;
	int32_t id; /* the merged token */
	int64_t at; /* the left piece */
};
struct hd_bpe_state {
	const struct hd_bpe *bpe;
	struct hd_ids *starts; /* or NULL */
	struct cached_word *words;
	struct hd_ids first; /* the pieces of a word before any merge */
	struct hd_buf text;
	struct bpe_piece *pieces;
	struct candidate *heap;
	size_t nheap, heap_cap, pieces_cap;
};

struct hd_bpe_state *hd_bpe_state_create(const struct hd_bpe *b)
{
	struct hd_bpe_state *s = hd_alloc(sizeof(*s));

	s->bpe = b;
	s->words = hd_alloc(SLOTS * sizeof(*s->words));
	return s;
}

void hd_bpe_state_mark(struct hd_bpe_state *s, struct hd_ids *starts)
{
	s->starts = starts;
}

void hd_bpe_state_destroy(struct hd_bpe_state *s)
{
	if (!s)
		return;
	hd_ids_release(&s->first);
	hd_buf_release(&s->text);
	free(s->pieces);
	free(s->heap);
	free(s->words);
	free(s);
}

/* -- the first pieces -------------------------------------------------------------------------- */
struct unknown_token { /* whether characters without a token are still to be written as one unk_token */
	int pending;
};

static void flush(struct hd_bpe_state *s, struct unknown_token *u)
{
	if (u->pending)
		hd_ids_add(&s->first, s->bpe->unknown);
	u->pending = 0;
}

/* Returns a character with the prefix and the suffix that its place in the word requires. */
static struct hd_span with_affixes(struct hd_bpe_state *s, struct hd_span c, int first, int last)
{
	const struct hd_bpe *b = s->bpe;

	if (!b->prefix && !b->suffix)
		return c;
	s->text.n = 0;
	if (!first && b->prefix)
		hd_buf_add(&s->text, b->prefix, strlen(b->prefix));
	hd_buf_add(&s->text, c.at, c.n);
	if (last && b->suffix)
		hd_buf_add(&s->text, b->suffix, strlen(b->suffix));
	return (struct hd_span){ s->text.at, s->text.n };
}

static int32_t character_id(const struct hd_bpe *b, struct hd_span c)
{
	return c.n == 1 ? b->ascii_id[(unsigned char)*c.at] : hd_vocab_id(&b->vocab, c.at, c.n);
}

static int add_bytes(struct hd_bpe_state *s, struct hd_span c)
{
	const struct hd_bpe *b = s->bpe;

	if (!b->bytes)
		return 0;
	for (size_t i = 0; i < c.n; i++)
		if (b->byte_id[(unsigned char)c.at[i]] < 0)
			return 0;
	for (size_t i = 0; i < c.n; i++)
		hd_ids_add(&s->first, b->byte_id[(unsigned char)c.at[i]]);
	return 1;
}

static void split_characters(struct hd_bpe_state *s, const char *word, size_t n)
{
	struct unknown_token u = { 0 };

	for (size_t i = 0, k; i < n; i += k) {
		struct hd_span c;
		int32_t id;

		k = (size_t)hd_utf8_length((unsigned char)word[i]);
		c = with_affixes(s, (struct hd_span){ word + i, k }, !i, i + k == n);
		id = character_id(s->bpe, c);
		if (id >= 0) {
			flush(s, &u);
			hd_ids_add(&s->first, id);
		} else if (!add_bytes(s, c) && s->bpe->unknown >= 0) {
			if (!s->bpe->fuse)
				flush(s, &u);
			u.pending = 1;
		}
	}
	flush(s, &u);
}

static void split(struct hd_bpe_state *s, const char *word, size_t n)
{
	s->first.n = 0;
	if (!s->bpe->raw) {
		split_characters(s, word, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		hd_ids_add(&s->first, s->bpe->byte_id[(unsigned char)word[i]]);
}

/* -- short words ------------------------------------------------------------------------------- */
static uint32_t rank_of(const struct hd_bpe *b, const int32_t *id, int32_t *joined)
{
	const struct hd_merge *m = hd_bpe_merge(b, id[0], id[1]);

	if (!m)
		return NONE;
	*joined = m->id;
	return m->rank;
}

/* Merges the n pieces in place and returns how many remain. rank[i] is that of the pair of pieces i and i + 1. */
static size_t join_short(const struct hd_bpe *b, int32_t *id, size_t n)
{
	uint32_t rank[SHORT];
	int32_t joined[SHORT];
	size_t best, i;

	for (i = 0; i + 1 < n; i++)
		rank[i] = rank_of(b, id + i, &joined[i]);
	while (n > 1) {
		for (best = 0, i = 1; i + 1 < n; i++)
			if (rank[i] < rank[best])
				best = i;
		if (rank[best] == NONE)
			break;
		id[best] = joined[best];
		n--;
		for (i = best + 1; i < n; i++) {
			id[i] = id[i + 1];
			rank[i] = i + 1 < n ? rank[i + 1] : NONE;
			joined[i] = joined[i + 1];
		}
		if (best)
			rank[best - 1] = rank_of(b, id + best - 1, &joined[best - 1]);
		if (best + 1 < n)
			rank[best] = rank_of(b, id + best, &joined[best]);
	}
	return n;
}

/* -- long words -------------------------------------------------------------------------------- */
static int less(const struct candidate *a, const struct candidate *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* Adds the pair of piece `at` and the one after it to the heap, if a merge joins them. */
static void push(struct hd_bpe_state *s, int64_t at)
{
	const struct bpe_piece *p = &s->pieces[at];
	const struct hd_merge *m = p->after < 0 ? NULL : hd_bpe_merge(s->bpe, p->id, s->pieces[p->after].id);
	struct candidate c;
	size_t i, up;

	if (!m)
		return;
	c = (struct candidate){ m->rank, m->id, at };
	if (s->nheap == s->heap_cap)
		s->heap = hd_grow(s->heap, s->nheap, &s->heap_cap, sizeof(*s->heap));
	for (i = s->nheap++; i && less(&c, &s->heap[up = (i - 1) / 2]); i = up)
		s->heap[i] = s->heap[up];
	s->heap[i] = c;
}

static struct candidate pop(struct hd_bpe_state *s)
{
	struct candidate top = s->heap[0], c = s->heap[--s->nheap];
	size_t i = 0, down;

	while ((down = 2 * i + 1) < s->nheap) {
		if (down + 1 < s->nheap && less(&s->heap[down + 1], &s->heap[down]))
			down++;
		if (!less(&s->heap[down], &c))
			break;
		s->heap[i] = s->heap[down];
		i = down;
	}
	s->heap[i] = c;
	return top;
}

/* Whether the candidate's pair no longer exists: merges leave the old candidates of their pieces in the heap. */
static int is_stale(const struct hd_bpe_state *s, const struct candidate *c)
{
	const struct bpe_piece *p = &s->pieces[c->at];
	const struct hd_merge *m;

	if (p->id < 0 || p->after < 0)
		return 1;
	m = hd_bpe_merge(s->bpe, p->id, s->pieces[p->after].id);
	return !m || m->id != c->id;
}

static void join(struct hd_bpe_state *s, const struct candidate *c)
{
	struct bpe_piece *p = &s->pieces[c->at], *gone = &s->pieces[p->after];

	p->id = c->id;
	p->after = gone->after;
	gone->id = -1;
	if (p->after >= 0)
		s->pieces[p->after].before = c->at;
	if (p->before >= 0)
		push(s, p->before);
	push(s, c->at);
}

static void join_long(struct hd_bpe_state *s, const int32_t *id, size_t n, struct hd_ids *out)
{
	s->nheap = 0;
	while (s->pieces_cap < n)
		s->pieces = hd_grow(s->pieces, s->pieces_cap, &s->pieces_cap, sizeof(*s->pieces));
	for (size_t i = 0; i < n; i++)
		s->pieces[i] = (struct bpe_piece){ id[i], (int64_t)i - 1, i + 1 < n ? (int64_t)i + 1 : -1 };
	for (size_t i = 0; i < n; i++)
		push(s, (int64_t)i);
	while (s->nheap) {
		struct candidate c = pop(s);

		if (!is_stale(s, &c))
			join(s, &c);
	}
	for (int64_t i = 0; i >= 0; i = s->pieces[i].after)
		hd_ids_add(out, s->pieces[i].id);
}

/* -- words ------------------------------------------------------------------------------------- */
static void encode_uncached(struct hd_bpe_state *s, const char *word, size_t n, struct hd_ids *out)
{
	size_t i, m;

	split(s, word, n);
	m = s->first.n;
	if (m > SHORT) {
		join_long(s, s->first.at, m, out);
		return;
	}
	m = m ? join_short(s->bpe, s->first.at, m) : 0;
	for (i = 0; i < m; i++)
		hd_ids_add(out, s->first.at[i]);
}

static void encode_part(struct hd_bpe_state *s, const char *word, size_t n, struct hd_ids *out)
{
	struct cached_word *r;
	size_t before = out->n, made;

	if (s->starts)
		hd_ids_add(s->starts, (int32_t)before);
	if (n > KEY) {
		encode_uncached(s, word, n, out);
		return;
	}
	r = &s->words[hd_text_hash(word, n) >> 20 & (SLOTS - 1)];
	if (r->n == n && !memcmp(r->key, word, n)) {
		for (size_t i = 0; i < r->nids; i++)
			hd_ids_add(out, r->ids[i]);
		return;
	}
	encode_uncached(s, word, n, out);
	made = out->n - before;
	if (made > VALUE)
		return;
	r->n = (unsigned char)n;
	r->nids = (unsigned char)made;
	memcpy(r->key, word, n);
	if (made)
		memcpy(r->ids, out->at + before, made * sizeof(*r->ids));
}

void hd_bpe_encode(struct hd_bpe_state *s, const char *word, size_t n, struct hd_ids *out)
{
	const struct hd_bpe *b = s->bpe;
	size_t from = 0, i;
	uint32_t left, right;
	int32_t id;

	if (!n)
		return;
	if (b->ignore_merges && (id = hd_vocab_id(b->raw ? &b->words : &b->vocab, word, n)) >= 0) {
		if (s->starts)
			hd_ids_add(s->starts, (int32_t)out->n);
		hd_ids_add(out, id);
		return;
	}
	if (!b->joined) {
		encode_part(s, word, n, out);
		return;
	}
	for (i = (size_t)hd_utf8_get(word, &left); i < n; left = right) {
		size_t k = (size_t)hd_utf8_get(word + i, &right);

		if (!hd_bpe_joined(b, left, right)) {
			encode_part(s, word + from, i - from, out);
			from = i;
		}
		i += k;
	}
	encode_part(s, word + from, n - from, out);
}
