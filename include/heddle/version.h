/* SPDX-License-Identifier: Apache-2.0
 * heddle/version.h - the version of the plugin ABI.
 *
 * The major is part of the entry symbol's name (heddle_plugin_v1), so a break renames the symbol.  The minor grows
 * when something is appended: a slot or field at the end of a struct that starts with its size, an enum value, a
 * host function.  Within a major, plugins and engines of all minors load each other.  A plugin that needs a minor
 * declares it (hd_plugin.build).  doc/abi.md says what may change, and doc/abi-changes.md has an entry for every
 * minor.
 */
#ifndef HEDDLE_VERSION_H
#define HEDDLE_VERSION_H

#define HD_ABI_MAJOR 1
#define HD_ABI_MINOR 2

#endif
