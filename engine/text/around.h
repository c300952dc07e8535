/* SPDX-License-Identifier: Apache-2.0
 * engine/text/around.h - "post_processor" of tokenizer.json: the special tokens that belong before and after a text.
 */
#ifndef HD_ENGINE_TEXT_AROUND_H
#define HD_ENGINE_TEXT_AROUND_H
#include "engine/base/err.h"
#include "engine/text/bpe/bpe.h"
#include <jansson.h>

struct hd_around {
	struct hd_ids before, after;
};
int hd_around_load(struct hd_around *a, json_t *root, struct hd_err *err);
void hd_around_release(struct hd_around *a);

#endif
