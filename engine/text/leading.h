/* SPDX-License-Identifier: Apache-2.0
 * engine/text/leading.h - the special tokens that tokenizer.json puts before a text ("post_processor"), such as one
 * that begins it. Those after a text are left out, because a prompt is continued there.
 */
#ifndef HD_ENGINE_TEXT_LEADING_H
#define HD_ENGINE_TEXT_LEADING_H
#include "engine/base/err.h"
#include "engine/text/bpe/bpe.h"
#include <jansson.h>

/* Reads the ids from root, the contents of tokenizer.json. The caller releases leading, even after an error. */
int hd_leading_load(struct hd_ids *leading, json_t *root, struct hd_err *err);
/* Inserts them before the ids of a text, unless the ids begin with them already: a text may spell them out. Returns
 * how many it inserted. */
size_t hd_leading_put(const struct hd_ids *leading, struct hd_ids *ids);

#endif
