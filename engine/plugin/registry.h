/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/registry.h - finding plugins, and accepting or refusing them.
 *
 * Nothing of a plugin but its pure entry runs before it is accepted. An accepted plugin stays
 * loaded until the process ends; a refused one is closed. Entries live until the process ends. One
 * thread at a time.
 */
#ifndef HD_ENGINE_REGISTRY_H
#define HD_ENGINE_REGISTRY_H
#include <heddle/strategy.h>
#include "engine/base/err.h"

struct hd_plugin_entry {
	const char *name;              /* the file's name without lib, heddle_ and .so */
	const char *path;              /* absolute, links resolved */
	uint16_t abi_major, abi_minor; /* as the plugin says; both 0: it could not be asked */
	const char *version;           /* of the plugin; "" where it could not be asked */
	char *why;                     /* why it was refused; NULL: accepted */
	/* Accepted only: this engine's full table. Slots that the plugin leaves out are stubs
	 * that return HD_OK, so no call site tests a slot. Only open and mesh are NULL then (engine/plan/slots.c).
	 * Options are option_size apart. */
	const struct hd_strategy_ops *ops;
	const char *approximate;            /* of the plugin: how it is exact; NULL: it always is (struct hd_plugin) */
	const struct hd_serial_ops *serial; /* of the plugin: what it computes where it is not exact; NULL: not said */
	const struct hd_kernel_ops *const *kernels; /* of the plugin, NULL-terminated; or NULL */
	const struct hd_optimizer_ops *optimizer;   /* of the plugin, or NULL */
	const struct hd_family_ops *const
		*families; /* of the plugin, NULL-terminated; or NULL.  What they say is judged by engine/models */
	/* The first slot of its own that only a strategy has (mesh, rules, schedule), or NULL.  is_strategy: it has a table. */
	const char *strategy_slot;
	int is_strategy;
	int orders;   /* slot schedule is the plugin's own, not a stub */
	int rewrites; /* and slot rewrite */
	int hidden;   /* set by scan: an earlier one of the search has the same name */
};

/* A value with '/' or ending in .so is a path: relative to the directory relative_to_dir (NULL:
 * none), else to the current one. Otherwise a name. It is looked for as NAME.so and heddle_NAME.so in
 * the build tree that this executable is in, if any, then in the installed plugins' directory.
 * The same file gives the same entry. Error: HD_EINVAL (there is no such plugin) or HD_EABI
 * (refused); the text names the file and the reason. */
int hd_registry_find(const char *name_or_path, const char *relative_to_dir, struct hd_plugin_entry **out,
		     struct hd_err *err);
/* The plugin's kernel of that name for that device, or NULL. */
const struct hd_kernel_ops *hd_registry_kernel(const struct hd_plugin_entry *e, const char *device, const char *name);
/* All that names can find, refused ones included, in the order of the search. *out: an array to
 * free(). */
int hd_registry_scan(struct hd_plugin_entry ***out);

struct hd_exact_key { /* of hd_plugin_entry.approximate, in its text */
	const char *key, *value;
	int nkey, nvalue; /* their lengths */
};
/* The next from *at on, which moves behind it. -> 0: there is none */
int hd_exact_next(const char **at, struct hd_exact_key *k);

#endif
