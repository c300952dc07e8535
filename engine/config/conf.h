/* SPDX-License-Identifier: Apache-2.0
 * engine/config/conf.h - the INI file: sections, typed keys, defaults, ranges, and errors that name file, line, section
 * and key.
 *
 * Key tables (struct hd_option, heddle/strategy.h) are declared where the keys are used. A section is checked against
 * its tables once; after that, reading a value cannot fail.
 */
#ifndef HD_ENGINE_CONF_H
#define HD_ENGINE_CONF_H
#include <heddle/strategy.h>
#include "engine/base/err.h"

struct hd_conf;
struct hd_section;

/* Reads an INI. sets: "section.key=value" from the command line, which override the file ("x.size=4" reaches [strategy
 * x]). */
int hd_conf_read(const char *path, const char *const *sets, int nsets, struct hd_conf **out, struct hd_err *err);
/* The same from text (checkpoints contain theirs); errors name `name` as the file. */
int hd_conf_parse(const char *name, const char *text, const char *const *sets, int nsets, struct hd_conf **out,
		  struct hd_err *err);
void hd_conf_destroy(struct hd_conf *c);
/* Leaves out line numbers in messages, for a conf whose text was made from another file. */
void hd_conf_drop_lines(struct hd_conf *c);
char *hd_conf_text(const struct hd_conf *c); /* returns the canonical INI with overrides applied; the caller frees it */
const char *hd_conf_path(const struct hd_conf *c);

extern const char *const hd_conf_plain[]; /* names of the sections without a kind, then NULL */
int hd_conf_is_plain(const char *name);
/* Returns [name], or [kind name] if kind is not NULL. A missing section is returned empty, never as NULL. */
struct hd_section *hd_conf_section(struct hd_conf *c, const char *kind, const char *name);
/* Returns the section after prev in file order, or the first if prev is NULL. kind NULL: of any kind. */
struct hd_section *hd_conf_next(struct hd_conf *c, const char *kind, struct hd_section *prev);
int hd_section_is(const struct hd_section *s, const char *kind); /* 1 if it is [kind NAME] */
const char *hd_section_name(const struct hd_section *s);         /* the part after the kind */
/* Fails if the file has a section other than these names and kinds, and suggests the nearest. NULL ends both lists. */
int hd_conf_known(struct hd_conf *c, const char *const *names, const char *const *kinds, struct hd_err *err);

/* Checks a section against its tables. Every key must be in one of them (else the error suggests the nearest name), and
 * have its type and range. A key without a default must be present. A default of "", which a user may write too, is not
 * converted: the code that uses the key derives a value. A section may be checked again. Several tables are passed as
 * one array of ntables. */
struct hd_key_table {
	const struct hd_option *keys;
	uint32_t n, stride;
};
int hd_section_check(struct hd_conf *c, struct hd_section *s, const struct hd_key_table *tables, int ntables,
		     struct hd_err *err);

int hd_section_has(const struct hd_section *s, const char *key); /* given by the user, or by the model in model.load */
int hd_section_given_by_user(const struct hd_section *s, const char *key); /* given by the user */
int hd_section_set(const struct hd_section *s, const char *key); /* given by --set, which overrides the file */
/* Returns the value of type INT, BOOL (yes/no/on/off/true/false/1/0) or BYTES (K M G T). */
int64_t hd_section_int(const struct hd_section *s, const char *key);
double hd_section_num(const struct hd_section *s, const char *key);
/* The value or the default; "" if neither exists. */
const char *hd_section_str(const struct hd_section *s, const char *key);
/* Appends a line to *lines, which is malloc'ed or NULL, for each value that is in quotes or ends in a comment after #.
 * Both become part of a text. Numbers and choices of that kind are refused. */
void hd_conf_slips(const struct hd_conf *c, char **lines);
/* Fails with "conf/x.ini:14: [strategy x] size: " and the text. The line is the section's if the value is a default. A
 * value from --set is named as "--set ..." instead. */
int hd_section_fail(struct hd_conf *c, struct hd_section *s, const char *key, struct hd_err *err, int code,
		    const char *fmt, ...) HD_PRINTF(6, 7);

#endif
