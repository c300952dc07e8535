/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/accept.h - checks that a loaded module is a plugin that this engine can call.
 */
#ifndef HD_ENGINE_PLUGIN_ACCEPT_H
#define HD_ENGINE_PLUGIN_ACCEPT_H
#include "engine/plugin/registry.h"

struct hd_module;
struct known_plugin {
	struct hd_plugin_entry e; /* must be first: an entry is handed out by its address */
	struct hd_strategy_ops table;
	struct hd_module *module; /* once accepted, the module stays loaded */
	int by_name;              /* a search by name has found it */
};

/* Fills in the entry, whose name and path are already set, and the table. Returns 0, or HD_EABI with the reason. */
int hd_plugin_accept(struct hd_module *m, struct known_plugin *k, struct hd_err *err);

#endif
