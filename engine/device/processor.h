/* SPDX-License-Identifier: Apache-2.0
 * engine/device/processor.h - the name of this host's processor, and a hash of its features.
 *
 * root: "" for this system; tests name a directory with the proc/ of another one.
 */
#ifndef HD_ENGINE_DEVICE_PROCESSOR_H
#define HD_ENGINE_DEVICE_PROCESSOR_H
#include <stddef.h>
#include <stdint.h>

void hd_processor_name(const char *root, char *to, size_t room);
/* Returns a hash of all entries that affect how fast the processor may be. */
uint64_t hd_processor_hash(const char *root);

#endif
