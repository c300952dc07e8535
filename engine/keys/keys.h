/* SPDX-License-Identifier: Apache-2.0
 * engine/keys/keys.h - lists every key of the INI, from the tables that its readers use: for people, scripts, the
 * manual and shells.
 */
#ifndef HD_ENGINE_KEYS_KEYS_H
#define HD_ENGINE_KEYS_KEYS_H
#include <stdio.h>
#include "engine/command/options.h"
#include "engine/config/conf.h"

struct hd_key_section {
	char label
		[80]; /* "train", "strategy NAME" (keys of all strategies), "strategy x" (keys of that plugin alone) */
	const char *about; /* one line */
	struct hd_key_table keys;
};
/* Lists the engine's sections in the order of the documentation, then one for each plugin found. Returns how many; the
 * caller frees *out. */
int hd_key_sections(struct hd_key_section **out);
/* For hd_unknown_look_in: lists the engine's sections that have the key. */
int hd_key_owners(const char *key, const char **labels, int most);
const struct hd_option *hd_key_at(const struct hd_key_table *t, uint32_t i);

/* print.c: how a key is displayed wherever keys are listed. */
const char *hd_key_type(const struct hd_option *k);    /* "int", "choice", ... */
const char *hd_key_default(const struct hd_option *k); /* "(must be given)", "(none)" */
const char *hd_key_range(const struct hd_option *k);
#define HD_TABLE_COLUMNS 4
/* Prints rows of HD_TABLE_COLUMNS aligned texts and a last one that is not padded. */
void hd_table_print(FILE *out, const char *const (*rows)[HD_TABLE_COLUMNS + 1], size_t n);
void hd_keys_print(FILE *out, const struct hd_key_table *t);        /* prints a table, or "no options" */
void hd_keys_man(FILE *out, const struct hd_key_section *s, int n); /* heddle.ini(5) */

/* completion.c */
void hd_completion_bash(FILE *out, const struct hd_cli *c);
void hd_completion_zsh(FILE *out, const struct hd_cli *c);

int hd_verb_keys(struct hd_cli *c);
int hd_verb_completion(struct hd_cli *c);

#endif
