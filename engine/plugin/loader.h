/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/loader.h - opening shared objects: all that the engine uses of libltdl.
 *
 * One thread at a time. Texts of errors are the reason alone ("undefined symbol: x"); the caller
 * knows the file.
 */
#ifndef HD_ENGINE_LOADER_H
#define HD_ENGINE_LOADER_H
#include "engine/base/err.h"

struct hd_module;

/* path is absolute. Every symbol that the object needs is bound now, or it is refused with that
 * symbol's name. */
int hd_loader_open(const char *path, struct hd_module **out, struct hd_err *err);
/* Address of a symbol defined by this very object; NULL: it has none. A symbol that only a
 * library it is linked with defines does not count. Then *elsewhere (may be NULL) is
 * that library's path, valid until close. */
void *hd_loader_symbol(struct hd_module *m, const char *name, const char **elsewhere);
void hd_loader_keep(struct hd_module *m);  /* loaded until the process ends, even if closed */
void hd_loader_close(struct hd_module *m); /* NULL is allowed */
/* each() gets the path of every *.so in dir, in the order of names. A directory that is not
 * there has none. */
void hd_loader_scan(const char *dir, void (*each)(const char *path, void *ctx), void *ctx);

#endif
