/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/places.h - where plugins and devices are installed.
 */
#ifndef HD_ENGINE_PLUGIN_PLACES_H
#define HD_ENGINE_PLUGIN_PLACES_H
#include "engine/base/err.h"

/* Beside the program's bin/ if both have been moved, else where `make install` was told to put them.  malloc'ed. */
char *hd_plugin_folder(void);

#endif
