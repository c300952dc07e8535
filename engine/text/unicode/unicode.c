/* SPDX-License-Identifier: Apache-2.0
 * Normal forms (Unicode Standard Annex 15): decompose, sort marks by combining class, and for NFC compose again.
 *
 * No character below U+0300 is a mark or composes with the character before it. So text is processed in pieces that
 * begin with such a character.
 */
#include <config.h>
#include "engine/text/unicode/unicode.h"
#include "engine/base/err.h"
#include <stdlib.h>

#define PLAIN 0x300 /* characters below are never marks */
enum { S = 0xac00, L = 0x1100, V = 0x1161, T = 0x11a7, LS = 19, VS = 21, TS = 28 }; /* Hangul */

struct letters {
	uint32_t *c;
	size_t n, cap;
};

static int class_of(uint32_t c)
{
	int lo = 0, hi = hd_ncombining, mid;

	if (c < PLAIN)
		return 0;
	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (hd_combining[mid].last < c)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < hd_ncombining && hd_combining[lo].first <= c ? hd_combining[lo].class : 0;
}

static const struct hd_decomposition *decomposition_of(uint32_t c)
{
	int lo = 0, hi = hd_ndecompositions, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (hd_decompositions[mid].whole < c)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < hd_ndecompositions && hd_decompositions[lo].whole == c ? &hd_decompositions[lo] : NULL;
}

/* Returns the character that a and b compose into, or 0. */
static uint32_t composition_of(uint32_t a, uint32_t b)
{
	int lo = 0, hi = hd_ncompositions, mid;

	if (a - L < LS && b - V < VS)
		return S + ((a - L) * VS + (b - V)) * TS;
	if (a - S < LS * VS * TS && (a - S) % TS == 0 && b > T && b - T < TS)
		return a + (b - T);
	while (lo < hi) {
		const struct hd_decomposition *d = &hd_decompositions[hd_compositions[mid = (lo + hi) / 2]];

		if (d->first == a && d->second == b)
			return d->whole;
		if (d->first < a || (d->first == a && d->second < b))
			lo = mid + 1;
		else
			hi = mid;
	}
	return 0;
}

static void add(struct letters *x, uint32_t c)
{
	if (x->n == x->cap)
		x->c = hd_grow(x->c, x->n, &x->cap, sizeof(*x->c));
	x->c[x->n++] = c;
}

static void decompose(struct letters *x, uint32_t c)
{
	const struct hd_decomposition *d;

	if (c - S < LS * VS * TS) {
		add(x, L + (c - S) / (VS * TS));
		add(x, V + (c - S) % (VS * TS) / TS);
		if ((c - S) % TS)
			add(x, T + (c - S) % TS);
		return;
	}
	d = c < 0xc0 ? NULL : decomposition_of(c);
	if (!d) {
		add(x, c);
		return;
	}
	decompose(x, d->first);
	if (d->second)
		decompose(x, d->second);
}

/* Sorts the marks after a letter by class; those of equal class keep their order. */
static void sort_marks(struct letters *x)
{
	for (size_t i = 1; i < x->n; i++) {
		uint32_t c = x->c[i];
		int class = class_of(c);
		size_t to = i;

		for (; class && to && class_of(x->c[to - 1]) > class; to--)
			x->c[to] = x->c[to - 1];
		x->c[to] = c;
	}
}

/* Composes each letter with the marks after it that no earlier mark of the same or a higher class blocks. */
static void compose(struct letters *x)
{
	size_t letter = SIZE_MAX, n = 0;
	int last = -1; /* class of the last mark kept between the letter and this character; -1: none */

	for (size_t i = 0; i < x->n; i++) {
		int class = class_of(x->c[i]);
		uint32_t joined = letter != SIZE_MAX && last < class ? composition_of(x->c[letter], x->c[i]) : 0;

		if (joined) {
			x->c[letter] = joined;
			continue;
		}
		if (!class)
			letter = n;
		last = class ? class : -1;
		x->c[n++] = x->c[i];
	}
	x->n = n;
}

static void flush_letters(struct letters *x, int composed, struct hd_buf *out)
{
	sort_marks(x);
	if (composed)
		compose(x);
	for (size_t i = 0; i < x->n; i++)
		hd_buf_add_char(out, x->c[i]);
	x->n = 0;
}

void hd_unicode_normalize(const char *s, size_t n, int composed, struct hd_buf *out)
{
	struct letters x = { 0 };
	size_t i = 0, plain, k;
	uint32_t c;

	while (i < n) {
		for (plain = i; plain < n && (unsigned char)s[plain] < (composed ? 0xcc : 0x80);)
			plain += (size_t)hd_utf8_length((unsigned char)s[plain]);
		if (plain < n && plain > i) /* the last one may compose with the character after it */
			plain -= (unsigned char)s[plain - 1] < 0x80 ? 1 : 2;
		hd_buf_add(out, s + i, plain - i);
		for (i = plain; i < n; i += k) {
			k = (size_t)hd_utf8_get(s + i, &c);
			if (c < PLAIN && i > plain)
				break;
			decompose(&x, c);
		}
		flush_letters(&x, composed, out);
	}
	free(x.c);
}
