/* SPDX-License-Identifier: Apache-2.0
 * heddle/version.h - the version of the plugin ABI.
 *
 * The major is part of the entry symbol's name (heddle_plugin_v0): a break renames the symbol.  The minor grows when
 * something is appended: a slot or field at the end of a struct that starts with its size, an enum value, a host
 * function.  While the major is 0 the minor must match exactly; the promise of stability starts with major 1.
 * doc/abi-changes.md has an entry for every minor.
 */
#ifndef HEDDLE_VERSION_H
#define HEDDLE_VERSION_H

#define HD_ABI_MAJOR 0
#define HD_ABI_MINOR 12

#endif
