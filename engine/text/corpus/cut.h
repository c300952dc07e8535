/* SPDX-License-Identifier: Apache-2.0
 * engine/text/corpus/cut.h - finds where a long text may be cut so that the pieces have the same ids as the complete
 * text.
 */
#ifndef HD_ENGINE_TEXT_CORPUS_CUT_H
#define HD_ENGINE_TEXT_CORPUS_CUT_H
#include "engine/text/tokenizer.h"

struct hd_cutter {
	struct hd_encoder *encoder; /* NULL: every byte is a token, so any place will do */
	int found, failed;          /* number of tried cuts that kept the ids, and that did not */
	struct hd_ids whole, parts, starts;
};
/* Returns the last place in text[least, n) where a cut keeps the ids. Returns 0 if a few tries find none, or if
 * earlier cuts failed too often with this tokenizer. */
size_t hd_cut_last(struct hd_cutter *c, const char *text, size_t least, size_t n);
void hd_cutter_release(struct hd_cutter *c);

#endif
