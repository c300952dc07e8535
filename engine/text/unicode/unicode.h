/* SPDX-License-Identifier: Apache-2.0
 * engine/text/unicode/unicode.h - normal forms of Unicode: NFC and NFD.
 */
#ifndef HD_ENGINE_TEXT_UNICODE_H
#define HD_ENGINE_TEXT_UNICODE_H
#include "engine/text/unicode/utf8.h"

struct hd_decomposition {
	uint32_t whole, first, second; /* second 0: one character stands for another */
};
struct hd_combining {
	uint32_t first, last;
	unsigned char class;
};
extern const struct hd_decomposition hd_decompositions[]; /* by whole */
extern const int hd_ndecompositions;
extern const uint16_t hd_compositions[]; /* those that are undone again, by first and second */
extern const int hd_ncompositions;
extern const struct hd_combining hd_combining[]; /* in order; class 0 is not listed */
extern const int hd_ncombining;

/* Appends s, valid UTF-8, in normal form D, or with compose in C. */
void hd_unicode_normalize(const char *s, size_t n, int compose, struct hd_buf *out);

#endif
