/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/hf.h - config.json of transformers, read as keys of [model] and written from them.
 */
#ifndef HD_ENGINE_MODELS_HF_H
#define HD_ENGINE_MODELS_HF_H
#include "engine/models/decoder/family.h"

struct hd_hf_reader { /* reads one config.json */
	const json_t *config;
	const struct hd_family *family;
	const char *path;
	json_t *keys;   /* the keys of [model], as strings */
	json_t *places; /* where config.json contains each, for hd_hf_set_once */
	int one_rope;   /* rope_theta_window is settled as 0, because layers with a window rotate like the others */
	struct hd_err *err;
};

/* Returns the section [model] with its keys; the caller frees it. NULL if config.json has a key that Heddle does not
 * know, or lacks a required one. */
char *hd_hf_read(const json_t *config, const struct hd_family *f, const char *path, struct hd_err *err);
/* Returns config.json as a new reference. If no class of transformers matches the model, model_type is heddle, and it
 * contains the keys of [model]. */
json_t *hd_hf_config(const struct hd_model *m);

/* -- parts of both ------------------------------------------------------------------------------------------------- */
/* Sets a key of [model]. */
void hd_hf_set(struct hd_hf_reader *r, const char *key, const char *fmt, ...) HD_PRINTF(3, 4);
void hd_hf_set_number(struct hd_hf_reader *r, const char *key, double x);
/* Sets a key to the value that config.json has at `place`. Returns HD_EINVAL if another place had a different value. */
int hd_hf_set_once(struct hd_hf_reader *r, const char *key, const char *place, const char *text);
/* Reports a value that is not known, and those that are; returns HD_ENOTSUP. */
int hd_hf_unknown(struct hd_hf_reader *r, const char *key, const json_t *value, const char *known);
const char *hd_hf_is_rope(const char *key); /* key if hd_hf_read_rope reads it, else NULL */
void hd_hf_name_rope(char **names);         /* appends ", " and each such key */
int hd_hf_read_rope(struct hd_hf_reader *r);
void hd_hf_write_rope(const struct hd_model *m, json_t *o);
int hd_hf_rope_is_expressible(const struct hd_model *m); /* 0: the family's class cannot rotate positions as m does */
int64_t hd_hf_original(const struct hd_model *m);        /* positions of the original training */
/* Returns our word for one of theirs in "theirs=ours|...", or with back their word for ours; NULL if it is not there.
 * out has room for 40 bytes. */
const char *hd_hf_word(const char *values, const char *word, int back, char *out);
/* Returns the name in config.json of a key of ours, or NULL. */
const char *hd_hf_theirs(const struct hd_family *f, const char *ours);
const char *hd_hf_is_window(const struct hd_family *f, const char *key);
void hd_hf_name_window(const struct hd_family *f, char **names); /* as hd_hf_name_rope */
int hd_hf_read_window(struct hd_hf_reader *r);
int hd_hf_write_window(const struct hd_model *m, json_t *o); /* 0: its keys cannot express which layers have a window */

#endif
