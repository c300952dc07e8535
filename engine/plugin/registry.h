/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/registry.h - finding plugins, and accepting or refusing them.
 *
 * Before a plugin is accepted, only its pure entry runs. An accepted plugin stays loaded until the process ends; a
 * refused one is closed. Entries live until the process ends. Not thread-safe.
 */
#ifndef HD_ENGINE_REGISTRY_H
#define HD_ENGINE_REGISTRY_H
#include <heddle/strategy.h>
#include "engine/base/err.h"

struct hd_plugin_entry {
	const char *name;              /* the file name without lib, heddle_ and .so */
	const char *path;              /* absolute, with links resolved */
	uint16_t abi_major, abi_minor; /* as the plugin reports; both 0: it could not be asked */
	const char *version;           /* the plugin's version; "" if it could not be asked */
	char *why;                     /* reason of the refusal; NULL: accepted */
	/* NULL unless accepted: the complete table of this engine. Slots that the plugin leaves out are stubs that
	 * return HD_OK, so callers need no test. Only open and mesh may be NULL (engine/plan/slots.c). Options are
	 * option_size bytes apart. */
	const struct hd_strategy_ops *ops;
	const char *approximate;            /* options that make it exact; NULL: it always is (struct hd_plugin) */
	const struct hd_serial_ops *serial; /* what it computes where it is not exact; NULL: not stated */
	const struct hd_kernel_ops *const *kernels;  /* NULL-terminated; or NULL */
	const struct hd_optimizer_ops *optimizer;    /* or NULL */
	const struct hd_family_ops *const *families; /* NULL-terminated; or NULL. engine/models checks their content */
	/* The first of its slots that only a strategy has (mesh, rules, schedule), or NULL. is_strategy: it has a
	 * strategy table. */
	const char *strategy_slot;
	int is_strategy;
	int orders;   /* slot schedule is the plugin's own, not a stub */
	int rewrites; /* the same for slot rewrite */
	int lowers;   /* the same for slots storage and lower */
	int hidden;   /* set by scan: a plugin found earlier has the same name */
};

/* Finds a plugin and sets *out. A value that contains '/' or ends in .so is a path, relative to relative_to_dir (NULL:
 * none) or else to the current directory. Any other value is a name. It is searched for as NAME.so and heddle_NAME.so,
 * first in the build tree of this executable, if any, then in the directory of installed plugins. The same file always
 * has the same entry. Returns 0, HD_EINVAL (no such plugin) or HD_EABI (refused); the text names the file and the
 * reason. */
int hd_registry_find(const char *name_or_path, const char *relative_to_dir, struct hd_plugin_entry **out,
		     struct hd_err *err);
/* Returns the name of a plugin of this path: the file name without directory, lib, heddle_ and .so. The caller frees it. */
char *hd_registry_name(const char *path);
/* Returns the plugin's kernel of that name for that device, or NULL. */
const struct hd_kernel_ops *hd_registry_kernel(const struct hd_plugin_entry *e, const char *device, const char *name);
/* Finds all plugins that a name can find, including refused ones, in search order. Sets *out to an array, which the
 * caller frees, and returns their number. */
int hd_registry_scan(struct hd_plugin_entry ***out);

struct hd_exact_key { /* one key of hd_plugin_entry.approximate, pointing into its text */
	const char *key, *value;
	int nkey, nvalue; /* lengths of key and value */
};
/* Reads the next key at *at and advances *at. Returns 0 if no key is left. */
int hd_exact_next(const char **at, struct hd_exact_key *k);

#endif
