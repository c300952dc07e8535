/* SPDX-License-Identifier: Apache-2.0
 * engine/config/conf.h - the INI file: sections, typed keys, defaults, ranges, and errors that name file, line, section and key.
 *
 * Key tables (struct hd_option, heddle/strategy.h) are declared where the keys are used.  A section is checked against
 * its tables once; after that values are read without failing.
 */
#ifndef HD_ENGINE_CONF_H
#define HD_ENGINE_CONF_H
#include <heddle/strategy.h>
#include "engine/base/err.h"

struct hd_conf;
struct hd_section;

/* path: the INI; sets: "section.key=value" of the command line, over the file's ("x.size=4" reaches [strategy x]). */
int hd_conf_read(const char *path, const char *const *sets, int nsets, struct hd_conf **out, struct hd_err *err);
/* The same from text (checkpoints keep theirs); name stands for the file in errors. */
int hd_conf_parse(const char *name, const char *text, const char *const *sets, int nsets, struct hd_conf **out,
		  struct hd_err *err);
void hd_conf_destroy(struct hd_conf *c);
char *hd_conf_text(const struct hd_conf *c); /* malloc'ed canonical INI, overrides applied */
const char *hd_conf_path(const struct hd_conf *c);

extern const char *const hd_conf_plain[]; /* names of the sections that have no kind; NULL behind the last */
int hd_conf_is_plain(const char *name);
/* [name], or [kind name] when kind is not NULL.  A missing section is returned empty, never NULL. */
struct hd_section *hd_conf_section(struct hd_conf *c, const char *kind, const char *name);
/* In file order; kind NULL: all. */
struct hd_section *hd_conf_next(struct hd_conf *c, const char *kind, struct hd_section *prev);
int hd_section_is(const struct hd_section *s, const char *kind); /* [kind NAME] */
const char *hd_section_name(const struct hd_section *s);         /* the part after kind */
/* NULL ends names and kinds.  Sections other than these names and kinds are an error that gives the nearest. */
int hd_conf_known(struct hd_conf *c, const char *const *names, const char *const *kinds, struct hd_err *err);

/* A default of "" means: derived where the key is used; it has no type.  A user may write it too.
 * Every key of s is in one of the tables (else: error with the nearest name), has its type and range; a key without
 * default is present.  May be repeated.  Callable with several tables: pass them joined (ntables arrays). */
struct hd_key_table {
	const struct hd_option *keys;
	uint32_t n, stride;
};
int hd_section_check(struct hd_conf *c, struct hd_section *s, const struct hd_key_table *tables, int ntables,
		     struct hd_err *err);

int hd_section_has(const struct hd_section *s, const char *key);  /* given by the user, or by the model in model.load */
int hd_section_said(const struct hd_section *s, const char *key); /* by the user alone */
int hd_section_set(const struct hd_section *s, const char *key);  /* with --set, over what the file says */
/* INT, BOOL (yes/no/on/off/true/false/1/0), BYTES (K M G). */
int64_t hd_section_int(const struct hd_section *s, const char *key);
double hd_section_num(const struct hd_section *s, const char *key);
const char *hd_section_str(const struct hd_section *s, const char *key); /* value or default; "" if neither */
/* "conf/x.ini:14: [strategy x] size: " + text; with the line of the section where the key is a default, "--set ..." where set. */
int hd_section_fail(struct hd_conf *c, struct hd_section *s, const char *key, struct hd_err *err, int code,
		    const char *fmt, ...) HD_PRINTF(6, 7);

#endif
