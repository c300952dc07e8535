/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/hf.h - config.json of transformers, read as keys of [model] and written from them.
 */
#ifndef HD_ENGINE_MODELS_HF_H
#define HD_ENGINE_MODELS_HF_H
#include "engine/models/decoder/family.h"

struct hd_hf_reader { /* of one config.json */
	const json_t *config;
	const struct hd_family *family;
	const char *path;
	json_t *keys;   /* of [model], as texts */
	json_t *places; /* where config.json has said them, for hd_hf_say_once */
	int one_rope; /* layers with a window turn as the others do: rope_theta_window is 0, whatever repeats their theta */
	struct hd_err *err;
};

/* "[model]" with its keys, malloc'ed; NULL: it has a key that this program does not know, or lacks one that it needs. */
char *hd_hf_read(const json_t *config, const struct hd_family *f, const char *path, struct hd_err *err);
/* config.json, new reference.  Of a model that no class of transformers is, model_type is heddle, and the keys of [model] are in it. */
json_t *hd_hf_config(const struct hd_model *m);

/* -- parts of both -------------------------------------------------------------------------------------------------------- */
void hd_hf_say(struct hd_hf_reader *r, const char *key, const char *fmt, ...) HD_PRINTF(3, 4);
void hd_hf_say_number(struct hd_hf_reader *r, const char *key, double x);
/* As hd_hf_say, of what config.json says at `place': HD_EINVAL where another place has said something else. */
int hd_hf_say_once(struct hd_hf_reader *r, const char *key, const char *place, const char *text);
/* The value that is not known, and those that are. */
int hd_hf_unknown(struct hd_hf_reader *r, const char *key, const json_t *value, const char *known);
const char *hd_hf_is_rope(const char *key); /* key, if rope reads it; or NULL */
void hd_hf_name_rope(char **names);         /* appends ", " and each key that rope reads */
int hd_hf_read_rope(struct hd_hf_reader *r);
void hd_hf_write_rope(const struct hd_model *m, json_t *o);
int hd_hf_rope_is_said(const struct hd_model *m); /* 0: the family's class turns positions in another way */
int64_t hd_hf_original(const struct hd_model *m); /* positions of the first training */
/* The word of ours for one of theirs in "theirs=ours|...", or the other way round; NULL: it is not there.  out has room for 40. */
const char *hd_hf_word(const char *values, const char *word, int back, char *out);
/* What config.json calls a key of ours; NULL: it has none. */
const char *hd_hf_theirs(const struct hd_family *f, const char *ours);
const char *hd_hf_is_window(const struct hd_family *f, const char *key);
void hd_hf_name_window(const struct hd_family *f, char **names); /* as hd_hf_name_rope */
int hd_hf_read_window(struct hd_hf_reader *r);
int hd_hf_write_window(const struct hd_model *m, json_t *o); /* 0: the family cannot say which layers have one */

#endif
