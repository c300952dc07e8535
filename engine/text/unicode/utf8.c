/* SPDX-License-Identifier: Apache-2.0
 * UTF-8 as Unicode 15 defines it (table 3-7): no surrogates, no overlong forms, nothing above U+10FFFF.
 */
#include <config.h>
#include "engine/text/unicode/utf8.h"
#include "engine/base/err.h"
#include <stdlib.h>

/* -- buffers ----------------------------------------------------------------------------------- */
void hd_buf_room(struct hd_buf *b, size_t more)
{
	size_t cap = b->cap ? b->cap : 256;
	char *at;

	if (b->at && b->cap - b->n >= more)
		return;
	while (cap - b->n < more)
		cap *= 2;
	at = realloc(b->at, cap);
	if (!at) { /* out of memory: hd_alloc reports it */
		at = hd_alloc(cap);
		memcpy(at, b->at, b->n);
		free(b->at);
	}
	b->at = at;
	b->cap = cap;
}

void hd_buf_add(struct hd_buf *b, const char *s, size_t n)
{
	hd_buf_room(b, n + 1);
	if (n)
		memcpy(b->at + b->n, s, n);
	b->n += n;
}

void hd_buf_add_char(struct hd_buf *b, uint32_t c)
{
	hd_buf_room(b, 4);
	b->n += (size_t)hd_utf8_put(b->at + b->n, c);
}

void hd_buf_release(struct hd_buf *b)
{
	free(b->at);
	memset(b, 0, sizeof(*b));
}

/* -- code points ------------------------------------------------------------------------------- */
int hd_utf8_put(char out[4], uint32_t c)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* Returns the bytes of the valid code point at p, or minus the bytes that one U+FFFD replaces. */
static int piece(const unsigned char *p, size_t n)
{
	static const struct {
		unsigned char first, last, low, high; /* the range of the first byte; that of the second */
		int bytes;
	} forms[] = {
		{ 0x00, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};
	size_t f = 0;
	int have = 1;

	while (f < HD_LEN(forms) && (*p < forms[f].first || *p > forms[f].last))
		f++;
	if (f == HD_LEN(forms))
		return -1;
	for (; have < forms[f].bytes; have++) {
		unsigned char low = have == 1 ? forms[f].low : 0x80, high = have == 1 ? forms[f].high : 0xbf;

		if ((size_t)have >= n || p[have] < low || p[have] > high)
			return -have;
	}
	return have;
}

size_t hd_utf8_valid(const char *s, size_t n)
{
	size_t i = 0;
	uint64_t word;
	int k;

	while (i < n) {
		if (n - i >= 8) {
			memcpy(&word, s + i, 8);
			if (!(word & 0x8080808080808080ull)) {
				i += 8;
				continue;
			}
		}
		k = piece((const unsigned char *)s + i, n - i);
		if (k < 0)
			break;
		i += (size_t)k;
	}
	return i;
}

void hd_utf8_repair(const char *s, size_t n, struct hd_buf *out)
{
	size_t i = 0, good;

	hd_buf_room(out, n + 4);
	while (i < n) {
		good = hd_utf8_valid(s + i, n - i);
		hd_buf_add(out, s + i, good);
		i += good;
		if (i < n) {
			i += (size_t)-piece((const unsigned char *)s + i, n - i);
			hd_buf_add_char(out, HD_UTF8_BAD);
		}
	}
}

size_t hd_utf8_bad(const char *s, size_t n)
{
	size_t i = 0, bad = 0, k;

	while ((i += hd_utf8_valid(s + i, n - i)) < n) {
		k = (size_t)-piece((const unsigned char *)s + i, n - i);
		bad += k;
		i += k;
	}
	return bad;
}

int hd_utf8_white(uint32_t c)
{
	return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* -- GPT-2's alphabet -------------------------------------------------------------------------- */
/* Printable bytes stand for themselves; the others are assigned from U+0100 on, in order. */
static int prints(int byte)
{
	return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

uint32_t hd_byte_char(unsigned char byte)
{
	uint32_t c = 0x100;

	if (prints(byte))
		return byte;
	for (int b = 0; b < byte; b++)
		c += !prints(b);
	return c;
}

int hd_char_byte(uint32_t c)
{
	if (c < 0x100)
		return prints((int)c) ? (int)c : -1;
	for (int b = 0; c <= 0x143 && b < 256; b++)
		if (!prints(b) && c-- == 0x100)
			return b;
	return -1;
}
