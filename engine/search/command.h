/* SPDX-License-Identifier: Apache-2.0
 * engine/search/command.h - the command heddle plan --search.
 */
#ifndef HD_ENGINE_SEARCH_COMMAND_H
#define HD_ENGINE_SEARCH_COMMAND_H
#include "engine/command/command.h"
#include "engine/search/search.h"

/* Searches as the command line asks, prints the result, and writes the INI of --out. m and style are those of
 * the command line. */
int hd_search_run(struct hd_cli *c, const struct hd_machine *m, const struct hd_style *style, struct hd_conf **conf,
		  struct hd_err *err);

#endif
