/* SPDX-License-Identifier: Apache-2.0
 * engine/file/installed.h - INI files that come with the program: conf/ of the build folder it runs in, or of its installation.
 */
#ifndef HD_ENGINE_FILE_INSTALLED_H
#define HD_ENGINE_FILE_INSTALLED_H
#include "engine/base/err.h"

/* folder: "machines".  name as given, if there is such a file; else folder/NAME.ini of the installed ones.  malloc'ed; NULL: err
 * names those that there are. */
char *hd_installed_find(const char *folder, const char *name, struct hd_err *err);
char *hd_installed_names(const char *folder); /* "a, b, c"; malloc'ed, "" if there are none */

#endif
