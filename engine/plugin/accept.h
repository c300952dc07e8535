/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/accept.h - is the content of a module a plugin that this engine can call.
 */
#ifndef HD_ENGINE_PLUGIN_ACCEPT_H
#define HD_ENGINE_PLUGIN_ACCEPT_H
#include "engine/plugin/registry.h"

struct hd_module;
struct known_plugin {
	struct hd_plugin_entry e; /* first: entries are handed out by its address */
	struct hd_strategy_ops table;
	struct hd_module *module; /* accepted: what is loaded stays as it is */
	int by_name;              /* the search has found it */
};

/* Fills in the entry, whose name and path are set, and the table.  Error: HD_EABI, with the reason. */
int hd_plugin_accept(struct hd_module *m, struct known_plugin *k, struct hd_err *err);

#endif
