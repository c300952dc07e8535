/* SPDX-License-Identifier: Apache-2.0
 * engine/text/special.h - what stands beside tokenizer.json: which token ends a text.
 */
#ifndef HD_ENGINE_TEXT_SPECIAL_H
#define HD_ENGINE_TEXT_SPECIAL_H
#include "engine/text/tokenizer.h"

int32_t hd_tokenizer_begin(const struct hd_tokenizer *t); /* bos_token, -1: not known */
int32_t hd_tokenizer_end_token(
	const struct hd_tokenizer *t); /* without the numbers of the two config files; -1: not known */
/* eos_token of tokenizer_config.json or special_tokens_map.json, eos_token_id of generation_config.json or config.json: the
 * first that is there, and it must be in the vocabulary. Without any, the one of the tokens that usually end a text; *guessed
 * is then its text, else NULL. */
int hd_tokenizer_end(const struct hd_tokenizer *t, int32_t *id, const char **guessed, struct hd_err *err);

#endif
