/* SPDX-License-Identifier: Apache-2.0
 * Writes texts into pages. Names come from INIs and files, so they may contain any bytes; a page contains only valid
 * UTF-8, without control characters.
 */
#include <config.h>
#include "engine/page/html.h"
#include <stdint.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Returns the bytes of the character at s, or 0 if it is not valid UTF-8 or not allowed in XML. */
static int character(const unsigned char *s)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	int n = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;
	uint32_t c = n > 1 ? *s & (0x7f >> n) : *s;

	for (int i = 1; i < n; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (!n || c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || (c & 0xfffe) == 0xfffe)
		return 0;
	return c == '\t' || c == '\n' || (c >= ' ' && (c < 0x7f || c >= 0xa0)) ? n : 0;
}

/* Writes one character, and returns where the next begins. */
static const char *one(FILE *f, const char *s)
{
	int n = character((const unsigned char *)s);

	if (!n)
		fputs(REPLACEMENT, f);
	else if (n == 1 && (*s == '<' || *s == '>' || *s == '&' || *s == '"'))
		fprintf(f, "&#%d;", *s);
	else
		fwrite(s, 1, (size_t)n, f);
	return s + (n ? n : 1);
}

void hd_html_text(FILE *f, const char *s)
{
	while (*s)
		s = one(f, s);
}

static int64_t length(const char *s)
{
	int64_t n = 0;

	for (; *s; n++) {
		int bytes = character((const unsigned char *)s);

		s += bytes ? bytes : 1;
	}
	return n;
}

void hd_html_short(FILE *f, const char *s, int most)
{
	int cut = length(s) > most;

	if (cut) {
		fprintf(f, "<title>");
		hd_html_text(f, s);
		fprintf(f, "</title>");
	}
	for (int n = cut ? most - 1 : most; *s && n > 0; n--)
		s = one(f, s);
	fputs(cut ? "\xe2\x80\xa6" : "", f); /* three dots */
}
