/* SPDX-License-Identifier: Apache-2.0
 * engine/conform/parts/habits.h - what a kernel leaves behind beside its results.
 */
#ifndef HD_ENGINE_CONFORM_HABITS_H
#define HD_ENGINE_CONFORM_HABITS_H
#include <stddef.h>
#include <stdint.h>

int64_t hd_heap_bytes(void); /* what this process has of malloc; 0 where the library does not say */

/* The standard output between keep and return is kept. */
struct hd_output {
	int was, file;
};
void hd_output_keep(struct hd_output *k);
/* -> 1: something was said; its first line, cut to room */
int hd_output_said(const struct hd_output *k, char *text, size_t room);
void hd_output_return(struct hd_output *k);

#endif
