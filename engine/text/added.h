/* SPDX-License-Identifier: Apache-2.0
 * engine/text/added.h - added tokens: texts that are a token wherever they occur, found before all other steps.
 */
#ifndef HD_ENGINE_TEXT_ADDED_H
#define HD_ENGINE_TEXT_ADDED_H
#include <jansson.h>
#include "engine/text/bpe/bpe.h"
#include "engine/text/steps.h"

struct hd_added_token {
	char *content;
	size_t n;
	char *text; /* what is searched for: content, normalized if the token asks for it */
	size_t ntext;
	int32_t id;
	int special, normalized, single_word, lstrip, rstrip;
};
struct hd_added {
	struct hd_added_token *all; /* sorted by id */
	size_t n, cap;
	struct hd_added_set {
		const struct hd_added_token **sorted; /* by text */
		size_t n;
		unsigned char begins[256]; /* whether one of them begins with the byte */
	} set[2];                          /* 0: tokens searched for in the unchanged text; 1: in normalized text */
	struct hd_regex *word;             /* matches a word character; NULL: no token has single_word */
};

int hd_added_load(struct hd_added *a, json_t *root, const struct hd_vocab *v, const struct hd_steps *normalizer,
		  struct hd_err *err);
void hd_added_release(struct hd_added *a);
const struct hd_added_token *hd_added_by_id(const struct hd_added *a, int32_t id); /* NULL: no token has this id */
const struct hd_added_token *hd_added_by_content(const struct hd_added *a, const char *text, size_t n);

/* Walks through text: appends the ids of the set's tokens to out, and calls `between` for each stretch without one. */
typedef int (*hd_between_fn)(void *ctx, struct hd_span text, size_t at);
int hd_added_split(const struct hd_added *a, int set, struct hd_matcher *m, struct hd_span text, struct hd_ids *out,
		   hd_between_fn between, void *ctx, struct hd_err *err);

#endif
