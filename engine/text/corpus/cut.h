/* SPDX-License-Identifier: Apache-2.0
 * engine/text/corpus/cut.h - where a long text may be cut, so that the ids of the pieces are those of the whole.
 */
#ifndef HD_ENGINE_TEXT_CORPUS_CUT_H
#define HD_ENGINE_TEXT_CORPUS_CUT_H
#include "engine/text/tokenizer.h"

struct hd_cutter {
	struct hd_encoder *encoder; /* NULL: every byte is a token, and any place will do */
	int found, failed;          /* cuts that held, and that did not */
	struct hd_ids whole, parts, starts;
};
/* The last place in text[least, n) where a cut holds; 0: there is none, or this tokenizer has none. */
size_t hd_cut_last(struct hd_cutter *c, const char *text, size_t least, size_t n);
void hd_cutter_release(struct hd_cutter *c);

#endif
