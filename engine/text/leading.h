/* SPDX-License-Identifier: Apache-2.0
 * engine/text/leading.h - the special tokens that tokenizer.json puts before a text ("post_processor"), such as one that begins it.
 * Those behind a text are left out: a prompt goes on there.
 */
#ifndef HD_ENGINE_TEXT_LEADING_H
#define HD_ENGINE_TEXT_LEADING_H
#include "engine/base/err.h"
#include "engine/text/bpe/bpe.h"
#include <jansson.h>

/* root: of tokenizer.json.  Release leading in either case. */
int hd_leading_load(struct hd_ids *leading, json_t *root, struct hd_err *err);
/* Puts them before the ids of a text, unless they are there: a text may spell them.  -> how many came. */
size_t hd_leading_put(const struct hd_ids *leading, struct hd_ids *ids);

#endif
