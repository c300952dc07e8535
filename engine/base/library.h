/* SPDX-License-Identifier: Apache-2.0
 * engine/base/library.h - finding a shared library that only some runs need, on machines where it may lie anywhere.
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

#endif
