/* SPDX-License-Identifier: Apache-2.0
 * engine/base/library.h - finds this program, its installed files, and shared libraries that only some runs need.
 */
#ifndef HD_ENGINE_LIBRARY_H
#define HD_ENGINE_LIBRARY_H
#include "engine/base/err.h"

/*
 * Opens `soname`. If the environment variable `home_var` is set, only its lib, lib64 and itself are searched: a user
 * who names a place means it. Otherwise the search order is: the dynamic loader's path; `dir` (if not NULL), for
 * libraries packed with the program; the wheels of Python environments. These are $VIRTUAL_ENV, $CONDA_PREFIX, each
 * python3 in PATH, ~/.local, /usr/local and /usr. Returns dlopen's handle, which stays open until the process ends. On
 * failure it returns NULL, and err names each place and the reason.
 */
void *hd_library_open(const char *soname, const char *home_var, const char *dir, struct hd_err *err);

/* Returns the path of this program's file; the caller frees it. Returns NULL, with err set, if /proc cannot be read. */
char *hd_this_program(struct hd_err *err);

/* Returns the path of an installed folder; the caller frees it. `folder` is where configure put it,
 * PREFIX/lib/heddle. If this program is /opt/x/bin/heddle and /opt/x/lib/heddle exists, that folder is returned: the
 * installation was moved. */
char *hd_installed_folder(const char *folder);
/* Returns the part of `folder` after the prefix: "/lib/heddle" for PREFIX/lib/heddle. NULL: it is not below the
 * prefix. */
const char *hd_within_prefix(const char *folder);

#endif
