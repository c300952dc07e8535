/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/knobs.h - what the keys of [model] set in struct hd_model, one a line of a table. They are read from
 * the INI over the family's defaults, and written as text for config.json.
 */
#ifndef HD_ENGINE_MODELS_KNOBS_H
#define HD_ENGINE_MODELS_KNOBS_H
#include "engine/models/decoder/family.h"

/* Choices, in the order of the keys' ranges. */
enum { HD_NORM_BEFORE, HD_NORM_AFTER, HD_NORM_BOTH };
enum { HD_QK_NORM_NONE, HD_QK_NORM_HEAD, HD_QK_NORM_ALL };
enum { HD_ACTIVATION_SILU, HD_ACTIVATION_GELU_TANH, HD_ACTIVATION_GELU_ERF };
enum { HD_ROUTER_GSHARD, HD_ROUTER_TOPK, HD_ROUTER_SIGMOID };
#define HD_ROUTERS "gshard|topk|sigmoid" /* HD_ROUTER_GSHARD, ... */
enum {
	HD_ROPE_SCALING_NONE,
	HD_ROPE_SCALING_LINEAR,
	HD_ROPE_SCALING_DYNAMIC,
	HD_ROPE_SCALING_LLAMA3,
	HD_ROPE_SCALING_YARN,
	HD_ROPE_SCALING_LONGROPE
};

int64_t hd_router_of(const char *word); /* HD_ROUTER_..., or -1 */

/* Factors in a list of longrope; -1: one is no number above 0. */
int64_t hd_rope_list(const char *text);

enum hd_knob_kind { HD_KNOB_INT, HD_KNOB_NUM, HD_KNOB_YES, HD_KNOB_CHOICE, HD_KNOB_TEXT };

struct hd_knob {
	const char *key;
	enum hd_knob_kind kind;
	size_t at;           /* in struct hd_model: int64_t, double, or const char * */
	const char *choices; /* "a|b|c" */
	int decoder;         /* a family without the shared decoder does not have it */
	int derived;         /* read elsewhere, because what is open follows from other keys */
};

/* NULL: there is none. */
const struct hd_knob *hd_knob_find(const char *key);
const struct hd_knob *hd_knob_next(const struct hd_knob *k); /* NULL: the first */
/* All of them into m, whose family is set: what the user gave, else the family's, else the key's default. */
int hd_knobs_read(struct hd_conf *c, struct hd_section *s, struct hd_model *m, struct hd_err *err);
/* As the INI would have it. */
void hd_knob_text(const struct hd_model *m, const struct hd_knob *k, char text[80]);
/* Whether m has it as its family has it where an INI does not say it. */
int hd_knob_is_default(const struct hd_model *m, const struct hd_knob *k);

#endif
