/* SPDX-License-Identifier: Apache-2.0
 * engine/process/processor.h - which processor this is.
 *
 * root: "" for this system; tests name a directory with proc/ of another.
 */
#ifndef HD_ENGINE_PROCESS_PROCESSOR_H
#define HD_ENGINE_PROCESS_PROCESSOR_H
#include <stddef.h>
#include <stdint.h>

void hd_processor_name(const char *root, char *to, size_t room);
/* Of all that says how fast it may be: another processor has another number. */
uint64_t hd_processor_hash(const char *root);

#endif
