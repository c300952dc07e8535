/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/parts/habits.h - side effects of a kernel.
 */
#ifndef HD_ENGINE_CONFORM_HABITS_H
#define HD_ENGINE_CONFORM_HABITS_H
#include <stddef.h>
#include <stdint.h>

int64_t hd_heap_bytes(void); /* bytes that malloc has given to this process; 0 if the library does not tell */

/* Captures the standard output between keep and return. */
struct hd_output {
	int was, file;
};
void hd_output_keep(struct hd_output *k);
/* Returns 1 if something was printed, and copies its first line, cut to room. */
int hd_output_printed(const struct hd_output *k, char *text, size_t room);
void hd_output_return(struct hd_output *k);

#endif
