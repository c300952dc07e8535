/* SPDX-License-Identifier: Apache-2.0
 * engine/page/html.h - text and style of all pages.
 */
#ifndef HD_ENGINE_PAGE_HTML_H
#define HD_ENGINE_PAGE_HTML_H
#include <stdio.h>

/* Write a text as UTF-8, escaped. Bytes that a page may not contain become U+FFFD. */
void hd_html_text(FILE *f, const char *s);
/* Writes at most so many characters into an element, with the complete text as its title if that is longer. */
void hd_html_short(FILE *f, const char *s, int most);
extern const char hd_page_style[];

#endif
