/* SPDX-License-Identifier: Apache-2.0
 * Cuts of a long text: between lines, behind one newline alone, before a letter.
 *
 * Nearly all tokenizers end a word there whatever else the text has; but their rules are theirs, so each cut is tried: the line
 * before it and the line behind it, encoded together, must have the ids that they have one by one.  Words are found from left to
 * right, and the line before begins at such a place too, so what is before it changes nothing.  A tokenizer that puts something
 * before every text has no such place: its texts stay whole.
 */
#include <config.h>
#include "engine/text/corpus/cut.h"
#include <ctype.h>
#include <string.h>

enum { LINE = 4096, TRIES = 8, GIVE_UP = 32 };

static int is_ascii(char c, int (*class)(int))
{
	return (unsigned char)c < 128 && class((unsigned char)c);
}

static int is_place(const char *text, size_t at)
{
	return at >= 2 && text[at - 1] == '\n' && is_ascii(text[at - 2], isgraph) && is_ascii(text[at], isalpha);
}

/* The place before `at`, as far as a line may be long; 0: none. */
static size_t place_before(const char *text, size_t at, size_t least)
{
	size_t first = at > least + LINE ? at - LINE : least;

	for (size_t i = at; i-- > first + 1;)
		if (is_place(text, i))
			return i;
	return 0;
}

static int encode(struct hd_cutter *c, const char *text, size_t n, struct hd_ids *out)
{
	struct hd_err ignored = { 0 };

	return hd_encode(c->encoder, text, n, out, &ignored) >= 0;
}

static int holds(struct hd_cutter *c, const char *text, size_t at, size_t n)
{
	size_t from = place_before(text, at, 0);
	const char *end = memchr(text + at, '\n', n - at < LINE ? n - at : LINE);
	size_t to = end ? (size_t)(end + 1 - text) : 0;

	if (!from || !to || to >= n)
		return 0;
	c->whole.n = c->parts.n = 0;
	return encode(c, text + from, to - from, &c->whole) && encode(c, text + from, at - from, &c->parts) &&
	       encode(c, text + at, to - at, &c->parts) && c->whole.n == c->parts.n &&
	       !memcmp(c->whole.at, c->parts.at, c->whole.n * sizeof(*c->whole.at));
}

size_t hd_cut_last(struct hd_cutter *c, const char *text, size_t least, size_t n)
{
	size_t at = n;

	if (!c->encoder) /* something is left, so that the text ends in the batch that ends it */
		return n - 1 > least ? n - 1 : 0;
	for (int i = 0; i < TRIES && (c->found || c->failed < GIVE_UP); i++) {
		at = place_before(text, at, least);
		if (!at)
			return 0;
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
}
