/* SPDX-License-Identifier: Apache-2.0
 * engine/names/unknown.h - what stands behind "unknown key" and "unknown section": the nearest of those that there are.
 */
#ifndef HD_ENGINE_NAMES_UNKNOWN_H
#define HD_ENGINE_NAMES_UNKNOWN_H

/* From now on a key that another section has is named with it.  find: the labels of the sections that have the key, `most` at most,
 * which live on; -> how many. */
void hd_unknown_look_in(int (*find)(const char *key, const char **labels, int most));
/* malloc'ed.  section: NULL, or its label, where other sections and names of other programs are looked up too.  all: "" or where all
 * keys are, behind one that is not near. */
char *hd_unknown_key_hint(const char *section, const char *key, const char *const *names, int n, const char *all);
/* Whether the key is one that is known, and that no version has yet. */
int hd_key_comes_later(const char *section, const char *key);
/* malloc'ed.  All may stand in [ ]. */
char *hd_unknown_section_hint(const char *name, const char *const *names, int n);

#endif
