/* SPDX-License-Identifier: Apache-2.0
 * engine/cli/verbs.h - the subcommands, one per file verb_NAME.c. Each function returns the exit status.
 */
#ifndef HD_ENGINE_CLI_VERBS_H
#define HD_ENGINE_CLI_VERBS_H
#include <stdio.h>
#include "engine/command/options.h"

extern const struct hd_verb hd_verbs[];
extern const int hd_nverbs;

int hd_verb_train(struct hd_cli *c);
int hd_verb_check(struct hd_cli *c);
int hd_verb_explain(struct hd_cli *c);
int hd_verb_plan(struct hd_cli *c);
int hd_verb_bench(struct hd_cli *c);
int hd_verb_eval(struct hd_cli *c);
int hd_verb_generate(struct hd_cli *c);
int hd_verb_data(struct hd_cli *c);
int hd_verb_tokenize(struct hd_cli *c);
int hd_verb_plugins(struct hd_cli *c);
int hd_verb_report(struct hd_cli *c);

/* Prints a line for each plugin found; with a name or path, only that plugin and its options. */
int hd_plugins_print(FILE *out, const char *name_or_path, int json, struct hd_err *err);

#endif
