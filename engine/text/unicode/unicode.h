/* SPDX-License-Identifier: Apache-2.0
 * engine/text/unicode/unicode.h - normal forms of Unicode: NFC and NFD.
 */
#ifndef HD_ENGINE_TEXT_UNICODE_H
#define HD_ENGINE_TEXT_UNICODE_H
#include "engine/text/unicode/utf8.h"

struct hd_decomposition {
	uint32_t whole, first, second; /* second is 0: whole decomposes into one character */
};
struct hd_combining {
	uint32_t first, last;
	unsigned char class;
};
extern const struct hd_decomposition hd_decompositions[]; /* sorted by whole */
extern const int hd_ndecompositions;
extern const uint16_t hd_compositions[]; /* indices of decompositions that NFC composes again, by first and second */
extern const int hd_ncompositions;
extern const struct hd_combining hd_combining[]; /* combining classes, in order; class 0 is not listed */
extern const int hd_ncombining;

/* Appends s, which is valid UTF-8, in NFD, or in NFC if compose is set. */
void hd_unicode_normalize(const char *s, size_t n, int compose, struct hd_buf *out);

#endif
