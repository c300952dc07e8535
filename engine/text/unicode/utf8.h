/* SPDX-License-Identifier: Apache-2.0
 * engine/text/unicode/utf8.h - UTF-8, and buffers that grow.
 */
#ifndef HD_ENGINE_TEXT_UTF8_H
#define HD_ENGINE_TEXT_UTF8_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hd_buf { /* bytes; `at` is malloc'ed, and need not end in a zero byte */
	char *at;
	size_t n, cap;
};
void hd_buf_room(struct hd_buf *b, size_t more); /* makes room for `more` bytes after the last */
void hd_buf_add(struct hd_buf *b, const char *s, size_t n);
void hd_buf_add_char(struct hd_buf *b, uint32_t c); /* as UTF-8 */
void hd_buf_release(struct hd_buf *b);

struct hd_span {
	const char *at;
	size_t n;
};

#define HD_UTF8_BAD 0xfffd /* the replacement character, for bytes that are not valid UTF-8 */

/* Decodes the code point at s, which must be valid, and returns its number of bytes. */
static inline int hd_utf8_get(const char *s, uint32_t *c)
{
	const unsigned char *p = (const unsigned char *)s;

	if (p[0] < 0x80) {
		*c = p[0];
		return 1;
	}
	if (p[0] < 0xe0) {
		*c = (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
		return 2;
	}
	if (p[0] < 0xf0) {
		*c = (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
		return 3;
	}
	*c = (p[0] & 7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
	return 4;
}
static inline int hd_utf8_length(unsigned char lead) /* bytes of a code point with this first byte, in valid text */
{
	return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

int hd_utf8_put(char out[4], uint32_t c);      /* returns the number of bytes */
size_t hd_utf8_valid(const char *s, size_t n); /* length of the longest prefix of complete, valid code points */
int hd_utf8_white(uint32_t c);                 /* Unicode's White_Space */
/* Appends s with U+FFFD for every maximal invalid piece. Unicode recommends this, and Python's errors='replace' and
 * Rust's from_utf8_lossy do the same. */
void hd_utf8_repair(const char *s, size_t n, struct hd_buf *out);
size_t hd_utf8_bad(const char *s, size_t n); /* how many bytes hd_utf8_repair would replace */

/* GPT-2's alphabet, which writes each byte as a printable character. */
uint32_t hd_byte_char(unsigned char byte);
int hd_char_byte(uint32_t c); /* -1: c stands for no byte */

#endif
