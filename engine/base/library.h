/* SPDX-License-Identifier: Apache-2.0
 * engine/base/library.h - finds this program, what was installed with it, and shared libraries that only some runs need.
 */
#ifndef HD_ENGINE_LIBRARY_H
#define HD_ENGINE_LIBRARY_H
#include "engine/base/err.h"

/*
 * Opens `soname`. If the variable is set, it is looked for in $HOME_VAR/lib, $HOME_VAR/lib64 and $HOME_VAR itself alone. A user
 * who names a place means it. Else the order is: where the dynamic loader looks; `dir` (NULL: none), for what was packed with
 * the program. Last come the wheels of a Python environment: $VIRTUAL_ENV, $CONDA_PREFIX, each python3 in PATH, ~/.local,
 * /usr/local and /usr.  -> dlopen's handle, kept until the process ends; or NULL, and err names each place and why.
 */
void *hd_library_open(const char *soname, const char *home_var, const char *dir, struct hd_err *err);

/* The path of this program's file, malloc'ed; NULL, with err: /proc cannot be read. */
char *hd_this_program(struct hd_err *err);

/* A folder of the installation, malloc'ed.  `folder` is where configure put it, PREFIX/lib/heddle.  If this program is
 * /opt/x/bin/heddle and /opt/x/lib/heddle exists, it is that: the whole installation has been moved. */
char *hd_installed_folder(const char *folder);
/* Of PREFIX/lib/heddle /lib/heddle; NULL: it is not below the prefix. */
const char *hd_within_prefix(const char *folder);

#endif
