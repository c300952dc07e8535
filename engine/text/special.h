/* SPDX-License-Identifier: Apache-2.0
 * engine/text/special.h - the tokens that begin and end a text, from the files next to tokenizer.json.
 */
#ifndef HD_ENGINE_TEXT_SPECIAL_H
#define HD_ENGINE_TEXT_SPECIAL_H
#include "engine/text/tokenizer.h"

/* Returns the id of bos_token, or -1 if it is not known. */
int32_t hd_tokenizer_begin(const struct hd_tokenizer *t);
/* Returns what hd_tokenizer_end finds without looking at eos_token_id, or -1 if that is not known. */
int32_t hd_tokenizer_end_without_config(const struct hd_tokenizer *t);
/* Finds the id of the token that ends a text. The sources are eos_token of tokenizer_config.json or
 * special_tokens_map.json, then eos_token_id of generation_config.json or config.json. The first one present counts,
 * and must be in the vocabulary. Without any, *id is guessed: the only one of the usual end tokens that the vocabulary
 * has. *guessed is then its text, else NULL. */
int hd_tokenizer_end(const struct hd_tokenizer *t, int32_t *id, const char **guessed, struct hd_err *err);

#endif
