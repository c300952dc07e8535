/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/loader.h - opening shared objects; the only use of libltdl in the engine.
 *
 * Not thread-safe. The text of an error is only the reason ("undefined symbol: x"), since the caller knows the file.
 */
#ifndef HD_ENGINE_LOADER_H
#define HD_ENGINE_LOADER_H
#include "engine/base/err.h"

struct hd_module;

/* Opens the object at an absolute path and binds all its symbols. If a symbol cannot be bound, the object is refused
 * with that symbol's name. */
int hd_loader_open(const char *path, struct hd_module **out, struct hd_err *err);
/* Returns the address of a symbol that this object itself defines, or NULL. A symbol that is only defined by a library
 * with which the object is linked does not count. *elsewhere (may be NULL) is then that library's path, valid until
 * close. */
void *hd_loader_symbol(struct hd_module *m, const char *name, const char **elsewhere);
void hd_loader_keep(struct hd_module *m);  /* keeps the object loaded until the process ends, even if closed */
void hd_loader_close(struct hd_module *m); /* NULL is allowed */
/* Calls each() with the path of every *.so in dir, sorted by name. A directory that does not exist is treated as
 * empty. */
void hd_loader_scan(const char *dir, void (*each)(const char *path, void *ctx), void *ctx);

#endif
