/* SPDX-License-Identifier: Apache-2.0
 * engine/device/ragged.h - finds the rows that each pair of members exchanges when rows move to
 * their experts and back.
 */
#ifndef HD_ENGINE_DEVICE_RAGGED_H
#define HD_ENGINE_DEVICE_RAGGED_H
#include <stdint.h>

/* Describes the rows of an HD_COMM_ALL_TO_ALL_V, whose counts are known only at run time. Rows are ordered by expert,
 * then by sample. With index 1 of the call, `in` contains the rows of this member's samples for all experts. Then
 * `out` gets the rows of all members' samples for this member's experts. With index 0 it is the reverse. */
struct hd_rows {
	const int32_t *have, *need; /* row counts of `in` and of `out`, by expert and sample */
	int64_t experts, samples;   /* per member */
	int64_t ncounts;            /* of `have`, and of `need` */
	int64_t most;               /* rows that `out` has room for */
	int64_t bytes;              /* per row */
};

/* Returns the number of rows that this member exchanges with member j for one expert, which is numbered within the
 * member that has it. *at becomes the number of rows before them in memory. many: the memory contains all experts,
 * rather than all samples. numbers: the row counts of this memory (have or need). */
int64_t hd_rows_segment(const struct hd_rows *r, const int32_t *numbers, int many, int n, int j, int64_t expert,
			int64_t *at);
int64_t hd_rows_sent(const struct hd_rows *r, int to_experts, int n, int me); /* bytes */

#endif
