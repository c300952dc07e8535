/* SPDX-License-Identifier: Apache-2.0
 * engine/config/conf_impl.h - declarations that conf.c, conf_file.c and conf_check.c share.
 */
#ifndef HD_ENGINE_CONF_IMPL_H
#define HD_ENGINE_CONF_IMPL_H
#include "engine/config/conf.h"

#define HD_LONGEST_KEY 90 /* bytes: inih's lines are short, and a key is not passed in pieces */

struct hd_entry {
	char *key, *value;
	char *set;       /* "--set x.size", or another option that gave the value; else NULL */
	int line, given; /* given: by the user, not a default */
	int loaded;      /* given by the model in model.load, not by the user */
	int64_t integer; /* the value of INT, BOOL, BYTES once checked */
	double number;
};

struct hd_section {
	struct hd_section *next;
	char *label;      /* "strategy x" */
	const char *name; /* "x", inside label */
	int line, exists; /* line 0: created by --set, or only requested (then it does not exist) */
	struct hd_entry *entries;
	size_t n, cap;
};

struct hd_conf {
	char *path;
	struct hd_section *first;
};

/* Returns the section with this label, of any kind, or NULL. */
struct hd_section *hd_conf_section_find(const struct hd_conf *c, const char *label);
struct hd_section *hd_conf_section_add(struct hd_conf *c, const char *label, int line, int exists);
struct hd_entry *hd_conf_entry_find(const struct hd_section *s, const char *key);
struct hd_entry *hd_conf_entry_add(struct hd_section *s, const char *key, const char *value, int line);
int hd_conf_file(struct hd_conf *c, const char *text, struct hd_err *err); /* reads the sections and keys of text */

#endif
