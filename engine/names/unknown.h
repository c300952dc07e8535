/* SPDX-License-Identifier: Apache-2.0
 * engine/names/unknown.h - hints for an unknown key or section, such as the nearest known name.
 */
#ifndef HD_ENGINE_NAMES_UNKNOWN_H
#define HD_ENGINE_NAMES_UNKNOWN_H

/* Registers a function that finds the sections of a key, so that hints also name other sections. find stores up to
 * `most` labels, which must stay valid, and returns how many. */
void hd_unknown_look_in(int (*find)(const char *key, const char **labels, int most));
/* Returns a hint for an unknown key; the caller frees it. section is a label, which also allows hints to other
 * sections and from names of other programs, or NULL. all, which may be "", says where all keys are listed; it ends
 * a hint to a distant name. */
char *hd_unknown_key_hint(const char *section, const char *key, const char *const *names, int n, const char *all);
/* Returns 1 if the key is reserved: its meaning is known, but no version implements it yet. */
int hd_key_comes_later(const char *section, const char *key);
/* Returns a hint for an unknown section; the caller frees it. The names may be in [ ]. */
char *hd_unknown_section_hint(const char *name, const char *const *names, int n);

#endif
