/* SPDX-License-Identifier: Apache-2.0
 * A long text is cut at the beginning of a line: after a single newline, before a letter. Within a long line, it is
 * cut before a blank that a letter follows. Without such a place (a page of Chinese), the cut is between two
 * characters that are adjacent in no token. That requires a tokenizer that splits words without a regular expression.
 * A run without any of these, such as a megabyte of digits, is one word to Python too, and stays in one piece.
 *
 * Nearly all tokenizers end a word at such places, and those without words merge nothing across them. But a tokenizer
 * may have any rules, so each cut is tried. The text before it and the text after it, encoded together, must have the
 * same ids as encoded separately. The text after it must also begin a word, or a part of a word that nothing is merged
 * with. Words are found from left to right, and the text before the cut begins at such a place too. So nothing further
 * to the left matters. Both texts are at least as long as the longest added token, since one of several words may
 * have the cut inside.
 */
#include <config.h>
#include "engine/text/corpus/cut.h"
#include <ctype.h>
#include <string.h>

enum { LINE = 4096, TRIES = 8, GIVE_UP = 32 };

/* Whether a character that ends in byte c is not a blank, which is assumed of characters beyond ASCII. */
static int ends_word(unsigned char c)
{
	return c >= 0x80 || isgraph(c);
}

/* Whether a character that begins with byte c may be a letter, which is assumed of characters beyond ASCII. */
static int begins_word(unsigned char c)
{
	return c >= 0xc0 || (c < 0x80 && isalpha(c));
}

static int is_line(const char *text, size_t at, size_t n)
{
	return at >= 2 && at < n && text[at - 1] == '\n' && ends_word((unsigned char)text[at - 2]) &&
	       begins_word((unsigned char)text[at]);
}

static int is_word(const char *text, size_t at, size_t n)
{
	return at >= 1 && at + 1 < n && text[at] == ' ' && ends_word((unsigned char)text[at - 1]) &&
	       begins_word((unsigned char)text[at + 1]);
}

typedef int (*is_place_fn)(const char *text, size_t at, size_t n);
static const is_place_fn places[] = { is_line, is_word };

/* Returns the last place before `at`, at most LINE bytes back, or 0. A beginning of a line is preferred to one of a
 * word. */
static size_t place_before(const char *text, size_t at, size_t least, size_t n)
{
	size_t first = at > least + LINE ? at - LINE : least;

	for (size_t k = 0; k < 2; k++)
		for (size_t i = at; i-- > first + 1;)
			if (places[k](text, i, n))
				return i;
	return 0;
}

static size_t place_after(const char *text, size_t at, size_t n)
{
	size_t last = n - at > LINE ? at + LINE : n;

	for (size_t k = 0; k < 2; k++)
		for (size_t i = at + 1; i < last; i++)
			if (places[k](text, i, n))
				return i;
	return 0;
}

static int encode(struct hd_cutter *c, const char *text, size_t n, struct hd_ids *out)
{
	struct hd_err ignored = { 0 };

	return hd_encode_piece(c->encoder, text, n, 0, out, &ignored) >= 0;
}

static int encode_marked(struct hd_cutter *c, const char *text, size_t n)
{
	int rc;

	c->starts.n = 0;
	hd_encoder_mark(c->encoder, &c->starts);
	rc = encode(c, text, n, &c->whole);
	hd_encoder_mark(c->encoder, NULL);
	return rc;
}

static int starts_at(const struct hd_cutter *c, size_t id)
{
	for (size_t i = 0; i < c->starts.n; i++)
		if ((size_t)c->starts.at[i] == id)
			return 1;
	return 0;
}

/* Whether text[from, to) has the same ids with a cut at `at` as without. */
static int holds_between(struct hd_cutter *c, const char *text, size_t from, size_t at, size_t to)
{
	if (!from || !to)
		return 0;
	c->whole.n = c->parts.n = 0;
	return encode_marked(c, text + from, to - from) && encode(c, text + from, at - from, &c->parts) &&
	       starts_at(c, c->parts.n) && encode(c, text + at, to - at, &c->parts) && c->whole.n == c->parts.n &&
	       !memcmp(c->whole.at, c->parts.at, c->whole.n * sizeof(*c->whole.at));
}

/* Returns the bytes on each side of a cut that show whether it is inside an added token. */
static size_t reach(const struct hd_cutter *c)
{
	size_t longest = hd_encoder_longest_added(c->encoder);

	return longest ? longest : 1;
}

static int holds(struct hd_cutter *c, const char *text, size_t at, size_t n)
{
	size_t least = reach(c);

	if (at < least || n - at < least)
		return 0;
	return holds_between(c, text, place_before(text, at - least + 1, 0, n), at,
			     place_after(text, at + least - 1, n));
}

/* -- where there is no such place ---------------------------------------------------------------- */
static int begins_character(const char *text, size_t at)
{
	return ((unsigned char)text[at] & 0xc0) != 0x80;
}

static size_t character_before(const char *text, size_t at)
{
	while (at && !begins_character(text, at))
		at--;
	return at;
}

static int may_part(const struct hd_cutter *c, const char *text, size_t at, size_t n)
{
	size_t before = character_before(text, at - 1);
	uint32_t left, right;

	return begins_character(text, at) && hd_utf8_valid(text + before, at - before) == at - before &&
	       hd_utf8_valid(text + at, n - at < 4 ? n - at : 4) >= (size_t)hd_utf8_length((unsigned char)text[at]) &&
	       hd_utf8_get(text + before, &left) && hd_utf8_get(text + at, &right) &&
	       hd_encoder_parts(c->encoder, left, right);
}

/* Returns a cut between two characters that no token joins, or 0. Each is tried on a window of at least SPAN bytes on
 * both sides, which reveals an added token or characters that a normalizer composes. The window may begin anywhere,
 * because may_part examines the two characters alone. */
static size_t cut_characters(struct hd_cutter *c, const char *text, size_t least, size_t n)
{
	enum { SPAN = 512 };
	size_t span = SPAN + reach(c);

	if (n < 2 * LINE + span)
		return 0;
	for (size_t at = n - span, tried = 0; at > least + span && at > n - span - LINE && tried < TRIES; at--) {
		if (!may_part(c, text, at, n))
			continue;
		tried++;
		if (holds_between(c, text, character_before(text, at - span), at,
				  character_before(text, at + span - 4)))
			return at;
	}
	return 0;
}

size_t hd_cut_last(struct hd_cutter *c, const char *text, size_t least, size_t n)
{
	size_t at;

	if (!c->encoder) /* leaves a byte for the next batch, so that the batch that ends the text is not empty */
		return n - 1 > least ? n - 1 : 0;
	at = n > reach(c) ? n - reach(c) + 1 : 0;
	for (int i = 0; i < TRIES && (c->found || c->failed < GIVE_UP); i++) {
		at = place_before(text, at, least, n);
		if (!at)
			return cut_characters(c, text, least, n);
		if (holds(c, text, at, n)) {
			c->found++;
			return at;
		}
		c->failed++;
	}
	return 0;
}

void hd_cutter_release(struct hd_cutter *c)
{
	hd_encoder_destroy(c->encoder);
	hd_ids_release(&c->whole);
	hd_ids_release(&c->parts);
	hd_ids_release(&c->starts);
}
