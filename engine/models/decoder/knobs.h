/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/knobs.h - a table of the keys of [model] that set fields of struct hd_model. They are read
 * from the INI over the family's defaults, and written as text for config.json.
 */
#ifndef HD_ENGINE_MODELS_KNOBS_H
#define HD_ENGINE_MODELS_KNOBS_H
#include "engine/models/decoder/family.h"

/* Choices, in the order in which the keys list them. */
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

/* Returns the number of factors in a list of longrope, or -1 if one is not a number above 0. */
int64_t hd_rope_list(const char *text);

enum hd_knob_kind { HD_KNOB_INT, HD_KNOB_NUM, HD_KNOB_YES, HD_KNOB_CHOICE, HD_KNOB_TEXT };

struct hd_knob {
	const char *key;
	enum hd_knob_kind kind;
	size_t at;           /* in struct hd_model: int64_t, double, or const char * */
	const char *choices; /* "a|b|c" */
	int decoder;         /* only families with the shared decoder have it */
	int derived;         /* read elsewhere, because its default depends on other keys */
	int trains;          /* belongs to training: a loaded model may be trained with any value */
};

const struct hd_knob *hd_knob_find(const char *key);         /* NULL: no such key */
const struct hd_knob *hd_knob_next(const struct hd_knob *k); /* after NULL: the first; after the last: NULL */
/* Reads all of them but derived ones into m, whose family is set: the user's value, else the family's, else the key's
 * default. */
int hd_knobs_read(struct hd_conf *c, struct hd_section *s, struct hd_model *m, struct hd_err *err);
/* Writes the value of a key as an INI would contain it. */
void hd_knob_text(const struct hd_model *m, const struct hd_knob *k, char text[80]);
/* Returns whether m has the value that its family has without the key in an INI. Keys that are not compared count as
 * such. */
int hd_knob_is_default(const struct hd_model *m, const struct hd_knob *k);

#endif
