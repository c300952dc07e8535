/* SPDX-License-Identifier: Apache-2.0
 * engine/text/steps.h - normalizer, pre_tokenizer and decoder of tokenizer.json: lists of steps.
 */
#ifndef HD_ENGINE_TEXT_STEPS_H
#define HD_ENGINE_TEXT_STEPS_H
#include <jansson.h>
#include "engine/text/bpe/bpe.h"
#include "engine/text/unicode/regex.h"

enum hd_step_kind {
	HD_STEP_NFC,
	HD_STEP_NFD,
	HD_STEP_PREPEND,
	HD_STEP_REPLACE,
	HD_STEP_STRIP,
	HD_STEP_BYTES, /* ByteLevel */
	HD_STEP_SPELL, /* writes bytes in GPT-2's alphabet after ByteLevel, for a model that does not take raw bytes */
	HD_STEP_SPLIT,
	HD_STEP_DIGITS,
	HD_STEP_METASPACE,
	HD_STEP_BYTE_FALLBACK,
	HD_STEP_FUSE,
};
enum hd_split { HD_SPLIT_ISOLATED, HD_SPLIT_REMOVED, HD_SPLIT_PREVIOUS, HD_SPLIT_NEXT, HD_SPLIT_CONTIGUOUS };
enum hd_prepend { HD_PREPEND_NEVER, HD_PREPEND_FIRST, HD_PREPEND_ALWAYS };

struct hd_text_step {
	int kind;
	struct hd_pattern pattern;
	char *content; /* "content" of Replace and Strip, "prepend" of Prepend, "replacement" of Metaspace */
	size_t ncontent;
	int behavior, invert;
	int prepend;         /* enum hd_prepend */
	int64_t left, right; /* of Strip: how often at each end (decoder), or whether (normalizer) */
};
struct hd_steps {
	struct hd_text_step *all;
	size_t n, cap;
};

/* Each reads its part of root, the contents of tokenizer.json. A missing part has no steps. */
int hd_normalizer_load(struct hd_steps *s, json_t *root, struct hd_err *err);
int hd_pre_tokenizer_load(struct hd_steps *s, json_t *root, struct hd_err *err);
int hd_decoder_load(struct hd_steps *s, json_t *root, struct hd_err *err);
void hd_steps_release(struct hd_steps *s);

/* Shared by the three parts: the "type" of a component is one of known, or Sequence. */
struct hd_component {
	const char *type;
	int kind;
	int (*load)(struct hd_text_step *s, json_t *o, struct hd_err *err); /* NULL: the component has no options */
};
struct hd_step_family {
	const char *name, *list; /* such as "normalizer" and "normalizers", the list within a Sequence */
	const struct hd_component *known;
	int nknown;
};
int hd_steps_load(struct hd_steps *s, const struct hd_step_family *part, json_t *o, struct hd_err *err);
int hd_step_pattern(struct hd_text_step *s, json_t *o, struct hd_err *err); /* reads "pattern" */
int hd_step_content(struct hd_text_step *s, json_t *o, const char *key, struct hd_err *err);
/* Reads a text that marks places in tokens. An empty one, which is refused, would be everywhere without an end. */
int hd_step_mark(struct hd_text_step *s, json_t *o, const char *key, struct hd_err *err);
int hd_step_flag(json_t *o, const char *key, int otherwise);

/* Appends the text, normalized by one step, to out. */
int hd_normalize(const struct hd_text_step *s, struct hd_matcher *m, struct hd_span text, struct hd_buf *out,
		 struct hd_err *err);

/* Splits text into words and encodes them. */
struct hd_words {
	const struct hd_steps *steps;
	struct hd_matcher *matcher;
	struct hd_bpe_state *state;
	struct hd_ids *out;
	struct hd_err *err;
	int continued; /* the text continues an earlier piece, so nothing is put before it */
};
int hd_pre_tokenize(const struct hd_words *w, struct hd_span text, int at_start);

#endif
