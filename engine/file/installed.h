/* SPDX-License-Identifier: Apache-2.0
 * engine/file/installed.h - INI files that are part of the program, in conf/ of its build folder or of its
 * installation.
 */
#ifndef HD_ENGINE_FILE_INSTALLED_H
#define HD_ENGINE_FILE_INSTALLED_H
#include "engine/base/err.h"

/* Finds an INI file in a folder such as "machines". Returns `name` itself if that file exists, else the path of the
 * installed folder/NAME.ini; the caller frees it. On failure it returns NULL, and err lists the installed names. */
char *hd_installed_find(const char *folder, const char *name, struct hd_err *err);
char *hd_installed_names(const char *folder); /* "a, b, c", or "" if none exists; the caller frees it */

#endif
