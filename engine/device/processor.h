/* SPDX-License-Identifier: Apache-2.0
 * engine/device/processor.h - which processor this is.
 *
 * root: "" for this system; tests name a directory with proc/ of another.
 */
#ifndef HD_ENGINE_DEVICE_PROCESSOR_H
#define HD_ENGINE_DEVICE_PROCESSOR_H
#include <stddef.h>
#include <stdint.h>

void hd_processor_name(const char *root, char *to, size_t room);
/* A hash of all that says how fast the processor may be. */
uint64_t hd_processor_hash(const char *root);

#endif
