/* SPDX-License-Identifier: Apache-2.0
 * engine/text/unicode/oniguruma.h - translates a regular expression of tokenizer.json from Oniguruma to PCRE2.
 */
#ifndef HD_ENGINE_TEXT_ONIGURUMA_H
#define HD_ENGINE_TEXT_ONIGURUMA_H
#include "engine/base/err.h"
#include "engine/text/unicode/utf8.h"

/* Appends the translation to out, for PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE. pattern is valid UTF-8, and its n
 * bytes are followed by a zero byte. */
int hd_oniguruma_write(const char *pattern, size_t n, struct hd_buf *out, struct hd_err *err);

#endif
